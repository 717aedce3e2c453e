"""The live page: a small server on this machine alone, and a page that asks it every other second."""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedclade.core.errors import UserError
from fedclade.core.task import SCORES
from fedclade.report.comparison import comparison_data
from fedclade.report.page import Json, run_data, score_data
from fedclade.report.page.shell import filled
from fedclade.report.watch.look import Look, Watch
from fedclade.runs import Run
from fedclade.study import collect, read_comparisons

HOST = "127.0.0.1"
PLOTLY = '<script src="/plotly.js"></script>'
EVENTS = 200  # the latest ones are shown


class Server(ThreadingHTTPServer):
    """Answers browsers of this machine; every answer is read from the directory when it is asked for."""

    daemon_threads = True

    def __init__(self, watch: Watch, port: int) -> None:
        self._watch, self._one_at_a_time = watch, threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; take another, or 0 for any that is free") from error

    @property
    def url(self) -> str:
        """Where to find the page."""
        return f"http://{HOST}:{self.server_port}/"

    def data(self) -> Json:
        """What the page shows now."""
        with self._one_at_a_time:
            return data_of(self._watch.look())

    def report(self) -> str:
        """The whole report of the directory, as far as it goes."""
        with self._one_at_a_time:
            if not self._watch.comparison:
                return filled("run", run_data(Run(self._watch.folder)), PLOTLY)
            found = read_comparisons(self._watch.folder)
            if len(found) > 1:
                several = ", ".join(found)
                raise UserError(
                    f"{self._watch.folder}: each population has a report of its own; watch one of {several}"
                )
            ((config, jobs, folder),) = found.values()
            return filled("comparison", comparison_data(collect(config, jobs), jobs, folder), PLOTLY)


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        """One of four things; whatever else is asked for is not there."""
        # A page from elsewhere whose name leads to this machine must not read what is here.
        if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
            return self._answer("text/plain", "this page is for this machine alone", HTTPStatus.FORBIDDEN)
        answers: dict[str, tuple[str, Callable[[], str]]] = {
            "/": ("text/html", lambda: filled("watch", self.server.data(), PLOTLY)),
            "/data": ("application/json", lambda: json.dumps(self.server.data(), allow_nan=False)),
            "/report": ("text/html", self.server.report),
            "/plotly.js": ("text/javascript", _plotly),
        }
        if self.path not in answers:
            return self._answer("text/plain", "nothing here", HTTPStatus.NOT_FOUND)
        kind, made = answers[self.path]
        try:
            return self._answer(kind, made())
        except UserError as error:
            return self._answer("text/plain", str(error), HTTPStatus.CONFLICT)

    def _answer(self, kind: str, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=3600" if kind == "text/javascript" else "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Questions are not told."""


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


def data_of(look: Look) -> Json:
    """A look as plain data."""
    runs = [asdict(run) for run in look.runs]
    for run in runs:
        run["events"] = run["events"][-EVENTS:] if not look.comparison else ()
    return {
        "name": look.folder.resolve().name,
        "comparison": look.comparison,
        "score": score_data(SCORES[look.runs[0].score]),
        "runs": runs,
        "over": look.over,
        "left_seconds": look.left_seconds,
        "news_seconds": look.news_seconds,
        "resume": f"fedclade {'compare … --out' if look.comparison else 'run --resume'} {look.folder}",
    }


def serve(watch: Watch, port: int, told: Callable[[str], None]) -> None:
    """Answer until a signal ends the program; ``told`` is called with the page's address."""
    with Server(watch, port) as server:
        told(server.url)
        server.serve_forever()
