"""PACFL: devices are alike whose data span nearly the same subspace; one shot, before anybody trains.

"Efficient Distribution Similarity Identification in Clustered Federated Learning via Principal Angles Between Client
Data Subspaces" (Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin; AAAI 2023).

Every device decomposes its images, those of each class by themselves, and uploads the p leading left singular vectors
(p = 3). The server compares the subspaces that these span, two by two: by the smallest principal angle Θ1 (eq. 2), or
by the mean angle between vectors of the same class and rank, the trace of arccos(U_i' U_j) (eq. 3). Hierarchical
clustering with average linkage merges until the threshold β, in degrees, or until a given number of clusters is left.

The upload is on the clock and in the bill. It tells of the images themselves, which updates do only to an attacker.
A device that was away then uploads its vectors when it is back, and joins the cluster whose members are nearest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedclade.clustering.grouping import agglomerated, parts_of
from fedclade.clustering.method import NOBODY, BaseMethod, Conversation, Decisions, Move, NewSplit
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.state import State
from fedclade.core.tree import ROOT
from fedclade.fleet.fleet import Fleet
from fedclade.fleet.questions import Subspaces

RIGHT_ANGLE = 90.0


class Pacfl(BaseMethod):
    """Cluster once by the devices' data, and train every cluster by itself. Its state: who sent which vectors."""

    name, reveals = "pacfl", "subspaces"

    def init(self, devices: int) -> Mapping[int, Singles]:
        """Nobody has sent anything."""
        return {}

    def save(self, own: Mapping[int, Singles]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """One array a device."""
        return {}, {str(device): vectors for device, vectors in own.items()}

    def load(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Mapping[int, Singles]:
        """The inverse of ``save``."""
        return {int(name): vectors for name, vectors in arrays.items()}

    def calls(self, state: State) -> Ints:
        """Everybody in the first round."""
        return NOBODY if state.method else np.arange(state.devices)

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """Ask those of whom nothing is known; cluster them the first time, and later place them."""
        settings, talk = self.config.pacfl, Conversation(fleet, state.devices)
        new = np.setdiff1d(devices, np.array(list(state.method), dtype=np.int64))
        if len(new) == 0:
            return Decisions(state.method)
        answer = talk.ask(Subspaces(new, settings.vectors, settings.by_class)).vectors
        known = {**state.method, **answer}
        if state.method:
            moves = self._placed(state, known, sorted(answer))
            return Decisions(known, moves=moves, notes=talk.notes(), cost=talk.cost)
        told = np.array(sorted(answer), dtype=np.int64)
        apart = angles([answer[device] for device in told.tolist()], settings.angle)
        labels = agglomerated(apart, settings.linkage, settings.clusters, settings.threshold)
        splits = () if labels.max(initial=0) == 0 else (_split(state, told, labels, apart),)
        return Decisions(known, splits=splits, notes=talk.notes(), cost=talk.cost)

    def _placed(self, state: State, known: Mapping[int, Singles], new: list[int]) -> tuple[Move, ...]:
        """Each to the cluster with the smallest mean angle to the members that were known before."""
        leaves = [(leaf.name, [d for d in leaf.devices if d in state.method]) for leaf in state.tree.leaves()]
        leaves = [(name, members) for name, members in leaves if members]
        leaf_of, moves = state.tree.leaf_of(), []
        for device in new:
            mean = [
                angles([known[device], *(known[member] for member in members)], self.config.pacfl.angle)[0, 1:].mean()
                for _, members in leaves
            ]
            to = leaves[int(np.argmin(mean))][0]
            if to != leaf_of[device]:
                moves.append(Move(device, to, {"from": leaf_of[device], "angle": float(min(mean))}, "placed"))
        return tuple(moves)


def _split(state: State, told: Ints, labels: Ints, apart: Floats) -> NewSplit:
    parts = parts_of(state, told, labels)
    evidence = {"by": "principal angles", "clusters": len(parts)}
    return NewSplit(ROOT, parts, evidence, (told, np.cos(np.radians(apart)).astype(np.float32)))


def angles(vectors: list[Singles], kind: str) -> Floats:
    """Degrees between all pairs of devices; ``vectors`` are class × vector × feature, zero where there is none."""
    return _smallest(vectors) if kind == "smallest" else _corresponding(np.stack(vectors))


def _corresponding(stacked: Singles) -> Floats:
    """The mean angle between vectors of the same class and rank that both have; a right one if there are none."""
    devices, shape = len(stacked), stacked.shape
    flat = stacked.reshape(devices, shape[1] * shape[2], shape[3]).astype(np.float64)
    sums, counts = np.zeros((devices, devices)), np.zeros((devices, devices))
    for each in range(flat.shape[1]):
        there = np.abs(flat[:, each]).any(axis=1)
        both = np.outer(there, there)
        cosines = np.clip(np.abs(flat[:, each] @ flat[:, each].T), 0.0, 1.0)
        sums += np.where(both, np.degrees(np.arccos(cosines)), 0.0)
        counts += both
    apart = np.divide(sums, counts, out=np.full_like(sums, RIGHT_ANGLE), where=counts > 0)
    np.fill_diagonal(apart, 0.0)
    return apart


def _smallest(vectors: list[Singles]) -> Floats:
    """Θ1: the smallest principal angle between the spans of all vectors of two devices."""
    bases = []
    for each in vectors:
        rows = each.reshape(-1, each.shape[2]).astype(np.float64)
        bases.append(np.linalg.qr(rows[np.abs(rows).any(axis=1)].T)[0])
    apart = np.zeros((len(bases), len(bases)))
    for i, mine in enumerate(bases):
        for j in range(i + 1, len(bases)):
            cosine = np.linalg.norm(mine.T @ bases[j], 2) if mine.size and bases[j].size else 0.0
            apart[i, j] = apart[j, i] = np.degrees(np.arccos(min(1.0, float(cosine))))
    return apart


METHOD = Pacfl
