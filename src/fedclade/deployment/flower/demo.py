"""All of it on one machine: a SuperLink, SuperNodes, and a run; what was started is ended again."""

import contextlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from fedclade.core.errors import UserError
from fedclade.deployment.flower.ask_nursery import FOLDER, NAME
from fedclade.deployment.flower.credentials import Credentials, make_credentials
from fedclade.deployment.flower.nursery import FORKS, write_programs
from fedclade.runs import free_folder

START_SECONDS = 60.0
END_SECONDS = 5.0
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}


APP = """[project]
name = "demo"
version = "1.0.0"
description = "fedclade on one machine"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "fedclade"

[tool.flwr.app.components]
serverapp = "fedclade.deployment.flower.server_app:app"
clientapp = "fedclade.deployment.flower.client_app:app"

[tool.flwr.app.config]
"""
# Two groups that label 8×8 digits differently, so that no one model can serve both; and too few sub-channels for all.
DEMO = {
    "preset": "quickstart",
    "resume": "",
    "run.evaluate_every": 10,
    "population.source": "digits",
    "population.partition": "iid",
    "incongruence.groups": "[1, 1]",
    "model.name": "logistic",
    "training.epochs": 2,
    "training.learning_rate": 0.1,
    "clustering.method": "norm-thresholds",  # asks nobody: each message has a process of its own, which takes seconds
    "norm_thresholds.epsilon1": 0.4,
    "norm_thresholds.epsilon2": 0.3,
    "norm_thresholds.warmup_rounds": 1,
}


