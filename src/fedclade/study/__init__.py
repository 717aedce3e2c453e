"""Comparisons: every contender × number of devices × seed, as runs of their own inside one directory.

::

    .fedclade                           the mark of a directory that fedclade made
    compare.toml                        the preset or file with its [compare] section, whole
    runs/K20/fair/seed-1/               a run directory
    runs.csv, tables/, figures/, report.html
    leaderboard.md, all-runs.csv        where methods or populations are compared

With several populations each has a comparison like that in a folder of its name, below the leaderboard.

Populations, devices and channels are drawn by seed, purpose and round, never by policy, so with one seed all contenders
meet the same world, and their differences are their own.
"""

from fedclade.study.contenders import POPULATIONS, against, contenders, populations
from fedclade.study.execute import Failure, FailureKind, carry_out
from fedclade.study.plan import CONFIG, Job, locked, plan_jobs, prepare, read_comparisons
from fedclade.study.summarise import Comparison, Curves, collect, paired, spread
from fedclade.study.verdict import Verdict, verdicts

__all__ = [
    "CONFIG",
    "POPULATIONS",
    "Comparison",
    "Curves",
    "Failure",
    "FailureKind",
    "Job",
    "Verdict",
    "against",
    "carry_out",
    "collect",
    "contenders",
    "locked",
    "paired",
    "plan_jobs",
    "populations",
    "prepare",
    "read_comparisons",
    "spread",
    "verdicts",
]
