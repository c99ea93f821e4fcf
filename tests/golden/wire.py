"""HTTP without a network: requests go to services in memory, and are written down as text."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from . import adapter

LONGEST = 400  # characters of a body that only asks
_ASKED_ANEW = re.compile(r"/auth/|/whoami$")  # how often depends on how many threads there are

_RANDOM = re.compile(r"\b(?!0{16})[0-9a-f]{32}\b")  # ids in services' memories have numbers for ids
_PROCESS = re.compile(r"\bprocess \d+")


class Request(NamedTuple):
    """What was sent."""

    method: str
    url: str  # without its query
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """What comes back."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012  never changed


def as_json(value: Any, status: int = 200) -> Answer:
    """Answer with JSON."""
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


@dataclass
class HttpTransport:
    """Services by host; `stamp` says when, `asks` which POSTs change nothing."""

    services: dict[str, Callable[[Request], Answer]]
    stamp: Callable[[], str]
    asks: Callable[[Request], bool]
    home: str = "https://nowhere"  # the one service whose address is not written down
    instead: list[tuple[str, str, Answer, bool]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    _beside: list[str] = field(default_factory=list)  # of threads beside the main one, whose order is none
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail_next(self, method: str, path: str, answer: Answer, *, done: bool = False) -> None:
        """Answer the next such request with this instead, before or after it was carried out."""
        self.instead.append((method, path, answer, done))

    def log(self) -> str:
        """Return all requests so far, a line each."""
        self._settle()
        return "\n".join(self.lines)

    def _settle(self) -> None:
        self.lines += sorted(self._beside)
        self._beside.clear()

    def _note(self, request: Request) -> None:
        if _ASKED_ANEW.search(request.path):
            return
        line = f"{self.stamp()} {self._shown(request)}".replace(adapter.VERSION, "<version>")
        line = _PROCESS.sub("process <id>", _RANDOM.sub("<random>", line))
        if threading.current_thread() is threading.main_thread():
            self._settle()
            self.lines.append(line)
        else:
            self._beside.append(line)

    def _shown(self, request: Request) -> str:
        query = "&".join(f"{key}={value}" for key, value in sorted(request.query.items()))
        words = [request.method, request.url + (f"?{query}" if query else "")]
        if request.headers.get("Depth"):
            words.append(f"Depth:{request.headers['Depth']}")
        if request.body:
            words.append(self._body(request))
        return " ".join(words).replace(self.home, "")

    def _body(self, request: Request) -> str:
        text = request.body.decode()
        if text.startswith("{"):  # what is null was not asked for
            text = json.dumps({k: v for k, v in json.loads(text).items() if v is not None}, sort_keys=True)
        if len(text) > LONGEST and self.asks(request):
            return f"({len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]})"
        return text if text.startswith(("{", "[")) else f"({len(text)} characters)"

    def answer(self, request: Request) -> Answer:
        """Write a request down and let its service answer."""
        with self._lock:
            self._note(request)
            host = urlsplit(request.url).netloc
            for number, (method, path, answer, done) in enumerate(self.instead):
                if request.method == method and request.path.startswith(path):
                    del self.instead[number]
                    if done:
                        self.services[host](request)
                    return answer
            return self.services[host](request)

    @contextmanager
    def plugged_in(self) -> Iterator[None]:
        """Let all that `requests` sends go here inside the block."""
        wire = self

        def send(self: HTTPAdapter, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
            answer = wire.answer(_read(request))
            adapter.answered_within_bounds()
            raw = urllib3.HTTPResponse(
                io.BytesIO(b"" if request.method == "HEAD" else answer.body),
                headers=answer.headers,
                status=answer.status,
                preload_content=False,
                decode_content=False,
                request_method=request.method,
            )
            return self.build_response(request, raw)

        with mock.patch.object(HTTPAdapter, "send", send):
            yield


def _read(request: requests.PreparedRequest) -> Request:
    url = urlsplit(request.url or "")
    path = "/" + url.path.lstrip("/")
    body = request.body.encode() if isinstance(request.body, str) else request.body or b""
    return Request(
        request.method or "", f"{url.scheme}://{url.netloc}{path}", path, dict(parse_qsl(url.query)),
        dict(request.headers), body,
    )  # fmt: skip
