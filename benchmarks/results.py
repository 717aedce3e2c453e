"""Put comparisons into their page: ``python -m benchmarks.results DIR ...``, directories of ``fedclade compare``.

Tables go into docs/results/paper-tables.md, between the marks that bear the directory's name, and the figures that the
pages of this folder show go beside it.
"""

import argparse
import re
import shutil
from pathlib import Path

from benchmarks.machine import around

PAGE = Path(__file__).parents[1] / "docs" / "results" / "paper-tables.md"
TABLES = ("accuracy", "fairness", "speed", "cost", "accuracy-difference", "fairness-difference")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    for folder in parser.parse_args().folders:
        put(folder, PAGE)


def put(folder: Path, page: Path) -> None:
    """The tables of one comparison into the page, and the figures that pages of its folder show beside it."""
    before, after = around(page, folder.name)
    tables = "\n".join((folder / "tables" / f"{name}.md").read_text("utf-8") for name in TABLES)
    page.write_text(f"{before}\n{tables}\n{after}", "utf-8")
    pages = "".join(path.read_text("utf-8") for path in page.parent.glob("*.md"))
    for name in re.findall(rf"\({re.escape(folder.name)}-([\w-]+)\.png\)", pages):
        shutil.copyfile(folder / "figures" / f"{name}.png", page.with_name(f"{folder.name}-{name}.png"))


if __name__ == "__main__":
    main()
