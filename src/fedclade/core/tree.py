"""The tree of models: the root is conventional federated learning, the leaves are the specialised models.

A value: every change gives a new tree, and every new tree is checked. A node's name is its path: "0" is the root, "0.1"
its second child. Only leaves hold devices, so an inner node's members are those of its leaves by construction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedclade.core.arrays import Ints

ROOT = "0"


@dataclass(frozen=True)
class Split:
    """What is known of the split of a node.

    ``evidence`` is whatever the clustering method knew when it decided, as plain data: numbers, texts, lists of them.
    """

    round: int  # 0: before anybody trained
    seconds: float
    parts: tuple[tuple[int, ...], ...]  # the members of each child at the split
    evidence: Mapping[str, Any] = field(default_factory=dict)


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
        """Names of the children, if it was split."""
        return () if self.split is None else tuple(f"{self.name}.{i}" for i in range(len(self.split.parts)))

    @property
    def is_leaf(self) -> bool:
        """Whether it is a cluster now: neither split nor merged into another."""
        return self.split is None and self.merged_into is None


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
        """The clusters there are now, in order of their names; one may be empty where its method allows that."""
        return [node for _, node in sorted(self.nodes.items()) if node.is_leaf]

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

    def leaves_below(self, name: str) -> list[str]:
        """The leaves that a node's devices are in now, each once; one merged into another counts as that other."""
        node = self.nodes[name]
        if node.split:
            return list(dict.fromkeys(leaf for child in node.children for leaf in self.leaves_below(child)))
        return self.leaves_below(node.merged_into) if node.merged_into else [name]

    def split(
        self,
        name: str,
        parts: Sequence[Iterable[int]],
        round_: int,
        seconds: float,
        evidence: Mapping[str, Any] | None = None,
    ) -> "Tree":
        """Cut a leaf into parts, one child for each."""
        node = self.nodes[name]
        cut = tuple(tuple(sorted(int(device) for device in part)) for part in parts)
        if not node.is_leaf or len(cut) < 2 or sorted(d for part in cut for d in part) != sorted(node.devices):
            raise AssertionError(f"{cut} is no cut of leaf {name}")
        nodes = {**self.nodes, name: replace(node, devices=(), split=Split(round_, seconds, cut, evidence or {}))}
        for child, devices in zip(nodes[name].children, cut, strict=True):
            nodes[child] = Node(child, round_, devices)
        return Tree(nodes, self.device_count)

    def move(self, device: int, to: str) -> "Tree":
        """Put a device into another leaf."""
        nodes = dict(self.nodes)
        source = nodes[self.leaf_of()[device]]
        if source.name == to:
            return self
        if not nodes[to].is_leaf:
            raise AssertionError(f"{to} is no leaf that device {device} could move to")
        nodes[source.name] = replace(source, devices=tuple(d for d in source.devices if d != device))
        nodes[to] = replace(nodes[to], devices=tuple(sorted((*nodes[to].devices, device))))
        return Tree(nodes, self.device_count)

    def moved(self, to: Mapping[int, str]) -> "Tree":
        """Put several devices into other leaves, all at once."""
        if not to:
            return self
        leaf_of, nodes = self.leaf_of(), dict(self.nodes)
        for device, name in to.items():
            if not nodes[name].is_leaf:
                raise AssertionError(f"{name} is no leaf that device {device} could move to")
            leaf_of[device] = name
        held: dict[str, list[int]] = {leaf.name: [] for leaf in self.leaves()}
        for device, name in enumerate(leaf_of):
            held[name].append(device)
        nodes |= {name: replace(nodes[name], devices=tuple(devices)) for name, devices in held.items()}
        return Tree(nodes, self.device_count)

    def merge(self, name: str, into: str) -> "Tree":
        """Give all devices of a leaf to another; it is open again, whatever it was."""
        source, target = self.nodes[name], self.nodes[into]
        if name == into or not source.is_leaf or not target.is_leaf:
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
                    "parts": [list(part) for part in node.split.parts],
                    "evidence": dict(node.split.evidence),
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
                told = row["split"]
                parts = tuple(tuple(part) for part in told["parts"])
                split = Split(told["round"], told["seconds"], parts, told["evidence"])
            devices = () if split else tuple(row["members"])
            nodes[row["name"]] = Node(
                row["name"], row["born_round"], devices, split, row["stopped_round"], row["merged_into"]
            )
        return cls(nodes, device_count)
