"""A run is not resumed with other data or traces than it was begun with."""

import pytest

from tiny_runs import fedclade, refusal, tiny, tiny_file

TRACE = "device,round,rate_bps\n" + "".join(f"{device},1,{1e6 + device}\n" for device in range(6))


class Enough(Exception):
    pass


@pytest.fixture
def stopped(tmp_path):
    """A run that was stopped after its second round, and the trace that it reads."""
    trace = tmp_path / "links.csv"
    trace.write_text(TRACE)

    def stop(progress):
        if progress.record.round == 2:
            raise Enough

    with pytest.raises(Enough):
        tiny(f"edge.trace={trace}").run(tmp_path / "run", on_round=stop)
    return tmp_path / "run", trace


def test_a_trace_that_changed_is_noticed(stopped):
    folder, trace = stopped
    trace.write_text(TRACE.replace("1000003", "1000004"))
    assert refusal("run", "--resume", folder).endswith(
        f'edge.trace = "{trace}": has changed since the run was begun; put it back as it was, or begin the run anew'
    )
    trace.unlink()
    assert "No such file" in refusal("run", "--resume", folder)
    trace.write_text(TRACE)
    assert fedclade("run", "--resume", folder, "--quiet").code == 0


def test_a_run_that_reads_no_files_notes_none(tmp_path):
    assert fedclade("run", tiny_file(tmp_path, "run.rounds=1"), "--out", tmp_path / "run", "--quiet").code == 0
    assert not (tmp_path / "run/inputs.json").exists()
