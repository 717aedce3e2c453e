"""The files of runs and comparisons: whose they are, what is damaged in them, and what the system may refuse."""

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from fedclade import Interrupted, UserError, open_run, resume
from fedclade.cli.common import Signals
from fedclade.runs.checkpoint import FACTS
from fedclade.runs.database import has_tables, last_round, open_to_read, open_to_write, told
from fedclade.runs.directory import (
    STATE,
    checksum,
    delete_own_files,
    make_directory,
    opened_json,
    remove_leftovers,
    sealed_json,
    take_lock,
    write_beside,
    write_json,
)
from fedclade.study.plan import locked
from tiny_runs import fedclade, files, outcome, refusal, tiny, tiny_file

DEAD = 2**22 + 1  # no process has such a number


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return tiny("run.report=true").run(tmp_path_factory.mktemp("finished") / "run").folder


# -------------------------------------------------------------------------------- whose a folder is


def test_overwrite_never_deletes_a_folder_that_merely_has_a_config_toml(tmp_path):
    theirs = tmp_path / "thesis"
    (theirs / ".git").mkdir(parents=True)
    (theirs / ".git/HEAD").write_text("ref: refs/heads/main")
    (theirs / "config.toml").write_text("[build]\n")
    (theirs / "chapter.tex").write_text("precious")
    before = files(tmp_path)
    line = refusal("run", tiny_file(tmp_path, "run.rounds=1"), "--out", theirs, "--overwrite")
    assert "--overwrite deletes only what fedclade has marked as its own run" in line
    assert {name: text for name, text in files(tmp_path).items() if name != "tiny.toml"} == before


def test_overwrite_deletes_what_fedclade_made_and_nothing_else(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    theirs = {"notes.txt": "mine", ".git/HEAD": "mine", "models/mine.txt": "mine", "state/mine/deep.txt": "mine"}
    for name, text in theirs.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text)
    elsewhere = tmp_path / "elsewhere.html"
    elsewhere.write_text("mine")
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(elsewhere)
    tiny("run.rounds=1").run(run, overwrite=True)
    assert open_run(run).summary["rounds"] == 1
    assert {name: (run / name).read_text() for name in theirs} == theirs
    assert elsewhere.read_text() == "mine"
    assert not (run / "report.html").exists()  # this run has none, and the link was the old run's
    assert not (run / "models/0.1.safetensors").exists()


def test_a_run_that_was_killed_while_it_deleted_what_it_overwrites_can_be_begun_again(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "notes.txt").write_text("mine")
    delete_own_files(run)
    tiny("run.rounds=1").run(run, overwrite=True)
    assert (run / "notes.txt").read_text() == "mine"


def test_a_comparison_is_not_made_in_a_folder_that_merely_has_a_compare_toml(tmp_path):
    theirs = tmp_path / "mine"
    theirs.mkdir()
    (theirs / "compare.toml").write_text("# my own settings\n[run]\nrounds = 1\n")
    before = files(theirs)
    line = refusal("compare", theirs / "compare.toml", "--out", theirs, "--seeds", 1)
    assert "exists and is no comparison: choose another --out" in line
    assert files(theirs) == before


def test_two_compares_in_one_folder_the_second_is_refused(tmp_path):
    config, out = tiny_file(tmp_path, "run.rounds=1"), tmp_path / "comparison"
    out.mkdir()
    with take_lock(out, "comparison"):
        line = refusal("compare", config, "--out", out, "--seeds", 1)
    assert line == f"fedclade: {out}: another process is writing this comparison"


def test_a_symlinked_lock_never_truncates_its_target(interrupted, tmp_path):
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    (interrupted / ".lock").unlink()
    (interrupted / ".lock").symlink_to(target)
    assert refusal("run", "--resume", interrupted).endswith(".lock: is a link, must be a file of its own: remove it")
    assert target.read_text() == "precious"


