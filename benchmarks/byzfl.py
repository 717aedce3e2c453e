"""The attacks of ByzFL against the automatic method: ``python -m benchmarks.byzfl`` (needs ``pip install byzfl``).

As ``benchmarks.attacks``, but what hostile devices upload is worked out by another project's code: each of its attacks
is handed the updates of the honest devices that train the same model. They are played under the name of an attack of
our own, which they replace.
"""

import argparse
from collections.abc import Callable

import byzfl
import numpy as np

from benchmarks.attacks import POPULATIONS, outcome
from benchmarks.machine import markdown
from fedclade.core.arrays import Singles
from fedclade.data.poison import hostile_devices
from fedclade.fleet import attacks
from fedclade.fleet.attacks import Company, Spoil

PLAYED_AS = "sign-flip"
THEIRS: dict[str, Callable[[], Callable[[Singles], Singles]]] = {
    "SignFlipping": byzfl.SignFlipping,
    "InnerProductManipulation": byzfl.InnerProductManipulation,
    "Optimal_InnerProductManipulation": byzfl.Optimal_InnerProductManipulation,
    "ALittleIsEnough": byzfl.ALittleIsEnough,
    "Optimal_ALittleIsEnough": byzfl.Optimal_ALittleIsEnough,
    "Mimic": byzfl.Mimic,
    "Gaussian": byzfl.Gaussian,
    "Inf": byzfl.Inf,
}


def spoil_of(attack: Callable[[Singles], Singles]) -> Spoil:
    """What all hostile devices upload, by one of ByzFL's attacks; among themselves they have nobody to attack."""

    def spoil(company: Company) -> Singles:
        honest = company.updates[~company.hostile]
        if len(honest) == 0:
            return company.own
        return np.tile(np.asarray(attack(honest), dtype=np.float32), (int(company.hostile.sum()), 1))

    return spoil


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.byzfl", description=__doc__)
    parser.add_argument("--attacks", nargs="+", default=list(THEIRS), choices=THEIRS)
    parser.add_argument("--population", default="3 groups", choices=POPULATIONS)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    common = [f"run.seed={words.seed}", *POPULATIONS[words.population]]
    accuracy, _, experiment = outcome(common)
    hostile = hostile_devices(experiment.config.attack, len(accuracy), words.seed)
    before = np.delete(accuracy, hostile)
    print(markdown(("attack", "mean", "against none", "worst", "against none"), []), flush=True)
    ours = attacks.SPOILS
    for name in words.attacks:
        for lies in (False, True):
            attacks.SPOILS = {**ours, PLAYED_AS: spoil_of(THEIRS[name]())}
            accuracy, _, _ = outcome([*common, f"attack.kind={PLAYED_AS}", f"attack.lies={str(lies).lower()}"])
            after = np.delete(accuracy, hostile)
            pairs = (after.mean(), before.mean()), (after.min(), before.min())
            told = [text for now, then in pairs for text in (f"{100 * now:.1f} %", f"{100 * (now - then):+.1f}")]
            print("| " + " | ".join([f"{name} + lies" if lies else name, *told]) + " |", flush=True)


if __name__ == "__main__":
    main()
