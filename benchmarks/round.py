"""Wall time of one round: fedclade in each engine, a plain torch loop, and the peers, taking turns."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import Options, Report, markdown
from benchmarks.peers import peers_python
from benchmarks.work import population_in, work_config, write_work
from fedclade.fleet.simulated.engines import choose_engine

SCRIPTS = Path(__file__).parent / "contestants"
EPOCHS = {"cnn": 10, "mlp": 10, "cnn-large": 1}
GOALS = {"cnn": 4, "mlp": 8, "cnn-large": 2}
ENVIRONMENT = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@dataclass
class Contestant:
    """A process that does a round when told to."""

    name: str
    setting: str
    process: "subprocess.Popen[str]"
    seconds: list[float] = field(default_factory=list)
    samples: int = 0
    moved: float = 0.0

    def round(self) -> float:
        """One round; its seconds."""
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


def fedclade_settings(dense: bool, automatic: str) -> dict[str, dict[str, Any]]:
    """Every engine that fits the model; the one that auto picks stands for itself and for auto."""
    engines: dict[str, dict[str, Any]] = {"sequential, 1 process": {"engine": "sequential"}}
    for name in ("workers", "batched") if dense else ("workers",):
        for count in (1, 2):
            engines[f"{name}, {count} process{'es' * (count > 1)}"] = {"engine": name, "workers": count}
    engines.pop(automatic)
    return {f"auto: {automatic}": {"engine": "auto"}, **engines}


def peer_settings() -> list[tuple[str, str, dict[str, int]]]:
    one, two, twice = ({"threads": t, "processes": p} for t, p in ((1, 1), (2, 1), (1, 2)))
    return [
        ("pfl 0.6.0", "1 thread", one),
        ("pfl 0.6.0", "2 threads", two),
        ("pfl 0.6.0", "2 processes", twice),
        ("flwr 1.41.0", "Ray, 2 processes", twice),
        ("fedlab 1.3.0", "1 thread", one),
        ("fedlab 1.3.0", "2 threads", two),
    ]


@contextmanager
def start(name: str, setting: str, python: Path, script: str, folder: Path, task: object) -> Iterator[Contestant]:
    """A contestant, ended when done."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} | ENVIRONMENT
    path = [str(SCRIPTS), *filter(None, [environment.get("PYTHONPATH", "")])]
    environment["PYTHONPATH"] = os.pathsep.join(path if script == "with_fedclade" else path[:1])
    with open(folder / f"{name} {setting}.log".replace(":", ""), "w") as log:
        process = subprocess.Popen(
            [python, SCRIPTS / f"{script}.py", folder, json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            cwd=folder,
        )
        try:
            yield Contestant(name, setting, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def contest(model: str, devices: int, images: int, epochs: int, options: Options) -> list[Contestant]:
    """One warm-up round each, then as many rounds as asked for each, taking turns in an order that moves on."""
    config = work_config(model, devices, epochs)
    here = Path(sys.executable)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        write_work(folder, config, images, rounds=1 + options.repeats)
        automatic = str(choose_engine(config, population_in(folder)))
        entries = [
            ("fedclade", setting, here, "with_fedclade", task)
            for setting, task in fedclade_settings(model == "mlp", automatic).items()
        ]
        entries += [
            ("plain torch loop", words, here, "plain_loop", {"threads": threads, "processes": 1})
            for threads, words in ((1, "1 thread"), (2, "2 threads"))
        ]
        if options.peers:
            python = peers_python()
            entries += [(name, words, python, f"with_{name.split()[0]}", task) for name, words, task in peer_settings()]
        entries = [entry for entry in entries if not options.skip or options.skip not in entry[1]]
        contestants = [stack.enter_context(start(*entry[:4], folder, entry[4])) for entry in entries]
        try:
            for contestant in contestants:
                contestant.round()
            check_same_work(contestants, devices * images * epochs)
            for turn in range(options.repeats):
                print(f"{model}: turn {turn + 1} of {options.repeats}", file=sys.stderr, flush=True)
                for place in range(len(contestants)):
                    contestant = contestants[(place + turn) % len(contestants)]
                    contestant.seconds.append(contestant.round())
        except RuntimeError:
            for log in folder.glob("*.log"):
                print(f"--- {log.stem}\n{log.read_text()[-2000:]}", file=sys.stderr)
            raise
    return contestants


def check_same_work(contestants: list[Contestant], samples: int) -> None:
    """After the first round: everybody trained on as many samples, and moved the model about as far."""
    usual = next(c.moved for c in contestants if c.name == "plain torch loop")
    for contestant in contestants:
        who = f"{contestant.name} ({contestant.setting})"
        if contestant.samples != samples:
            raise RuntimeError(f"{who} trained on {contestant.samples} samples, not {samples}")
        if not 0.8 < contestant.moved / usual < 1.25:
            raise RuntimeError(f"{who} moved the model by {contestant.moved:.4g}, the plain loop by {usual:.4g}")


def table(contestants: list[Contestant]) -> tuple[str, list[dict[str, Any]]]:
    """Each contestant's time as a multiple of fedclade's in the same turn; medians."""
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
                "samples_per_second": contestant.samples / median(contestant.seconds),
                "times_fedclade": median(ratios),
                "moved": contestant.moved,
            }
        )
    facts.sort(key=lambda fact: fact["times_fedclade"])
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
    head = ("contestant", "setting", "seconds a round", "samples a second", "times fedclade's")
    return markdown(head, rows), facts


def run(options: Options) -> Report:
    devices, images = (4, 40) if options.quick else (20, 240)
    texts, results = [], {}
    for model, epochs in EPOCHS.items():
        epochs = 1 if options.quick else epochs
        contestants = contest(model, devices, images, epochs, options)
        text, results[model] = table(contestants)
        others = [r for r in results[model] if r["name"] not in ("fedclade", "plain torch loop")]
        loops = [r for r in results[model] if r["name"] == "plain torch loop"]
        best = [f"{rows[0]['name']}: {rows[0]['times_fedclade']:.1f}×" for rows in (loops, others) if rows]
        texts.append(
            f"`{model}`: {devices} devices × {images} images, E = {epochs}, b = 32; turns: {options.repeats}\n\n"
            f"{text}\n\n"
            f"Fastest setting against fedclade's auto engine: {', '.join(best)} (goal: {GOALS[model]}×)"
        )
        print(texts[-1], end="\n\n", file=sys.stderr, flush=True)  # a long run that is stopped still tells something
    settings = {
        "devices": devices,
        "images": images,
        "epochs": EPOCHS,
        "repeats": options.repeats,
        "quick": options.quick,
        "skip": options.skip,
    }
    return Report(settings, results, "\n\n".join(texts))