def test_a_file_beside_that_is_a_link_is_never_written_through(tmp_path):
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    (tmp_path / f".mine.json.{os.getpid()}.new").symlink_to(target)
    write_json(tmp_path / "mine.json", 3)
    assert (target.read_text(), (tmp_path / "mine.json").read_text()) == ("precious", "3")


# -------------------------------------------------------------------------------- damage


def flip(path: Path, seed: int) -> None:
    raw, draw = bytearray(path.read_bytes()), random.Random(seed)
    raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)


def test_a_flipped_bit_in_any_file_is_told_or_changes_nothing(interrupted_once, finished, tmp_path):
    whole = outcome(finished)
    for name in sorted(set(files(interrupted_once)) - {".lock"}):
        for seed in range(4):
            run = shutil.copytree(interrupted_once, tmp_path / name.replace("/", "-") / str(seed))
            flip(run / name, seed)
            answer = fedclade("run", "--resume", run, "-q")
            if answer.code == 0:
                assert outcome(run) == whole
            else:
                assert answer.code == 2
                (line,) = answer.err.splitlines()
                assert line.startswith(f"fedclade: {run}")


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "models/tree.json", "models/0.1.safetensors"])
def test_a_flipped_bit_in_a_final_model_the_tree_or_the_summary_is_told(name, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    flip(run / name, 5)
    opened = open_run(run)
    with pytest.raises(UserError, match="damaged"):
        _ = opened.summary, opened.tree, opened.model("0.1")


def test_a_changed_number_in_run_db_is_told(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    with sqlite3.connect(run / "run.db") as db:
        db.execute("UPDATE evaluations SET accuracy = 1.0 WHERE round = 2 AND device = 3")
    db.close()
    assert "table evaluations does not match its checksum in round 2" in refusal("report", run)


def test_a_config_toml_that_was_changed_is_told(interrupted):
    path = interrupted / "config.toml"
    path.write_text(path.read_text().replace("rounds = 3", "rounds = 4"))
    assert "config.toml: damaged, or changed by hand" in refusal("run", "--resume", interrupted)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("round", -1, "round = -1, must be a whole number from 0"),
        ("round", 1.0, "round = 1.0, must be a whole number"),
        ("round", float("nan"), "round = nan, must be a whole number"),
        ("seconds", float("nan"), "seconds, bits or joules are below 0 or not finite"),
        ("seconds", -1.0, "seconds, bits or joules are below 0 or not finite"),
        ("energy_joules", [float("nan")] * 6, "seconds, bits or joules are below 0 or not finite"),
        ("participation", [-1] * 6, "participation must be whole numbers from 0"),
        ("last_heard", "text", "the checkpoint is damaged"),
        ("tree", [], "the checkpoint is damaged"),
        ("format", 99, "of another version of fedclade (format 99, not 1): run it anew"),
    ],
)
def test_a_round_of_minus_1_or_nan_in_state_json_is_refused(field, value, complaint, interrupted):
    path = interrupted / STATE / FACTS
    write_json(path, sealed_json({**opened_json(path), field: value}))
    assert complaint in refusal("run", "--resume", interrupted)


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Path:
    """A run of the automatic method that was stopped after its first round, in which devices were asked."""
    folder, done = tmp_path_factory.mktemp("asked") / "run", list[object]()
    automatic = ("clustering.method=cross-evaluation", "run.checkpoint_every=1")
    with contextlib.suppress(Interrupted):
        tiny(*automatic, stop_requested=lambda: bool(done)).run(folder, on_round=done.append)
    return folder


OTHER_VERSIONS = {
    "a table less": lambda facts, tables: tables.pop(next(name for name in tables if name.startswith("method/"))),
    "a table more": lambda facts, tables: tables.update({"method/unheard-of": np.zeros(6)}),
    "a fact less": lambda facts, tables: facts["method"].popitem(),
}


