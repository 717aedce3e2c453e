"""The state between two rounds as files: ``state/state.json`` names a safetensors file and its SHA-256."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from fedclade.clustering import Kinship, Outlook, Tree
from fedclade.core.errors import UserError
from fedclade.core.state import ServerState
from fedclade.runs.database import finite
from fedclade.runs.directory import STATE, write_beside, write_json

FACTS = "state.json"


def write_state(folder: Path, state: ServerState, spent: Mapping[str, float]) -> None:
    """Write the state, and the stopwatch's counts until now, beside the last checkpoint, then switch to it."""
    place = folder / STATE
    place.mkdir(exist_ok=True)
    blob = save(_tensors(state))
    name = f"round-{state.round:06d}.safetensors"
    write_beside(place / name, blob)
    switch = {"tensors": name, "sha256": hashlib.sha256(blob).hexdigest(), "spent": dict(spent)}
    write_json(place / FACTS, {**_facts(state), **switch})
    for old in place.glob("round-*.safetensors"):
        if old.name != name:
            old.unlink()


def read_state(folder: Path, parameters: int, initial: ServerState) -> tuple[ServerState, dict[str, float]]:
    """The last checkpoint and the stopwatch's counts until then; ``initial`` where none was reached."""
    path = folder / STATE / FACTS
    if not path.is_file():
        return initial, {}
    try:
        facts = json.loads(path.read_text("utf-8"))
        blob_path = path.parent / facts["tensors"]
        if hashlib.sha256(blob_path.read_bytes()).hexdigest() != facts["sha256"]:
            raise ValueError(f"{facts['tensors']} does not match its SHA-256")
        state = _state(facts, load_file(blob_path))
        width, devices = initial.updates.shape[1], len(initial.updates)  # more devices may have come since
        fits = state.updates.shape[1] == width and len(state.last_heard) <= devices
        if not fits or any(len(model) != parameters for model in state.models.values()):
            raise ValueError(f"made by another model or population: {state.updates.shape}")
        return state, {name: float(count) for name, count in facts["spent"].items()}
    except (OSError, ValueError, KeyError, TypeError, AssertionError, SafetensorError) as error:
        raise UserError(f"{path.parent}: the checkpoint is damaged: {error}") from error


# -------------------------------------------------------------------------------- the state as tensors and facts


def _tensors(state: ServerState) -> dict[str, Any]:
    tensors = {f"model/{name}": model for name, model in state.models.items()}
    tensors |= {"updates": state.updates}
    if state.kinship is not None:
        tensors |= {f"kinship/{name}": table for name, table in vars(state.kinship).items()}
    if state.conventional is not None:
        tensors["conventional"] = state.conventional
    return tensors


def _facts(state: ServerState) -> dict[str, Any]:
    return {
        "round": state.round,
        "seconds": state.seconds,
        "last_heard": state.last_heard.tolist(),
        "participation": state.participation.tolist(),
        "energy_joules": state.energy_joules.tolist(),
        "present_rounds": state.present_rounds.tolist(),
        "retry": state.retry.tolist(),
        "losses": [finite(loss) for loss in state.losses],
        "outlooks": {name: asdict(outlook) for name, outlook in state.outlooks.items()},
        "tree": state.tree.to_json(),
    }


def _state(facts: Mapping[str, Any], tensors: Mapping[str, Any]) -> ServerState:
    """The inverse of ``_facts`` and ``_tensors``."""
    kinship = _named(tensors, "kinship/")
    return ServerState(
        round=facts["round"],
        seconds=facts["seconds"],
        tree=Tree.from_json(facts["tree"], len(facts["last_heard"])),
        models=_named(tensors, "model/"),
        conventional=tensors.get("conventional"),
        updates=tensors["updates"],
        last_heard=np.array(facts["last_heard"], dtype=np.int64),
        participation=np.array(facts["participation"], dtype=np.int64),
        energy_joules=np.array(facts["energy_joules"]),
        present_rounds=np.array(facts["present_rounds"], dtype=np.int64),
        retry=np.array(facts["retry"], dtype=np.int64),
        losses=np.array(facts["losses"], dtype=np.float64),
        kinship=Kinship(**kinship) if kinship else None,
        outlooks={name: Outlook(**row) for name, row in facts["outlooks"].items()},
    )


def _named(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
