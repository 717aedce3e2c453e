"""The errors that are part of the product's manners."""


class UserError(Exception):
    """Wrong input. The message is one line; the command line prints it and exits with 2."""


class Interrupted(Exception):
    """The user asked to stop. Raised between two devices, before anything of the round has been kept."""
