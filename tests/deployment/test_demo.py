"""What the demo refuses, the credentials it makes, and that the documented commands work."""

import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedclade import open_run
from fedclade.core.errors import UserError
from fedclade.deployment.flower.ask_nursery import FOLDER, NAME
from fedclade.deployment.flower.credentials import main, make_credentials
from fedclade.deployment.flower.demo import APP, DEMO, QUIET, LocalFederation, end, free_port, listens, tool, write_app
from fedclade.deployment.flower.nursery import FORKS, write_programs
from fedclade.deployment.flower.server_app import OWN, config_of
from tiny_runs import executable, refusal

ENVIRONMENT = {**os.environ, **QUIET, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
EXAMPLE = Path(__file__).parents[2] / "examples/flower"
PATIENCE_SECONDS = 240  # a busy machine may take long to start a few processes


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "edge.example.org", "::"])
def test_without_tls_only_this_machine_may_connect(host):
    line = refusal("deploy-demo", "--host", host)
    assert line == f"fedclade: --host {host}: without TLS only this machine may connect; use 127.0.0.1, or add --tls"


def test_one_node_is_no_federation():
    assert refusal("deploy-demo", "--nodes", 1) == "fedclade: --nodes 1: must be at least 2"


def test_a_run_that_failed_is_told_by_what_its_server_said():
    said = "fedclade: no device answered within 3 s\nTraceback\nAn unhandled exception occurred.\n"
    run = subprocess.Popen([sys.executable, "-c", f"print({said!r})"], stdout=subprocess.PIPE, text=True)
    with pytest.raises(UserError, match=r"^the run failed: no device answered within 3 s$"):
        LocalFederation.watch(run, lambda line: None)


def test_without_flower_the_demo_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fedclade.cli.deploy_demo.find_spec", lambda name: None)
    assert refusal("deploy-demo") == "fedclade: deploy-demo needs Flower: pip install 'fedclade[flower]'"


def test_the_demos_and_the_examples_settings_are_known(tmp_path):
    for folder in (EXAMPLE, write_app(tmp_path, DEMO)):
        app = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["tool"]["flwr"]["app"]
        assert app["components"] == tomllib.loads(APP)["tool"]["flwr"]["app"]["components"]
        flat = {}
        for name, value in app["config"].items():
            flat |= (
                {f"{name}.{field}": inner for field, inner in value.items()}
                if isinstance(value, dict)
                else {name: value}
            )
        assert config_of(flat).model.name == "logistic"
    assert set(OWN) <= set(flat) | set(
        tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    )


def test_credentials_are_readable_by_their_owner_only_and_never_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["credentials", str(tmp_path / "made"), "--host", "edge.example.org", "--nodes", "2"]
    )
    main()
    folder = tmp_path / "made"
    assert capsys.readouterr().out == f"{folder}\n"
    assert {path.name for path in folder.iterdir()} == {
        *("ca.crt", "server.pem", "server.key", "node-0", "node-0.pub", "node-1", "node-1.pub")
    }
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["edge.example.org", "localhost"]
    ssl.create_default_context().load_cert_chain(folder / "server.pem", folder / "server.key")
    private = load_ssh_private_key((folder / "node-0").read_bytes(), None)
    assert private.public_key() == load_ssh_public_key((folder / "node-0.pub").read_bytes())
    with pytest.raises(FileExistsError):
        make_credentials(folder, "127.0.0.1", 1)


# -------------------------------------------------------------------------------- documented commands


