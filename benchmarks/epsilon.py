"""Which ε1 and ε2 suit a preset? ``python -m benchmarks.epsilon PRESET``.

The paper names no values, and none can suit every model and data set: they are compared with norms of updates. This
sweep finds them on one seed and judges them on another.

1. *Trace*, tuning seed: one run that never splits tells the mean and the largest norm of every round.
2. *Grid*: quantiles of the means for ε1; for ε2 those of the largest norms, and fractions of the lowest.
3. *Runs* with every pair of them. Pairs that have decided alike so far are one run: they part in the first round in
   which the paper's rule says something else with one than with the other.
4. *Choice*: of the pairs that split and end within two points of the highest mean accuracy, the one that comes closest
   to the planted groups (adjusted Rand index, to two digits); of equally close ones, the most accurate; of several that
   decide alike, the middle one.
5. *Judgement*, another seed: the chosen pair, the preset's own, and one model for all that never splits.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.machine import markdown
from fedclade import Experiment
from fedclade.clustering.criteria import judge
from fedclade.clustering.method import Norms
from fedclade.config import Config
from fedclade.core.records import RoundRecord
from fedclade.core.state import State
from fedclade.server import Server
from fedclade.simulation import simulated_server

Pair = tuple[float, float]  # ε1, ε2
NEVER: Pair = (1e-30, 1e30)  # no mean update is so short
MEANS = (0.1, 0.5, 0.9)  # quantiles of the mean norms
LARGEST = (0.9, 0.5, 0.1)  # quantiles of the largest norms
LOWER = (0.75, 0.5)  # and these shares of the lowest of them: a group that is whole pulls less than a mixture
CLOSE = 0.02  # mean accuracies that differ by no more than this count as equal
HEAD = ("ε1", "ε2", "clusters", "first split", "adjusted Rand index", "mean accuracy", "worst device")


@dataclass(frozen=True)
class Ending:
    """Where a run ended, and the pairs of ε that lead there."""

    pairs: tuple[Pair, ...]
    clusters: int
    first_split: int | None
    rand_index: float
    mean: float
    worst: float

    def middle(self) -> Pair:
        """The pair with the most room on all sides: closest to the geometric mean of all but NEVER."""
        pairs = [pair for pair in self.pairs if pair != NEVER] or [NEVER]
        logs = np.log(np.array(pairs))
        return pairs[int(np.abs(logs - logs.mean(axis=0)).sum(axis=1).argmin())]

    def row(self, pair: Pair | None = None) -> tuple[str, ...]:
        one, two = pair or self.middle()
        first = "–" if self.first_split is None else f"round {self.first_split}"
        accuracies = (f"{100 * share:.1f} %" for share in (self.mean, self.worst))
        named = ("never splits", "") if (one, two) == NEVER else (f"{one:g}", f"{two:g}")
        return (*named, str(self.clusters), first, f"{self.rand_index:.2f}", *accuracies)


class Sweep:
    """Runs of one preset and seed that differ in ε1 and ε2 alone."""

    def __init__(self, preset: str, overrides: Iterable[str], seed: int) -> None:
        rule = ["clustering.method=norm-thresholds", "run.conventional=frozen", f"run.seed={seed}"]
        self.experiment = Experiment(preset, [*overrides, *rule])
        rounds = self.experiment.config.run.rounds
        quiet = self.experiment.config.run.model_copy(update={"evaluate_every": rounds})
        self.config = self.experiment.config.model_copy(update={"run": quiet})
        self._unsplit: dict[int, tuple[State, RoundRecord]] = {}  # the run that never splits, by round

    def server(self, pair: Pair) -> Server:
        """Algorithm 1 with these thresholds; data, devices and links are those of all the others."""
        parts, population = self.experiment, self.experiment.population
        return simulated_server(
            with_pair(self.config, pair), parts.trainer, parts.edge, population.samples, population.group
        )

    def trace(self) -> list[tuple[float, float]]:
        """Mean and largest norm of every round after the warm-up, of a run that never splits."""
        server = self.server(NEVER)
        state, found = server.initial_state(), []
        while server.finished(state) is None:
            after, record = self._unsplit[state.round] = stepped(server, state)
            state = after
            found.append((record.clusters[0].mean_norm or 0.0, record.clusters[0].max_norm or 0.0))
        return found[self.config.norm_thresholds.warmup_rounds :]

    def endings(self, pairs: Sequence[Pair]) -> list[Ending]:
        """Where each pair leads; those that decide alike are together."""
        found, waiting = [], [(self.server(pairs[0]).initial_state(), tuple(dict.fromkeys(pairs)))]
        while waiting:
            state, together = waiting.pop()
            server = self.server(together[0])
            while server.finished(state) is None:
                known = self._unsplit.get(state.round) if together[0] == NEVER else None
                after, record = known or stepped(server, state)
                alike = {pair: self.decided(pair, record) for pair in together}
                parties = [tuple(p for p in together if alike[p] == said) for said in dict.fromkeys(alike.values())]
                waiting.extend((state, party) for party in parties[1:])  # they decide otherwise: this round again
                state, together = after, parties[0]
            found.append(self.ending(together, state, record))
            print("|", " | ".join(found[-1].row()), "|", flush=True)
        return found

    def decided(self, pair: Pair, record: RoundRecord) -> tuple[str, ...]:
        """What the rule says with these thresholds of every cluster; one cluster goes on though it has stopped."""
        settings = with_pair(self.config, pair).norm_thresholds
        said = tuple(
            judge(Norms(each.mean_norm or 0.0, each.max_norm or 0.0, each.heard), each.members, record.round, settings)
            for each in record.clusters
        )
        alone = len(said) == 1 and self.config.scheduling.greedy_clusters > 1
        return ("split" if "split" in said else "go-on",) if alone else said

    def ending(self, pairs: tuple[Pair, ...], state: State, last: RoundRecord) -> Ending:
        assert last.evaluation is not None
        accuracy = last.evaluation.score
        splits = [node.split.round for node in state.tree.nodes.values() if node.split]
        rand_index = adjusted_rand_score(self.experiment.population.group, state.tree.leaf_of())
        return Ending(
            pairs,
            len(state.tree.leaves()),
            min(splits, default=None),
            float(rand_index),
            float(accuracy.mean()),
            float(accuracy.min()),
        )


def with_pair(config: Config, pair: Pair) -> Config:
    settings = config.norm_thresholds.model_copy(update={"epsilon1": pair[0], "epsilon2": pair[1]})
    return config.model_copy(update={"norm_thresholds": settings})


def stepped(server: Server, state: State) -> tuple[State, RoundRecord]:
    result = server.step(state)
    assert result is not None, "the time budget is used up: sweep without one"
    return result


def grid(trace: Sequence[tuple[float, float]]) -> list[Pair]:
    """Pairs of thresholds that norms like these can cross, to two digits."""
    means, largest = np.array(trace).T
    lowest = float(largest.min())
    ones = [float(np.quantile(means, share)) for share in MEANS]
    twos = [*(float(np.quantile(largest, share)) for share in LARGEST), *(share * lowest for share in LOWER)]
    return list(dict.fromkeys((float(f"{one:.2g}"), float(f"{two:.2g}")) for one in ones for two in twos))


def tuned(preset: str, overrides: list[str], seed: int) -> tuple[Pair, list[Ending]]:
    """The pair of choice on one seed, and all endings, the best first."""
    sweep = Sweep(preset, overrides, seed)
    pairs = grid(sweep.trace())
    found = sorted(sweep.endings([NEVER, *pairs]), key=lambda each: (each.mean, each.worst), reverse=True)
    sweep.experiment.trainer.close()
    return choice(found).middle(), found


def choice(found: Sequence[Ending]) -> Ending:
    """Accuracy first; the planted groups decide where it hardly differs: label skew alone favours small clusters."""
    splitting = [each for each in found if each.first_split is not None] or found
    best = max(each.mean for each in splitting)
    close = [each for each in splitting if each.mean >= best - CLOSE]
    return max(close, key=lambda each: (round(each.rand_index, 2), each.mean, each.worst))


def judged(preset: str, overrides: list[str], seed: int, chosen: Pair) -> list[tuple[str, Any]]:
    """The chosen pair, the preset's own and one model for all, on another seed: a name and an ending each."""
    sweep = Sweep(preset, overrides, seed)
    own = sweep.config.norm_thresholds.epsilon1, sweep.config.norm_thresholds.epsilon2
    names = {"chosen": chosen, "the preset's": own, "one model": NEVER}
    found = sweep.endings(list(names.values()))
    sweep.experiment.trainer.close()
    return [(name, next(each for each in found if pair in each.pairs).row(pair)) for name, pair in names.items()]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.epsilon", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset")
    parser.add_argument("--seed", type=int, default=11, help="of the sweep")
    parser.add_argument("--judge", type=int, default=13, help="seed of the judgement")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="of both")
    parser.add_argument("--chosen", nargs=2, type=float, metavar="ε", help="judge this pair, without a sweep")
    arguments = parser.parse_args()
    if arguments.chosen:
        chosen = (arguments.chosen[0], arguments.chosen[1])
    else:
        chosen, found = tuned(arguments.preset, arguments.set, arguments.seed)
        print(f"\n{arguments.preset}, tuned on seed {arguments.seed}, the best first:\n")
        print(markdown(("pairs of ε", *HEAD), [(len(each.pairs), *each.row()) for each in found]))
    print(f"\nchosen: ε = ({chosen[0]:g}, {chosen[1]:g}); judged on seed {arguments.judge}:\n", flush=True)
    rows = judged(arguments.preset, arguments.set, arguments.judge, chosen)
    print(markdown(("", *HEAD), [(name, *cells) for name, cells in rows]))


if __name__ == "__main__":
    main()
