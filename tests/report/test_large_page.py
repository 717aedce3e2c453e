"""The page of a large run: sums, quantiles and the worst devices."""

from itertools import pairwise

import pytest

from browser import browser
from fedclade.report.page import write_run_page
from fedclade.report.page.headlines import truth
from fedclade.report.page.large import WORST, large_data
from tiny_runs import digits


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large") / "run"
    large = ("population.devices=60", "run.record=clusters", "run.evaluate_devices=24")
    return digits("run.rounds=3", "run.evaluate_every=1", *large).run(folder)


def test_quantiles_clusters_and_the_worst_devices_are_on_the_page(run):
    data = large_data(run)
    assert data["quantiles"]["round"] == [1, 2, 3]
    last = run.evaluations[run.evaluations["round"] == 3]["accuracy"]
    assert data["quantiles"]["q50"][-1] == pytest.approx(last.median(), abs=1e-4)
    assert len(data["worst"]) == min(WORST, len(last))
    assert data["worst"][0][3] == f"{100 * last.min():.1f} %"
    assert [row[0] for row in data["clusters"]] == [leaf.name for leaf in run.leaves()]
    assert sum(int(row[1]) for row in data["clusters"]) == 60
    assert "standard error" in data["tiles"][1]["why"]
    assert data["tiles"][0]["why"] == truth(run)  # in the words of every other run's page
    assert "e+" not in "".join(tile["value"] for tile in data["tiles"])


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_is_small_and_draws_its_charts(width, run):
    page = write_run_page(run, single_file=True)
    assert page.stat().st_size < 15e6
    with browser() as opened:
        opened.see(width)
        opened.open(page)
        assert opened.complaints == []
        assert opened.value("document.documentElement.scrollWidth <= innerWidth")
        for name in ("score", "sizes"):
            ticks = f"[...document.querySelectorAll('#{name}-chart .xtick text')]"
            edges = opened.value(f"{ticks}.map((t) => t.getBoundingClientRect()).map((b) => [b.left, b.right])")
            assert all(before[1] < after[0] for before, after in pairwise(sorted(edges))), name
            assert all(text.isdecimal() for text in opened.value(f"{ticks}.map((t) => t.textContent)")), name
        assert not opened.value("document.querySelector('details').open")  # hundreds of settings would bury the rest
        charts = opened.value("document.querySelectorAll('.chart .main-svg').length")
        assert charts >= 2
        assert opened.value("document.querySelectorAll('#worst-table tbody tr').length") == len(
            large_data(run)["worst"]
        )
