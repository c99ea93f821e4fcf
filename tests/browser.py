"""A headless Chromium for tests, driven over a pipe by its DevTools protocol: no port, no library, no driver.

What a page does wrong is kept: `errors` are exceptions and whatever a console would show in red, `requests` the
addresses that it asked.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
)
PATIENCE = 90.0  # seconds that one thing may take on a machine that is busy with other things
ENABLED = ("Page", "Runtime", "Log", "Network")


def program() -> str:
    """Return Chromium; without it tests are skipped, in CI they fail."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        assert not os.environ.get("CI"), "there is no Chromium: `make browser` installs it on Debian, as root"
        pytest.skip("no Chromium")
    return found


class Browser:
    """One that runs; its pages share nothing but the process."""

    def __init__(self, into: int, out: int) -> None:
        """Take the ends of the pipes that it reads and writes."""
        self._into, self._out = into, out
        self._read = b""
        self._number = 0
        self._pages: dict[str, Page] = {}
        self._answers: dict[int, dict[str, Any]] = {}

    def page(self, url: str, **media: str) -> Page:
        """Open a page and wait until it is loaded; `media` are features such as `prefers-color-scheme`."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ENABLED:
            page.call(f"{domain}.enable")
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        page.call("Emulation.setEmulatedMedia", features=features)
        page.call("Page.navigate", url=url)
        self._wait(lambda: page.is_loaded, f"{url} is loaded")
        return page

    def call(self, method: str, session: str = "", **words: object) -> dict[str, Any]:
        """Call a method and return its result."""
        self._number = number = self._number + 1
        message = {"id": number, "method": method, "params": words, **({"sessionId": session} if session else {})}
        os.write(self._into, json.dumps(message).encode() + b"\0")
        self._wait(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            left = deadline - time.monotonic()
            assert left > 0, f"not in time: {what}"
            if select.select([self._out], [], [], left)[0]:
                self._take(os.read(self._out, 1 << 20))

    def _take(self, data: bytes) -> None:
        assert data, "Chromium has ended"
        *whole, self._read = (self._read + data).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self._answers[message["id"]] = message
            elif page := self._pages.get(message.get("sessionId", "")):
                page.hear(message)


class Page:
    """A page in a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.is_loaded = False
        self.errors: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **words: object) -> dict[str, Any]:
        return self._browser.call(method, self._session, **words)

    def run(self, script: str) -> Any:
        """Return what an expression of JavaScript is."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < deadline, f"not in time: {script}"
            time.sleep(0.1)

    def picture(self, path: Path, width: int, height: int) -> None:
        """Write what a window of that size shows as PNG."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def hear(self, message: dict[str, Any]) -> None:
        """Keep what matters of an event."""
        words = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self.is_loaded = True
            case "Runtime.exceptionThrown":
                self.errors.append(str(words["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if words["type"] in {"error", "assert", "warning"}:
                self.errors.append(str(words["args"]))
            case "Log.entryAdded" if words["entry"]["level"] == "error":
                self.errors.append(str(words["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(words["request"]["url"])


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """Run Chromium with a profile of its own; it is gone afterwards, with all its processes."""
    ours, theirs = os.pipe(), os.pipe()
    redirected = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
    process = subprocess.Popen(
        ["bash", "-c", redirected, "chromium", program(), *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(ours[0], theirs[1]),
        start_new_session=True,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(ours[0])
    os.close(theirs[1])
    try:
        yield Browser(ours[1], theirs[0])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        os.close(ours[1])
        os.close(theirs[0])
