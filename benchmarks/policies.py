"""What each policy and each after-stop rule costs in simulated seconds, and what it finds and serves.

    python -m benchmarks.policies                              # quickstart, three seeds: about ten minutes
    python -m benchmarks.policies --preset femnist-rotated --seeds 1 --only 'fair;fair-cover' --target 0.6

Medians over the seeds. A split counts where the run ended with exactly the planted groups. The method is
norm-thresholds: it is about scheduling, and cross-evaluation comes a few rounds sooner under all of them.
"""

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path

from fedclade import Experiment
from fedclade.scheduling import policy_names

RESULTS = Path(__file__).parent / "results"
PAPER = ["scheduling.order=latency", "scheduling.after_stop=greedy", "scheduling.n_greedy=1"]
COVER = ["scheduling.policy=fair-cover", "scheduling.order=longest-upload", "clustering.max_age=4"]
FIXED = {  # ε as tuned by hand for the population
    "quickstart": "norm_thresholds.epsilon1=0.2 norm_thresholds.epsilon2=0.8 norm_thresholds.bipartition=average",
    "femnist-rotated": "norm_thresholds.epsilon1=0.2 norm_thresholds.epsilon2=1.0 norm_thresholds.bipartition=minmax",
}
FEW = ["scheduling.order=longest-upload", "clustering.max_age=4"]


def settings(after: int) -> dict[str, list[str]]:
    """Name -> overrides; ``after`` devices go on in a stopped cluster, but for the paper's one."""

    def goes_on(rule: str, count: int) -> list[str]:
        return [f"scheduling.after_stop={rule}", f"scheduling.n_greedy={count}"]

    found = {
        "paper (fair, latency, greedy 1)": PAPER,
        "fair, latency": ["scheduling.order=latency", *goes_on("round-robin", after)],
        "fair": ["scheduling.order=longest-upload", *goes_on("round-robin", after)],
        "fair-cover": [*COVER, *goes_on("cover", after)],
        "fair-patient": ["scheduling.policy=fair-patient", *FEW, *goes_on("cover", after)],
        "fair-cover, greedy 1": [*COVER, *goes_on("greedy", 1)],
        f"fair-cover, greedy {after}": [*COVER, *goes_on("greedy", after)],
        "fair-cover, round-robin 1": [*COVER, *goes_on("round-robin", 1)],
        f"fair-cover, round-robin {after}": [*COVER, *goes_on("round-robin", after)],
        "fair-cover, cover 1": [*COVER, *goes_on("cover", 1)],
        "fair-cover, cover 2": [*COVER, *goes_on("cover", 2)],
        "fair-cover, freeze": [*COVER, *goes_on("freeze", 1)],
    }
    for policy in (name for name in policy_names() if not name.startswith("fair")):
        found[policy] = [f"scheduling.policy={policy}", *FEW]
    return found


def measure(preset: str, overrides: list[str], seed: int, target: float) -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as folder:
        fixed = ["clustering.method=norm-thresholds", "norm_thresholds.warmup_rounds=5", *FIXED.get(preset, "").split()]
        run = Experiment(preset, [*fixed, *overrides, f"run.seed={seed}", "run.conventional=frozen"]).run(
            Path(folder) / "run"
        )
        rounds, summary = run.rounds, run.summary
    reached = rounds[rounds["accuracy_mean"] >= target]
    first = None if reached.empty else float((reached["start_seconds"] + reached["seconds"]).iloc[0])
    right = summary["adjusted_rand_index"] == 1.0
    return {
        "split_seconds": summary["last_split_seconds"] if right else None,
        "target_seconds": first,
        "total_seconds": summary["simulated_seconds"],
        "rand_index": summary["adjusted_rand_index"],
        "accuracy_mean": summary["accuracy_mean"],
        "accuracy_min": summary["accuracy_min"],
        "jain": summary["jain_participation"],
        "joules": summary["energy_joules"],
    }


def median(rows: list[dict[str, float | None]], name: str) -> float:
    """NaN as soon as one seed did not get there."""
    values = [row[name] for row in rows]
    return math.nan if None in values else statistics.median(value for value in values if value is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--after", type=int, default=3, help="devices that go on in a stopped cluster")
    parser.add_argument("--target", type=float, default=0.8, help="mean accuracy to be reached")
    parser.add_argument("--only", help="names of settings, separated by semicolons")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    options = parser.parse_args()
    chosen = settings(options.after)
    if options.only:
        chosen = {name: chosen[name] for name in options.only.split(";")}
    print("| setting | right split s | target s | total s | Rand index | mean | worst | Jain | J |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    found = {}
    for name, overrides in chosen.items():
        seeds = range(1, options.seeds + 1)
        rows = [measure(options.preset, [*overrides, *options.set], seed, options.target) for seed in seeds]
        found[name] = rows
        print(
            f"| {name} | {median(rows, 'split_seconds'):.1f} | {median(rows, 'target_seconds'):.1f} "
            f"| {median(rows, 'total_seconds'):.1f} | {median(rows, 'rand_index'):.2f} "
            f"| {100 * median(rows, 'accuracy_mean'):.1f} % | {100 * median(rows, 'accuracy_min'):.1f} % "
            f"| {median(rows, 'jain'):.3f} | {median(rows, 'joules'):.0f} |",
            flush=True,
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"policies-{Path(options.preset).stem}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
