"""What all sections of a config share."""

from typing import Any, Self

from annotated_types import Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

LARGEST = 1e24  # of any number: beyond, what is worked out from it is no number any more
SMALLEST = 1e-40  # of numbers that must be above 0, as something is divided by them; not of shares and levels
LARGEST_COUNT = 10**12  # of whole numbers but seeds
LARGEST_DECIBELS = 400.0


class Complaint(ValueError):
    """A value that does not fit another field's; it travels through pydantic with its field and value."""

    def __init__(self, field: str, value: object, right: str) -> None:
        super().__init__(right)
        self.field, self.value, self.right = field, value, right


class Section(BaseModel):
    """Frozen, strict about types and names; a user's own method may check its settings with one of these, too.

    No number may be so large or so small that nothing can be worked out from it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _numbers_of_this_world(self) -> Self:
        for name, value in self:
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int | float) and (right := _beyond(name, number, type(self).model_fields[name])):
                    raise Complaint(name, value, right)
        return self


def _beyond(name: str, number: float, field: FieldInfo) -> str | None:
    """What would be right instead of a number beyond all bounds."""
    if name.endswith(("_db", "_dbm")) and abs(number) > LARGEST_DECIBELS:
        return f"must be from {-LARGEST_DECIBELS:g} to {LARGEST_DECIBELS:g}"
    largest = LARGEST_COUNT if isinstance(number, int) and name != "seed" else LARGEST
    if abs(number) > largest:
        return f"must be at most {largest:g}" if number > 0 else f"must be at least {-largest:g}"
    return f"must be at least {SMALLEST:g}" if 0 < number < SMALLEST and _divides(field) else None


def _divides(field: FieldInfo) -> bool:
    """Whether a field's numbers must be above 0 and may be above 1: something is divided by them."""
    bounds = field.metadata
    ends: list[Any] = [
        bound.lt if isinstance(bound, Lt) else bound.le for bound in bounds if isinstance(bound, Lt | Le)
    ]
    return any(isinstance(bound, Gt) and bound.gt == 0 for bound in bounds) and not any(end <= 1 for end in ends)
