"""What all tests share. Real FEMNIST and CIFAR-10 come from $FEDCLADE_DATA; without it those tests skip, and say so."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("fedclade", deadline=None, max_examples=100)
settings.load_profile("fedclade")


# The files whose tests take longest; first those that mostly wait for the processes of Flower and Ray.
LONGEST = (
    "deployment/test_demo.py",
    "deployment/test_loopback.py",
    "fleet/test_ray.py",
    "test_readme.py",
    "test_benchmarks.py",
    "test_femnist_groups.py",
    "test_presets_real_data.py",
    "study/test_study.py",
    "test_docs.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, so that in the end no process is left alone with one of them."""
    folder = Path(__file__).parent
    place = {folder / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(LONGEST)))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, or a skip; a failure where CI says that it must be there."""
    root = os.environ.get("FEDCLADE_DATA")
    if root and Path(root).is_dir():
        return Path(root)
    message = "needs real FEMNIST and CIFAR-10: set FEDCLADE_DATA to their folder"
    if os.environ.get("FEDCLADE_REQUIRE_DATA"):
        pytest.fail(message)
    pytest.skip(message)
