"""The run directory: what is in it, and that no interruption, crash or damage spoils it."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedclade import Interrupted, Run, UserError, open_run, resume
from fedclade import config as configuration
from fedclade.runs import RunWriter, differences, free_folder
from tiny_runs import executable, fedclade, files, outcome, refusal, tiny, tiny_file

SUMMARY = """
    policy, method, seed, devices, rounds, simulated_seconds, clusters, first_split_round, last_split_round,
    first_split_seconds, last_split_seconds, adjusted_rand_index, accuracy_min, accuracy_mean, accuracy_max,
    accuracy_gap, conventional_accuracy_min, conventional_accuracy_mean, jain_accuracy, jain_participation, uploads,
    upload_bits, energy_joules, wall_seconds
"""


def stop_from(call: int) -> Callable[[], bool]:
    """Wants to stop from the so-many-th time it is asked on."""
    calls = itertools.count(1)
    return lambda: next(calls) >= call


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    tiny().run(folder)
    return folder


# -------------------------------------------------------------------------------- content


def test_a_run_directory_holds_config_tables_checkpoint_models_and_summary_even_when_read(finished):
    assert len(open_run(finished).rounds) == 3
    models = ("0", "0.0", "0.1", "conventional", "best/0.0", "best/0.1")
    assert set(files(finished)) - {".lock"} == {
        ".fedclade",
        "config.toml",
        "machine.json",
        "run.db",
        "manifest.json",
        "summary.json",
        "state/state.json",
        "state/round-000003.safetensors",
        "models/tree.json",
        *(f"models/{name}.safetensors" for name in models),
    }
    assert open_run(finished).config == tiny("training.engine=batched", "training.workers=1").config


def test_the_summary_is_one_flat_object_with_all_headline_numbers(finished):
    summary = json.loads((finished / "summary.json").read_text("utf-8"))
    assert {name.strip() for name in SUMMARY.split(",")} <= set(summary)
    assert not [name for name, value in summary.items() if isinstance(value, list | dict)]
    assert (summary["policy"], summary["seed"], summary["devices"], summary["rounds"]) == ("fair", 1, 6, 3)
    assert (summary["first_split_round"], summary["last_split_round"]) == (2, 2)
    assert (summary["clusters"], summary["adjusted_rand_index"]) == (2, 1.0)


def test_losses_best_rounds_and_the_objective_agree_with_the_evaluations(finished):
    run = open_run(finished)
    data = run.devices.set_index("device")["train_samples"]
    seen = run.evaluations.assign(weight=run.evaluations["device"].map(data))
    rounds, found = run.rounds.set_index("round"), run.objectives.set_index(["round", "node"])
    least: dict[str, tuple[float, int]] = {}
    for round_, part in seen.groupby("round"):
        assert rounds.loc[round_, "loss"] == pytest.approx(np.average(part["loss"], weights=part["weight"]))
        expected = {}
        for node, cluster in part.groupby("node"):
            expected[node] = np.average(cluster["loss"], weights=cluster["weight"])
            least[node] = min(least.get(node, (np.inf, 0)), (expected[node], round_))
            assert tuple(found.loc[(round_, node)]) == pytest.approx((expected[node], least[node][1], least[node][0]))
        assert rounds.loc[round_, "objective"] == pytest.approx(sum(expected.values()))
        assert rounds.loc[round_, "objective_best"] == pytest.approx(sum(least[node][0] for node in expected))
    last = rounds.iloc[-1]
    for name in ("loss", "objective", "objective_best"):
        assert run.summary[name] == pytest.approx(last[name])


def test_the_best_rounds_model_is_kept(tmp_path):
    run = tiny("training.learning_rate=4.0", "norm_thresholds.warmup_rounds=9", "run.rounds=6").run(tmp_path / "run")
    last = run.objectives.iloc[-1]
    assert last["best_round"] < 6  # such long steps overshoot
    assert last["best_loss"] < last["loss"]
    assert last["best_loss"] == run.rounds["loss"].min()
    best, final = run.model("best/0"), run.model("0")
    assert best.keys() == final.keys()
    assert any((best[name] != final[name]).any() for name in best)
    until_then = tiny(
        "training.learning_rate=4.0", "norm_thresholds.warmup_rounds=9", f"run.rounds={int(last['best_round'])}"
    ).run(tmp_path / "until-then")
    for name, weights in until_then.model("0").items():
        np.testing.assert_array_equal(best[name], weights)


def test_the_summary_agrees_with_the_tables(finished):
    run = open_run(finished)
    summary, rounds = run.summary, run.rounds
    last = run.evaluations.query("round == 3")
    assert summary["simulated_seconds"] == pytest.approx(rounds["seconds"].sum())
    assert summary["energy_joules"] == pytest.approx(rounds["energy_joules"].sum())
    assert summary["uploads"] == rounds["uploads"].sum() == len(run.uploads.query("missed == 0"))
    assert summary["upload_bits"] == summary["uploads"] * 32 * (64 * 10 + 10)  # 8 × 8 pixels, ten digits
    split_at = rounds.query("round <= 2")["seconds"].sum()
    assert summary["first_split_seconds"] == summary["last_split_seconds"] == pytest.approx(split_at)
    accuracy = last["accuracy"]
    assert [summary[f"accuracy_{name}"] for name in ("min", "mean", "max", "gap")] == pytest.approx(
        [accuracy.min(), accuracy.mean(), accuracy.max(), accuracy.max() - accuracy.min()]
    )
    assert summary["jain_accuracy"] == pytest.approx(accuracy.sum() ** 2 / (6 * (accuracy**2).sum()))
    times = run.uploads.groupby("device").size()
    assert summary["jain_participation"] == pytest.approx(times.sum() ** 2 / (6 * (times**2).sum()))
    assert summary["conventional_accuracy_mean"] == pytest.approx(last["conventional_accuracy"].mean())
    assert summary["conventional_accuracy_min"] == pytest.approx(last["conventional_accuracy"].min())


def test_a_value_that_does_not_exist_is_null(tmp_path):
    overrides = ("incongruence.kind=none", "incongruence.groups=[1]", "clustering.method=none", "run.rounds=1")
    summary = tiny(*overrides).run(tmp_path / "run").summary
    nulls = {name for name, value in summary.items() if value is None}
    splits = {f"{which}_split_{unit}" for which in ("first", "last") for unit in ("round", "seconds")}
    drift = {f"drift_{what}" for what in ("devices", "followed", "rounds", "accuracy_lost")}
    tuned = {
        "accuracy_tuned_mean",
        "accuracy_tuned_min",
        "accuracy_error",
        "accuracy_personal_mean",
        "accuracy_personal_min",
    }  # not asked for, and no sample
    assert nulls == {"adjusted_rand_index", *tuned, *splits, *drift, *(name for name in summary if "r2" in name)}
    assert summary["accuracy_mean"] == summary["conventional_accuracy_mean"]


def test_the_tables_tell_who_did_what_when(finished):
    run = open_run(finished)
    assert run.rounds["round"].tolist() == [1, 2, 3]
    assert run.rounds["clusters"].tolist() == [1, 2, 2]
    ends = run.rounds["start_seconds"] + run.rounds["seconds"]
    assert run.rounds["start_seconds"].tolist()[1:] == pytest.approx(ends.tolist()[:-1])
    assert (run.rounds["makespan_seconds"] >= run.rounds["lower_bound_seconds"]).all()
    assert run.devices["device"].tolist() == list(range(6))
    assert run.devices["planted_group"].tolist() == [0, 0, 0, 1, 1, 1]
    assert (run.devices["train_samples"] + run.devices["test_samples"]).sum() == 300
    uploads = run.uploads.groupby("round")
    assert uploads.size().tolist() == run.rounds["uploads"].tolist()
    assert uploads["end_seconds"].max().tolist() == pytest.approx(run.rounds["makespan_seconds"].tolist())
    clusters = run.clusters
    assert clusters.groupby("round")["heard"].sum().tolist() == run.rounds["uploads"].tolist()
    assert clusters.query("round < 3")[["node", "verdict"]].to_numpy().tolist() == [["0", "go-on"], ["0", "split"]]
    assert len(run.evaluations) == 3 * 6
    assert run.evaluations.query("round == 3")["node"].tolist() == ["0.0"] * 3 + ["0.1"] * 3


def test_events_carry_their_details(finished):
    split = open_run(finished).events.query("kind == 'split'").iloc[0]
    assert (split["round"], split["node"]) == (2, "0")
    assert split["detail"]["parts"] == [[0, 1, 2], [3, 4, 5]]


def test_the_tree_names_parents_children_members_and_split_facts(finished):
    root, *children = open_run(finished).tree
    assert (root["name"], root["parent"], root["children"]) == ("0", None, ["0.0", "0.1"])
    assert root["members"] == [0, 1, 2, 3, 4, 5]
    evidence = root["split"]["evidence"]
    assert evidence["gap"] == pytest.approx(evidence["sim_within_min"] - evidence["sim_cross_max"])
    assert [(c["parent"], c["members"], c["children"]) for c in children] == [
        ("0", [0, 1, 2], []),
        ("0", [3, 4, 5], []),
    ]


def test_models_by_devices_is_the_accuracy_of_the_saved_models(finished):
    run, population = open_run(finished), tiny().population
    table = run.models.set_index(["model", "device"])
    assert len(table) == 4 * 6
    for name in ("0", "0.0", "0.1", "conventional"):
        weights = run.model(name)
        for device, positions in enumerate(population.test):
            pixels = (population.images[positions].reshape(len(positions), 64) / 255 - population.mean) / population.std
            guess = (pixels @ weights["1.weight"].T + weights["1.bias"]).argmax(axis=1)
            assert table.loc[(name, device), "accuracy"] == pytest.approx(
                (guess == population.labels[positions]).mean()
            )
    members = table["member"].groupby("model").apply(list)
    assert members.to_dict() == {
        "0": [1] * 6,
        "0.0": [1, 1, 1, 0, 0, 0],
        "0.1": [0, 0, 0, 1, 1, 1],
        "conventional": [1] * 6,
    }


def test_asking_for_a_model_that_is_not_there_names_those_that_are(finished):
    there = re.escape("0, 0.0, 0.1, best/0.0, best/0.1, conventional")
    with pytest.raises(UserError, match=rf"no model '0\.2'; there are: {there}"):
        open_run(finished).model("0.2")


def test_an_interrupted_run_can_be_read(interrupted):
    run = open_run(interrupted)
    assert not run.finished
    assert (run.rounds["round"].tolist(), len(run.tree)) == ([1, 2], 3)
    with pytest.raises(UserError, match=f"not finished; continue it with: fedclade run --resume {interrupted}"):
        _ = run.summary
    with pytest.raises(UserError, match="there are: none yet"):
        run.model("0")


def test_a_folder_may_have_any_name(tmp_path):
    folder = tmp_path / "100 % mine? #1"
    tiny("run.rounds=1").run(folder)
    assert len(Run(folder).rounds) == 1


# -------------------------------------------------------------------------------- interruption


# Tried in round 2 and split in round 3; children are tried in round 5.
AUTOMATIC = ("clustering.method=cross-evaluation", "run.rounds=6")
FEDOPT = (
    "aggregation.optimiser=yogi",
    "aggregation.optimiser_rate=0.1",
    "clustering.min_cluster_size=2",
    "run.rounds=4",
)
SCAFFOLD, DITTO = ("training.scaffold=true", "clustering.method=oracle"), ("training.ditto=0.5",)


@pytest.mark.parametrize("overrides", [(), AUTOMATIC], ids=["fixed", "auto"])
def test_a_run_interrupted_anywhere_and_resumed_ends_the_same_to_the_byte(overrides, tmp_path):
    whole = outcome(tiny(*overrides).run(tmp_path / "whole").folder)
    for call in itertools.count(1):
        folder = tmp_path / str(call)
        try:
            tiny(*overrides, stop_requested=stop_from(call)).run(folder)
        except Interrupted:
            assert outcome(resume(folder).folder) == whole
        else:
            break
    assert call > 4


@pytest.mark.parametrize(
    "overrides", [(), AUTOMATIC, FEDOPT, SCAFFOLD, DITTO], ids=["fixed", "auto", "fedopt", "scaffold", "ditto"]
)
def test_a_run_interrupted_after_every_round_ends_the_same_to_the_byte_and_row(overrides, tmp_path):
    uninterrupted, done = tiny(*overrides).run(tmp_path / "whole"), []
    go_on = tiny(*overrides, stop_requested=lambda: bool(done)).run
    for _ in range(uninterrupted.summary["rounds"]):
        with pytest.raises(Interrupted):
            go_on(tmp_path / "run", on_round=done.append)
        done.clear()
        go_on = tiny(*overrides, stop_requested=lambda: bool(done)).resume
    run = go_on(tmp_path / "run")
    assert run.summary["clusters"] == 2
    assert outcome(run.folder) == outcome(uninterrupted.folder)
    for table in ("devices", "rounds", "clusters", "uploads", "evaluations", "events", "splits", "models"):
        assert run.table(table).equals(uninterrupted.table(table))


class Died(BaseException):
    pass


def test_a_run_that_dies_before_any_file_is_in_place_is_resumed_the_same_to_the_byte(finished, tmp_path, monkeypatch):
    for call in itertools.count(1):
        folder, dies = tmp_path / str(call), stop_from(call)

        def replace(source, target, dies=dies, real=shutil.os.replace):
            if dies():
                raise Died
            real(source, target)

        with monkeypatch.context() as patched:
            patched.setattr("fedclade.runs.directory.os.replace", replace)
            try:
                tiny().run(folder)
            except Died:
                pass
            else:
                break
        if call <= 2:  # nothing but the mark was there: the folder counts as free
            tiny().run(folder)
        else:
            resume(folder)
        assert outcome(folder) == outcome(finished)
    assert call > 1 + 2 * 2 + 2  # config; two checkpoints of two files; tree and summary


def start(folder: Path, config: str) -> subprocess.Popen:
    words = [executable(), "run", config, "--out", str(folder), "--quiet"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_round(process: subprocess.Popen, folder: Path, round_: int) -> None:
    state = folder / "state/state.json"
    while not state.exists() or json.loads(state.read_text("utf-8"))["round"] < round_:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


LONG = ("run.rounds=24", "run.checkpoint_every=1")  # long enough to be caught in the middle


@pytest.fixture(scope="module")
def long_finished(tmp_path_factory) -> dict[str, object]:
    return outcome(tiny(*LONG).run(tmp_path_factory.mktemp("long") / "run").folder)


@pytest.mark.slow
@pytest.mark.parametrize("round_", [1, 2, 8, 15])
def test_a_run_killed_at_any_moment_is_resumed_the_same_to_the_byte(round_, long_finished, tmp_path):
    process = start(tmp_path / "run", tiny_file(tmp_path, *LONG))
    wait_for_round(process, tmp_path / "run", round_)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not open_run(tmp_path / "run").finished
    assert outcome(resume(tmp_path / "run").folder) == long_finished


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_the_same_to_the_byte(long_finished, tmp_path):
    folder, words = tmp_path / "run", ["--out", str(tmp_path / "run")]
    config = tiny_file(tmp_path, *LONG)
    for round_ in (1, 6, 12):
        process = subprocess.Popen([executable(), "run", config, *words], stdout=subprocess.DEVNULL)
        wait_for_round(process, folder, round_)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        words = ["--resume", str(folder)]
    subprocess.run([executable(), "run", "--resume", str(folder)], check=True, stdout=subprocess.DEVNULL)
    assert outcome(folder) == long_finished


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_checkpoints_the_run_and_meanwhile_nobody_else_may_write_it(number, code, long_finished, tmp_path):
    folder, config = tmp_path / "run", tiny_file(tmp_path, *LONG)
    process = start(folder, config)
    wait_for_round(process, folder, 2)
    process.send_signal(signal.SIGSTOP)
    busy = f"fedclade: {folder}: another process is writing this run"
    assert refusal("run", "--resume", folder) == busy
    assert refusal("run", config, "--out", folder, "--overwrite") == busy
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate()
    assert (process.returncode, out) == (code, "")
    assert err == f"Stopped; all finished rounds are kept. Go on with: fedclade run --resume {folder}\n"
    assert fedclade("run", "--resume", folder, "--quiet").out == f"{folder}\n"
    assert outcome(folder) == long_finished


# -------------------------------------------------------------------------------- refusals


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (path,) = folder.glob(name)
        path.write_bytes(change(path.read_bytes()))

    return spoil


TENSORS = "state/round-*.safetensors"
# SQLite keeps its user's version there.
EARLIER = rewrite("run.db", lambda old: old[:60] + (1).to_bytes(4, "big") + old[64:])
DAMAGE = {
    "truncated tensors": (rewrite(TENSORS, lambda old: old[: len(old) // 2]), "does not match its SHA-256"),
    "one changed bit": (rewrite(TENSORS, lambda old: old[:-1] + bytes([old[-1] ^ 1])), "does not match its SHA-256"),
    "lost tensors": (lambda folder: next(folder.glob(TENSORS)).unlink(), "round-000002.safetensors is missing"),
    "truncated JSON": (rewrite("state/state.json", lambda old: old[:-10]), "state/state.json: damaged"),
    "another JSON": (rewrite("state/state.json", lambda old: b"[]"), "state/state.json: damaged"),
    "an entry lost": (
        rewrite("state/state.json", lambda old: old.replace(b"spent", b"lost")),
        "state/state.json: damaged: does not match its checksum",
    ),
    "binary in JSON": (rewrite("state/state.json", lambda old: b"\xff\xfe"), "state/state.json: damaged"),
    "garbage for tables": (rewrite("run.db", lambda old: b"garbage " * 1000), "run.db: damaged"),
    "truncated tables": (rewrite("run.db", lambda old: old[: len(old) // 2]), "run.db: damaged"),
    "a page of zeros": (rewrite("run.db", lambda old: old[:8192] + bytes(4096) + old[12288:]), "run.db: damaged"),
    "emptied tables": (rewrite("run.db", lambda old: b""), "ends at round 0, before the checkpoint's 2"),
    "lost tables": (lambda folder: (folder / "run.db").unlink(), "ends at round 0, before the checkpoint's 2"),
    "an earlier version": (EARLIER, "run.db: is of another version of fedclade (format 1, not 5): run it anew"),
    "no TOML": (rewrite("config.toml", lambda old: b"[run"), "config.toml: damaged, or changed by hand"),
    "lost config": (lambda folder: (folder / "config.toml").unlink(), "no run here (config.toml is missing)"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_refused_in_one_line_and_left_as_it_is(damage, interrupted):
    spoil, complaint = DAMAGE[damage]
    spoil(interrupted)
    before = files(interrupted)
    assert complaint in refusal("run", "--resume", interrupted)
    assert files(interrupted) == before


def test_a_run_whose_damage_was_repaired_can_be_resumed_at_once(interrupted, finished):
    tensors = next(interrupted.glob(TENSORS))
    good = tensors.read_bytes()
    tensors.write_bytes(good[:-1])
    refusal("run", "--resume", interrupted)
    tensors.write_bytes(good)
    assert outcome(resume(interrupted).folder) == outcome(finished)


@pytest.mark.parametrize(
    ("source", "override", "complaint"),
    [
        ([], "run.seed=9", "was started with run.seed = 1, not 9: resume without changing the config"),
        ([], "run.rounds=9", "was started with run.rounds = 3, not 9: resume without changing the config"),
        (["quickstart"], "run.rounds=3", "was started with run.checkpoint_every = 2, not 10"),
    ],
)
def test_a_run_is_not_resumed_with_another_config(source, override, complaint, interrupted):
    before = files(interrupted)
    assert complaint in refusal("run", *source, "--resume", interrupted, "--set", override)
    assert files(interrupted) == before


def test_a_run_is_resumed_with_its_own_config_from_a_file(interrupted, finished, tmp_path):
    assert fedclade("run", tiny_file(tmp_path), "--resume", interrupted, "-q").code == 0
    assert outcome(interrupted) == outcome(finished)


@pytest.mark.parametrize("more", [["--out", "elsewhere"], ["--overwrite"]])
def test_resume_goes_with_neither_out_nor_overwrite(more, interrupted):
    assert "leave out --out and --overwrite" in refusal("run", "--resume", interrupted, *more)


def test_where_no_run_is_there_is_nothing_to_resume(tmp_path):
    assert "no run here (config.toml is missing)" in refusal("run", "--resume", tmp_path / "nothing")
    assert files(tmp_path) == {}
    assert not (tmp_path / "nothing").exists()


def test_a_finished_run_resumed_is_printed_and_left_as_it_is(finished):
    before = files(finished)
    resumed, shown = fedclade("run", "--resume", finished), fedclade("show-run", finished)
    assert resumed == shown
    assert files(finished) == before


def test_an_existing_run_is_replaced_only_by_overwrite(interrupted, tmp_path):
    config, before = tiny_file(tmp_path, "run.rounds=1"), files(interrupted)
    line = refusal("run", config, "--out", interrupted)
    assert f"{interrupted} exists: resume it with --resume {interrupted}, or give --overwrite" in line
    assert files(interrupted) == before
    assert "no such policy" in refusal(
        "run", config, "--out", interrupted, "--overwrite", "--set", "scheduling.policy=x"
    )
    assert files(interrupted) == before  # what is wrong with the new config shows before the old run goes
    assert fedclade("run", config, "--out", interrupted, "--overwrite", "-q").code == 0
    assert open_run(interrupted).summary["rounds"] == 1


def test_a_folder_or_file_that_is_no_run_is_never_touched(tmp_path):
    config, folder, file = tiny_file(tmp_path, "run.rounds=1"), tmp_path / "thesis", tmp_path / "file"
    folder.mkdir()
    (folder / "chapter1.tex").write_text("precious")
    file.write_text("precious")
    before = files(tmp_path)
    assert "exists and is no run" in refusal("run", config, "--out", folder, "--overwrite")
    assert "is a file: choose another --out" in refusal("run", config, "--out", file, "--overwrite")
    assert "cannot be made: Not a directory" in refusal("run", config, "--out", file / "run")
    assert files(tmp_path) == before


def test_two_writers_at_once_are_refused_and_the_first_goes_on(tmp_path):
    experiment = tiny("run.rounds=1")
    writer = RunWriter.create(tmp_path / "run", experiment.config)
    for second in (experiment.resume, lambda folder: experiment.run(folder, overwrite=True)):
        with pytest.raises(UserError, match="another process is writing this run"):
            second(tmp_path / "run")
    writer.close()
    assert experiment.resume(tmp_path / "run").finished


@pytest.mark.parametrize("name", ["summary.json", "run.db", "models/tree.json"])
def test_showing_a_damaged_run_says_what_is_damaged(name, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / name).write_bytes(b"{" * 5000)
    assert f"{run / name}: damaged" in refusal("show-run", run)


@pytest.mark.parametrize("command", ["show-run", "report"])
def test_a_run_of_another_version_is_not_shown_but_said_to_be_one(command, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    EARLIER(run)
    assert "is of another version of fedclade" in refusal(command, run)


# -------------------------------------------------------------------------------- small parts


def test_a_free_folder_gets_the_first_free_number(tmp_path):
    names = []
    for _ in range(3):
        folder = free_folder(tmp_path, "mine")
        folder.mkdir()
        names.append(folder.name)
    assert names == ["mine", "mine-2", "mine-3"]


def test_differences_name_the_fields_and_both_values():
    one, other = configuration.load(), configuration.load(None, ["run.seed=2", "edge.noise=paper-text"])
    assert differences(one, other) == {"run.seed": (1, 2), "edge.noise": ("thermal", "paper-text")}
    assert differences(one, one) == {}


def plain(state):
    """A state as values that can be compared."""
    memory = state.memory.devices, state.memory.rows(state.memory.devices)
    return {**vars(state), "memory": memory, "best": {name: vars(best) for name, best in state.best.items()}}


def test_a_checkpoint_restores_the_state_to_the_bit(interrupted):
    server = tiny().server
    state = server.initial_state()
    for _ in range(2):
        state, _ = server.step(state)
    writer, restored, _ = RunWriter.reopen(interrupted, server.initial_state(), server.method.load)
    writer.close()
    np.testing.assert_equal(plain(restored), plain(state))


def test_a_checkpoint_restores_what_devices_said_of_one_another_to_the_bit(tmp_path):
    asked_in_vain = "cross_evaluation.level=1e-300"  # asked again and again, never split
    automatic = (*AUTOMATIC, "run.checkpoint_every=1", asked_in_vain)
    done = []
    with pytest.raises(Interrupted):
        tiny(*automatic, stop_requested=lambda: len(done) == 3).run(tmp_path / "run", on_round=done.append)
    server = tiny(*automatic).server
    writer, restored, _ = RunWriter.reopen(tmp_path / "run", server.initial_state(), server.method.load)
    writer.close()
    state = server.initial_state()
    for _ in range(3):
        state, _ = server.step(state)
    assert state.method.affinity.weight.any()
    np.testing.assert_array_equal(restored.method.losses, state.method.losses)
    assert restored.method.outlooks == state.method.outlooks
    for name, table in vars(state.method.affinity).items():
        assert getattr(restored.method.affinity, name).dtype == table.dtype
        np.testing.assert_array_equal(getattr(restored.method.affinity, name), table)


def test_slack_saves_energy_at_the_same_clock_and_the_same_models(tmp_path):
    few = ("edge.bandwidth_hz=2e6", "run.rounds=2")  # two sub-channels for six devices
    fixed = tiny(*few).run(tmp_path / "fixed")
    slack = tiny(*few, "scheduling.allocation=slack").run(tmp_path / "slack")
    assert slack.summary["energy_joules"] < 0.9 * fixed.summary["energy_joules"]
    assert slack.summary["simulated_seconds"] == pytest.approx(fixed.summary["simulated_seconds"])
    assert slack.summary["accuracy_mean"] == fixed.summary["accuracy_mean"]
    assert slack.uploads["energy_joules"].sum() == pytest.approx(slack.summary["energy_joules"])
    assert (slack.rounds["makespan_ratio"] >= 1).all()


def test_a_run_of_devices_that_come_and_go_resumes_to_the_same_bytes(tmp_path):
    volatile = (
        "run.rounds=6",
        "run.checkpoint_every=1",
        "scheduling.policy=fair-cover",
        "scheduling.per_round=3",
        "scheduling.order=longest-upload",
        "scheduling.allocation=boost",
        "edge.availability=markov",
        "edge.availability_share=0.7",
        "edge.outage_db=1.0",
        "clustering.max_age=4",
        "clustering.age_discount=0.9",
    )

    def break_off(progress):
        if progress.record.round == 3:
            raise KeyboardInterrupt

    whole = tiny(*volatile).run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tiny(*volatile).run(tmp_path / "broken", on_round=break_off)
    resume(tmp_path / "broken")
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "broken")
    kinds = set(whole.events["kind"])
    assert {"missed", "lost"} <= kinds
    assert whole.rounds["lost"].sum() == (whole.events["kind"] == "lost").sum() > 0
    assert 0 < whole.summary["jain_participation"] <= 1
