"""Every comparison that the pages of results show: which are stale, run anew, put into their pages.

``python -m benchmarks.results --list`` says which are stale. A result is fresh if it was made of the config that its
command has now, by the code that is here now: the hashes of both stand under its tables. ``make results`` runs those
that are stale, one after the other, and goes on where it was stopped; with names, only these are run. ``--rebuild``
makes the tables again from the runs that are kept beside each page as ``docs/results/<name>.csv``, and runs nothing.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.machine import around
from fedclade import config as configuration
from fedclade.config import Config
from fedclade.core.task import ACCURACY
from fedclade.metrics.registry import compared
from fedclade.report.leaderboard import leaderboard
from fedclade.report.tables import markdown, tables
from fedclade.study import Comparison, contenders

ROOT = Path(__file__).parents[1]
PAGES, SOURCE, RUNS = ROOT / "docs" / "results", ROOT / "src" / "fedclade", ROOT / "runs" / "results"
EXAMPLES = ROOT / "examples"  # where the example of a method of one's own is
NO_MATTER = ("cli", "deployment", "report", "theory")  # rooms of the code that no comparison's numbers come from
SHOWN = ("accuracy", "fairness", "speed", "cost", "accuracy-difference", "fairness-difference")
STAMP = "Made of config `{}` by code `{}`."
METHODS = json.dumps([*configuration.load("methods-mnist5k").compare.methods, "pacfl@k", "own_method:SplitOnce"])
# Pages of results that have commands of their own, which measure this machine or print: nobody follows their age here.
OTHERS = ("benchmarks.md", "convergence-bound.md", "epsilon.md", "scheduling.md")


@dataclass(frozen=True)
class Result:
    """A comparison in a page: a preset with some fields changed, shown as a leaderboard or as tables for each K."""

    page: str
    preset: str
    overrides: tuple[str, ...] = ()
    as_leaderboard: bool = True

    @property
    def config(self) -> Config:
        """What its command is about."""
        return configuration.load(self.preset, self.overrides)

    def command(self, out: Path) -> list[str]:
        """The words that run it into a folder."""
        changed = [word for override in self.overrides for word in ("--set", override)]
        return ["fedclade", "compare", self.preset, *changed, "--out", str(out)]


GREEDY = "scheduling.greedy_clusters=1"
CIFAR10 = (GREEDY, "norm_thresholds.epsilon1=0.06", "norm_thresholds.epsilon2=0.3")
RESULTS = {
    "methods-mnist5k": Result("methods.md", "methods-mnist5k", (f"compare.methods={METHODS}",)),
    "methods-femnist": Result("methods.md", "methods-femnist", (f"compare.methods={METHODS}",)),
    "methods-cifar10": Result("methods.md", "methods-cifar10", (f"compare.methods={METHODS}",)),
    "published-sattler": Result("published.md", "published-sattler"),
    "published-ifca": Result("published.md", "published-ifca", ("compare.seeds=2",)),
    "published-cfla": Result("published.md", "published-cfla"),
    "published-cflgp": Result("published.md", "published-cflgp", ("compare.seeds=1",)),
    "paper-table": Result("published.md", "paper-table", as_leaderboard=False),
    "paper-femnist-small": Result("paper-tables.md", "paper-femnist-small", (GREEDY,), as_leaderboard=False),
    "paper-cifar10-small": Result("paper-tables.md", "paper-cifar10-small", CIFAR10, as_leaderboard=False),
}


def config_hash(config: Config) -> str:
    """Of all fields that are not as they are by default: what the defaults are belongs to the code."""
    changed = json.dumps(config.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    return hashlib.sha256(changed.encode()).hexdigest()[:8]


def code_hash(source: Path = SOURCE) -> str:
    """Of the files that a comparison's numbers may depend on."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        if place.parts[0] not in NO_MATTER:
            digest.update(f"{place.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def stale(name: str, pages: Path = PAGES) -> str | None:
    """Why a result must be made anew; None: it need not."""
    result = RESULTS[name]
    shown = _shown(pages / result.page, name)
    found = re.search(re.escape(STAMP).replace(r"\{\}", "([0-9a-f]+|unknown)"), shown)
    if found is None:
        return "it was never run to its end"
    changed = {"config": found[1] != config_hash(result.config), "code": found[2] != code_hash()}
    return (
        " and ".join(what for what, differs in changed.items() if differs) + " changed"
        if any(changed.values())
        else None
    )


def run(name: str) -> None:
    """Run a comparison to its end, or go on with it, keep its runs and show them."""
    result, code = RESULTS[name], code_hash()
    stamp = config_hash(result.config), code
    out = RUNS / f"{name}-{'-'.join(stamp)}"
    words = result.command(out)
    print(shlex.join(words), flush=True)
    subprocess.run([sys.executable, "-m", *words], check=True, env={**os.environ, "PYTHONPATH": str(EXAMPLES)})
    if code_hash() != code:
        raise SystemExit(f"{name}: the code changed while it ran: run it again")
    keep(name, out, stamp)


def keep(name: str, out: Path, stamp: tuple[str, str], pages: Path = PAGES) -> None:
    """The runs of a finished comparison beside the page, its tables in it, and the figures that pages show."""
    runs = next(path for path in (out / "all-runs.csv", out / "runs.csv") if path.is_file())
    shutil.copyfile(runs, pages / f"{name}.csv")
    show(name, stamp, pages)
    texts = "".join(path.read_text("utf-8") for path in pages.glob("*.md"))
    for figure in re.findall(rf"\({re.escape(name)}-([\w-]+)\.png\)", texts):
        shutil.copyfile(out / "figures" / f"{figure}.png", pages / f"{name}-{figure}.png")


def show(name: str, stamp: tuple[str, str] | None = None, pages: Path = PAGES) -> None:
    """Make the tables of a result from its runs; without a stamp, the one that is there stays."""
    page = pages / RESULTS[name].page
    before, after = around(page, name)
    known = STAMP.format(*stamp) if stamp else "".join(re.findall(r"^Made of config .*", _shown(page, name), re.M))
    page.write_text(f"{before}\n{text_of(name, pages)}\n{known}\n\n{after}", "utf-8")


def text_of(name: str, pages: Path = PAGES) -> str:
    """The tables of a result, from the runs that are kept."""
    result, runs = RESULTS[name], pd.read_csv(pages / f"{name}.csv")
    if result.as_leaderboard:
        return "\n".join(sheet.markdown() for sheet in leaderboard(runs, "none"))
    metrics, sizes = compared((), ACCURACY), dict.fromkeys(runs["devices"], 0.0)
    frame = runs.reindex(columns=[*runs.columns, *(metric for metric in metrics if metric not in runs)])
    found = Comparison(result.config, list(contenders(result.config)), frame, {}, sizes, {}, {}, metrics)
    return "\n".join(markdown(table) for table in tables(found) if table.name in SHOWN)


def _shown(page: Path, name: str) -> str:
    """What stands between a result's marks."""
    before, after = around(page, name)
    return page.read_text("utf-8").removeprefix(before).removesuffix(after)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="run these; without names, those that are stale")
    parser.add_argument("--list", action="store_true", help="say which are stale, and run nothing")
    parser.add_argument("--rebuild", action="store_true", help="make tables of the runs that are kept, and run nothing")
    given = parser.parse_args()
    if wrong := set(given.names) - set(RESULTS):
        parser.error(f"no such result: {', '.join(sorted(wrong))}; there are {', '.join(RESULTS)}")
    names = given.names or list(RESULTS)
    reasons = {name: stale(name) for name in names}
    for name, reason in reasons.items():
        print(f"{name}: {'fresh' if reason is None else f'stale: {reason}'} (docs/results/{RESULTS[name].page})")
    print(f"not followed here, each page has its own commands: {', '.join(OTHERS)}")
    for name in names:
        if given.rebuild and (PAGES / f"{name}.csv").is_file():
            show(name)
        elif not (given.list or given.rebuild) and (given.names or reasons[name] is not None):
            run(name)


if __name__ == "__main__":
    main()
