"""The paper's presets: all literal readings together, and the sweep that finds ε for the others."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import epsilon
from benchmarks.epsilon import NEVER, Ending, Sweep, choice, grid
from hypothesis import given
from hypothesis import strategies as st

from fedclade import Run, open_run
from fedclade import config as configuration
from tiny_runs import fedclade, tiny_file

ON_DIGITS = (
    "population.source=digits",
    "model.name=mlp",
    "run.rounds=3",
    "run.evaluate_every=1",
    "training.epochs=2",
    "run.report=false",
)
EAGER = ("norm_thresholds.epsilon1=1e9", "norm_thresholds.epsilon2=1e-9")  # every cluster is to be split at once
PAPER = [name for name in configuration.presets() if name.startswith("paper-")]


def literal(folder: Path, *overrides: str) -> Run:
    """A few rounds of paper-literal on the digits, through the command line."""
    words = [word for override in (*ON_DIGITS, *overrides) for word in ("--set", override)]
    answer = fedclade("run", "paper-literal", *words, "--out", folder, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out)["devices"] == 20
    return open_run(folder)


# -------------------------------------------------------------------------------- the presets


@pytest.mark.parametrize("preset", PAPER)
def test_a_preset_of_the_paper_uses_the_papers_rule_and_all_data_unless_it_is_small(preset):
    config = configuration.load(preset)
    assert config.clustering.method == "norm-thresholds"
    assert config.scheduling.greedy_clusters == 2
    assert config.population.deal_all != preset.endswith("-small")


def test_paper_literal_leaves_out_no_literal_reading_that_has_a_setting():
    """Those that docs/explanation/paper.md names; ε and what a population is are the text's own to choose."""
    config = configuration.load("paper-literal")
    told = {name: value for name, value, _ in configuration.fields_of(config)}
    literal = {
        "edge.fading": "none",
        "edge.noise": "paper-text",
        "edge.logarithm": "ln",
        "edge.cycles_per": "sample",
        "edge.vary": "both",
        "edge.downlink_bps": None,
        "run.end": "stopped",
        "run.conventional": "frozen",
        "scheduling.order": "latency",
        "scheduling.pairing": "strict",
        "scheduling.allocation": "boost",
        "scheduling.after_stop": "greedy",
        "scheduling.n_greedy": 1,
        "scheduling.greedy_clusters": 2,
        "scheduling.recheck_every": 0,
        "clustering.min_cluster_size": 1,
        "norm_thresholds.warmup_rounds": 0,
        "norm_thresholds.norm": "update",
        "norm_thresholds.weighting": "uniform",
        "norm_thresholds.bipartition": "minmax",
        "norm_thresholds.gamma": "estimated",
        "incongruence.kind": "none",
    }
    assert {name: told[name] for name in literal} == literal
    assert config.scheduling.deadline_final_seconds < config.scheduling.deadline_seconds


def test_paper_literal_runs_with_everything_as_it_is_written(tmp_path):
    run = literal(tmp_path / "run", "norm_thresholds.epsilon1=1e-9")  # ε is FEMNIST's: with digits it stops at once
    assert run.summary["rounds"] == 3
    assert run.rounds["missed"].sum() == 0  # the deadline is long at first
    assert (run.rounds["deadline_seconds"] == 3e8).all()
    assert run.rounds["seconds"].min() > 86400  # the noise drowns every link
    assert run.uploads.groupby("round")["rate_bps"].nunique().min() == 20
    one, other = (run.uploads[run.uploads["round"] == round_].set_index("device") for round_ in (1, 2))
    assert (one["snr"] != other.loc[one.index, "snr"]).all()  # without fading: the power has changed
    for _, ordered in run.uploads.groupby("round"):  # strict pairing: one sub-channel for the n-th of every set
        assert ordered["predecessor"].tolist() == [-1] * 10 + ordered["device"].tolist()[:10]


def test_gamma_refuses_in_paper_literal_what_would_be_split_without_it(tmp_path):
    assert literal(tmp_path / "tested", *EAGER).summary["clusters"] == 1
    assert literal(tmp_path / "off", *EAGER, "norm_thresholds.gamma=off").summary["clusters"] > 1


