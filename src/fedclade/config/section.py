"""What all sections of a config share."""

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

SMALLEST, LARGEST = 1e-40, 1e24  # of any number but 0: beyond, what is worked out from it is no number any more
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
                if isinstance(number, int | float) and (right := _beyond(name, number)):
                    raise Complaint(name, value, right)
        return self


def _beyond(name: str, number: float) -> str | None:
    """What would be right instead of a number beyond all bounds."""
    if name.endswith(("_db", "_dbm")) and abs(number) > LARGEST_DECIBELS:
        return f"must be from {-LARGEST_DECIBELS:g} to {LARGEST_DECIBELS:g}"
    largest = LARGEST_COUNT if isinstance(number, int) and name != "seed" else LARGEST
    if abs(number) > largest:
        return f"must be at most {largest:g}" if number > 0 else f"must be at least {-largest:g}"
    return f"must be at least {SMALLEST:g} in size, or 0" if 0 < abs(number) < SMALLEST else None
