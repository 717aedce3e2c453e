"""The state between two rounds as files: ``state/state.json`` names a safetensors file and its SHA-256.

``state.json`` has a checksum of its own, too, so that no flipped bit goes on unseen into the next round.

The clustering method saves and loads its own part: whoever writes a checkpoint brings it along.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors.numpy import load, save

from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError, cannot
from fedclade.core.objective import Best
from fedclade.core.state import BEST, State
from fedclade.core.tree import Tree
from fedclade.core.updates import HeldUpdates
from fedclade.runs.directory import (
    STATE,
    checksum,
    opened_json,
    read_bytes,
    read_json,
    sealed_json,
    write_beside,
    write_json,
)

FACTS = "state.json"
FORMAT = 1  # of a checkpoint; another one is not read
SPENT = ("seconds", "downlink_bits", "uplink_bits")
COUNTS = ("samples", "last_heard", "participation", "present_rounds", "retry")

Saved: TypeAlias = tuple[dict[str, Any], dict[str, np.ndarray]]  # plain data for the JSON file, and arrays
LoadMethod: TypeAlias = Callable[[dict[str, Any], dict[str, np.ndarray]], Any]


def write_state(folder: Path, state: State, method: Saved, spent: Mapping[str, float]) -> None:
    """Write the state, and the stopwatch's counts until now, beside the last checkpoint, then switch to it."""
    place = folder / STATE
    with cannot("be made", place):
        place.mkdir(exist_ok=True)
    blob = save({**_tensors(state), **{f"method/{name}": array for name, array in method[1].items()}})
    name = f"round-{state.round:06d}.safetensors"
    write_beside(place / name, blob)
    switch = {"format": FORMAT, "tensors": name, "sha256": checksum(blob), "spent": dict(spent)}
    write_json(place / FACTS, sealed_json({**_facts(state), "method": method[0], **switch}))
    remove_old_states(folder)


def remove_old_states(folder: Path) -> None:
    """Remove the tensors of earlier checkpoints, and of one that was not switched to."""
    facts = folder / STATE / FACTS
    used = read_json(facts)["tensors"] if facts.is_file() else None
    for old in (folder / STATE).glob("round-*.safetensors"):
        if old.name != used:
            with cannot("be deleted", old):
                old.unlink()


def read_state(folder: Path, initial: State, load_method: LoadMethod) -> tuple[State, dict[str, float]]:
    """The last checkpoint and the stopwatch's counts until then; ``initial`` where none was reached."""
    path = folder / STATE / FACTS
    if not path.is_file():
        return initial, {}
    facts = _read_facts(path)
    try:
        if not re.fullmatch(r"round-\d+\.safetensors", facts["tensors"]):
            raise ValueError(f"tensors = {facts['tensors']!r}, must be a file of its own")
        if not (path.parent / facts["tensors"]).is_file():
            raise ValueError(f"{facts['tensors']} is missing")
        blob = read_bytes(path.parent / facts["tensors"])
        if checksum(blob) != facts["sha256"]:
            raise ValueError(f"{facts['tensors']} does not match its SHA-256")
        state = _state(facts, load(blob), _reader(path.parent, load_method))
        same = {len(model) for model in state.models.values()} == {len(model) for model in initial.models.values()}
        if not same or state.memory.width != initial.memory.width or state.devices > initial.devices:
            raise ValueError(f"made by another model or population: {state.devices} devices")  # more may have come
        return state, {name: float(count) for name, count in facts["spent"].items()}
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path.parent}: the checkpoint is damaged: {error}") from error


