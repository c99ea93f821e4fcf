"""FTS's REST interface and WebDAV storages in memory, which go on with the time of a simulated world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tests.backends.fts.service import OVER, FakeFts
from tests.backends.fts.store import Store
from tests.storage.server import ROW, WHOLE

from .wire import Answer, Request, as_json


@dataclass
class Service:
    """Jobs take some minutes; `fails` gives the reason why a file does not arrive."""

    fts: FakeFts
    now: Callable[[], datetime]
    fails: Callable[[dict[str, Any]], str] = lambda _file: ""
    minutes: float = 12
    born: dict[str, datetime] = field(default_factory=dict)

    def answer(self, request: Request) -> Answer:
        """Answer one request, as of now."""
        self.progress()
        query = {name: [value] for name, value in request.query.items()}
        status, value = self.fts.answer(request.method, request.path, query, request.body)
        return Answer(status) if status == 304 else as_json(value, status)

    def progress(self) -> None:
        """Do what FTS did since the last request."""
        every = self.fts.jobs
        for job in every.values():
            self.born.setdefault(job.id, self.now())
        old = {
            job.id: job
            for job in every.values()
            if job.state not in OVER and self.now() - self.born[job.id] >= timedelta(minutes=self.minutes)
        }
        self.fts.start()
        self.fts.jobs = old
        self.fts.finish(self.fails)
        self.fts.jobs = every


@dataclass
class Storages:
    """All storages: their files by URL, as davs://."""

    store: Store = field(default_factory=Store)

    def answer(self, request: Request) -> Answer:
        """Answer as a WebDAV server does."""
        url = "davs" + unquote(request.url).removeprefix("https").rstrip("/")
        there = url in self.store.files or url in self.store.folders
        if request.method == "OPTIONS":
            return Answer(200, headers={"Allow": "OPTIONS, HEAD, PROPFIND, DELETE, COPY, MKCOL"})
        if request.method == "HEAD":
            size = self.store.files.get(url)
            return Answer(404) if size is None else Answer(200, headers={"Content-Length": str(size)})
        if request.method == "DELETE":
            return self._delete(url) if there else Answer(404)
        if request.method == "PROPFIND":
            return self._list(url, request.headers["Depth"]) if there else Answer(404)
        raise AssertionError(f"not expected: {request.method} {request.url}")

    def _delete(self, url: str) -> Answer:
        assert not self.store.below(url), f"{url} is not empty"
        self.store.files.pop(url, None)
        self.store.folders.discard(url)
        return Answer(204)

    def _list(self, url: str, depth: str) -> Answer:
        found = [url]
        if depth == "1":
            found += [one for one in self.store.below(url) if one.rpartition("/")[0] == url]
        rows = "".join(self._row(one) for one in found)
        return Answer(207, WHOLE.format(rows=rows).encode(), {"Content-Type": "text/xml"})

    def _row(self, url: str) -> str:
        props = "<D:quota-available-bytes>900000000000000</D:quota-available-bytes>"
        if url in self.store.files:
            props += f"<D:resourcetype/><D:getcontentlength>{self.store.files[url]}</D:getcontentlength>"
        else:
            props += "<D:resourcetype><D:collection/></D:resourcetype>"
        return ROW.format(href=quote(urlsplit(url).path), props=props)
