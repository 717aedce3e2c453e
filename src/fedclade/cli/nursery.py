"""``python -m fedclade.cli.nursery``: a warm process whose children are the runs of a comparison.

Nobody starts it by hand. It imports what every run imports, and reads the data set that they share, once; each run is
then a fork of it, which begins at once and shares that memory. A request comes through a socket: the words of a
command, and two files to write to, one for all that the run says, one for the number of its process and, in the end,
its exit code. The nursery ends when the socket does.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from fedclade import cli
from fedclade import config as configuration
from fedclade.core.errors import UserError
from fedclade.data import sources
from fedclade.fleet.simulated import engines
from fedclade.report import page, terminal

WARM = (engines, page, terminal)  # imported for its children's sake
REQUEST_BYTES = 1 << 16


def main() -> None:
    """Fork a run for every request until there are no more."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        message, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
        if not message:
            return
        request = json.loads(message)
        with contextlib.suppress(UserError, OSError):  # the run itself will tell what is wrong
            sources.keep(configuration.load(str(Path(request["folder"]) / "config.toml")))
        if os.fork() == 0:
            requests.close()
            _keeper(request["words"], *files)
        for file in files:
            os.close(file)


def _keeper(words: list[str], output: int, status: int) -> NoReturn:
    """A process that waits for one run, and writes down how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # Ctrl-C comes to the comparison alone, which hands it on
    number = os.fork()
    if number == 0:
        os.close(status)
        _run(words, output)
    os.close(output)
    os.write(status, f"{number}\n".encode())
    _, how = os.waitpid(number, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(how)}\n".encode())
    os._exit(0)


def _run(words: list[str], output: int) -> NoReturn:
    """The command ``fedclade`` with these words; all that it prints goes to one file."""
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    sys.argv = ["fedclade", *words]
    code = 1
    try:
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
