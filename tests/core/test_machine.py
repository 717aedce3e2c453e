"""The machine that a run records, and the warning of whoever resumes it on another."""

import json

import numpy as np
import pytest
import torch

from fedclade import Interrupted, resume
from fedclade.core import machine
from fedclade.runs.directory import opened_json, sealed_json
from tiny_runs import fedclade, tiny

FIELDS = {
    "processor",
    "instruction_set",
    "blas",
    "torch_version",
    "numpy_version",
    "scipy_version",
    "python_version",
    "fedclade_version",
}


def interrupted(folder):
    """A run stopped after its first round."""

    def stop(progress):
        raise Interrupted

    with pytest.raises(Interrupted):
        tiny().run(folder, on_round=stop)
    return folder


def begun_elsewhere(folder, **changed):
    """The same, as if another machine had begun it."""
    path = interrupted(folder) / "machine.json"
    path.write_text(json.dumps(sealed_json(opened_json(path) | changed)), "utf-8")
    return folder


def test_the_facts_are_flat_text_that_the_libraries_confirm():
    facts = machine.facts()
    assert set(facts) == FIELDS
    assert all(isinstance(value, str) and value for value in facts.values())
    assert facts["instruction_set"] == torch.backends.cpu.get_cpu_capability().lower()
    numbers = [version.partition("+")[0] for version in (facts["torch_version"], torch.__version__)]
    assert numbers[0] == numbers[1]  # what comes after the + a package's metadata may leave out
    assert facts["numpy_version"] == np.__version__
    assert machine.facts() == facts


def test_only_what_differs_is_named():
    here = {"processor": "A", "instruction_set": "avx2", "blas": "one 1.0"}
    assert machine.differences(here, here) is None
    assert machine.differences({}, here) is None  # a run that recorded nothing
    told = machine.differences({**here, "instruction_set": "avx512"}, here)
    assert told.endswith("its bytes may differ: instruction_set was avx512, here avx2")
    told = machine.differences({"processor": "B", "blas": "one 1.1", "gone": "x"}, here)
    assert told.endswith("processor was B, here A; blas was one 1.1, here one 1.0; gone was x, here None")


def test_a_run_records_its_machine_when_it_begins_and_in_its_summary(tmp_path):
    begun = interrupted(tmp_path / "run")
    assert opened_json(begun / "machine.json") == machine.facts()
    finished = resume(begun)  # on the same machine without a warning, which would be an error here
    assert finished.machine == machine.facts()
    assert finished.summary.items() >= machine.facts().items()


def test_whoever_resumes_on_another_machine_is_told_that_bytes_may_differ(tmp_path):
    begun = begun_elsewhere(tmp_path / "run", instruction_set="sve256", numpy_version="1.26.4")
    with pytest.warns(
        UserWarning, match="bytes may differ: instruction_set was sve256, here .*; numpy_version was 1.26"
    ):
        finished = resume(begun)
    assert finished.summary["instruction_set"] == machine.facts()["instruction_set"]
    assert resume(begun).finished  # there is nothing left to compute, and nothing to warn of


@pytest.mark.filterwarnings("default")
def test_the_command_warns_in_one_line_and_goes_on(tmp_path):
    begun = begun_elsewhere(tmp_path / "run", processor="Abacus 2000")
    answer = fedclade("run", "--resume", begun, "--json")
    (line,) = answer.err.splitlines()
    assert line.startswith(
        f"fedclade: warning: {begun}: begun on another machine or with other libraries, so its bytes"
    )
    assert "processor was Abacus 2000, here " in line
    assert (answer.code, json.loads(answer.out)["rounds"]) == (0, 3)
