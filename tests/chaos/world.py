"""The small runs that all cases begin with, and what must come of them."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from chaos import deployed
from fedclade import Experiment, Interrupted, Run
from fedclade import config as configuration
from tiny_runs import outcome, tiny

THEIRS = {"notes.txt": "mine", ".git/HEAD": "mine", "models/mine.txt": "mine"}  # what somebody else put into a run
KINDS = {
    "fixed": ("run.rounds=2", "run.checkpoint_every=1"),
    "automatic": ("clustering.method=cross-evaluation", "run.rounds=2", "run.checkpoint_every=1"),
    "page": ("run.rounds=1", "run.report=true"),
}


@dataclass(frozen=True)
class Case:
    """One thing that is tried: ``held`` gives None if all is well, else what is not."""

    name: str
    held: Callable[[], str | None]


class World:
    """Reference runs in a folder, each made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._numbers = iter(range(1_000_000_000))
        with self.scratch() as place:  # or each copy of this process would import all that a run needs anew
            tiny(*KINDS["page"]).run(place)

    @contextlib.contextmanager
    def scratch(self, original: Path | None = None) -> Iterator[Path]:
        """A folder for one case, with a copy of a run in it if one is given; deleted afterwards."""
        place = self.folder / "cases" / str(next(self._numbers)) / "run"
        shutil.rmtree(place.parent, ignore_errors=True)
        place.parent.mkdir(parents=True)
        if original is not None:
            shutil.copytree(original, place)
        try:
            yield place
        finally:
            shutil.rmtree(place.parent, ignore_errors=True)

    def config(self, kind: str) -> Path:
        """The config of a kind of run, as a file."""
        path = self.folder / f"{kind}.toml"
        if not path.is_file():
            path.write_text(configuration.to_toml(tiny(*KINDS[kind]).config), "utf-8")
        return path

    def finished(self, kind: str) -> Path:
        """A run that nobody disturbed."""
        folder = self.folder / f"finished-{kind}"
        if kind == "deployed":
            deployed.begin_or_go_on(folder)
        elif not (folder / "summary.json").is_file():
            tiny(*KINDS[kind]).run(folder, overwrite=folder.exists())
        return folder

    @cached_property
    def interrupted(self) -> Path:
        """A run of kind "fixed" that was stopped after its first round."""
        folder, done = self.folder / "interrupted", list[object]()
        if not (folder / "state/state.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(Interrupted):
                tiny(*KINDS["fixed"], stop_requested=lambda: bool(done)).run(folder, on_round=done.append)
        return folder

    def difference(self, folder: Path, kind: str) -> str | None:
        """What differs between a run and the one that nobody disturbed, to the byte; and what was left behind."""
        seen = deployed.outcome if kind == "deployed" else outcome
        mine, right = seen(folder), seen(self.finished(kind))
        mine = {name: content for name, content in mine.items() if name not in {Path(n).name for n in THEIRS}}
        if mine != right:
            return f"differs in {sorted(n for n in mine.keys() | right.keys() if mine.get(n) != right.get(n))}"
        left = [str(path.relative_to(folder)) for path in folder.parent.rglob(".*.new")]
        return f"left behind: {left}" if left else None


def everything(folder: Path) -> dict[str, Any]:
    """All that can be read of a run, but for wall-clock seconds."""
    run = Run(folder)
    tables = ("devices", "rounds", "clusters", "uploads", "evaluations", "objectives", "events", "splits", "models")
    models = [path.stem for path in sorted((folder / "models").glob("*.safetensors"))]
    return {
        "config": run.config,
        "machine": run.machine,
        "summary": {n: v for n, v in run.summary.items() if not n.startswith("wall_")} if run.finished else None,
        "tree": run.tree,
        "models": {name: {n: array.tobytes() for n, array in run.model(name).items()} for name in models},
        **{name: run.rows(name) for name in tables},
    }


def resumed(folder: Path) -> Path:
    """The run, gone on with in this process."""
    from fedclade.runs import read_config

    return Experiment(read_config(folder)).resume(folder).folder
