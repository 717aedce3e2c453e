"""The errors that are part of the product's manners."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

LONGEST_MESSAGE = 2000  # characters
# What the machine, not the program, is short of or does not allow.
MACHINE_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE}


class UserError(Exception):
    """Wrong input. The message is one line; the command line prints it and exits with 2.

    What a message quotes may come from anybody's file: line breaks and other characters that cannot be printed are
    written as Python writes them in a text, and of what is far too long the middle is left out.
    """

    def __init__(self, message: str) -> None:
        half = LONGEST_MESSAGE // 2
        shown = message if len(message) <= LONGEST_MESSAGE else f"{message[:half]}…{message[-half:]}"
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in shown))


class Interrupted(Exception):
    """The user asked to stop. Raised between two devices, before anything of the round has been kept."""


@contextlib.contextmanager
def cannot(be_done: str, path: Path | str) -> Iterator[None]:
    """What the system says against a file or folder is one line: the disk is full, read-only, failing, forbidden."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot {be_done}: {in_words(error)}") from error


def in_words(error: OSError) -> str:
    """What the system says, without number and file; and what to do where there is an answer."""
    words = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{words}; make room, then go on with --resume" if full else words
