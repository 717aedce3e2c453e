"""How long things take: eqs. (1), (8), (9) and (10)."""

import numpy as np

from fedclade.config import EdgeConfig, TrainingConfig
from fedclade.core.arrays import Floats, Ints


def local_steps(training: TrainingConfig, samples: Ints) -> Ints:
    """Eq. (1) with whole batches: T_k = E · ceil(D_k / b)."""
    return training.epochs * -(-samples // training.batch_size)


def cycles_per_sample(edge: EdgeConfig, bits_per_sample: int) -> float:
    """φ, per bit of a sample or per sample: what training on one sample once takes."""
    return edge.cycles * (bits_per_sample if edge.cycles_per == "bit" else 1)


def compute_cycles(edge: EdgeConfig, passes: int, samples: Ints, bits_per_sample: int) -> Floats:
    """E · φ · D_k; twice as much where E epochs are trained twice."""
    return np.asarray(passes * cycles_per_sample(edge, bits_per_sample) * samples, dtype=np.float64)


def compute_seconds(cycles: Floats, cpu_hz: Floats) -> Floats:
    """Eq. (9): T_cmp."""
    return cycles / cpu_hz


def upload_seconds(model_bits: float, rate: Floats) -> Floats:
    """Eq. (8): T_trans = ξ / rate; infinite where the link carries nothing, or next to it."""
    with np.errstate(over="ignore"):
        return np.divide(model_bits, rate, out=np.full_like(rate, np.inf), where=rate > 0)
