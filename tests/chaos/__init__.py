"""Faults on purpose: what must neither lose a run, nor change it unseen, nor end in a traceback.

``python -m chaos`` (``make chaos``) tries some ten thousand cases and says how many held; ``--quick`` tries a few of
each kind. A case that is wrong is named, and ``python -m chaos --only NAME`` tries it again. See
docs/explanation/reliability.md.

::

    faults.c, faults.py   kill a process, or let the system refuse, at the n-th change of a file; children that tell
    world.py              the small runs that all cases begin with, and what must come of them
    file_events.py        kill -9, torn writes, full, failing and forbidden disks at every file event
    damage.py             flipped bits, lost, cut and mixed up files in finished and in interrupted runs
    hostile.py            every field of a config and of a checkpoint with hostile values; damaged TOML and data files
    processes.py          workers and runs that are killed at any moment
    soak.py               runs for an hour, killed and resumed again and again
    fuzz.py               the readers under Atheris, which looks for new paths by itself
"""
