"""Computing, uploading, local steps and energy, against numbers worked out by hand."""

import numpy as np
import pytest

from fedclade.config import EdgeConfig, TrainingConfig
from fedclade.edge import energy, latency

GREY_28X28 = 28 * 28 * 8  # 6,272 bits a sample


def test_local_steps_count_the_last_short_batch():
    # E = 10, b = 32: 1 -> 1 batch, 32 -> 1, 33 -> 2, 100 -> 4 (3 full and one of 4)
    steps = latency.local_steps(TrainingConfig(epochs=10, batch_size=32), np.array([1, 32, 33, 100]))
    assert steps.tolist() == [10, 10, 20, 40]


@pytest.mark.parametrize(
    ("cycles_per", "seconds"),
    [
        ("bit", [0.12544, 1.2544]),  # 20 x 6,272 = 125,440 cycles a sample; x 10 x 100 / 1 GHz, x 10 x 2,000 / 2 GHz
        ("sample", [20e-6, 200e-6]),  # 20 x 10 x 100 / 1 GHz, 20 x 10 x 2,000 / 2 GHz
    ],
)
def test_computing_time_per_bit_and_per_sample(cycles_per, seconds):
    cycles = latency.compute_cycles(EdgeConfig(cycles_per=cycles_per), 10, np.array([100, 2000]), GREY_28X28)
    assert latency.compute_seconds(cycles, np.array([1e9, 2e9])) == pytest.approx(seconds)


def test_upload_time_is_bits_over_rate_and_infinite_on_a_dead_link():
    # 32 Mbit at 2 Mbit/s: 16 s
    assert latency.upload_seconds(32e6, np.array([2e6, 0.0])).tolist() == [16.0, np.inf]


def test_computing_energy_grows_with_the_square_of_the_clock():
    # 1e-28 x 1.2544e8 cycles x (1e9)^2 = 0.012544 J; three times the clock, nine times the energy: 0.112896 J
    joules = energy.compute_joules(1e-28, np.full(2, 1.2544e8), np.array([1e9, 3e9]))
    assert joules == pytest.approx([0.012544, 0.112896])


def test_upload_energy_is_power_times_time():
    # 0.1 W x 16 s = 1.6 J
    assert energy.upload_joules(np.array([0.1]), np.array([16.0])) == pytest.approx([1.6])
