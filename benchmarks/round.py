"""Wall time of one round: fedclade in each engine, a plain torch loop, and the peers, taking turns."""

import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.contest import (
    LOOP,
    OURS,
    Contestant,
    Entry,
    assembled,
    fastest_others,
    loops,
    peers,
    ranking,
    table,
    take_turns,
)
from benchmarks.machine import Goal, Options, Report
from benchmarks.work import population_in, random_population, work_config, write_work
from fedclade.fleet.simulated.engines import choose_engine

EPOCHS = {"cnn": 10, "mlp": 10, "cnn-large": 1}
GOALS = {"cnn": 4, "mlp": 8, "cnn-large": 2}


def fedclade_settings(dense: bool, automatic: str) -> dict[str, dict[str, Any]]:
    """Every engine that fits the model; the one that auto picks stands for itself and for auto."""
    engines: dict[str, dict[str, Any]] = {"sequential, 1 process": {"engine": "sequential"}}
    for name in ("workers", "batched") if dense else ("workers",):
        for count in (1, 2):
            engines[f"{name}, {count} process{'es' * (count > 1)}"] = {"engine": name, "workers": count}
    engines.pop(automatic)
    return {f"auto: {automatic}": {"engine": "auto"}, **engines}


def contest(model: str, devices: int, images: int, epochs: int, options: Options) -> list[Contestant]:
    """One warm-up round each, then as many rounds as asked for each."""
    config = work_config(model, devices, epochs)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_work(folder, config, random_population(devices, images), rounds=1 + options.repeats)
        automatic = str(choose_engine(config, population_in(folder)))
        settings = fedclade_settings(model == "mlp", automatic)
        if options.quick and model != "mlp":  # the dense net tries every engine
            settings = dict(islice(settings.items(), 1))
        entries = [Entry(OURS, setting, "with_fedclade", task) for setting, task in settings.items()]
        entries += [*loops(), *(peers() if options.peers else ())]
        with assembled(entries, folder, options.skip) as contestants:
            check_same_work(contestants, devices * images * epochs)
            take_turns(contestants, options.repeats, model)
    return contestants


def check_same_work(contestants: list[Contestant], samples: int) -> None:
    """After the first round: everybody trained on as many samples, and moved the model about as far."""
    usual = next(c.moved for c in contestants if c.name == LOOP)
    for contestant in contestants:
        who = f"{contestant.name} ({contestant.setting})"
        if contestant.samples != samples:
            raise RuntimeError(f"{who} trained on {contestant.samples} samples, not {samples}")
        if not 0.8 < contestant.moved / usual < 1.25:
            raise RuntimeError(f"{who} moved the model by {contestant.moved:.4g}, the plain loop by {usual:.4g}")


def run(options: Options) -> Report:
    devices, images = (4, 40) if options.quick else (20, 240)
    texts, results, goals = [], {}, []
    for model, epochs in EPOCHS.items():
        epochs = 1 if options.quick else epochs
        results[model] = ranking(contest(model, devices, images, epochs, options))
        best = fastest_others(results[model])
        found = ", ".join(f"{name}: {times:.1f}×" for name, times in best.items())
        texts.append(
            f"`{model}`: {devices} devices × {images} images, E = {epochs}, b = 32; turns: {options.repeats}\n\n"
            f"{table(results[model], 'round')}\n\n"
            f"Fastest setting against fedclade's auto engine: {found} (goal: {GOALS[model]}×)"
        )
        peer = next((times for name, times in best.items() if name != LOOP), None)
        goals.append(Goal(f"a round of `{model}` against the fastest peer", GOALS[model], peer, "×"))
        print(texts[-1], end="\n\n", file=sys.stderr, flush=True)  # a long run that is stopped still tells something
    settings = {
        "devices": devices,
        "images": images,
        "epochs": EPOCHS,
        "repeats": options.repeats,
        "quick": options.quick,
        "skip": options.skip,
    }
    return Report(settings, results, "\n\n".join(texts), goals)