@pytest.mark.parametrize("change", OTHER_VERSIONS)
def test_a_checkpoint_whose_method_kept_other_things_is_told_to_be_of_another_version(change, asked, tmp_path):
    folder = shutil.copytree(asked, tmp_path / "run")
    facts = opened_json(folder / STATE / FACTS)
    tables = load_file(folder / STATE / facts["tensors"])
    OTHER_VERSIONS[change](facts, tables)
    write_beside(folder / STATE / facts["tensors"], blob := save(tables))
    write_json(folder / STATE / FACTS, sealed_json({**facts, "sha256": checksum(blob)}))
    assert "made by another version of fedclade or of the clustering method" in refusal("run", "--resume", folder)


# -------------------------------------------------------------------------------- killed, full, forbidden


def test_killed_after_summary_json_resume_writes_report_html(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "report.html").rename(run / f".report.html.{DEAD}.new")  # killed as it wrote it
    assert fedclade("run", "--resume", run, "-q").code == 0
    assert (run / "report.html").is_file()
    assert not list(run.glob(".*.new"))
    assert outcome(run) == outcome(finished)


def no_room(number: int):
    """In place of os.fsync: the system refuses."""

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device; make room, then go on with --resume"),
        (errno.EROFS, "Read-only file system"),
        (errno.EACCES, "Permission denied"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_full_read_only_forbidden_or_failing_disk_is_one_line_and_leaves_nothing(
    number, words, interrupted, finished, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_room(number))
        line = refusal("run", "--resume", interrupted, "-q")
    assert line.endswith(f"cannot be written: {words}")
    assert not list(interrupted.rglob("*.new"))
    assert outcome(resume(interrupted).folder) == outcome(finished)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_FULL, "cannot be written: No space left on device"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "cannot be written: Permission denied"),
        (sqlite3.SQLITE_IOERR_WRITE, "cannot be read or written: Input/output error"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, "cannot be written: No space left on device"),
        (sqlite3.SQLITE_BUSY, "in use by another process"),
        (sqlite3.SQLITE_CORRUPT, "damaged"),
    ],
)
def test_a_full_disk_is_not_called_damage_of_run_db(code, words, tmp_path):
    error = sqlite3.OperationalError("as SQLite says")
    error.sqlite_errorcode = code
    with pytest.raises(UserError, match=words), told(tmp_path / "run.db"):
        raise error


def test_a_lost_machine_json_is_told_to_be_lost(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "machine.json").unlink()
    with pytest.raises(UserError, match=r"machine\.json: cannot be read"):
        _ = open_run(run).machine


def test_what_is_known_of_a_machine_does_not_change_by_a_lost_mark(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / ".fedclade").unlink()
    assert open_run(run).machine == open_run(finished).machine


def test_text_in_run_db_that_is_none_is_told_as_damage(tmp_path):
    with pytest.raises(UserError, match="damaged: 'utf-8' codec"), told(tmp_path / "run.db"):
        b"\xc5".decode()


