"""The run directory: write, resume, read.

::

    .fedclade      the mark of a directory that fedclade made: only in such a one --overwrite deletes anything
    config.toml    the whole effective config
    machine.json   the processor and the libraries that the run was begun with
    inputs.json    SHA-256 of the data and trace files that the config names, if it names any
    run.db         SQLite, one transaction a round: devices, rounds, clusters, uploads, evaluations, objectives, events,
                   splits (the cosines that decided), models; metrics and own_metrics of the config's own
    state/         the last checkpoint: state.json names a safetensors file and its SHA-256, and has one itself
    models/        one safetensors per tree node and the conventional model, tree.json; best/: of each cluster's best
                   round
    manifest.json  the checksums of models, tree and summary
    summary.json   the headline numbers; the last file: where it is, the run is finished

Everything is written beside its place and renamed, so a run killed at any moment can be resumed from its last
checkpoint: rows of later rounds are dropped and made again, the same to the byte.
"""

from fedclade.runs.directory import (
    REAL_DEVICES,
    REPORT,
    check_seal,
    free_folder,
    is_marked,
    remove_leftovers,
    sealed_text,
    take_lock,
    write_beside,
    write_mark,
)
from fedclade.runs.reader import Run, differences, open_run, read_config
from fedclade.runs.writer import Result, RunWriter

__all__ = [
    "REAL_DEVICES",
    "REPORT",
    "Result",
    "Run",
    "RunWriter",
    "check_seal",
    "differences",
    "free_folder",
    "is_marked",
    "open_run",
    "read_config",
    "remove_leftovers",
    "sealed_text",
    "take_lock",
    "write_beside",
    "write_mark",
]
