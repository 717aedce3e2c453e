"""`fedclade assign`: which cluster of a finished run a device's data belong to, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedclade import Interrupted, open_run
from fedclade.core.tree import Tree
from fedclade.data import build_population
from fedclade.runs.assign import place
from tiny_runs import digits, fedclade, files, refusal


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Devices 0 to 7 in cluster 0.0, 8 to 11 in cluster 0.1."""
    return digits().run(tmp_path_factory.mktemp("finished") / "run").folder


@pytest.fixture(scope="module")
def population(finished):
    return build_population(open_run(finished).config)


def archive(folder: Path, **arrays: object) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def placed(folder: Path, *words: object) -> dict:
    answer = fedclade("assign", folder, *words, "--json")
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def test_every_device_of_a_run_is_placed_in_its_own_cluster(finished, population):
    for device in range(12):
        found = placed(finished, "--device", device)
        home = "0.0" if device < 8 else "0.1"
        assert found["leaf"] == home
        (step,) = found["steps"]
        assert (step["node"], step["chosen"]) == ("0", home)
        assert {step["chosen"], step["refused"]} == {"0.0", "0.1"}
        assert step["loss"] == found["loss"] < step["refused_loss"]
        assert step["p_value"] < 0.001
        assert found["images"] == len(population.train[device]) + len(population.validation[device])
        assert Path(found["model"]) == finished / "models" / f"{home}.safetensors"


@pytest.mark.parametrize("device", [2, 10])
@pytest.mark.parametrize("channels", [True, False])
def test_the_images_of_a_file_are_placed_where_their_device_is(device, channels, finished, population, tmp_path):
    """Twenty images the run never trained on, with or without an axis of channels, and with any whole numbers."""
    mine = population.test[device][:20]
    images = population.images[mine] if channels else population.images[mine][:, 0]
    names = ("x", "y") if channels else ("images", "labels")  # what they were called before
    path = archive(tmp_path, **dict(zip(names, (images, population.labels[mine].astype(np.uint8)), strict=True)))
    found = placed(finished, "--data", path)
    assert (found["leaf"], found["images"]) == ("0.0" if device < 8 else "0.1", 20)
    assert found["score"] > 0.7


def test_a_file_of_a_devices_own_images_is_placed_as_the_device_is(finished, population, tmp_path):
    mine = np.concatenate([population.train[9], population.validation[9]])
    path = archive(tmp_path, x=population.images[mine], y=population.labels[mine])
    assert placed(finished, "--data", path) == placed(finished, "--device", 9)


def test_the_walk_and_its_reasons_are_told_in_plain_lines(finished):
    answer = fedclade("assign", finished, "--device", 10)
    assert (answer.code, answer.err) == (0, "")
    fork, cluster, model = answer.out.splitlines()
    assert fork.startswith("0: to 0.1, loss ")
    assert " in 0.0 (p = " in fork
    assert cluster.startswith("Cluster     0.1: loss ")
    assert model == f"Model       {finished / 'models' / '0.1.safetensors'}"


def test_no_model_fits_images_of_noise(finished, population, tmp_path):
    rng = np.random.default_rng(5)
    noise = rng.integers(0, 17, (60, *population.images.shape[1:])).astype(population.images.dtype)
    path = archive(tmp_path, images=noise, labels=rng.integers(0, 10, 60))
    found = placed(finished, "--data", path)
    assert not found["fits"]
    assert found["p_value"] > 0.01
    *_, last = fedclade("assign", finished, "--data", path).out.splitlines()
    assert last.startswith(
        f"No model    fits these data: the nearest, of cluster {found['leaf']}, is no better than guessing"
    )
    assert all(placed(finished, "--device", device)["fits"] for device in range(12))


def test_the_command_still_answers_to_its_former_name(finished):
    words = (finished, "--device", 10)
    assert fedclade("place", *words) == fedclade("assign", *words)
    listed = [line.split()[1] for line in fedclade("--help").out.splitlines() if line.startswith("│ ")]
    assert "assign" in listed
    assert "place" not in listed


def test_out_copies_the_model_of_the_cluster(finished, tmp_path):
    fedclade("assign", finished, "--device", 10, "--out", tmp_path / "mine.safetensors")
    assert (tmp_path / "mine.safetensors").read_bytes() == (finished / "models" / "0.1.safetensors").read_bytes()


def test_placing_leaves_the_run_as_it_is(finished, tmp_path):
    before = files(finished)
    fedclade("assign", finished, "--device", 3, "--out", tmp_path / "copy")
    assert files(finished) == before


def test_a_run_of_one_cluster_has_no_forks(tmp_path):
    one = digits("incongruence.kind=none", "incongruence.groups=[1]", "run.rounds=1", "run.evaluate_every=1")
    found = placed(one.run(tmp_path / "run").folder, "--device", 0)
    assert (found["leaf"], found["steps"]) == ("0", [])


