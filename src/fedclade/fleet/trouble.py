"""Why there is nothing from a device."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

# late: no reply in time; gone: the device is not reachable (any more); refused: the device says that it cannot do what
# is asked; unreadable: there is a reply, but nothing can be done with it.
Failure: TypeAlias = Literal["late", "gone", "refused", "unreadable"]

LONGEST = 300  # characters of somebody else's words that are repeated


@dataclass(frozen=True)
class Trouble:
    """Why there is nothing from a device: the kind of failure, and what is known of it in words."""

    kind: Failure
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}"


def plain(words: str) -> str:
    """Somebody else's words, fit to be shown: on one line, not too long, and nothing that steers a terminal."""
    shown = "".join(letter if letter.isprintable() else " " for letter in words[: LONGEST + 1])
    return shown if len(shown) <= LONGEST else shown[:LONGEST] + "…"
