"""Put leaderboards into their pages: ``python -m benchmarks.leaderboards``.

Each table is made anew from the runs that are kept beside its page as ``docs/results/<name>.csv``: the ``all-runs.csv``
of the comparison whose command stands on the page. It goes between the marks that bear that name.
"""

from pathlib import Path

import pandas as pd

from benchmarks.machine import around
from fedclade.report.leaderboard import leaderboard

FOLDER = Path(__file__).parents[1] / "docs" / "results"
# Which page shows which comparison, and the contender to whom differences are taken.
PAGES = {"methods-mnist5k": ("methods.md", "none")}


def text_of(name: str) -> str:
    """The leaderboard of one comparison, from its runs."""
    runs = pd.read_csv(FOLDER / f"{name}.csv")
    return "\n".join(sheet.markdown() for sheet in leaderboard(runs, PAGES[name][1]))


def main() -> None:
    for name, (page, _) in PAGES.items():
        before, after = around(FOLDER / page, name)
        (FOLDER / page).write_text(f"{before}\n{text_of(name)}\n{after}", "utf-8")


if __name__ == "__main__":
    main()
