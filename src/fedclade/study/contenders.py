"""What a study sets against each other: policies × methods and variants, in one population or in several."""

import re
from collections.abc import Mapping

import numpy as np

from fedclade import config as configuration
from fedclade.clustering import find_method
from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.plugins import near_miss

NAME = r"[\w.+-]+"
# Populations that have a name of their own: what differs between the planted groups, and how large each is.
POPULATIONS: Mapping[str, tuple[str, ...]] = {
    "rotated-2": ("incongruence.kind=rotate", "incongruence.groups=[1, 1]"),
    "rotated-4": ("incongruence.kind=rotate", "incongruence.groups=[1, 1, 1, 1]"),
    "permuted-4": ("incongruence.kind=permute-labels", "incongruence.groups=[1, 1, 1, 1]"),
    "disjoint-3": ("incongruence.kind=disjoint-classes", "incongruence.groups=[7, 7, 6]"),
    "two-of-20": ("incongruence.kind=rotate", "incongruence.groups=[18, 2]"),
    "iid": ("incongruence.kind=none", "incongruence.groups=[1]", "population.partition=iid"),
    "label-skew": (
        "incongruence.kind=none",
        "incongruence.groups=[1]",
        "population.partition=dirichlet",
        "population.alpha=0.3",
    ),
}


def contenders(config: Config) -> dict[str, list[str]]:
    """Who is compared: name -> the fields that make it, as overrides.

    Every policy, or with methods every pair of a policy and a method; then the variants.
    """
    compare = config.compare
    found = {name: [f'scheduling.policy="{name}"'] for name in compare.policies}
    if compare.methods:
        alone = len(compare.policies) == 1
        found = {
            word if alone else f"{word}+{policy}": [*fields, *_method_fields(word, config)]
            for policy, fields in found.items()
            for word in compare.methods
        }
    for variant in compare.variants:
        name, fields = _named_fields("compare.variants", variant)
        if name in found:
            raise UserError(f"compare.variants = {variant!r}: {name!r} is compared already: choose another name")
        found[name] = fields
    if compare.against and compare.against not in found:
        raise UserError(f"compare.against = {compare.against!r}: must be one of those compared: {', '.join(found)}")
    return found


def against(config: Config) -> str:
    """The contender to whom the others' differences are taken."""
    names = list(contenders(config))
    usual = (name for name in ("fair", "none", *(f"none+{policy}" for policy in config.compare.policies)))
    return config.compare.against or next((name for name in usual if name in names), names[0])


def populations(config: Config) -> dict[str, Config]:
    """The config of each population that is compared in, by name; empty where there is only the config's own."""
    found = {}
    for word in config.compare.populations:
        name, fields = _named_fields("compare.populations", word) if ":" in word else (word, POPULATIONS.get(word))
        if fields is None:
            known = near_miss(word, POPULATIONS)
            raise UserError(f"compare.populations = {word!r}: no such population, and no 'name: field=value'; {known}")
        base = {section: dict(values) for section, values in config}
        base["compare"]["populations"] = ()
        if name in found:
            raise UserError(f"compare.populations = {word!r}: {name!r} is compared in already: choose another name")
        found[name] = configuration.load(base, list(fields))
    return found


def _method_fields(word: str, config: Config) -> list[str]:
    """``ifca@3``: IFCA with three clusters; ``ifca@k``, ``ifca@k+2``: with as many as are planted, or two more."""
    name, at, count = word.partition("@")
    fields = [f'clustering.method="{name}"']
    if at:
        amount = re.fullmatch(r"(\d+)|k([+-]\d+)?", count)
        if amount is None:
            raise UserError(f"compare.methods = {word!r}: after @ comes a number of clusters, or k, k+1, k-1, ...")
        planted = len(config.incongruence.groups) if config.incongruence.kind != "none" else 1
        clusters = int(amount[1]) if amount[1] else max(1, planted + int(amount[2] or 0))
        if not hasattr(getattr(config, name, None), "clusters"):
            raise UserError(f"compare.methods = {word!r}: {name!r} has no number of clusters to set")
        fields.append(f"{name}.clusters={clusters}")
    base = {section: dict(values) for section, values in config}
    find_method(configuration.load(base, fields), np.zeros(1, dtype=np.int64))  # or say that there is none
    return fields


def _named_fields(field: str, text: str) -> tuple[str, list[str]]:
    name, colon, fields = text.partition(":")
    if not colon or not re.fullmatch(NAME, name := name.strip()):
        raise UserError(f"{field} = {text!r}: must be 'name: section.field=value; section.field=value'")
    return name, [part.strip() for part in fields.split(";") if part.strip()]
