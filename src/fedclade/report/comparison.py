"""All that a comparison leaves behind: tables, figures and its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fedclade.core.errors import UserError
from fedclade.report.figures import write_figures
from fedclade.report.leaderboard import Sheet, write_leaderboard
from fedclade.report.page import Json, made_from, models_data, rounded, score_data, shared_folder, write_page
from fedclade.report.tables import tables, write_tables
from fedclade.study import Comparison, Curves, Job, collect, read_comparisons, spread, verdicts


@dataclass(frozen=True)
class WrittenStudy:
    """What a study came to, and where its pages are."""

    comparisons: Mapping[str, Comparison]  # by population
    pages: list[Path]
    leaderboard: list[Sheet]  # empty where only policies were compared, in one population


def write_study(out: Path, single_file: bool = False) -> WrittenStudy:
    """Tables, figures and page of every comparison in a directory that has a finished run, and the leaderboard."""
    found, pages, methods = dict[str, Comparison](), list[Path](), False
    for name, (config, jobs, folder) in read_comparisons(out).items():
        methods = methods or bool(config.compare.methods)
        if any(job.finished for job in jobs):
            found[name] = collect(config, jobs)
            pages.append(write_comparison(found[name], jobs, folder, single_file))
    if not found:
        raise UserError(f"{out}: no run of this comparison is finished yet")
    sheets = write_leaderboard(found, out) if methods or len(found) > 1 else []
    return WrittenStudy(found, pages, sheets)


def write_comparison(comparison: Comparison, jobs: Sequence[Job], out: Path, single_file: bool = False) -> Path:
    """Tables, figures where matplotlib is there, and the page, whose path is given."""
    write_tables(comparison, out)
    if find_spec("matplotlib"):
        write_figures(comparison, out)
    return write_comparison_page(comparison, jobs, out, single_file)


def write_comparison_page(comparison: Comparison, jobs: Sequence[Job], out: Path, single_file: bool = False) -> Path:
    """Write ``report.html`` into the comparison's directory; plotly is shared with its runs unless ``single_file``."""
    share = None if single_file else shared_folder(out)
    return write_page(out / "report.html", "comparison", comparison_data(comparison, jobs, out), share)


def comparison_data(comparison: Comparison, jobs: Sequence[Job], out: Path) -> Json:
    """All that the page of a comparison shows."""
    config, frame = comparison.config, comparison.frame
    missing = len(jobs) - len(frame)
    return {
        "name": f"{out.resolve().name}: {len(comparison.contenders)} policies compared",
        "lead": f"{len(frame)} runs: {', '.join(comparison.contenders)}; {_listed(comparison.sizes)} devices;"
        f" {config.compare.seeds} seed{'s' if config.compare.seeds > 1 else ''} each."
        " With one seed all meet the same devices, data and channels.",
        "banner": f"{missing} of {len(jobs)} runs are missing. Refresh with: fedclade report {out}" if missing else "",
        "contenders": comparison.contenders,
        "sizes": comparison.sizes,
        "verdicts": [
            {"devices": verdict.devices, "label": verdict.question, "value": verdict.headline, "why": verdict.why}
            for verdict in verdicts(comparison)
        ],
        "time_budget": config.compare.time_budget_seconds,
        "target": config.compare.target_accuracy,
        "score": {"name": comparison.score.name, **score_data(comparison.score)},
        "epsilons": {name: list(run.config.epsilons) for (_, name), run in comparison.first.items()},
        "common": {devices: rounded([seconds])[0] for devices, seconds in comparison.common.items()},
        "abreast": _by_size(
            comparison,
            {key: dict(zip(found, rounded(found.values()), strict=True)) for key, found in comparison.abreast.items()},
        ),
        "curves": _by_size(comparison, {key: _curves(curves) for key, curves in comparison.curves.items()}),
        "models": _by_size(
            comparison, {key: models_data(run.models, comparison.score) for key, run in comparison.first.items()}
        ),
        "metrics": _metrics(comparison),
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "columns": table.columns,
                "rows": [(devices, name, [(c.text, c.value) for c in cells]) for devices, name, cells in table.rows],
            }
            for table in tables(comparison)
        ],
        "runs": [_run(job, out) for job in jobs],
        "footer": made_from(out),
    }


def _listed(sizes: list[int]) -> str:
    return " and ".join(filter(None, [", ".join(map(str, sizes[:-1])), str(sizes[-1])]))


def _by_size(comparison: Comparison, values: dict[tuple[int, str], Json]) -> Json:
    return {
        str(devices): {name: value for (size, name), value in values.items() if size == devices}
        for devices in comparison.sizes
    }


def _curves(curves: Curves) -> Json:
    return {
        "round": curves.round.tolist(),
        **{part: rounded(values) for part, values in curves.score.items()},
        "norm_round": curves.norm_round.tolist(),
        **{f"norm_{part}": rounded(values) for part, values in curves.norms.items()},
        "splits": curves.split_rounds,
        "race": {"seconds": rounded(curves.race.seconds)}
        | {part: rounded(values) for part, values in curves.race.score.items()},
    }


def _metrics(comparison: Comparison) -> Json:
    metrics, rows = comparison.metrics, spread(comparison)
    found: dict[str, dict[str, dict[str, Json]]] = {name: {} for name in metrics}
    for row in rows.to_dict("records"):
        factor = metrics[row["metric"]].factor
        mean, deviation = rounded([factor * row["mean"], factor * row["std"]])
        of_size = found[row["metric"]].setdefault(str(row["devices"]), {})
        of_size[row["contender"]] = {"mean": mean, "std": deviation}
    return {name: {"title": metrics[name].title, "values": values} for name, values in found.items()}


def _run(job: Job, out: Path) -> Json:
    page = job.folder / "report.html"
    failed = (job.folder / "failure.txt").is_file()
    return {
        "contender": job.contender,
        "devices": job.devices,
        "seed": job.seed,
        "state": "finished" if job.finished else "failed" if failed else "not finished",
        "page": page.relative_to(out).as_posix() if page.is_file() else None,
    }
