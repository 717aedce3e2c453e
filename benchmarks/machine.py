"""Facts of the machine, and how results are shown and kept."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    quick: bool
    peers: bool
    repeats: int
    skip: str | None


@dataclass(frozen=True)
class Goal:
    """A number to be reached, or with ``at_most`` not to be exceeded; ``found`` is None where it was not measured."""

    what: str
    wanted: float
    found: float | None
    unit: str
    at_most: bool = False

    def row(self) -> tuple[str, str, str, str]:
        """A line of the table of goals."""
        wanted = f"at {'most' if self.at_most else 'least'} {self.wanted:g}{self.unit}"
        if self.found is None:
            return self.what, wanted, "not measured", ""
        met = self.found <= self.wanted if self.at_most else self.found >= self.wanted
        return self.what, wanted, f"{self.found:.2g}{self.unit}", "met" if met else "**not met**"


def goals_table(goals: Sequence[Goal]) -> str:
    """What is aimed at and what was found, as Markdown."""
    return markdown(("goal", "wanted", "found", ""), [goal.row() for goal in goals])


@dataclass(frozen=True)
class Report:
    """What a benchmark found."""

    settings: dict[str, Any]
    results: object
    text: str  # Markdown
    goals: Sequence[Goal] = ()


def machine_facts() -> dict[str, Any]:
    """What a figure depends on; ask before measuring, for the load's sake."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line.partition(":") for line in info.read_text().splitlines())
        cpu = next((value.strip() for key, _, value in lines if key.strip() == "model name"), cpu)
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
    }


def in_words(facts: dict[str, Any]) -> str:
    """The facts as one line."""
    loads = ", ".join(map(str, facts["load_average_at_start"]))
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, torch {facts['torch']}, "
        f"NumPy {facts['numpy']}; load average at start {loads} (1, 5, 15 minutes); {facts['when']}"
    )


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; all columns but the first are right-aligned."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def keep(folder: Path, page: Path | None, name: str, facts: dict[str, Any], report: Report) -> None:
    """Print the tables and write them down, with everything they were made from; and into their place in a page."""
    text = f"{in_words(facts)}\n\n{report.text}\n"
    print(text, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"machine": facts, "settings": report.settings, "results": report.results}
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    (folder / f"{name}.md").write_text(text)
    if page is not None:
        before, after = around(page, name)
        page.write_text(f"{before}{text}{after}", "utf-8")


def around(page: Path, name: str) -> tuple[str, str]:
    """What stands before and after the place of some tables in a page, with the marks around it."""
    before, begin, rest = page.read_text("utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->\n")
    if not end:
        raise SystemExit(f"{page}: has no place for {name}: expected <!-- {name} --> and <!-- end of {name} -->")
    return before + begin, end + after
