"""The shell of every page: one HTML file with style, scripts and data inside, and plotly inside or shared beside it."""

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclade.core.task import Score
from fedclade.runs import remove_leftovers, write_beside

DIGITS = 5  # of a number on the page
Json = Mapping[str, Any]


def write_page(path: Path, kind: str, data: Json, share: Path | None = None) -> Path:
    """Fill the shell: body, style, scripts and data of one kind of page.

    Plotly's five megabytes are put into the folder ``share``, once for all pages below it; without one, into the page.
    """
    write_beside(path, filled(kind, data, _plotly(path, share)).encode())
    return path


def filled(kind: str, data: Json, plotly: str) -> str:
    """The text of a page; ``plotly`` is its script element. What looks like a mark in the data is none."""
    parts = {
        "TITLE": "fedclade",
        "STYLE": _asset("page.css"),
        "BODY": _worded(_asset(f"{kind}.html"), data["score"]),
        "SCRIPT": _asset("common.js") + _asset(f"{kind}.js"),
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "PLOTLY": plotly,
    }
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], _asset("page.html"))


def score_data(score: Score) -> Json:
    """What a page must know of a score to show it."""
    return {"title": score.title, "meaning": score.meaning, "percent": score.factor == 100}


def _worded(body: str, score: Json) -> str:
    """A page's text with what devices are scored by in it."""
    for mark, word in (("score", score["title"]), ("meaning", score["meaning"])):
        body = body.replace(f"@{mark}@", word).replace(f"@{mark.capitalize()}@", word[0].upper() + word[1:])
    return body


def _plotly(page: Path, share: Path | None) -> str:
    """The page's script element: plotly itself, or where it is shared."""
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    if share is None:
        return f"<script>{get_plotlyjs()}</script>"
    file = share / f"plotly-{get_plotlyjs_version()}.min.js"
    if not file.is_file():
        remove_leftovers(share)
        write_beside(file, get_plotlyjs().encode())  # several runs may end at once
    return f'<script src="{Path(os.path.relpath(file, page.parent)).as_posix()}"></script>'


def shared_folder(folder: Path) -> Path | None:
    """Where the page of a run's or comparison's directory finds plotly: with the comparison, or in ``runs``.

    None for a run anywhere else: its page is one file.
    """
    whole = folder.resolve()
    comparison = next((each for each in (whole, *whole.parents) if (each / "compare.toml").is_file()), None)
    return comparison or (whole.parent if whole.parent.name == "runs" else None)


def _asset(name: str) -> str:
    return (resources.files("fedclade.report") / "assets" / name).read_text("utf-8")


def rounded(values: Iterable[Any]) -> list[float | None]:
    """Numbers for the page: few digits, None for what does not exist."""
    return [None if pd.isna(value) else float(f"{value:.{DIGITS}g}") for value in values]


def packed(values: Any, kind: str) -> Json:
    """A long list of numbers as base64 of a little-endian typed array (``i1``, ``i2`` or ``f4``)."""
    return {"type": kind, "base64": base64.b64encode(np.asarray(values).astype(f"<{kind}").tobytes()).decode()}


def made_from(folder: Path) -> str:
    """The footer."""
    return f"Made by fedclade {metadata.version('fedclade')} from {folder.resolve().name}. Works offline."
