"""What is given to others: the wheel works in an empty folder, and the files around the code agree with it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import fedclade
from fedclade import config as configuration

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    answer = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def built(source: Path, folder: Path, target: str) -> Path:
    """The wheel or sdist that hatchling makes of a source tree."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source)
    (made,) = folder.iterdir()
    return made


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_same_code_and_the_wheel_works_in_an_empty_folder(tmp_path):
    wheel = built(ROOT, tmp_path / "wheel", "wheel")
    sdist = built(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    again = built(tmp_path / "source" / sdist.name.removesuffix(".tar.gz"), tmp_path / "again", "wheel")
    names = [sorted(zipfile.ZipFile(path).namelist()) for path in (wheel, again)]
    assert names[0] == names[1]
    for needed in ("py.typed", "config/presets/quickstart.toml", "report/assets/watch.js"):
        assert f"fedclade/{needed}" in names[0]

    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    empty = tmp_path / "empty"
    empty.mkdir()
    where = "import fedclade; print(fedclade.__file__)"
    alone = {"PYTHONPATH": str(tmp_path / "installed"), "PYTHONSAFEPATH": "1"}
    assert run(sys.executable, "-c", where, cwd=empty, **alone).startswith(str(tmp_path / "installed"))
    told = run(sys.executable, "-m", "fedclade", "run", "quickstart", "--set", "run.rounds=1", cwd=empty, **alone)
    assert "report.html" in told
    assert (empty / "runs" / "quickstart" / "report.html").is_file()


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert PROJECT["version"] == fedclade.__version__ == citation["version"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_pythons_it_is_said_to_work_with_are_those_it_may_be_installed_with():
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert named[0] == PROJECT["requires-python"].removeprefix(">=")
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named
    makefile = (ROOT / "Makefile").read_text("utf-8")
    tested = re.findall(r"foreach version,([\d. ]+),", makefile)[0].split()
    assert set(named[1:]) <= set(tested)


def test_the_checks_before_a_commit_are_those_of_make_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    lint = (ROOT / "Makefile").read_text("utf-8").split("\nlint:")[1].split("\n\n")[0]
    tools = [Path(hook["entry"].split()[0]).name for hook in hooks]
    assert [tool for tool in tools if f"$(BIN)/{tool}" not in lint] == []
    assert len(tools) == lint.count("$(BIN)/")


def test_issue_templates_are_forms_that_can_be_filled_in():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text("utf-8"))
        assert path.name == "config.yml" or {"name", "description", "body"} <= set(form)


def test_the_dockerfile_copies_what_is_there():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert {"src", "pyproject.toml", "constraints.txt"} <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert [word for word in copied if not (ROOT / word).exists() or f"!{word}" not in ignored] == []


@pytest.mark.slow
def test_the_container_runs():
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs a docker daemon")
    run("docker", "build", "-q", "-t", "fedclade-test", ROOT, cwd=ROOT)
    assert "quickstart" in run("docker", "run", "--rm", "fedclade-test", "presets", cwd=ROOT)


# -------------------------------------------------------------------------------- deploy/


def ray_starts(words: str) -> list[str]:
    """Commands of Ray and fedclade within a line of shell."""
    return [part.strip() for part in re.split(r"&&|;|until|do ", words) if part.strip().startswith(("ray", "fedclade"))]


def test_the_compose_file_starts_a_head_workers_that_join_it_and_a_run():
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))["services"]
    assert set(services) == {"head", "worker", "run"}
    for service in services.values():
        build = service["build"]
        assert (ROOT / "deploy" / build["context"] / build["dockerfile"]).is_file()
        assert set(service.get("depends_on", ())) <= set(services)
    port = re.search(r"--head --port=(\d+)", services["head"]["command"])[1]
    for name in ("worker", "run"):
        assert f"--address=head:{port}" in services[name]["command"]
    (wanted,) = [part for part in ray_starts(services["run"]["command"]) if part.startswith("fedclade")]
    assert_runs_on_ray(wanted.rstrip('"'))


def test_the_kuberay_manifest_runs_the_same_command_on_workers_with_cores():
    job = yaml.safe_load((ROOT / "deploy" / "kuberay.yaml").read_text("utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert_runs_on_ray(job["spec"]["entrypoint"])
    cluster = job["spec"]["rayClusterSpec"]
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    assert pinned is None or cluster["rayVersion"] == pinned[1]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"  # it trains nothing
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {each["template"]["spec"]["containers"][0]["image"] for each in groups}
    assert len(images) == 1  # all of them need the same fedclade
    assert all(group["replicas"] >= 1 for group in cluster["workerGroupSpecs"])


def assert_runs_on_ray(command: str) -> None:
    """Whether a command of fedclade can be read, and trains on the cluster that is there."""
    words = shlex.split(command)
    assert words[:2] == ["fedclade", "run"]
    overrides = [value for flag, value in pairwise(words) if flag == "--set"]
    told = configuration.load(words[2], overrides)
    assert (told.training.engine, told.ray.address) == ("ray", "auto")


def test_the_image_has_the_extra_that_the_cluster_needs():
    assert '"/fedclade[ray]"' in (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    assert "ray" in PROJECT["optional-dependencies"]
