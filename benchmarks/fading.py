"""How close policies come to a clairvoyant who knows all fades: seconds an upload, everybody heard in each period.

    python -m benchmarks.fading

On the default radio network, a model of 18,506 parameters. The clairvoyant knows every round of a period beforehand,
and deals the uploads to its rounds, at most one a sub-channel in each, so that they take the least time together.
*Anybody* is the least that can be expected of whoever does not know the future, even if each device had a sub-channel
of its own.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.machine import markdown
from fedclade.config import Config, PopulationConfig, RunConfig, SchedulingConfig
from fedclade.core.arrays import Floats
from fedclade.edge import SimulatedEdge
from fedclade.scheduling import ClusterView, Planner
from fedclade.scheduling.policies.patient import upload_time, upload_times

RESULTS = Path(__file__).parent / "results"
POLICIES = ("random", "fair-cover", "fair-patient")
DEVICES, TIMES_THE_FEWEST = (20, 50, 100, 200), (1, 2, 4)
PARAMETERS, BITS_PER_SAMPLE, SAMPLES = 18_506, 28 * 28 * 8, 200


def drawn(devices: int, period: int, seed: int) -> dict[str, float]:
    """Seconds an upload of each policy, of the clairvoyant, and the least that anybody can expect."""
    config = Config(run=RunConfig(seed=seed), population=PopulationConfig(devices=devices))
    edge = SimulatedEdge(config, np.full(devices, SAMPLES), BITS_PER_SAMPLE, PARAMETERS)
    rounds = [edge.observe(number + 1) for number in range(period)]
    times = np.stack([links.upload_seconds for links in rounds])
    subchannels = config.edge.subchannels
    slots = np.repeat(times, subchannels, axis=0).T
    found = {"clairvoyant": float(slots[linear_sum_assignment(slots)].mean())}
    first = rounds[0]
    assert first.mean_rate_bps is not None
    nats = np.log1p(first.snr)
    least = upload_time(nats * first.mean_rate_bps / first.rate_bps, upload_times(period)[-1])
    found["anybody"] = float((first.upload_seconds * nats * least).mean())
    for policy in POLICIES:
        window = period if policy.startswith("fair") else None
        planner = Planner(SchedulingConfig(policy=policy, window=window), seed, subchannels)
        last_heard, uploads = np.zeros(devices, dtype=np.int64), list[Floats]()
        everybody = (ClusterView(np.arange(devices), True),)
        for number, links in enumerate(rounds, start=1):
            plan = planner.plan(number, links, everybody, np.full(devices, SAMPLES), last_heard, last_heard[:0])
            last_heard[plan.computing] = number
            uploads.append(links.upload_seconds[plan.computing])
        found[policy] = float(np.concatenate(uploads).mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--devices", type=int, nargs="*", default=DEVICES)
    options = parser.parse_args()
    names, rows, results = ("anybody", *POLICIES), [], []
    for devices in options.devices:
        for times in TIMES_THE_FEWEST:
            period = -(-devices // 10) * times
            draws = [drawn(devices, period, seed) for seed in range(1, options.draws + 1)]
            mean = {name: float(np.mean([each[name] for each in draws])) for name in draws[0]}
            results.append({"devices": devices, "period": period, **mean})
            rows.append((devices, period, *(f"{mean[name] / mean['clairvoyant']:.3f}" for name in names)))
    print(markdown(("K", "rounds a period", *names), rows))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "fading.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
