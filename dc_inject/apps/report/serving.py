"""Reports that are served: a WSGI app that gives pages of campaigns, read-only, to browsers on this machine.

A page is made when a browser asks for it, and then again at most every few seconds, and only if the ledger has
changed. So a page that is not looked at costs nothing. It is made outside (`Make`), by a process of its own,
`dc-inject report`, with a time in which it has to end: a large campaign takes neither time nor memory from the
injector. While one is made, all who ask wait for it, and get the last one if they have waited long enough.

A browser visits strange pages, too. So the app answers only GET and HEAD, and lets no other page frame, embed or
read what it gives; its server (`metrics/page.py`) answers only to names of this machine. Nothing in it changes
anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from dc_inject.apps.report import page, pictures
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.metrics import page as server
from dc_inject.model.errors import DcInjectError, ServiceError, UsageError
from dc_inject.system import disk

Make = Callable[[Path], bytes]  # the page of a ledger; raises DcInjectError where there is none
Headers = list[tuple[str, str]]
Answer = tuple[str, Headers, bytes]

WAIT = 20.0  # seconds that one waits for a page that is made
SHARE = 3  # times as long as a page took to make, the next one is not made
LONGEST = 300.0  # seconds that a page may take to be made
EVERY = timedelta(seconds=10)  # between two pages in a browser
UNCHANGED = 60.0  # seconds after which a page is made again, though its ledger is as it was
HTML = ("Content-Type", "text/html; charset=utf-8")
POLICY = page.policy(page.SCRIPT, page.LIVE, connect="'self'") + "; frame-ancestors 'none'"
SAFE: Headers = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]


class Pages:
    """The app: `/` is the page of the only campaign, or a list of them, and `/campaign/NAME` that of one."""

    def __init__(
        self,
        ledgers: Mapping[str, Path],
        make: Make,
        every: float,
        metrics: Callable[..., Iterable[bytes]] | None = None,
    ) -> None:
        """Take campaigns, what makes a page, every how many seconds at most, and what answers at `/metrics`."""
        self._pages = {name: _Page(path, make, every) for name, path in ledgers.items()}
        self._metrics = metrics

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request, as WSGI has it."""
        if environ.get("PATH_INFO") == "/metrics" and self._metrics is not None:
            return self._metrics(environ, start_response)
        status, headers, body = self._answer(environ)
        start_response(status, [*headers, *SAFE, ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: Mapping[str, Any]) -> Answer:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            status, headers, body = _words("405 Method Not Allowed", "This page can only be read.")
            return status, [*headers, ("Allow", "GET, HEAD")], body
        place = environ.get("PATH_INFO", "")
        if place == "/" and len(self._pages) != 1:
            return "200 OK", [HTML], page.render("Campaigns", [], campaigns=list(self._pages)).encode()
        asked = next(iter(self._pages)) if place == "/" else place.removeprefix("/campaign/")
        if asked not in self._pages:
            return _words("404 Not Found", "There is no such page.")
        return self._pages[asked].answer(environ.get("HTTP_IF_NONE_MATCH", ""))


class _Page:
    """The page of one campaign, as it was made last."""

    def __init__(self, path: Path, make: Make, every: float) -> None:
        self._path, self._make, self._every = path, make, every
        self._lock = threading.Condition()
        self._content, self._tag = b"", ""
        self._wrong = ""  # why there is none
        self._stamp: object = None
        self._made_at = self._next_at = float("-inf")
        self._is_making = False

    def answer(self, browser_tag: str) -> Answer:
        """Return the page, or 304 if it is still the one with the browser's tag."""
        with self._lock:
            if self._is_old() and not self._is_making:
                self._is_making = True
                threading.Thread(target=self._renew, name="page", daemon=True).start()
            self._lock.wait_for(lambda: not self._is_making, WAIT)
            if not self._content:
                words = self._wrong or "The page is being made."
                body = page.render("Not yet", [words], again=5)
                return "503 Service Unavailable", [HTML, ("Retry-After", "5")], body.encode()
            headers = [HTML, ("ETag", self._tag)]
            return (
                ("304 Not Modified", headers, b"")
                if browser_tag == self._tag
                else ("200 OK", headers, self._content)
            )

    def _is_old(self) -> bool:
        now = time.monotonic()
        return now >= self._next_at and (self._stamp != _stamp(self._path) or now >= self._made_at + UNCHANGED)

    def _renew(self) -> None:
        begun, stamp = time.monotonic(), _stamp(self._path)
        content, wrong = b"", ""
        try:
            content = self._make(self._path)
        except DcInjectError as error:
            wrong = error.message
        except Exception as error:  # noqa: BLE001  the last place: whoever waits needs an answer
            wrong = f"The page cannot be made: {type(error).__name__}."
        with self._lock:
            now = time.monotonic()
            self._made_at, self._next_at = now, now + max(self._every, SHARE * (now - begun))
            self._wrong, self._stamp = wrong, None if wrong else stamp
            if content:
                self._content, self._tag = content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            self._is_making = False
            self._lock.notify_all()


def _stamp(path: Path) -> object:
    """Return what is another one after each change of a ledger."""
    stamps = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = file.stat()
        except OSError:
            continue
        stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return stamps


def _words(status: str, words: str) -> Answer:
    return status, [("Content-Type", "text/plain; charset=utf-8")], f"{words}\n".encode()


# --------------------------------------------------------------------------- the server


def find_ledgers(campaigns: Iterable[str]) -> dict[str, Path]:
    """Return the ledgers by their campaigns; raises UsageError for two of one campaign, which has one page."""
    ledgers: dict[str, Path] = {}
    for campaign in campaigns:
        path = ledger_files.existing(campaign)
        with LedgerView.open(path) as view:
            name = ledger_files.campaign_in(view, campaign, path)
        other = ledgers.setdefault(name, path)
        if disk.real(path) != disk.real(other):
            raise UsageError(f"{other} and {path} are both of campaign {name}", "serve one of them, or each alone")
    return ledgers


@contextlib.contextmanager
def serve_pages(
    ledgers: Mapping[str, Path],
    port: int,
    *,
    every: timedelta = EVERY,
    metrics: Callable[..., Iterable[bytes]] | None = None,
) -> Iterator[str]:
    """Serve pages of campaigns as long as the context lasts; gives their address, `127.0.0.1:PORT`."""
    pictures.library()  # whether it is there, before a browser asks
    seconds = every.total_seconds()
    with _Maker(seconds) as maker:
        app = Pages(ledgers, maker.make, seconds, metrics)
        with server.serve(app, f"127.0.0.1:{port}", "the report, live, at http://{}/") as place:
            yield place


class _Maker:
    """Makes pages by processes of their own, which end with it."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    def __enter__(self) -> _Maker:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.kill()

    def make(self, path: Path) -> bytes:
        """Return the page of a ledger, which renews itself; raises ServiceError where there is none."""
        command = [sys.executable, "-m", "dc_inject", "report", "--format", "html", "-o", "-"]
        with self._lock:
            if self._is_over:
                raise ServiceError("the page is no longer served")
            process = subprocess.Popen(
                [*command, "--renewed-every", f"{self._every:g}", str(disk.real(path))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C is for whoever serves
            )
            self._processes.add(process)
        try:
            content, errors = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"the page was not made in {LONGEST:.0f} s") from None
        finally:
            process.kill()
            process.communicate()
            with self._lock:
                self._processes.discard(process)
        if not content:  # a threshold that was missed is another exit code, with its page
            raise ServiceError(errors.decode(errors="replace").partition("\n")[0] or "the page could not be made")
        return content
