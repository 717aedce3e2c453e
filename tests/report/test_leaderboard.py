"""The leaderboard: means, differences over pairs, and who comes first, worked out by hand."""

import pandas as pd

from fedclade.report.leaderboard import OVERALL, Sheet, leaderboard


def runs(**differing) -> pd.DataFrame:
    """Two contenders in two populations with two seeds; what is not told is 1."""
    rows = []
    for population in ("a", "b"):
        for seed in (1, 2):
            for contender in ("none", "ours"):
                row = dict.fromkeys((name.format(score="accuracy") for name in OVERALL), 1.0) | {
                    "population": population,
                    "devices": 20,
                    "seed": seed,
                    "contender": contender,
                    "reveals": {"none": "sums", "ours": "opinions"}[contender],
                }
                rows.append(row | {name: value(population, seed, contender) for name, value in differing.items()})
    return pd.DataFrame(rows)


def cell(sheet: Sheet, row: str, column: str) -> str:
    (found,) = (line for line in sheet.rows if line[0] == row)
    return found[sheet.columns.index(column)]


def test_means_and_differences_by_hand():
    mean = {("a", 1): 0.6, ("a", 2): 0.6, ("b", 1): 0.4, ("b", 2): 0.8}
    frame = runs(accuracy_mean=lambda p, seed, who: mean[p, seed] + (0.1 if who == "ours" else 0.0))
    overall, *by_population = leaderboard(frame, "none")
    assert [row[0] for row in overall.rows] == ["ours", "none"]
    assert cell(overall, "none", "mean device (%)") == "60.0"
    assert cell(overall, "ours", "mean device (%)") == "70.0 [+10.0: +10.0 to +10.0]"  # the same in every world
    assert (cell(overall, "ours", "revealed"), cell(overall, "none", "revealed")) == ("opinions", "sums")
    (accuracy,) = (sheet for sheet in by_population if sheet.title == "mean device (%)")
    assert accuracy.columns == ["contender", "a", "b"]
    assert accuracy.rows == [["ours", "70.0", "70.0"], ["none", "60.0", "60.0"]]


def test_runs_without_a_value_are_told_and_those_without_a_partner_are_no_pair():
    frame = runs(
        adjusted_rand_index=lambda p, seed, who: None if p == "a" else 0.5,
        rounds_to_groups=lambda p, seed, who: None,
        accuracy_min=lambda p, seed, who: 0.9 if who == "ours" else 0.5,
    )
    frame = frame[~((frame["contender"] == "none") & (frame["seed"] == 2))]
    overall = leaderboard(frame, "none")[0]
    assert cell(overall, "ours", "adjusted Rand index") == "0.50 (2/4)"
    assert cell(overall, "ours", "right groups (round)") == "–"
    assert cell(overall, "ours", "worst device (%)") == "90.0 [+40.0: +40.0 to +40.0]"


def test_several_numbers_of_devices_are_columns_of_their_own():
    frame = runs().assign(devices=lambda told: told["seed"] * 10)
    assert leaderboard(frame, "none")[1].columns == ["contender", "a, K = 10", "a, K = 20", "b, K = 10", "b, K = 20"]


def test_one_population_is_told_once():
    frame = runs()
    (overall,) = leaderboard(frame[(frame["population"] == "a") & (frame["seed"] == 1)], "none")
    assert overall.overall
    assert "means over 1 world;" in overall.title


def test_sheets_as_text():
    sheet = Sheet("50 % & more", ["who", "x_1"], [["a", "1"]])
    assert sheet.markdown() == "**50 % & more**\n\n| who | x_1 |\n| --- | ---: |\n| a | 1 |\n"
    assert r"\caption{50 \% \& more}" in sheet.latex()
    assert r"who & x\_1 \\" in sheet.latex()
    assert sheet.latex().splitlines()[2] == "\\begin{tabular}{lr}"