def run_demo(nodes: int, rounds: int, host: str, tls: bool, out: Path | None, tell: Callable[[str], None]) -> Path:
    """Start everything, run, end everything; gives the run directory. What the server says is passed on."""
    if nodes < 2:
        raise UserError(f"--nodes {nodes}: must be at least 2")
    if not tls:
        refuse_strangers(host)
    run = (out or free_folder(Path("runs"), "demo")).resolve()
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="fedclade-demo-") as name:
        folder = Path(name)
        credentials = make_credentials(folder / "credentials", host, nodes) if tls else None
        federation = LocalFederation(folder, host, credentials)
        try:
            tell(f"Starting a SuperLink at {federation.address} and {nodes} SuperNodes, {'TLS' if tls else 'insecure'}")
            federation.start_superlink()
            for node in range(nodes):
                federation.start_member(node, f"partition-id={node} num-partitions={nodes}")
            settings = {
                **DEMO,
                "out": str(run),
                "run.rounds": rounds,
                "population.devices": nodes,
                "population.samples": 50 * nodes,
                "edge.bandwidth_hz": 1e6 * max(1, nodes // 2),
                "deployment.bound_names": tls,
            }
            federation.watch(federation.run(write_app(folder / "app", settings), {}), tell)
        finally:
            federation.close()
    return run


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def write_app(folder: Path, settings: Mapping[str, object]) -> Path:
    """A Flower app of fedclade's two parts with these settings."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {as_toml(value)}\n" for name, value in settings.items()]
    (folder / "pyproject.toml").write_text(APP + "".join(lines), "utf-8")
    return folder


class LocalFederation:
    """A SuperLink and SuperNodes as processes of this machine; all logs and Flower's own files are in one folder."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", credentials: Credentials | None = None) -> None:
        if credentials is None:
            refuse_strangers(host)
        self.folder, self.host, self._credentials = folder, host, credentials
        self.port, self._programs = free_port(), folder / "programs"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._commands: list[subprocess.Popen[str]] = []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """Where the SuperLink is reached from here."""
        everywhere = self.host in ("0.0.0.0", "::")
        return f"{'127.0.0.1' if everywhere else self.host}:{self.port}"

    def start_superlink(self) -> subprocess.Popen[bytes]:
        """Start it and wait until it listens."""
        if FORKS:
            write_programs(self._programs)
            self._start("nursery", [sys.executable, "-P", "-m", "fedclade.deployment.flower.nursery"])
        words = [tool("flower-superlink"), "--disable-runtime-dependency-installation", "--host", self.host]
        words += ["--port", str(self.port)]
        if self._credentials is None:
            words += ["--insecure"]
        else:
            words += [*self._credentials.superlink_options(), "--database", str(self.folder / "superlink.db")]
        self.superlink = process = self._start("superlink", words)
        until = time.monotonic() + START_SECONDS
        while not listens(self.address):
            if process.poll() is not None or time.monotonic() > until:
                raise UserError(f"the SuperLink did not start: see {self.folder / 'superlink.log'}")
            time.sleep(0.1)
        return process

    def start_node(self, name: str, node_config: str, key: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a SuperNode; with TLS its private key authenticates it."""
        words = [tool("flower-supernode"), "--superlink", self.address, "--port", str(free_port())]
        words += ["--node-config", node_config]
        if self._credentials is None:
            words += ["--insecure"]
        else:
            words += ["--root-certificates", str(self._credentials.authority)]
            words += ["--auth-supernode-private-key", str(key)] if key else []
        return self._start(name, words)

    def start_member(self, node: int, node_config: str) -> subprocess.Popen[bytes]:
        """Start SuperNode number ``node``; with TLS, register its key before."""
        if self._credentials is None:
            return self.start_node(f"node-{node}", node_config)
        key = self._credentials.node_key(node)
        register = self.flwr("supernode", "register", f"{key}.pub", "loopback")
        said, _ = register.communicate(timeout=START_SECONDS)
        if register.returncode != 0:
            raise UserError(f"node {node} could not be registered: {' '.join(said.split())}")
        return self.start_node(f"node-{node}", node_config, key)

    def flwr(self, *words: str) -> subprocess.Popen[str]:
        """A flwr command; ``loopback`` is the SuperLink's name."""
        environment = self._environment("user")
        home = Path(environment["FLWR_HOME"])
        secure = "insecure = true"
        if self._credentials is not None:
            secure = f'root-certificates = "{self._credentials.authority}"'
        (home / "config.toml").write_text(f'[superlink.loopback]\naddress = "{self.address}"\n{secure}\n', "utf-8")
        command = subprocess.Popen(
            [tool("flwr"), *words],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._commands.append(command)
        return command

    def run(self, app: Path, settings: Mapping[str, object]) -> subprocess.Popen[str]:
        """Run an app; what it says can be read from the process."""
        changed = [word for name, value in settings.items() for word in ("-c", f"{name}={as_toml(value)}")]
        return self.flwr("run", str(app), "loopback", "--stream", *changed)

    @staticmethod
    def watch(run: subprocess.Popen[str], tell: Callable[[str], None]) -> None:
        """Pass on what the server says, without Flower's own lines, until the run ends; raises if it failed."""
        said = []
        assert run.stdout is not None
        for line in run.stdout:
            said.append(line.rstrip())
            if not any(word in line for word in ("INFO", "Success", "Using SuperLink")) and line.strip():
                tell(line.rstrip())
        if run.wait() != 0 or not any(line.startswith("Run  ") for line in said):
            ours = [line.removeprefix("fedclade: ") for line in said if line.startswith("fedclade: ")]
            raise UserError(f"the run failed: {' / '.join(ours[-1:] or said[-3:])}")

    def close(self) -> None:
        """End what was started, with all that it started."""
        for command in self._commands:
            command.kill()
            command.wait()
        end(self._processes)

    def _start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                words,
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
        path = os.pathsep.join([str(self._programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        changed = {"PATH": path, "FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}
        changed |= {FOLDER: str(self.folder), NAME: "nursery"}
        return {**os.environ, **QUIET, **changed}


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End processes that lead a group, with their groups; those that do not go in time, for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)


def tool(name: str) -> str:
    """One of Flower's commands, as installed with fedclade."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise UserError(f"{name} is not installed: pip install 'fedclade[flower]'")
    return found


def refuse_strangers(host: str) -> None:
    """Without TLS, an address must be one that only this machine can reach."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise UserError(f"--host {host}: without TLS only this machine may connect; use 127.0.0.1, or add --tls")


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(address: str) -> bool:
    """Whether somebody answers there."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
        return True
    return False


def as_toml(value: object) -> str:
    """A run config's value as flwr reads it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)
