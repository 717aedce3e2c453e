"""All metrics: those of these rooms, and those that a config names."""

from collections.abc import Iterable

from fedclade.core.errors import UserError
from fedclade.core.plugins import load
from fedclade.core.task import ACCURACY, Score
from fedclade.metrics import cost, drift, fairness, groups, objective, regression
from fedclade.metrics.metric import OWN, Metric
from fedclade.metrics.outcome import Outcome

METRICS = {
    found.name: found
    for module in (fairness, regression, groups, drift, cost, objective)
    for found in vars(module).values()
    if isinstance(found, Metric)
}
TABLES = {
    "accuracy": "{Score} over the devices",
    "speed": "Rounds and simulated seconds to the first split, the last split and the target {score}",
    "fairness": "Fairness, and whether the groups were found",
    "cost": "Cost of the whole run",
    OWN: "Metrics of one's own",
}
TAKEN = {
    "policy",
    "method",
    "reveals",
    "seed",
    "devices",
    "rounds",
    "ended_by",
    "contender",
    "population",
}  # columns beside metrics


def find_metrics(specs: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics that ``run.metrics`` names, each as ``package.module:function``."""
    own: dict[str, Metric] = {}
    for spec in specs:
        where = f"run.metrics = {spec!r}"
        found = load("run.metrics", spec)
        if not isinstance(found, Metric) or found.compute is None:
            raise UserError(f"{where}: must be a metric: a function of an Outcome under @metric(name, title)")
        if found.table is not None and found.table not in TABLES:
            raise UserError(f"{where}: table = {found.table!r}: must be one of {', '.join(TABLES)}")
        if found.name in METRICS.keys() | TAKEN | own.keys() or found.name.startswith("wall_"):
            raise UserError(f"{where}: the name {found.name!r} is taken: choose another")
        own[found.name] = found
    return tuple(own.values())


def summarise(outcome: Outcome, own: Iterable[Metric] = ()) -> dict[str, float | None]:
    """Every metric of an outcome by name, as ``summary.json`` has it."""
    return {found.name: found(outcome) for found in (*METRICS.values(), *own) if found.compute is not None}


def every_round(outcome: Outcome, own: Iterable[Metric] = ()) -> dict[Metric, float]:
    """The metrics that are told of every evaluated round, where they exist."""
    told = {found: found(outcome) for found in (*METRICS.values(), *own) if found.every_round}
    return {found: value for found, value in told.items() if value is not None}


def table_title(table: str, score: Score) -> str:
    """What a table of a comparison is called."""
    return TABLES[table].format(score=score.title, Score=score.title[0].upper() + score.title[1:])


def told_of(score: Score, own: Iterable[Metric] = ()) -> list[Metric]:
    """The metrics of runs whose devices have this score."""
    return [found for found in (*METRICS.values(), *own) if found.scored in ("", score.name)]


def compared(own: Iterable[Metric] = (), score: Score = ACCURACY) -> dict[str, Metric]:
    """The metrics that comparisons show, table by table."""
    everything = told_of(score, own)
    return {found.name: found for table in TABLES for found in everything if found.table == table}


def reference() -> str:
    """All metrics as a Markdown table: name, title, meaning and where each is shown."""
    lines = [("`summary.json`", "title", "meaning", "table", "figure", "TensorBoard"), ("---",) * 6]
    for found in METRICS.values():
        name = f"`{found.name}`" if found.compute is not None else f"({found.name})"
        curve = f"`{found.tag}`" if found.every_round else "–"
        lines.append((name, found.title, found.meaning, found.table or "–", found.figure or "–", curve))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
