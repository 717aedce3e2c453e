"""Numbers as a person reads them."""

import math

import pytest

from fedclade.core.units import number


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (2.9, 3, "2.9"),
        (0.0123456, 3, "0.0123"),
        (295.71, 3, "296"),
        (999.4, 3, "999"),
        (999.6, 3, "1000"),
        (1475.9, 3, "1476"),
        (234.21, 4, "234.2"),
        (14760.2, 3, "14,760"),
        (math.nan, 3, "nan"),
    ],
)
def test_numbers_are_never_told_as_powers_of_ten(value, digits, text):
    assert number(value, digits) == text