@pytest.mark.slow
def test_the_demo_runs_and_leaves_nothing_behind(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = [executable(), "deploy-demo", "--nodes", "2", "--rounds", "1"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Round 1/1: 2 of 2 heard" in done.stdout
    assert open_run(tmp_path / "runs/demo").summary["devices"] == 2
    assert list(temporary.iterdir()) == []


@contextlib.contextmanager
def warm(folder: Path) -> Iterator[dict[str, str]]:
    """An environment in which Flower's programs are forked by a nursery, and need not import everything anew."""
    if not FORKS:
        yield ENVIRONMENT
        return
    path = f"{write_programs(folder / 'programs')}:{ENVIRONMENT['PATH']}"
    environment = {**ENVIRONMENT, "PATH": path, FOLDER: str(folder), NAME: "nursery"}
    command = [sys.executable, "-P", "-m", "fedclade.deployment.flower.nursery"]
    nursery = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield environment
    finally:
        end([nursery])


@contextlib.contextmanager
def readme(
    folder: Path, block: int, environment: dict[str, str] = ENVIRONMENT
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The commands of a block with two nodes in place of four, one round, and free ports; and the server's address."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (EXAMPLE / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    port = str(free_port())
    script = blocks[block].replace("0 1 2 3", "0 1").replace("8000", port).replace("9100", str(free_port()))
    script = script.replace("--stream", "--stream -c 'devices=2 run.rounds=1'")
    shutil.copytree(EXAMPLE, folder / "app")
    with (folder / "log.txt").open("w") as log:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder / "app",
            env={**environment, "FLWR_HOME": str(folder / "home")},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield shell, f"127.0.0.1:{port}"
        finally:
            end([shell])


def check_readme_run(folder: Path, shell: subprocess.Popen[bytes]) -> None:
    code = shell.wait(PATIENCE_SECONDS)
    said = (folder / "log.txt").read_text("utf-8")
    assert code == 0, said
    assert "Round 1/1: 2 of 2 heard" in said
    assert open_run(folder / "app/runs/deployed").summary["devices"] == 2


@pytest.mark.slow
def test_the_commands_of_the_examples_readme_work_on_one_machine(tmp_path):
    with readme(tmp_path, 0) as (shell, _):
        check_readme_run(tmp_path, shell)


def check_that_a_registered_node_cannot_take_anothers_name(
    folder: Path, address: str, environment: dict[str, str]
) -> None:
    """Node 2 has a key of its own that the server knows, and says that its name is that of device 0."""
    app, known = folder / "app", json.loads((folder / "app/runs/deployed/devices.json").read_text("utf-8"))
    assert len({device["key"] for device in known["devices"]} - {""}) == 2
    environment = {**environment, "FLWR_HOME": str(folder / "home")}
    flwr = {"cwd": app, "env": environment, "capture_output": True, "text": True, "timeout": PATIENCE_SECONDS}
    register = [tool("flwr"), "supernode", "register", "credentials/node-2.pub", "tls"]
    assert subprocess.run(register, **flwr).returncode == 0
    words = [tool("flower-supernode"), "--superlink", address, "--port", str(free_port())]
    words += ["--root-certificates", "credentials/ca.crt", "--auth-supernode-private-key", "credentials/node-2"]
    words += ["--node-config", 'device="0" partition-id=1 num-partitions=4']
    with (folder / "impostor.txt").open("w") as log:
        home = {**environment, "FLWR_HOME": str(folder / "impostor")}
        impostor = subprocess.Popen(words, cwd=app, env=home, stdout=log, stderr=log, start_new_session=True)
    expected = ["cannot take part: the name 0 belongs to the key of another node", "2 devices have their models"]
    try:
        for seconds in (6, 30, 90):  # until all three have come in time to be asked who they are
            again = ["--stream", "-c", f'resume="runs/deployed" devices=3 wait-seconds={seconds}']
            said = subprocess.run([tool("flwr"), "run", ".", "tls", *again], **flwr).stdout
            if all(line in said for line in expected):
                break
    finally:
        end([impostor])
    assert [line for line in expected if line not in said] == []
    after = json.loads((app / "runs/deployed/devices.json").read_text("utf-8"))
    assert [device["key"] for device in after["devices"]] == [device["key"] for device in known["devices"]]


@pytest.mark.slow
def test_the_commands_of_the_examples_readme_work_over_tls_where_strangers_and_impostors_are_refused(tmp_path):
    with warm(tmp_path) as environment, readme(tmp_path, 1, environment) as (shell, address):
        key = make_credentials(tmp_path / "strange", "127.0.0.1", 1).node_key(0)
        until = time.monotonic() + PATIENCE_SECONDS
        while not listens(address):
            assert time.monotonic() < until
            time.sleep(0.2)
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://{address}/", timeout=10)
        trusting = ["--root-certificates", str(tmp_path / "app/credentials/ca.crt")]
        strangers = {
            "not registered": [*trusting, "--auth-supernode-private-key", str(key)],
            "without a key": trusting,
            "plain HTTP": ["--insecure", "--max-retries", "1"],
        }
        words = [tool("flower-supernode"), "--superlink", address, "--node-config", "partition-id=2 num-partitions=4"]
        strange = {**environment, "FLWR_HOME": str(tmp_path / "strange")}
        for who, options in strangers.items():
            with (tmp_path / "refused.txt").open("w") as log:
                command = [*words, "--port", str(free_port()), *options]
                stranger = subprocess.Popen(command, env=strange, stdout=log, stderr=log, start_new_session=True)
                try:
                    code = stranger.wait(PATIENCE_SECONDS)
                finally:
                    end([stranger])
            said = (tmp_path / "refused.txt").read_text("utf-8")
            assert code != 0, who
            assert "Failed to initialize the connection to the SuperLink" in said, who
        check_readme_run(tmp_path, shell)
        check_that_a_registered_node_cannot_take_anothers_name(tmp_path, address, environment)
