"""kill -9, torn writes, full, failing and forbidden disks: at every file event of a run."""

import errno
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from chaos.deployed import begin_or_go_on
from chaos.faults import COUNT, KILL, REFUSE, REFUSE_FROM, TEAR, Ended, Fault, command, in_copy
from chaos.world import THEIRS, Case, World

FAULTS = {
    "killed": (KILL, 0),
    "torn": (TEAR, 0),
    "full-once": (REFUSE, errno.ENOSPC),
    "full": (REFUSE_FROM, errno.ENOSPC),
    "failing": (REFUSE, errno.EIO),
    "forbidden": (REFUSE, errno.EACCES),
}


SCENARIOS = ("new", "resumed", "overwriting", "automatic", "page", "deployed")
TRIED = {
    "new": ("killed", "torn", "full"),
    "resumed": tuple(FAULTS),
    "page": ("killed", "full"),
    "deployed": ("killed", "torn", "full"),
}


def cases(world: World) -> Iterator[Case]:
    """Every event of a new run, a resumed one, an overwriting one, the automatic method, a run's page, real devices."""
    for scenario in SCENARIOS:
        with world.scratch(_original(world, scenario)) as folder:
            counted = _begun(world, scenario, folder, Fault(folder.parent, COUNT))
        first = counted.events - 40 if scenario == "page" else 1  # a page comes last
        for name in TRIED.get(scenario, ("killed",)):
            action, error = FAULTS[name]
            for event in range(max(1, first), counted.events + 1):
                held = partial(_held, world, scenario, action, error, event)
                yield Case(f"file-event/{scenario}/{name}/{event}", held)


def _original(world: World, scenario: str) -> Path | None:
    return {"resumed": world.interrupted, "overwriting": world.finished("fixed")}.get(scenario)


def _kind(scenario: str) -> str:
    return scenario if scenario in ("automatic", "page", "deployed") else "fixed"


def _begun(world: World, scenario: str, folder: Path, fault: Fault) -> Ended:
    if scenario == "deployed":
        return in_copy(partial(begin_or_go_on, folder), fault)
    if scenario == "resumed":
        return command(["run", "--resume", str(folder), "-q"], fault)
    words = ["run", str(world.config(_kind(scenario))), "--out", str(folder), "-q"]
    return command(words + ["--overwrite"] * (scenario == "overwriting"), fault)


def _held(world: World, scenario: str, action: int, error: int, event: int) -> str | None:
    with world.scratch(_original(world, scenario)) as folder:
        theirs = {folder / name: text for name, text in THEIRS.items()} if scenario == "overwriting" else {}
        for path, text in theirs.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        ended = _begun(world, scenario, folder, Fault(folder.parent, action, event, error))
        killed = action in (KILL, TEAR) and ended.code == -9
        if not killed and ended.complaint:
            return f"met the fault: {ended.complaint}"
        if ended.code != 0:
            again = "resumed" if (folder / "config.toml").is_file() and scenario != "deployed" else scenario
            ended = _begun(world, again, folder, Fault(folder.parent))
            if ended.code != 0:
                return f"could not go on: {ended.complaint or ended.said}"
        lost = [str(path) for path, text in theirs.items() if not path.is_file() or path.read_text() != text]
        if lost:
            return f"lost what was not ours: {lost}"
        if scenario == "page" and not (folder / "report.html").is_file():
            return "no report.html"
        return world.difference(folder, _kind(scenario))
