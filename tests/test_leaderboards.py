"""The leaderboards in the pages of results are those of the runs kept beside them."""

import pytest
from benchmarks.leaderboards import FOLDER, PAGES, text_of


@pytest.mark.parametrize("name", PAGES)
def test_a_pages_leaderboard_is_made_of_its_runs(name):
    page = (FOLDER / PAGES[name][0]).read_text("utf-8")
    shown = page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0]
    assert shown.strip() == text_of(name).strip()
    assert "| none |" in shown
