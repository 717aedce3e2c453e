"""Hostile values: every field of a config and of a checkpoint, damaged TOML, damaged files of data."""

import io
import json
import random
import tomllib
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from chaos.world import Case, World, resumed
from fedclade import Experiment, UserError
from fedclade import config as configuration
from fedclade.runs.directory import opened_json, sealed_json, write_json
from tiny_runs import TINY, fedclade

HOSTILE: tuple[object, ...] = (
    *(0, -1, 1, 2, 0.5, -0.5, 1e-308, 5e-324, 1e308, -1e308, 1e6, -1e6, 10**9, 10**18, 2**62, 2**63, 10**400),
    *(float("nan"), float("inf"), float("-inf"), True, "", "x", "²", "a\nb", "os:path", "math:pi", "x" * 5000),
    *([], [0], [-1], [1e308], [10**18], ["x"], [[]], {}),
)
TOML_CASES, DATA_CASES = 1500, 1500
# A single round of a run that wants to last long, in this process.
BASE = {**TINY, "run": {**TINY["run"], "rounds": 1}, "training": {**TINY["training"], "workers": 1}}


def cases(world: World) -> Iterator[Case]:
    """All of them."""
    for field, _, _ in configuration.fields_of(configuration.load(BASE)):
        for number, value in enumerate(HOSTILE):
            yield Case(f"config/{field}/{number}", partial(_config_held, field, value))
    for number in range(TOML_CASES):
        yield Case(f"toml/{number}", partial(_toml_held, world, number))
    for number in range(DATA_CASES):
        yield Case(f"data/{number}", partial(_data_held, world, number))
    for field in opened_json(world.interrupted / "state/state.json"):
        for number, value in enumerate(HOSTILE):
            yield Case(f"state/{field}/{number}", partial(_state_held, world, field, value))


def _config_held(field: str, value: object) -> str | None:
    """The real way: read, check, plan, train a round."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 10**4 and field == "training.epochs":
        value = -value  # a valid number of epochs that would take days
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            experiment = Experiment(BASE, {field: value})
            experiment.plan()
            server = experiment.server
            server.step(server.initial_state())
    except UserError as error:
        return None if "\n" not in str(error) else "more than one line"
    written = configuration.to_toml(experiment.config)
    return None if configuration.load(tomllib.loads(written)) == experiment.config else "is not read as it was written"


def damaged(good: bytes, draw: random.Random) -> bytes:
    """Bytes changed, cut out, doubled or nested, as a broken program or a hostile hand would leave them."""
    raw = bytearray(good)
    for _ in range(draw.randrange(6)):
        raw[draw.randrange(len(raw))] = draw.choice([0, 10, 34, 91, 123, 255, draw.randrange(256)])
    first, last = sorted(draw.sample(range(len(raw)), 2))
    middle = draw.choice([raw[first:last], raw[first:last] * 2, b"", b"[" * 3000, b"a." * 3000 + b"=", b"9" * 5000])
    return bytes(raw[:first] + middle + raw[last:])


def _toml_held(world: World, number: int) -> str | None:
    draw = random.Random(f"toml {number}")
    good = draw.choice([configuration.to_toml(configuration.load(BASE)), '[run]\nseed = 3\n[custom]\na = [1, "x"]\n'])
    with world.scratch() as place:
        path = place.with_name("mine.toml")
        path.write_bytes(damaged(good.encode(), draw))
        try:
            configuration.load(path)
        except UserError as error:
            return None if "\n" not in str(error) else "more than one line"
    return None


def _data_held(world: World, number: int) -> str | None:
    draw = random.Random(f"data {number}")
    file = io.BytesIO()
    np.savez(file, x=np.ones((12, 3), np.float32), y=np.arange(12) % 3, device=np.repeat([0, 1], 6))
    table = b"device,a,b,y,split\np,1.5,2,0,train\nq,3,-4e2,1,test\nq,0,0,1,train\np,1,1,0,test\n"
    suffix, good = draw.choice([(".npz", file.getvalue()), (".csv", table)])
    with world.scratch() as place:
        path = place.with_name(f"mine{suffix}")
        path.write_bytes(damaged(good, draw))
        answer = fedclade("check-data", path, "--json", "--set", "population.memory_limit_gb=0.01")
    if answer.code == 0:
        return None if json.loads(answer.out)["samples"] > 0 else "no samples"
    lines = answer.err.splitlines()
    return None if answer.code == 2 and len(lines) == 1 and "Traceback" not in lines[0] else answer.err[-300:]


def _state_held(world: World, field: str, value: object) -> str | None:
    """A checkpoint that somebody wrote on purpose, with a right checksum: refused, or a run that ends."""
    with world.scratch(world.interrupted) as folder:
        path = Path(folder / "state/state.json")
        write_json(path, sealed_json({**opened_json(path), field: value}))
        try:
            resumed(folder)
        except UserError as error:
            return None if "\n" not in str(error) else "more than one line"
    return None
