"""Stands in for a program of Flower, and asks the nursery to be it.

It starts for every message, so it imports nothing but the standard library.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

FOLDER, NAME = "FEDCLADE_NURSERY_FOLDER", "FEDCLADE_NURSERY_NAME"
PATIENCE_SECONDS = 60.0  # until a nursery that has just been started listens


def ask(words: list[str], environment: dict[str, str]) -> None:
    """Hand over these words of a command, where it is run, and where its output goes; returns once it was forked."""
    wanted = {"words": words, "folder": str(Path.cwd()), "environment": environment}
    os.chdir(environment[FOLDER])  # the path of a socket must be short
    until = time.monotonic() + PATIENCE_SECONDS
    with socket.socket(socket.AF_UNIX) as nursery:
        while True:
            try:
                nursery.connect(environment[NAME])
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        socket.send_fds(nursery, [b"!"], [1, 2])
        nursery.sendall(json.dumps(wanted).encode())
        nursery.shutdown(socket.SHUT_WR)
        nursery.recv(1)


if __name__ == "__main__":
    ask(sys.argv[1:], dict(os.environ))
