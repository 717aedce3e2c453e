"""All of it on one machine: a SuperLink, SuperNodes, and a run; what was started is ended again."""

import contextlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from fedclade.errors import UserError
from fedclade.flower.credentials import Credentials

START_SECONDS = 60.0
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}


class LocalFederation:
    """A SuperLink and SuperNodes as processes of this machine; all logs and Flower's own files are in one folder."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", credentials: Credentials | None = None) -> None:
        if credentials is None and not is_loopback(host):
            raise UserError(f"--host {host}: without TLS only this machine may connect; use 127.0.0.1, or add --tls")
        self.folder, self.host, self._credentials = folder, host, credentials
        self.port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{self.host}:{self.port}"

    def start_superlink(self) -> subprocess.Popen[bytes]:
        """Start it and wait until it listens."""
        words = ["flower-superlink", "--disable-runtime-dependency-installation", "--host", self.host]
        words += ["--port", str(self.port)]
        if self._credentials is None:
            words += ["--insecure"]
        else:
            words += [*self._credentials.superlink_options(), "--database", str(self.folder / "superlink.db")]
        process = self._start("superlink", words)
        until = time.monotonic() + START_SECONDS
        while not listens(self.host, self.port):
            if process.poll() is not None or time.monotonic() > until:
                raise UserError(f"the SuperLink did not start: see {self.folder / 'superlink.log'}")
            time.sleep(0.1)
        return process

    def start_node(self, name: str, node_config: str, key: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a SuperNode; with TLS its private key authenticates it."""
        words = ["flower-supernode", "--superlink", self.address, "--port", str(free_port())]
        words += ["--node-config", node_config]
        if self._credentials is None:
            words += ["--insecure"]
        else:
            words += ["--root-certificates", str(self._credentials.authority)]
            words += ["--auth-supernode-private-key", str(key)] if key else []
        return self._start(name, words)

    def flwr(self, *words: str) -> subprocess.Popen[str]:
        """A flwr command; ``loopback`` is the SuperLink's name."""
        environment = self._environment("user")
        home = Path(environment["FLWR_HOME"])
        secure = "insecure = true"
        if self._credentials is not None:
            secure = f'root-certificates = "{self._credentials.authority}"'
        (home / "config.toml").write_text(f'[superlink.loopback]\naddress = "{self.address}"\n{secure}\n', "utf-8")
        return subprocess.Popen(
            [tool("flwr"), *words],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, app: Path, settings: Mapping[str, object]) -> subprocess.Popen[str]:
        """Run an app; what it says can be read from the process."""
        changed = [word for name, value in settings.items() for word in ("-c", f"{name}={as_toml(value)}")]
        return self.flwr("run", str(app), "loopback", "--stream", *changed)

    def close(self) -> None:
        """End what was started."""
        for process in reversed(self._processes):
            end(process)

    def _start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [tool(words[0]), *words[1:]],
                env=self._environment(name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that it can be ended with the processes that it starts
            )
        self._processes.append(process)
        return process

    def _environment(self, name: str) -> dict[str, str]:
        """Each its own FLWR_HOME: several that install an app into one at the same time get in each other's way."""
        home = self.folder / "flower" / name
        home.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        changed = {"PATH": path, "FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}
        return {**os.environ, **QUIET, **changed}


def end(process: subprocess.Popen[bytes], how: int = signal.SIGTERM) -> None:
    """End a process and those it started; after a while, for good."""
    for number in (how, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def tool(name: str) -> str:
    """One of Flower's commands, as installed with fedclade."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise UserError(f"{name} is not installed: pip install 'fedclade[flower]'")
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(host: str, port: int) -> bool:
    """Whether somebody answers there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


def as_toml(value: object) -> str:
    """A run config's value as flwr reads it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)
