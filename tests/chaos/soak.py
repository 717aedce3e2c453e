"""A soak: runs of every kind, again and again, killed or refused at random file events until each has ended.

Each must end with the bytes of the run that nobody disturbed. Memory, open files and room on the disk must stay flat.
"""

import errno
import os
import random
import resource
import shutil
import time
from pathlib import Path

from chaos.faults import KILL, REFUSE, REFUSE_FROM, TEAR, Ended, Fault, command
from chaos.world import KINDS, World

FAULTS = ((KILL, 0), (TEAR, 0), (REFUSE, errno.EIO), (REFUSE_FROM, errno.ENOSPC), (REFUSE, errno.EACCES))
EVENTS = 400  # of a run, about: a later one is not reached, and the run ends


def soak(folder: Path, seconds: float) -> int:
    """Runs until the time is over; prints what happened, and gives 0 if all was well."""
    world, draw = World(folder), random.Random()
    for kind in KINDS:
        world.finished(kind)
    deadline = time.monotonic() + seconds
    runs = faults = 0
    wrong, before = list[str](), _open_files()
    while time.monotonic() < deadline and not wrong:
        kind = draw.choice(list(KINDS))
        with world.scratch() as place:
            met, complaint = _until_it_ends(world, kind, place, draw)
        runs, faults = runs + 1, faults + met
        wrong += [f"{kind}: {complaint}"] if complaint else []
        if runs % 20 == 0:
            print(f"{runs} runs, {faults} faults, {len(wrong)} wrong, {_megabytes():.0f} MB", flush=True)
    left, files = [path.name for path in folder.glob("cases/*")], _open_files() - before
    wrong += [f"left behind: {left}"] if left else []
    wrong += [f"{files} more files are open"] if files > 0 else []
    print(f"{runs} runs, {faults} faults, {len(wrong)} wrong, at most {_megabytes():.0f} MB", *wrong, sep="\n")
    shutil.rmtree(folder, ignore_errors=True)
    return int(bool(wrong))


def _until_it_ends(world: World, kind: str, folder: Path, draw: random.Random) -> tuple[int, str | None]:
    """Faults that a run met before it came to its end, and what is wrong."""
    ended = None
    for met in range(100):
        action, error = draw.choice(FAULTS)
        ended = _begin(world, kind, folder, Fault(folder.parent, action, draw.randrange(1, EVENTS), error))
        if ended.code == 0:
            return met, world.difference(folder, kind)
        if ended.code != -9 and ended.complaint:
            return met, ended.complaint
    return met, f"does not come to its end: {ended}"


def _begin(world: World, kind: str, folder: Path, fault: Fault) -> Ended:
    if (folder / "config.toml").is_file():
        return command(["run", "--resume", str(folder), "-q"], fault)
    return command(["run", str(world.config(kind)), "--out", str(folder), "-q"], fault)


def _megabytes() -> float:
    """The largest memory of this process or of one of its children."""
    kilobytes = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kilobytes / 1024


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
