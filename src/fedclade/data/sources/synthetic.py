"""Synthetic(α, β) of the FedProx paper (Li et al., arXiv 1812.06127, section 5.1): 60 features, 10 classes, made here.

Device k has a rule of its own: y = argmax(softmax(W x + b)), where the entries of W and b are drawn from N(u_k, 1) and
u_k from N(0, α). Its samples x are drawn from N(v_k, Σ), where Σ is diagonal with the entries j^-1.2, those of v_k are
drawn from N(B_k, 1), and B_k from N(0, β). As in the authors' own generator, α and β are standard deviations.

u_k adds the same to the scores of all classes, so that α changes no label: whatever it is, the rules of two devices
have nothing in common. For groups that a clustering method can find there is ``population.synthetic_models = "group"``:
the paper's IID data, x from N(0, Σ) and one W and b for all from N(0, 1), once for each group of
``incongruence.groups``.

With ``population.synthetic_targets = "numbers"`` there are no classes: y is the first score of the same rule, w x + b,
with noise from N(0, 0.1²) added to it.
"""

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Floats
from fedclade.core.random import generator
from fedclade.data.partition import device_sizes
from fedclade.data.planted_groups import group_of_devices
from fedclade.data.source import Source

FEATURES, CLASSES, NOISE = 60, 10, 0.1
SAMPLES = 200  # of a device on average, unless population.samples says how many there are in all


def read(config: Config) -> Source:
    """All devices' samples; what a device draws does not depend on the others."""
    population, seed = config.population, config.run.seed
    sizes = device_sizes(population, population.samples or SAMPLES * population.devices, seed)
    everybody = np.arange(len(sizes))
    if population.synthetic_models == "group":
        group = group_of_devices(config.incongruence.groups, len(sizes))
        rules = [_rule(seed, number, 0.0) for number in group.tolist()]
        centers = np.zeros((len(sizes), FEATURES))
    else:
        group = None
        rules = [_rule(seed, device, population.synthetic_alpha) for device in everybody.tolist()]
        centers = np.stack([_center(seed, device, population.synthetic_beta) for device in everybody.tolist()])
    x = [_inputs(seed, device, size, centers[device]) for device, size in enumerate(sizes.tolist())]
    scores = [mine @ weights + bias for mine, (weights, bias) in zip(x, rules, strict=True)]
    device = np.repeat(everybody, sizes)
    if population.synthetic_targets == "numbers":
        noise = [generator(seed, "synthetic-noise", k).normal(0.0, NOISE, len(one)) for k, one in enumerate(scores)]
        y = np.concatenate([one[:, 0] + more for one, more in zip(scores, noise, strict=True)])
        return Source(np.concatenate(x), y, device=device, group=group)
    y = np.concatenate([np.argmax(one, axis=1) for one in scores])
    return Source(np.concatenate(x), y, classes=CLASSES, device=device, group=group)


def _rule(seed: int, number: int, alpha: float) -> tuple[Floats, Floats]:
    """W and b of one device, or of one group."""
    rng = generator(seed, "synthetic-rule", number)
    u = alpha * rng.standard_normal()
    return u + rng.standard_normal((FEATURES, CLASSES)), u + rng.standard_normal(CLASSES)


def _center(seed: int, device: int, beta: float) -> Floats:
    """v of one device."""
    rng = generator(seed, "synthetic-center", device)
    return beta * rng.standard_normal() + rng.standard_normal(FEATURES)


def _inputs(seed: int, device: int, count: int, center: Floats) -> Floats:
    """A device's x."""
    deviation = np.arange(1, FEATURES + 1) ** -0.6  # the square root of j^-1.2
    return center + deviation * generator(seed, "synthetic-inputs", device).standard_normal((count, FEATURES))
