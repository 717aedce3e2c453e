"""The tree of models: the root is conventional federated learning, the leaves are the specialised models.

A value: every change gives a new tree, and every new tree is checked. A node's name is its path: "0" is the root, "0.1"
its second child. Only leaves hold devices, so an inner node's members are those of its leaves by construction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedclade.clustering.criteria import CutFacts
from fedclade.clustering.trial import Trial
from fedclade.core.arrays import Ints

ROOT = "0"


@dataclass(frozen=True)
class Split:
    """What is known of the split of a node."""

    round: int
    seconds: float
    first: tuple[int, ...]  # members of the first child at the split
    second: tuple[int, ...]
    facts: CutFacts
    trial: Trial | None = None  # None where none was held


@dataclass(frozen=True)
class Node:
    """One cluster, past or present."""

    name: str
    born_round: int
    devices: tuple[int, ...]  # of a leaf; empty for an inner node
    split: Split | None = None
    stopped_round: int | None = None
    merged_into: str | None = None  # the leaf that took its devices over

    @property
    def children(self) -> tuple[str, ...]:
        """Names of the two children, if it was split."""
        return () if self.split is None else (f"{self.name}.0", f"{self.name}.1")


@dataclass(frozen=True)
class Tree:
    """All clusters there ever were. Leaves always partition the devices."""

    nodes: Mapping[str, Node]
    device_count: int

    def __post_init__(self) -> None:
        held = sorted(device for node in self.leaves() for device in node.devices)
        if held != list(range(self.device_count)):
            raise AssertionError(f"leaves do not partition {self.device_count} devices: {held}")
        for node in self.nodes.values():
            if node.split and (node.devices or any(child not in self.nodes for child in node.children)):
                raise AssertionError(f"inner node {node.name} holds devices or lacks a child")

    @classmethod
    def planted(cls, device_count: int) -> "Tree":
        """One cluster of all devices."""
        return cls({ROOT: Node(ROOT, 0, tuple(range(device_count)))}, device_count)

    def leaves(self) -> list[Node]:
        """The clusters there are now, in order of their names."""
        return [node for _, node in sorted(self.nodes.items()) if node.split is None and node.merged_into is None]

    def members(self, name: str) -> Ints:
        """The devices of a node: its own, or those of the leaves below it."""
        below = (leaf for leaf in self.leaves() if f"{leaf.name}.".startswith(f"{name}."))
        return np.array(sorted(device for leaf in below for device in leaf.devices), dtype=np.int64)

    def leaf_of(self) -> list[str]:
        """For each device the name of its leaf."""
        names = [""] * self.device_count
        for leaf in self.leaves():
            for device in leaf.devices:
                names[device] = leaf.name
        return names

    def split(
        self,
        name: str,
        second: Iterable[int],
        round_: int,
        seconds: float,
        facts: CutFacts,
        trial: Trial | None = None,
    ) -> "Tree":
        """Cut a leaf: ``second`` go to its second child, the rest to the first."""
        node = self.nodes[name]
        to_second = set(second)
        parts = (
            tuple(device for device in node.devices if device not in to_second),
            tuple(device for device in node.devices if device in to_second),
        )
        if node.split or len(parts[1]) != len(to_second) or not all(parts):
            raise AssertionError(f"{sorted(to_second)} is no cut of leaf {name}")
        split = Split(round_, seconds, parts[0], parts[1], facts, trial)
        nodes = {**self.nodes, name: replace(node, devices=(), split=split)}
        for child, devices in zip(nodes[name].children, parts, strict=True):
            nodes[child] = Node(child, round_, devices)
        return Tree(nodes, self.device_count)

    def move(self, device: int, to: str) -> "Tree":
        """Put a device into another leaf."""
        nodes = dict(self.nodes)
        source = nodes[self.leaf_of()[device]]
        if source.name == to:
            return self
        if len(source.devices) == 1:
            raise AssertionError(f"device {device} is the last of cluster {source.name}")
        nodes[source.name] = replace(source, devices=tuple(d for d in source.devices if d != device))
        nodes[to] = replace(nodes[to], devices=tuple(sorted((*nodes[to].devices, device))))
        return Tree(nodes, self.device_count)

    def merge(self, name: str, into: str) -> "Tree":
        """Give all devices of a leaf to another; it is open again, whatever it was."""
        source, target = self.nodes[name], self.nodes[into]
        if name == into or not source.devices or not target.devices:
            raise AssertionError(f"{name} and {into} are not two leaves")
        together = tuple(sorted((*source.devices, *target.devices)))
        merged = replace(source, devices=(), stopped_round=None, merged_into=into)
        return Tree(
            {**self.nodes, name: merged, into: replace(target, devices=together, stopped_round=None)}, self.device_count
        )

    def grown(self, more: int) -> "Tree":
        """With so many new devices, in the largest leaf."""
        largest = max(self.leaves(), key=lambda leaf: len(leaf.devices))
        devices = (*largest.devices, *range(self.device_count, self.device_count + more))
        return Tree({**self.nodes, largest.name: replace(largest, devices=devices)}, self.device_count + more)

    def with_stop(self, name: str, round_: int | None) -> "Tree":
        """Mark a leaf as stopped in a round, or as open again (None)."""
        return Tree({**self.nodes, name: replace(self.nodes[name], stopped_round=round_)}, self.device_count)

    def to_json(self) -> list[dict[str, Any]]:
        """One plain object per node, parents before children."""
        return [
            {
                "name": node.name,
                "parent": node.name.rpartition(".")[0] or None,
                "children": list(node.children),
                "members": self.members(node.name).tolist(),
                "born_round": node.born_round,
                "stopped_round": node.stopped_round,
                "merged_into": node.merged_into,
                "split": node.split
                and {
                    "round": node.split.round,
                    "seconds": node.split.seconds,
                    "first": list(node.split.first),
                    "second": list(node.split.second),
                    "sim_within_min": node.split.facts.within_min,
                    "sim_cross_max": node.split.facts.cross_max,
                    "gap": node.split.facts.gap,
                    "gamma_bound": node.split.facts.gamma_bound,
                    "gamma_max": node.split.facts.gamma_max,
                    "gamma_error": node.split.facts.gamma_error,
                    "trial": node.split.trial and asdict(node.split.trial),
                },
            }
            for _, node in sorted(self.nodes.items())
        ]

    @classmethod
    def from_json(cls, rows: list[dict[str, Any]], device_count: int) -> "Tree":
        """The inverse of ``to_json``."""
        nodes = {}
        for row in rows:
            split = None
            if row["split"]:
                facts = row["split"]
                split = Split(
                    facts["round"],
                    facts["seconds"],
                    tuple(facts["first"]),
                    tuple(facts["second"]),
                    CutFacts(
                        facts["sim_within_min"],
                        facts["sim_cross_max"],
                        facts["gap"],
                        facts["gamma_bound"],
                        facts["gamma_max"],
                        facts["gamma_error"],
                    ),
                    facts["trial"] and Trial.from_json(facts["trial"]),
                )
            devices = () if split else tuple(row["members"])
            nodes[row["name"]] = Node(
                row["name"], row["born_round"], devices, split, row["stopped_round"], row["merged_into"]
            )
        return cls(nodes, device_count)
