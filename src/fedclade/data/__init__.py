"""What each device holds: one shared uint8 array, devices are index lists into it."""

from dataclasses import dataclass

import numpy as np

from fedclade.core.arrays import Bytes, Ints
from fedclade.config import Config
from fedclade.data.planted_groups import allowed_classes, group_of_devices, plant
from fedclade.data.partition import deal, split_shares
from fedclade.data.sources import ImageSet, read_images

__all__ = ["ImageSet", "Population", "build_population", "populate", "read_images"]


@dataclass(frozen=True)
class Population:
    """All devices' data. Each device's images lie side by side in the shared array."""

    images: Bytes  # N × C × H × W
    labels: Ints
    train: tuple[Ints, ...]  # per device, positions in images
    validation: tuple[Ints, ...]  # held out for the server's questions; may be empty
    test: tuple[Ints, ...]
    group: Ints  # planted group of each device: the truth clustering is scored against
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def devices(self) -> int:
        """K."""
        return len(self.train)

    @property
    def samples(self) -> Ints:
        """D_k: training images per device."""
        return np.array([len(positions) for positions in self.train])

    @property
    def bits_per_sample(self) -> int:
        """Of one 8-bit image."""
        return int(np.prod(self.images.shape[1:])) * 8


def build_population(config: Config) -> Population:
    """Read the source, deal it out, plant the groups."""
    return populate(config, read_images(config.population))


def populate(config: Config, source: ImageSet) -> Population:
    """Deal a source's images out to devices and plant the groups."""
    seed = config.run.seed
    groups = config.incongruence.groups if config.incongruence.kind != "none" else (1,)
    group = group_of_devices(groups, config.population.devices)
    allowed = allowed_classes(config.incongruence, np.unique(source.labels), group, seed)
    dealt = deal(config.population, source.labels, source.writers, allowed, seed)

    images = np.empty((sum(map(len, dealt)), *source.images.shape[1:]), dtype=np.uint8)
    labels = np.empty(len(images), dtype=np.int64)
    shares, end = [], 0
    for device, positions in enumerate(dealt):
        mine = slice(end, end := end + len(positions))
        images[mine], labels[mine] = plant(
            config.incongruence,
            source.images[positions],
            source.labels[positions],
            int(group[device]),
            source.classes,
            seed,
        )
        shares.append(
            split_shares(
                np.arange(mine.start, mine.stop), config.population.test_share, config.validation_share, seed, device
            )
        )
    train, validation, test = zip(*shares, strict=True)
    return Population(images, labels, train, validation, test, group, source.classes, source.mean, source.std)
