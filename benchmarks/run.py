"""Wall time of a whole run: the quickstart with all that fedclade does in it, against federated averaging by the peers.

fedclade reads its data, trains, asks, clusters, trains one model for all beside it, evaluates every device in every
round, writes its records and its page. The others have their data ready, train one model and evaluate every device in
every round.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.contest import LOOP, OURS, Entry, assembled, fastest_others, loops, peers, ranking, table, take_turns
from benchmarks.machine import Goal, Options, Report
from benchmarks.work import write_work
from fedclade import config as configuration
from fedclade.data import build_population

GOAL_TIMES = 2
GOAL_SHARE = 20  # per cent
OVERHEAD = ("asking", "clustering", "evaluation", "disk")


def contest(rounds: int, options: Options) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The ranking, and where fedclade's time went in its last run: a share for each phase."""
    config = configuration.load("quickstart", [f"run.rounds={rounds}"])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_work(folder, config, build_population(config), rounds=rounds * (1 + options.repeats), evaluate=True)
        entries = [Entry(OURS, "a whole clustered run", "with_fedclade_run", {})]
        entries += [*loops(rounds), *(peers(rounds) if options.peers else ())]
        with assembled(entries, folder, options.skip) as contestants:
            take_turns(contestants, options.repeats, "run")
        summary = json.loads((folder / "run" / "summary.json").read_text())
    shares = {name.removeprefix("wall_share_"): share for name, share in summary.items() if "wall_share_" in name}
    return ranking(contestants), shares


def run(options: Options) -> Report:
    rounds = 2 if options.quick else 40
    facts, shares = contest(rounds, options)
    best = fastest_others(facts)
    found = ", ".join(f"{name}: {times:.1f}×" for name, times in best.items())
    parts = ", ".join(f"{phase} {share:.0%}" for phase, share in shares.items())
    overhead = 100 * sum(shares[phase] for phase in OVERHEAD)
    text = (
        f"`quickstart`: 20 devices, {rounds} rounds, evaluated in every round; turns: {options.repeats}\n\n"
        f"{table(facts, 'run')}\n\n"
        f"Fastest setting against a whole run of fedclade: {found} (goal: {GOAL_TIMES}×)\n\n"
        f"Of fedclade's time: {parts}, the rest start-up and page"
    )
    peer = next((times for name, times in best.items() if name != LOOP), None)
    goals = [
        Goal("a whole run of `quickstart` against the fastest peer", GOAL_TIMES, peer, "×"),
        Goal("server, asking, evaluation and disk in it", GOAL_SHARE, overhead, " %", at_most=True),
    ]
    settings = {"rounds": rounds, "repeats": options.repeats, "quick": options.quick, "skip": options.skip}
    return Report(settings, {"ranking": facts, "shares": shares}, text, goals)