def _reader(place: Path, load_method: LoadMethod) -> LoadMethod:
    """Reads a method's part. What the method stumbles over was written so, as its checksums are right."""

    def read(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        try:
            return load_method(facts, arrays)
        except Exception as error:
            raise UserError(
                f"{place}: the checkpoint was made by another version of fedclade or of the clustering method, which "
                f"kept other things ({error!r}): run it anew"
            ) from error

    return read


def _read_facts(path: Path) -> dict[str, Any]:
    raw = read_json(path)
    if isinstance(raw, dict) and "seal" not in raw and "format" not in raw and "tensors" in raw:
        raise UserError(f"{path.parent}: the checkpoint is of another version of fedclade: run it anew")
    facts = opened_json(path)
    if facts.get("format") != FORMAT:
        raise UserError(
            f"{path.parent}: the checkpoint is of another version of fedclade (format {facts.get('format')}, not "
            f"{FORMAT}): run it anew"
        )
    return facts


# -------------------------------------------------------------------------------- the state as tensors and facts


def _tensors(state: State) -> dict[str, np.ndarray]:
    remembered = state.memory.devices
    tensors: dict[str, np.ndarray] = {f"model/{name}": model for name, model in state.models.items()}
    tensors |= {"memory": state.memory.rows(remembered), "remembered": remembered}
    tensors |= {f"{BEST}/{name}": best.model for name, best in state.best.items()}
    tensors |= {f"moments/{name}": known for name, known in state.moments.items()}
    if state.conventional is not None:
        tensors["conventional"] = state.conventional
    if state.kept is not None:
        tensors["kept"] = state.kept
    return tensors


def _facts(state: State) -> dict[str, Any]:
    return {
        "round": state.round,
        "seconds": state.seconds,
        "downlink_bits": state.downlink_bits,
        "uplink_bits": state.uplink_bits,
        "losses": None
        if state.losses is None
        else [None if np.isnan(told) else told for told in state.losses.tolist()],
        **{name: getattr(state, name).tolist() for name in COUNTS},
        "energy_joules": state.energy_joules.tolist(),
        "tree": state.tree.to_json(),
        BEST: {
            name: {"round": best.round, "loss": best.loss, "devices": best.devices} for name, best in state.best.items()
        },
    }


def _state(facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray], load_method: LoadMethod) -> State:
    """The inverse of ``_facts`` and ``_tensors``; refuses what no run ever came to."""
    if type(facts["round"]) is not int or facts["round"] < 0:
        raise ValueError(f"round = {facts['round']}, must be a whole number from 0")
    devices = len(facts["last_heard"])
    counts = {name: _counts(name, facts[name], None if name == "retry" else devices) for name in COUNTS}
    if (counts["retry"] >= devices).any():
        raise ValueError(f"retry names a device beyond the {devices}")
    spent = np.array([*(facts[name] for name in SPENT), *facts["energy_joules"]], dtype=np.float64)
    if spent.shape != (len(SPENT) + devices,) or not (np.isfinite(spent) & (spent >= 0)).all():
        raise ValueError("seconds, bits or joules are below 0 or not finite, or not one for each device")
    losses = None if facts["losses"] is None else np.array(facts["losses"], dtype=np.float64)
    if losses is not None and losses.shape != (devices,):
        raise ValueError(f"losses must be {devices} numbers, one for each device")
    return State(
        round=facts["round"],
        seconds=float(facts["seconds"]),
        downlink_bits=float(facts["downlink_bits"]),
        uplink_bits=float(facts["uplink_bits"]),
        losses=losses,
        tree=Tree.from_json(facts["tree"], len(facts["last_heard"])),
        models=_named(tensors, "model/"),
        conventional=tensors.get("conventional"),
        moments=_named(tensors, "moments/"),
        kept=tensors.get("kept"),
        memory=HeldUpdates.of(tensors["remembered"], tensors["memory"]),
        energy_joules=np.array(facts["energy_joules"]),
        method=load_method(facts["method"], _named(tensors, "method/")),
        best={
            name: Best(best["round"], best["loss"], tuple(best["devices"]), tensors[f"{BEST}/{name}"])
            for name, best in facts[BEST].items()
        },
        **counts,
    )


def _counts(name: str, value: list[int], count: int | None) -> Ints:
    """Whole numbers from 0, so many of them."""
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < 2**62 for one in value):
        raise ValueError(f"{name} must be whole numbers from 0")
    if count is not None and len(value) != count:
        raise ValueError(f"{name} must be {count} numbers, one for each device")
    return np.array(value, dtype=np.int64)


def _named(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
