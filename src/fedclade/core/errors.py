"""The errors that are part of the product's manners."""

LONGEST_MESSAGE = 2000  # characters


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
