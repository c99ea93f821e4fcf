"""Reports that are served: a WSGI app that gives pages of campaigns, read-only, to browsers on this machine.

A page is made when somebody asks for it, and then again at most every few seconds, and only if the ledger has
changed. So a page that nobody looks at costs nothing. It is made outside (`Make`), by a process of its own: adding
up a large campaign takes its time, which the injector needs for itself. While one is made, whoever asks waits for
it; whoever has waited long enough gets the last one.

A browser visits strange pages, too. So the app answers only GET and HEAD, and says that nobody may frame, embed or
read what it gives; its server (`metrics/page.py`) answers only to names of this machine. Nothing in it changes
anything.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from dc_inject.apps.report import page
from dc_inject.model.errors import DcInjectError
from dc_inject.model.redaction import visible

Make = Callable[[Path], bytes]  # the page of a ledger; raises DcInjectError where there is none
Headers = list[tuple[str, str]]
Answer = tuple[str, Headers, bytes]

WAIT = 20.0  # seconds that one waits for a page that is made
SHARE = 3  # times as long as a page took to make, the next one is not made
UNCHANGED = 60.0  # seconds after which a page is made anew, though its ledger is as it was
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
            return "200 OK", [HTML], self._list()
        asked = next(iter(self._pages)) if place == "/" else place.removeprefix("/campaign/")
        if asked not in self._pages:
            return _words("404 Not Found", "There is no such page.")
        return self._pages[asked].answer(environ.get("HTTP_IF_NONE_MATCH", ""))

    def _list(self) -> bytes:
        links = "".join(f'<li><a href="/campaign/{escape(name)}">{escape(name)}</a></li>' for name in self._pages)
        return _html("Campaigns", f"<ul>{links}</ul>")


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
                body = _html("Not yet", f"<p>{escape(words)}</p>", again=5)
                return "503 Service Unavailable", [HTML, ("Retry-After", "5")], body
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
            wrong = visible(error.message)
        except Exception as error:  # noqa: BLE001  the last place: whoever waits has to be told
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


def _html(title: str, body: str, again: int = 0) -> bytes:
    refresh = f'<meta http-equiv="refresh" content="{again}">' if again else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">{refresh}<title>{title}</title>\n'
        f"<style>{page.STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
    ).encode()
