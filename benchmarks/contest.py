"""Contestants: processes that do the same work when told to, taking turns; and the table of their times."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import markdown
from benchmarks.peers import peers_python

SCRIPTS = Path(__file__).parent / "contestants"
ENVIRONMENT = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
OURS, LOOP = "fedclade", "plain torch loop"


@dataclass(frozen=True)
class Entry:
    """Who takes part: a script, the interpreter that runs it, and what it is told of threads and processes."""

    name: str
    setting: str
    script: str
    task: object
    python: Path = Path(sys.executable)
    rounds: int = 1  # of its own that make a turn


@dataclass
class Contestant:
    """A process that does its part when told to."""

    name: str
    setting: str
    rounds: int
    process: "subprocess.Popen[str]"
    seconds: list[float] = field(default_factory=list)
    samples: int = 0
    moved: float = 0.0

    def turn(self) -> float:
        """One turn; its seconds."""
        return sum(self._round() for _ in range(self.rounds))

    def _round(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ({self.setting}) ended with exit code {self.process.wait()}")
        answer = json.loads(line)
        self.samples, self.moved = answer["samples"], answer["moved"]
        return float(answer["seconds"])


def loops(rounds: int = 1) -> list[Entry]:
    """The plain torch loop."""
    return [
        Entry(LOOP, words, "plain_loop", {"threads": threads, "processes": 1}, rounds=rounds)
        for threads, words in ((1, "1 thread"), (2, "2 threads"))
    ]


def peers(rounds: int = 1) -> list[Entry]:
    """The other simulators, each in the settings that suit it."""
    python = peers_python()
    one, two, twice = ({"threads": t, "processes": p} for t, p in ((1, 1), (2, 1), (1, 2)))
    settings = [
        ("pfl 0.6.0", "1 thread", one),
        ("pfl 0.6.0", "2 threads", two),
        ("pfl 0.6.0", "2 processes", twice),
        ("flwr 1.41.0", "Ray, 2 processes", twice),
        ("fedlab 1.3.0", "1 thread", one),
        ("fedlab 1.3.0", "2 threads", two),
    ]
    return [Entry(name, words, f"with_{name.split()[0]}", task, python, rounds) for name, words, task in settings]


@contextmanager
def started(entry: Entry, folder: Path) -> Iterator[Contestant]:
    """A contestant, ended when done."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} | ENVIRONMENT
    path = [str(SCRIPTS), *filter(None, [environment.get("PYTHONPATH", "")])]
    environment["PYTHONPATH"] = os.pathsep.join(path if entry.name == OURS else path[:1])
    with open(folder / f"{entry.name} {entry.setting}.log".replace(":", ""), "w") as log:
        process = subprocess.Popen(
            [entry.python, SCRIPTS / f"{entry.script}.py", folder, json.dumps(entry.task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            cwd=folder,
        )
        try:
            yield Contestant(entry.name, entry.setting, entry.rounds, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def assembled(entries: Sequence[Entry], folder: Path, skip: str | None) -> Iterator[list[Contestant]]:
    """All but those whose setting is to be skipped, each after a turn that does not count.

    Where one of them ends before its time, what all of them said is shown.
    """
    chosen = [entry for entry in entries if not skip or skip not in entry.setting]
    with ExitStack() as stack:
        try:
            contestants = [stack.enter_context(started(entry, folder)) for entry in chosen]
            for contestant in contestants:
                contestant.turn()
            yield contestants
        except RuntimeError:
            for log in folder.glob("*.log"):
                print(f"--- {log.stem}\n{log.read_text()[-2000:]}", file=sys.stderr)
            raise


def take_turns(contestants: Sequence[Contestant], repeats: int, what: str) -> None:
    """As many turns as asked for each, in an order that moves on."""
    for turn in range(repeats):
        print(f"{what}: turn {turn + 1} of {repeats}", file=sys.stderr, flush=True)
        for place in range(len(contestants)):
            contestant = contestants[(place + turn) % len(contestants)]
            contestant.seconds.append(contestant.turn())


def ranking(contestants: Sequence[Contestant]) -> list[dict[str, Any]]:
    """Each contestant's time as a multiple of the first one's in the same turn; medians, the fastest first."""
    ours = contestants[0]
    facts = []
    for contestant in contestants:
        ratios = [theirs / own for theirs, own in zip(contestant.seconds, ours.seconds, strict=True)]
        facts.append(
            {
                "name": contestant.name,
                "setting": contestant.setting,
                "seconds": contestant.seconds,
                "median_seconds": median(contestant.seconds),
                "samples_per_second": contestant.samples * contestant.rounds / median(contestant.seconds),
                "times_fedclade": median(ratios),
                "moved": contestant.moved,
            }
        )
    return sorted(facts, key=lambda fact: fact["times_fedclade"])


def table(facts: Sequence[dict[str, Any]], turn: str) -> str:
    """The ranking as Markdown; ``turn`` is what is done in one."""
    rows = [
        (
            fact["name"],
            fact["setting"],
            f"{fact['median_seconds']:.3f}",
            f"{fact['samples_per_second']:,.0f}",
            f"{fact['times_fedclade']:.2f}",
        )
        for fact in facts
    ]
    return markdown(("contestant", "setting", f"seconds a {turn}", "samples a second", "times fedclade's"), rows)


def fastest_others(facts: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The fastest plain loop and the fastest peer, as multiples of fedclade's time."""
    found = {}
    for chosen in ([r for r in facts if r["name"] == LOOP], [r for r in facts if r["name"] not in (OURS, LOOP)]):
        if chosen:
            found[chosen[0]["name"]] = chosen[0]["times_fedclade"]
    return found
