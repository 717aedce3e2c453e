"""What all tests share. Real FEMNIST and CIFAR-10 come from $FEDCLADE_DATA; without it those tests skip, and say so."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("fedclade", deadline=None, max_examples=100)
settings.load_profile("fedclade")


WAITING = ("deployment/test_demo.py", "deployment/test_loopback.py", "fleet/test_ray.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that wait for Flower's and Ray's processes come first, so that in the end nobody waits for them alone."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(WAITING))


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
