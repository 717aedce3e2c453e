"""The shell of every page: one HTML file with style, scripts, plotly and data inside."""

import base64
import json
from collections.abc import Iterable, Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclade.runs import write_beside

DIGITS = 5  # of a number on the page
Json = Mapping[str, Any]


def write_page(path: Path, kind: str, data: Json) -> Path:
    """Fill the shell: body, style, scripts and data of one kind of page."""
    from plotly.offline import get_plotlyjs

    page = _asset("page.html")
    for mark, text in (
        ("@TITLE@", "fedclade"),
        ("@STYLE@", _asset("page.css")),
        ("@BODY@", _asset(f"{kind}.html")),
        ("@SCRIPT@", _asset("common.js") + _asset(f"{kind}.js")),
        ("@DATA@", json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")),
        ("@PLOTLY@", get_plotlyjs()),
    ):
        before, after = page.split(mark)
        page = before + text + after
    write_beside(path, page.encode())
    return path


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
