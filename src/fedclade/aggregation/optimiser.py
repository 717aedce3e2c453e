"""FedOpt: what the server makes of a cluster's update before the model moves; each model has a memory of its own.

"Adaptive Federated Optimization" (Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan; ICLR 2021; arXiv
2003.00295), Algorithm 2, with the aggregated update Δ in the place of a gradient:

    m ← β1 m + (1 − β1) Δ
    v ← v + Δ²  (adagrad),  v − (1 − β2) Δ² sign(v − Δ²)  (yogi),  β2 v + (1 − β2) Δ²  (adam);  at first v = τ²
    w ← w + η m / (√v + τ)

``momentum`` is FedAvgM: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
(Hsu, Qi, Brown 2019; arXiv 1909.06335): m ← β1 m + Δ, w ← w + η m.
"""

import numpy as np

from fedclade.config import AggregationConfig
from fedclade.core.arrays import Singles


def optimised(move: Singles, moments: Singles | None, settings: AggregationConfig) -> tuple[Singles, Singles | None]:
    """What a model moves by instead of ``move``, and its moments afterwards: m and, behind it, v, in one vector.

    ``moments`` are None before the first move, and stay None without an optimiser.
    """
    rule, rate, beta1, beta2 = settings.optimiser, settings.rate, settings.beta1, settings.beta2
    if rule == "none":
        return move, None
    if rule == "momentum":
        m = move if moments is None else np.float32(beta1) * moments + move
        return np.asarray(np.float32(rate) * m, dtype=np.float32), np.asarray(m, dtype=np.float32)
    if moments is None:
        moments = np.concatenate([np.zeros_like(move), np.full_like(move, settings.tau**2)])
    m, v = (part.astype(np.float64) for part in np.split(moments, 2))
    square = move.astype(np.float64) ** 2
    m = beta1 * m + (1 - beta1) * move
    if rule == "adagrad":
        v = v + square
    elif rule == "yogi":
        v = v - (1 - beta2) * square * np.sign(v - square)
    else:
        v = beta2 * v + (1 - beta2) * square
    step = rate * m / (np.sqrt(v) + settings.tau)
    return step.astype(np.float32), np.concatenate([m, v]).astype(np.float32)
