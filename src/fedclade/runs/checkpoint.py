"""The state between two rounds as files: ``state/state.json`` names a safetensors file and its SHA-256.

The clustering method saves and loads its own part: whoever writes a checkpoint brings it along.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from fedclade.core.errors import UserError
from fedclade.core.objective import Best
from fedclade.core.state import BEST, State
from fedclade.core.tree import Tree
from fedclade.core.updates import HeldUpdates
from fedclade.runs.directory import STATE, write_beside, write_json

FACTS = "state.json"
COUNTS = ("samples", "last_heard", "participation", "present_rounds", "retry")

Saved: TypeAlias = tuple[dict[str, Any], dict[str, np.ndarray]]  # plain data for the JSON file, and arrays
LoadMethod: TypeAlias = Callable[[dict[str, Any], dict[str, np.ndarray]], Any]


def write_state(folder: Path, state: State, method: Saved, spent: Mapping[str, float]) -> None:
    """Write the state, and the stopwatch's counts until now, beside the last checkpoint, then switch to it."""
    place = folder / STATE
    place.mkdir(exist_ok=True)
    blob = save({**_tensors(state), **{f"method/{name}": array for name, array in method[1].items()}})
    name = f"round-{state.round:06d}.safetensors"
    write_beside(place / name, blob)
    switch = {"tensors": name, "sha256": hashlib.sha256(blob).hexdigest(), "spent": dict(spent)}
    write_json(place / FACTS, {**_facts(state), "method": method[0], **switch})
    for old in place.glob("round-*.safetensors"):
        if old.name != name:
            old.unlink()


def read_state(folder: Path, initial: State, load_method: LoadMethod) -> tuple[State, dict[str, float]]:
    """The last checkpoint and the stopwatch's counts until then; ``initial`` where none was reached."""
    path = folder / STATE / FACTS
    if not path.is_file():
        return initial, {}
    try:
        facts = json.loads(path.read_text("utf-8"))
        blob_path = path.parent / facts["tensors"]
        if hashlib.sha256(blob_path.read_bytes()).hexdigest() != facts["sha256"]:
            raise ValueError(f"{facts['tensors']} does not match its SHA-256")
        state = _state(facts, load_file(blob_path), load_method)
        same = {len(model) for model in state.models.values()} == {len(model) for model in initial.models.values()}
        if not same or state.memory.width != initial.memory.width or state.devices > initial.devices:
            raise ValueError(f"made by another model or population: {state.devices} devices")  # more may have come
        return state, {name: float(count) for name, count in facts["spent"].items()}
    except (OSError, ValueError, KeyError, TypeError, AssertionError, SafetensorError) as error:
        raise UserError(f"{path.parent}: the checkpoint is damaged: {error}") from error


# -------------------------------------------------------------------------------- the state as tensors and facts


def _tensors(state: State) -> dict[str, np.ndarray]:
    remembered = state.memory.devices
    tensors: dict[str, np.ndarray] = {f"model/{name}": model for name, model in state.models.items()}
    tensors |= {"memory": state.memory.rows(remembered), "remembered": remembered}
    tensors |= {f"{BEST}/{name}": best.model for name, best in state.best.items()}
    if state.conventional is not None:
        tensors["conventional"] = state.conventional
    return tensors


def _facts(state: State) -> dict[str, Any]:
    return {
        "round": state.round,
        "seconds": state.seconds,
        "downlink_bits": state.downlink_bits,
        "uplink_bits": state.uplink_bits,
        **{name: getattr(state, name).tolist() for name in COUNTS},
        "energy_joules": state.energy_joules.tolist(),
        "tree": state.tree.to_json(),
        BEST: {
            name: {"round": best.round, "loss": best.loss, "devices": best.devices} for name, best in state.best.items()
        },
    }


def _state(facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray], load_method: LoadMethod) -> State:
    """The inverse of ``_facts`` and ``_tensors``."""
    return State(
        round=facts["round"],
        seconds=facts["seconds"],
        downlink_bits=facts["downlink_bits"],
        uplink_bits=facts["uplink_bits"],
        tree=Tree.from_json(facts["tree"], len(facts["last_heard"])),
        models=_named(tensors, "model/"),
        conventional=tensors.get("conventional"),
        memory=HeldUpdates.of(tensors["remembered"], tensors["memory"]),
        energy_joules=np.array(facts["energy_joules"]),
        method=load_method(facts["method"], _named(tensors, "method/")),
        best={
            name: Best(best["round"], best["loss"], tuple(best["devices"]), tensors[f"{BEST}/{name}"])
            for name, best in facts[BEST].items()
        },
        **{name: np.array(facts[name], dtype=np.int64) for name in COUNTS},
    )


def _named(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