def test_a_round_in_run_db_that_is_no_number_is_told_as_damage(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    with contextlib.closing(sqlite3.connect(run / "run.db")) as db, db:
        db.execute("UPDATE events SET round = NULL WHERE rowid = 1")
        db.execute("INSERT INTO events (round) VALUES (NULL)")
    with pytest.raises(UserError, match="does not match its checksum"):
        open_run(run).rows("events")


def test_a_run_that_died_before_it_wrote_of_its_machine_does_so_when_it_goes_on(tmp_path):
    folder = tmp_path / "run"
    make_directory(folder, tiny().config).close()
    (folder / "machine.json").unlink()
    assert tiny().resume(folder).machine


def test_run_db_is_there_with_all_its_tables_or_not_at_all(tmp_path):
    with contextlib.closing(open_to_write(tmp_path / "run.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert has_tables(tmp_path / "run.db")
        assert last_round(tmp_path / "run.db") == 0


def test_a_lost_run_db_is_told_to_be_lost(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "run.db").unlink()
    assert "run.db: cannot be read: No such file or directory" in refusal("show-run", run)
    with pytest.raises(UserError, match="cannot be read"), open_to_read(run / "run.db"):
        pass


def test_a_large_leftover_of_a_killed_process_is_removed_on_resume(interrupted, finished):
    leftovers = [f".config.toml.{DEAD}.new", f"state/.state.json.{DEAD}.new", "state/round-000099.safetensors"]
    for name in leftovers:
        (interrupted / name).write_bytes(bytes(3_000_000))
    resume(interrupted)
    assert not [name for name in leftovers if (interrupted / name).exists()]
    assert outcome(interrupted) == outcome(finished)


def test_what_a_killed_comparison_left_half_written_is_removed_by_the_next(tmp_path):
    leftovers = [tmp_path / f".report.html.{DEAD}.new", tmp_path / f"tables/.spread.csv.{DEAD}.new"]
    for path in leftovers:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    with locked(tmp_path):
        assert not any(path.exists() for path in leftovers)


def test_what_another_process_is_writing_is_no_leftover(tmp_path):
    theirs = tmp_path / f".report.html.{os.getppid()}.new"
    theirs.write_text("half")
    remove_leftovers(tmp_path)
    assert theirs.exists()


def test_two_processes_that_write_one_file_do_not_meet(tmp_path):
    theirs = tmp_path / ".report.html.1.new"
    theirs.write_text("half of theirs")
    write_beside(tmp_path / "report.html", b"mine")
    assert (theirs.read_text(), (tmp_path / "report.html").read_text()) == ("half of theirs", "mine")


HALF_DONE = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN")
db.execute("DELETE FROM rounds")
db.executemany("INSERT INTO scores VALUES (?)", [(str(n) * 99,) for n in range(999)])
os._exit(0)
"""


def test_a_change_of_run_db_that_a_killed_process_left_half_done_is_undone(interrupted, finished):
    subprocess.run([sys.executable, "-c", HALF_DONE, interrupted / "run.db"], check=True)
    assert (interrupted / "run.db-journal").stat().st_size > 0
    whole = shutil.copytree(interrupted, interrupted.parent / "read")
    assert len(open_run(whole).rounds) > 0
    assert outcome(resume(interrupted).folder) == outcome(finished)


def test_sighup_asks_to_stop_as_sigterm_does(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)  # the tests may run under nohup
    for number in (signal.SIGHUP, signal.SIGTERM):
        signals = Signals()
        with signals:
            os.kill(os.getpid(), number)
            assert (signals.received(), signals.number) == (True, number)


def test_under_nohup_sighup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = Signals()
        with signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals.received()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_trouble_of_the_machine_anywhere_is_one_line(monkeypatch, finished):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/report.html")

    monkeypatch.setattr("fedclade.report.page.write_run_page", full)
    assert refusal("report", finished).startswith("fedclade: /somewhere/report.html: No space left on device")


@pytest.mark.parametrize(
    ("words", "reader"),
    [
        ("figures", "fedclade.report.run_figures.write_run_figures"),
        ("report", "fedclade.report.page.write_run_page"),
        ("show-run", "fedclade.report.terminal.show_run"),
    ],
)
def test_a_run_that_is_begun_anew_while_it_is_read_is_one_line(words, reader, finished, tmp_path, monkeypatch):
    run = shutil.copytree(finished, tmp_path / "run")

    def begun_anew(*_: object) -> None:
        write_beside(run / "config.toml", (run / "config.toml").read_bytes())
        raise KeyError("conventional")

    monkeypatch.setattr(reader, begun_anew)
    assert refusal(words, run) == f"fedclade: {run}: another process began it anew while it was read: try again"


def test_a_folder_that_cannot_be_made_is_one_line(finished):
    assert refusal("figures", finished, "--out", finished / "run.db") == f"fedclade: {finished}/run.db: File exists"


def test_json_that_is_nested_too_deeply_is_damage(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "manifest.json").write_text("[" * 100_000)
    assert "manifest.json: damaged" in refusal("show-run", run)
    assert json.loads((finished / "manifest.json").read_text())["sha256"]
