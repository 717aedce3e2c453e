"""The run directory: write, resume, read.

::

    config.toml    the whole effective config
    machine.json   the processor and the libraries that the run was begun with
    run.db         SQLite, one transaction a round: devices, rounds, clusters, uploads, evaluations, objectives, events,
                   splits (the cosines that decided), models; metrics and own_metrics of the config's own
    state/         the last checkpoint: state.json names a safetensors file and its SHA-256
    models/        one safetensors per tree node and the conventional model, tree.json; best/: of each cluster's best
                   round
    summary.json   the headline numbers

Everything is written beside its place and renamed, so a run killed at any moment can be resumed from its last
checkpoint: rows of later rounds are dropped and made again, the same to the byte.
"""

from fedclade.runs.directory import REAL_DEVICES, free_folder, write_beside
from fedclade.runs.reader import Run, differences, open_run, read_config
from fedclade.runs.writer import Result, RunWriter

__all__ = [
    "REAL_DEVICES",
    "Result",
    "Run",
    "RunWriter",
    "differences",
    "free_folder",
    "open_run",
    "read_config",
    "write_beside",
]