# -------------------------------------------------------------------------------- the sweep of ε


def test_pairs_that_decide_alike_are_one_run_and_end_as_each_would_alone(tmp_path):
    sweep = Sweep(tiny_file(tmp_path), [], seed=1)
    late, soon, same = (0.05, 0.3), (0.4, 0.3), (0.401, 0.3)
    together = sweep.endings([NEVER, late, soon, same])
    assert sorted(map(len, (each.pairs for each in together))) == [2, 2]
    for each in together:
        for pair in each.pairs:
            (alone,) = Sweep(tiny_file(tmp_path), [], seed=1).endings([pair])
            assert (alone.clusters, alone.first_split, alone.mean, alone.worst) == (
                each.clusters,
                each.first_split,
                each.mean,
                each.worst,
            )
    split = next(each for each in together if soon in each.pairs)
    assert (split.clusters, split.first_split, split.rand_index) == (2, 2, 1.0)


def test_the_run_that_never_splits_is_not_run_twice(tmp_path, monkeypatch):
    sweep = Sweep(tiny_file(tmp_path), [], seed=1)
    norms = sweep.trace()
    assert len(norms) == 2  # of three rounds, one is warm-up
    monkeypatch.setattr(epsilon, "stepped", lambda *_: pytest.fail("stepped again"))
    (ending,) = sweep.endings([NEVER])
    assert (ending.clusters, ending.first_split) == (1, None)


norms = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(norms, norms), min_size=1, max_size=30))
def test_the_grid_lies_within_what_norms_can_cross(trace):
    means, largest = np.array(trace).T
    for one, two in grid(trace):
        assert 0.9 * means.min() <= one <= 1.1 * means.max()
        assert 0.4 * largest.min() <= two <= 1.1 * largest.max()


def test_of_pairs_that_decide_alike_the_middle_one_is_chosen():
    pairs = ((0.1, 1.0), (0.2, 1.0), (0.4, 1.0))
    assert Ending(pairs, 2, 3, 1.0, 0.5, 0.4).middle() == (0.2, 1.0)


def test_accuracy_decides_and_the_planted_groups_where_it_hardly_differs():
    def ending(rand_index: float, mean: float, first_split: int | None = 3) -> Ending:
        return Ending(((0.1, 1.0),), 2, first_split, rand_index, mean, 0.4)

    shattered, exact, less = ending(0.1, 0.60), ending(1.0, 0.585), ending(1.0, 0.582)
    assert choice([shattered, exact, less]) == exact
    assert choice([ending(0.1, 0.7), exact]) == ending(0.1, 0.7)
    unsplit = ending(0.0, 0.9, None)
    assert choice([unsplit, exact]) == exact
    assert choice([unsplit]) == unsplit


def test_the_sweep_prints_its_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["epsilon", tiny_file(tmp_path), "--seed", "1", "--judge", "2"])
    epsilon.main()
    out = capsys.readouterr().out
    assert "tuned on seed 1" in out
    assert "judged on seed 2" in out
    rows = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")]
    assert rows[-3:] == ["chosen", "the preset's", "one model"]
    monkeypatch.setattr(sys, "argv", ["epsilon", tiny_file(tmp_path), "--judge", "2", "--chosen", "0.4", "0.3"])
    epsilon.main()
    again = capsys.readouterr().out
    assert "tuned on" not in again
    assert "chosen: ε = (0.4, 0.3); judged on seed 2:" in again


def test_the_page_names_the_sweeps_of_presets_that_are_there_and_the_pairs_that_they_have():
    page = (Path(__file__).parents[1] / "docs" / "results" / "epsilon.md").read_text("utf-8")
    swept = re.findall(r"^\.venv/bin/python -m benchmarks\.epsilon (\S+)", page, re.MULTILINE)
    assert {"paper-femnist", "paper-femnist-small", "paper-cifar10-small"} == set(swept)
    for preset in swept:
        settings = configuration.load(preset).norm_thresholds
        assert f"({settings.epsilon1}, {settings.epsilon2})" in page
