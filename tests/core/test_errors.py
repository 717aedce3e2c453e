from hypothesis import given
from hypothesis import strategies as st

from fedclade.core.errors import LONGEST_MESSAGE, UserError


@given(st.text())
def test_whatever_a_message_quotes_it_is_one_printable_line(text):
    line = str(UserError(f"device {text}: is wrong"))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    if text.isprintable():
        assert line == f"device {text}: is wrong"


def test_of_a_message_that_is_far_too_long_the_middle_is_left_out():
    half = LONGEST_MESSAGE // 2
    assert str(UserError("a" + "x" * 10**6 + "z")) == "a" + "x" * (half - 1) + "…" + "x" * (half - 1) + "z"