def test_a_cluster_that_was_merged_leads_to_the_one_it_became(finished, monkeypatch):
    tree = Tree.planted(12).split("0", [range(8), range(8, 12)], 3, 1.0).merge("0.1", "0.0")
    monkeypatch.setattr("fedclade.runs.Run.tree", tree.to_json())
    found = place(finished, device=10)
    assert found.leaf == "0.0"


def test_a_cluster_that_was_merged_into_one_that_split_later_leads_to_the_best_leaf_there(finished, monkeypatch):
    """0.0.1 became 0.1, which has split since: device 10 belongs to the second of its children."""
    tree = Tree.planted(12).split("0", [range(6), range(6, 12)], 3, 1.0)
    tree = tree.split("0.0", [range(4), [4, 5]], 4, 2.0)
    tree = tree.merge("0.0.1", "0.1").split("0.1", [range(4, 8), range(8, 12)], 5, 3.0)
    kept = open_run(finished)
    models = {"0.0.0": kept.model("0"), "0.1.0": kept.model("0.0"), "0.1.1": kept.model("0.1")}
    monkeypatch.setattr("fedclade.runs.Run.tree", tree.to_json())
    monkeypatch.setattr("fedclade.runs.Run.model", lambda _, name: models[name])
    assert place(finished, device=10).leaf == "0.1.1"


# -------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "assign: needs either --data FILE or --device N"),
        (("--device", 0, "--data", "some.npz"), "assign: needs either --data FILE or --device N"),
        (("--device", 12), "--device 12: must be from 0 to 11"),
        (("--device", -1), "--device -1: must be from 0 to 11"),
        (("--data", "nowhere.npz"), "--data nowhere.npz: there is no file nowhere.npz"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(words, complaint, finished):
    assert refusal("assign", finished, *words).startswith(f"fedclade: {complaint}")


IMAGES, LABELS = np.zeros((5, 8, 8), dtype=np.uint8), np.zeros(5, dtype=np.int64)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": IMAGES}, "has no array 'y'; must have x and y"),
        ({"x": IMAGES.astype(float), "y": LABELS}, "x is float32 (5, 1, 8, 8), must be uint8"),
        ({"x": IMAGES[:, :7], "y": LABELS}, "x is uint8 (5, 1, 7, 8), must be uint8"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "x of shape (0, 8, 8) is empty"),
        ({"x": IMAGES[:, 0, 0], "y": LABELS}, "x is uint8 (5, 1, 1, 1), must be uint8 (N, (1, 8, 8))"),
        ({"x": IMAGES.astype(int), "y": LABELS}, "x is int32 (5, 1, 8, 8), must be uint8 (N, (1, 8, 8))"),
        ({"x": IMAGES, "y": LABELS[:4]}, "y has shape (4,), must be (5,)"),
        ({"x": IMAGES, "y": LABELS + 10}, "y has label 10, must be below 10"),
        ({"x": IMAGES, "y": LABELS - 1}, "y has label -1, must be whole numbers from 0"),
        ({"x": IMAGES, "y": LABELS + 0.5}, "y is float64, must be whole numbers from 0"),
        ({"x": np.array([None]), "y": LABELS}, "must be a NumPy archive with x and y: x.npy holds Python objects"),
        ({"x": IMAGES, "y": LABELS, "device": [0, 0, 1, 1, 1]}, "holds several devices, must hold one"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(arrays, complaint, finished, tmp_path):
    path = archive(tmp_path, **arrays)
    line = refusal("assign", finished, "--data", path)
    assert line.startswith(f"fedclade: --data {path}: ")
    assert complaint in line


BROKEN = b"PK\x03\x04 broken"


@pytest.mark.parametrize("content", [b"", b"no archive", BROKEN])
def test_a_file_that_is_no_archive_is_refused_in_one_line(content, finished, tmp_path):
    (tmp_path / "mine.npz").write_bytes(content)
    assert "mine.npz must be a NumPy archive with x and y: " in refusal(
        "assign", finished, "--data", tmp_path / "mine.npz"
    )


def test_an_array_that_is_no_archive_is_refused_in_one_line(finished, tmp_path):
    np.save(tmp_path / "mine.npy", IMAGES)
    assert "must be an .npz, .csv or .parquet file" in refusal("assign", finished, "--data", tmp_path / "mine.npy")


def test_a_place_for_the_copy_that_is_not_there_is_refused_in_one_line(finished, tmp_path):
    assert refusal("assign", finished, "--device", 0, "--out", tmp_path / "nowhere" / "model").startswith("fedclade: ")


def test_a_run_that_is_not_finished_or_not_there_is_refused_in_one_line(tmp_path):
    done = []
    with pytest.raises(Interrupted):
        digits(stop_requested=lambda: bool(done)).run(tmp_path / "run", on_round=done.append)
    assert "not finished" in refusal("assign", tmp_path / "run", "--device", 0)
    assert refusal("assign", tmp_path / "nowhere", "--device", 0).startswith(f"fedclade: {tmp_path / 'nowhere'}")
