"""Damaged files: what is read is as it was written, or it is said in one line what is damaged."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from chaos.world import Case, World, everything, resumed
from fedclade import UserError

READ, GONE_ON = 3000, 1200  # cases with finished runs, which are read, and with interrupted ones, which go on
Damage = Callable[[bytes, random.Random], bytes | None]


def _flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _zeroed(content: bytes, draw: random.Random) -> bytes:
    first = 512 * draw.randrange(len(content) // 512 + 1)
    return content[:first] + bytes(len(content[first : first + 512])) + content[first + 512 :]


DAMAGES: dict[str, Damage] = {
    "flipped": _flipped,
    "zeroed": _zeroed,
    "cut": lambda content, draw: content[: draw.randrange(len(content))],
    "emptied": lambda content, draw: b"",
    "garbage": lambda content, draw: draw.randbytes(len(content)),
    "doubled": lambda content, draw: content + content,
    "lost": lambda content, draw: None,
}
USUAL = ["flipped"] * 12 + list(DAMAGES)  # bits flip more often than files are mixed up


def cases(world: World) -> Iterator[Case]:
    """Damage in every file of a finished and of an interrupted run."""
    for name, original, count, held in (
        ("read", world.finished("fixed"), READ, _held_read),
        ("gone-on", world.interrupted, GONE_ON, _held_gone_on),
    ):
        found = sorted(str(path.relative_to(original)) for path in original.rglob("*") if path.is_file())
        damaged = [each for each in found if each != ".lock"]
        large = [each for each in damaged if (original / each).stat().st_size > 8192]  # more that may go unseen
        for number in range(count):
            draw = random.Random(f"{name} {number}")
            file, how = draw.choice(damaged + large * 3), draw.choice(USUAL)
            yield Case(f"damage/{name}/{how}/{file}/{number}", partial(held, world, original, file, how, number))


def _spoil(path: Path, how: str, number: int) -> bool:
    """Whether anything was changed."""
    before = path.read_bytes()
    after = DAMAGES[how](before, random.Random(number))
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)
    return after != before


def _held_read(world: World, original: Path, file: str, how: str, number: int) -> str | None:
    right = _known(original)
    with world.scratch(original) as folder:
        _spoil(folder / file, how, number)
        if not (folder / "summary.json").is_file() or not (folder / "models/tree.json").is_file():
            return None  # plain to see: not finished any more
        try:
            found = everything(folder)
        except UserError:
            return None
        if file.startswith("models/") and how == "lost":
            return None  # asked for by its name, it is said to be missing
        odd = [name for name in right if found[name] != right[name]]
        return f"read other {odd} without a word" if odd else None


def _held_gone_on(world: World, original: Path, file: str, how: str, number: int) -> str | None:
    right = _known(world.finished("fixed"))
    with world.scratch(original) as folder:
        _spoil(folder / file, how, number)
        try:
            found = everything(resumed(folder))
        except UserError as error:
            return None if str(error).startswith(str(folder)) else f"names no file: {error}"
        odd = [name for name in right if found[name] != right[name] and name != "machine"]
        return f"went on to other {odd} without a word" if odd else None


_READ: dict[Path, dict[str, object]] = {}


def _known(folder: Path) -> dict[str, object]:
    if folder not in _READ:
        _READ[folder] = everything(folder)
    return _READ[folder]
