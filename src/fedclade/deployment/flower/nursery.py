"""A process that has imported Flower and fedclade once, and forks a program of Flower whenever one is asked for.

Flower starts a Python for every message, and that imports everything anew: three seconds of processor, for work that
takes a tenth of one. So a federation on one machine starts a nursery, and where it looks for Flower's programs it finds
small ones that ask the nursery (``ask_nursery``). They are processes of their own, as they were. Each SuperExec has
another nursery, as the parent of what it starts: what is parted from its parent ends, as it does without one.
"""

import atexit
import gc
import json
import os
import shlex
import socket
import stat
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

from fedclade.deployment.flower import ask_nursery
from fedclade.deployment.flower.ask_nursery import FOLDER, NAME

SUPEREXEC = "flower-superexec"
PROGRAMS = (SUPEREXEC, "flwr-clientapp", "flwr-serverapp")
WARM = (
    "torch",  # first of all, as in server_app
    "fedclade.deployment.flower.server_app",
    "fedclade.deployment.flower.client_app",
    "fedclade.deployment.flower.data",
    "fedclade.fleet.simulated.engines",
    "httpcore",
    "flwr.supercore.cli.flower_superexec",
    "flwr.superlink.cli.flwr_serverapp",
    "flwr.supernode.cli.flwr_clientapp",
)
LOOK_SECONDS = 0.2  # how often a nursery looks whether its parent is still there
FORKS = sys.platform == "linux"  # elsewhere a library may not work after a fork


def write_programs(folder: Path) -> Path:
    """Programs with the names of Flower's, each of which asks a nursery; gives their folder, for the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        ask = shlex.join([sys.executable, "-IS", ask_nursery.__file__, name])
        (folder / name).write_text(f'#!/bin/sh\nexec {ask} "$@"\n', "utf-8")
        (folder / name).chmod(stat.S_IRWXU)
    return folder


@dataclass(frozen=True)
class Wanted:
    """A program to become: its words, where it runs, its environment, and where it writes to."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]

    @classmethod
    def read(cls, connection: socket.socket) -> "Wanted":
        """What ``ask_nursery`` sent."""
        _, streams, *_ = socket.recv_fds(connection, 1, 2)
        with connection.makefile("rb") as sent:
            return cls(**json.loads(sent.read()), streams=streams)

    def become(self) -> None:
        """Be that program, to its end."""
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        for number, stream in enumerate(self.streams, 1):
            os.dup2(stream, number)
            os.close(stream)
        if self.words[0] == SUPEREXEC and _has_nursery_of_its_own():
            return
        sys.argv = self.words
        (program,) = entry_points(group="console_scripts", name=self.words[0])
        code = 1
        try:
            code = _code(program.load()())
        except SystemExit as ended:
            code = _code(ended.code)
        except BaseException:
            traceback.print_exc()
        _end(code)


def _code(told: object) -> int:
    """What a program gave back, or left with, as the code that its process ends with."""
    return told if isinstance(told, int) else int(told is not None)


def _end(code: int) -> NoReturn:
    """End as Python does, but do not take apart what was imported: that costs more than most messages."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _has_nursery_of_its_own() -> bool:
    """Fork one for what this process will start. True: this is what became of the one that it forked."""
    os.environ[NAME] = f"nursery-{os.getpid()}"
    nursery = listening()
    if os.fork() == 0:
        serve(nursery).become()
        return True
    nursery.close()
    return False


def listening() -> socket.socket:
    """The socket of a nursery, in its folder."""
    nursery, here = socket.socket(socket.AF_UNIX), Path.cwd()
    os.chdir(os.environ[FOLDER])
    nursery.bind(os.environ[NAME])
    os.chdir(here)
    nursery.listen()
    nursery.settimeout(LOOK_SECONDS)
    return nursery


def serve(nursery: socket.socket) -> Wanted:
    """Fork whenever asked to, until the parent is gone. Returns in each process forked, with what it is to be."""
    parent = os.getppid()
    while os.getppid() == parent:
        with suppress(ChildProcessError):  # those that have ended
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        with suppress(TimeoutError):
            connection, _ = nursery.accept()
            with connection:
                connection.setblocking(True)
                wanted = Wanted.read(connection)
                if os.fork() == 0:
                    nursery.close()
                    return wanted
                for stream in wanted.streams:
                    os.close(stream)
    os._exit(0)


def main() -> None:
    """The nursery of a federation."""
    os.umask(0o077)
    nursery = listening()
    for name in WARM:
        import_module(name)
    gc.freeze()  # what is there stays in memory that all of them share
    serve(nursery).become()


if __name__ == "__main__":
    main()
