"""Put comparisons into docs/results.md: ``python -m benchmarks.results DIR ...``, directories of ``fedclade compare``.

Tables go between the marks that bear the directory's name, the figures that the page shows into docs/results/.
"""

import argparse
import re
import shutil
from pathlib import Path

from benchmarks.machine import around

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
TABLES = ("accuracy", "fairness", "speed", "cost", "accuracy-difference", "fairness-difference")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    for folder in parser.parse_args().folders:
        put(folder, PAGE)


def put(folder: Path, page: Path) -> None:
    """The tables of one comparison into the page, and the figures it shows beside it."""
    before, after = around(page, folder.name)
    tables = "\n".join((folder / "tables" / f"{name}.md").read_text("utf-8") for name in TABLES)
    page.write_text(f"{before}\n{tables}\n{after}", "utf-8")
    for name in re.findall(rf"\(results/{re.escape(folder.name)}-([\w-]+)\.png\)", before + after):
        target = page.parent / "results" / f"{folder.name}-{name}.png"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / "figures" / f"{name}.png", target)


if __name__ == "__main__":
    main()
