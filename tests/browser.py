"""A small DevTools client: headless Chromium driven over its debugging pipe, for the tests of the pages."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # the pages must work offline
    "--remote-debugging-pipe",
)


def find_browser() -> str:
    """The browser's path, or a skip; a failure where CI says that it must be there."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    message = f"needs a headless browser: install one of {', '.join(NAMES)}"
    if os.environ.get("FEDCLADE_REQUIRE_BROWSER"):
        pytest.fail(message)
    pytest.skip(message)


class Page:
    """One open page, and what it complained about."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._rest, self._next = read, write, b"", 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.allowed: tuple[str, ...] = ("file:", "data:", "blob:")  # whatever else is fetched is a complaint
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One DevTools command and its answer."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._next:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._take(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser ended"
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def _take(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(self.allowed):
                self.complaints.append(f"went to the network: {url}")

    def see(self, width: int = 1200, height: int = 900, *, dark: bool = False, media: str = "screen") -> None:
        """Set the window's size and the colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[feature])

    def open(self, place: Path | str, within_seconds: float = 120) -> float:
        """Open a report, by path or address, and wait until all is drawn; gives the seconds from navigation on."""
        self.call("Page.navigate", url=place.resolve().as_uri() if isinstance(place, Path) else place)
        self.wait_for("document.documentElement?.dataset.ready === 'yes'", within_seconds)
        return float(self.value("performance.now()")) / 1000

    def value(self, expression: str) -> Any:
        """A JavaScript value; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str, within_seconds: float = 60) -> None:
        """Until a JavaScript condition holds."""
        deadline = time.monotonic() + within_seconds
        while not self.value(condition):
            assert time.monotonic() < deadline, f"never came true: {condition}; {self.complaints}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # all in place
        box = self.value(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], **button)

    def press(self, key: str, code: int, text: str | None = None) -> None:
        """A real key."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """A page in a browser of its own."""
    path = find_browser()
    (read_commands, commands), (answers, write_answers) = os.pipe(), os.pipe()
    # the browser wants them as 3 and 4: keep out of their way
    its_ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_commands, write_answers)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [path, *OPTIONS, f"--user-data-dir={profile}"]
        script = f'exec "$@" 3<&{its_ends[0]} 4>&{its_ends[1]}'
        process = subprocess.Popen(
            ["bash", "-c", script, "browser", *words],
            pass_fds=its_ends,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in (read_commands, write_answers, *its_ends):
            os.close(end)
        try:
            yield Page(answers, commands)
        finally:
            os.close(commands)  # it ends when its pipe does
            os.close(answers)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
