"""How far each order is from the shortest round, and what each allocation saves: medians over random rounds.

    python -m benchmarks.scheduling               # 300 draws: a few minutes
    python -m benchmarks.scheduling --draws 20

Each draw is a population of its own on the default radio network (10 sub-channels of 1 MHz, Rayleigh fading, thermal
noise) that uploads 1 M parameters after 10 epochs over 100 to 500 images of 28×28. ``optimal`` is solved for 20 devices
and fewer; where it does not reach the closed-form bound, the bound it proved is the one it is measured against.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from fedclade.config import Config, EdgeConfig, RunConfig
from fedclade.edge import Links, SimulatedEdge
from fedclade.scheduling import ALLOCATIONS, ORDERS, Effort, Order, Slots, allocate, find_rule, plan_timeline

RESULTS = Path(__file__).parent / "results"
DEVICES = (20, 50, 100, 200, 1000)
PARAMETERS, BITS_PER_SAMPLE = 1_000_000, 28 * 28 * 8


def drawn(devices: int, draw: int) -> Links:
    config = Config(run=RunConfig(seed=draw), edge=EdgeConfig())
    samples = np.random.default_rng(draw).integers(100, 501, devices)
    return SimulatedEdge(config, samples, BITS_PER_SAMPLE, PARAMETERS).observe(1)


def one_round(links: Links, order: Order, subchannels: int) -> dict[str, list[float]]:
    """Allocation -> makespan, makespan over bound, joules."""
    everybody = np.arange(len(links.snr))
    timeline = plan_timeline(everybody, links.compute_seconds, links.upload_seconds, subchannels, order=order)
    assert links.limits is not None
    effort = Effort(
        links.compute_seconds,
        links.upload_seconds,
        links.compute_joules,
        links.upload_joules,
        links.snr,
        **vars(links.limits),
    ).of(timeline.device)
    found = {}
    for kind in ALLOCATIONS:
        allocation = allocate(find_rule(kind), Slots(timeline, effort, subchannels))
        found[kind] = [allocation.timeline.makespan, allocation.timeline.ratio, allocation.joules]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--devices", type=int, nargs="*", default=DEVICES)
    options = parser.parse_args()
    print("| K | order | allocation | makespan s | / bound | 95th percentile | J |")
    print("| ---: | --- | --- | ---: | ---: | ---: | ---: |")
    results = []
    for devices in options.devices:
        rounds = [drawn(devices, draw) for draw in range(1, options.draws + 1)]
        for order in ORDERS:
            if order == "optimal" and devices > 20:
                continue
            every = [one_round(links, order, EdgeConfig().subchannels) for links in rounds]
            for kind in ALLOCATIONS:
                makespan, ratio, joules = np.median([one[kind] for one in every], axis=0)
                late = float(np.quantile([one[kind][1] for one in every], 0.95))
                results.append(
                    {
                        "devices": devices,
                        "order": order,
                        "allocation": kind,
                        "makespan_seconds": makespan,
                        "ratio": ratio,
                        "ratio_95": late,
                        "joules": joules,
                    }
                )
                print(
                    f"| {devices} | {order} | {kind} | {makespan:.1f} | {ratio:.3f} | {late:.3f} | {joules:.1f} |",
                    flush=True,
                )
            if order == "optimal":
                gaps = np.array([one["fixed"][1] - 1 for one in every])
                share = np.mean(gaps < 1e-5)
                print(f"optimal: proven shortest in {100 * share:.0f} % of draws, largest gap {100 * gaps.max():.1f} %")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scheduling.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
