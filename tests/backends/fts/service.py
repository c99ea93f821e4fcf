"""A small FTS in memory, spoken to over HTTP by the real client, that can be told to misbehave."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.backends.fts.store import Store

BASE = uuid.UUID("01874efb-4735-4595-bc9c-591aef8240c9")
VO = "dteam"
OVER = {"FINISHED", "FINISHEDDIRTY", "FAILED", "CANCELED"}
HANG, DROP = -1, -2  # in place of a status: never answer, or cut the connection

Answer = tuple[int, Any]


@dataclass
class Job:
    """A job as it was submitted, and how it stands."""

    id: str
    body: dict[str, Any]
    state: str = "SUBMITTED"
    files: list[dict[str, Any]] = field(default_factory=list)
    user_dn: str = "/CN=me"
    submitted: str = "2027-02-08T10:01:00"
    over: float = 0.5  # hours since it was over, when it is


@dataclass
class FakeFts:
    """Jobs, and answers that take the place of the usual ones: by method and path, as often as there are some."""

    store: Store
    jobs: dict[str, Job] = field(default_factory=dict)
    instead: list[tuple[str, str, Answer]] = field(default_factory=list)
    after: list[tuple[str, str, Answer]] = field(default_factory=list)  # the same, once it was carried out
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    told: dict[str, Any] = field(
        default_factory=lambda: {
            "user_dn": "/CN=me",
            "vos": [VO],
            "delegation_id": "abc",
            "method": "oauth2",
            "level": {"transfer": "vo"},
        }
    )
    url: str = ""
    most_files: int = 10**9  # that one answer may hold; when more are asked for it is `too_many`
    too_many: Answer = (504, {"message": "a proxy before it gave up"})
    looks: list[int] = field(default_factory=list)  # at files: how many jobs each was about

    # ------------------------------------------------------------------ what a test does

    def start(self) -> None:
        """Let every job that waits be at work."""
        for job in self.jobs.values():
            if job.state == "SUBMITTED":
                job.state = "ACTIVE"
                for file in job.files:
                    file["file_state"] = "ACTIVE"

    def finish(self, fails: Callable[[dict[str, Any]], str] = lambda _file: "") -> None:
        """Copy the files of every job that is not over; `fails` gives the reason why a file does not arrive."""
        for job in self.jobs.values():
            if job.state in OVER:
                continue
            for file in job.files:
                missing = "" if file["source_surl"] in self.store.files else "SOURCE [2] Result HTTP 404"
                file["reason"] = missing or fails(file)
                file["file_state"] = "FAILED" if file["reason"] else "FINISHED"
                if not file["reason"]:
                    file["filesize"] = self.store.copy(file["source_surl"], file["dest_surl"])
            failed = sum(bool(file["reason"]) for file in job.files)
            job.state = "FINISHED" if not failed else "FAILED" if failed == len(job.files) else "FINISHEDDIRTY"

    def posts(self) -> int:
        """How many jobs were sent."""
        return sum(method == "POST" and path == "/jobs" for method, path, _ in self.seen)

    # ------------------------------------------------------------------ what it answers

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> Answer:
        """Return status and body of an answer."""
        match method, path.strip("/").split("/"):
            case "GET", [""]:
                return 200, {"api": {"major": 3, "minor": 14, "patch": 2}, "core": None}
            case "GET", ["whoami"]:
                return 200, self.told
            case "POST", ["jobs"]:
                return self._submit(json.loads(body))
            case "GET", ["jobs"]:
                return self._list({name: values[0] for name, values in query.items()})
            case "GET", ["jobs", ids]:
                return self._tell(ids.split(","), query.get("files"))
            case "DELETE", ["jobs", ids]:
                return self._many(ids.split(","), self._cancel)
            case "GET", ["delegation", _]:
                return 200, None
            case "GET", ["optimizer", "current"]:
                return 200, [{"source_se": "davs://a", "dest_se": "davs://b", "active": 17}]
            case "GET", ["config", _]:
                return 403, {"status": "403 Forbidden", "message": "Not enough permissions"}
        return 404, {"status": "404 Not Found", "message": "nothing here"}

    def _submit(self, body: dict[str, Any]) -> Answer:
        params = body["params"]
        known = str(uuid.uuid5(uuid.uuid5(BASE, VO), params["sid"]))
        if known in self.jobs:
            return 409, {"status": "409 Conflict", "message": "The sid provided by the user is duplicated"}
        self.jobs[known] = job = Job(known, body)
        for file in body["files"]:
            job.files.append(
                {
                    "file_state": "SUBMITTED",
                    "source_surl": file["sources"][0],
                    "dest_surl": file["destinations"][0],
                    "user_filesize": file.get("filesize", 0),
                    "filesize": 0,
                    "reason": "",
                }
            )
        return 200, {"job_id": known}

    def _list(self, query: dict[str, str]) -> Answer:
        """List jobs as FTS does: without states those that are not over, with them those over within a time."""
        states, hours = query.get("state_in", "").split(","), query.get("time_window")
        whose = query.get("user_dn")  # without it, those of all people of the VO
        if whose not in {None, self.told["user_dn"]}:
            return 400, {"status": "400 Bad Request", "message": "not the same user"}
        jobs = [
            job
            for job in self.jobs.values()
            if whose in {None, job.user_dn}
            and (
                job.state in states and hours and job.over <= float(hours) if states[0] else job.state not in OVER
            )
        ]
        return 200, [
            {
                "job_id": job.id, "job_state": job.state, "vo_name": VO, "submit_time": job.submitted,
                "job_finished": job.submitted if job.state in OVER else None,
                "job_metadata": job.body["params"]["job_metadata"],
            }
            for job in jobs
        ]  # fmt: skip

    def _many(self, ids: list[str], tell: Callable[[Job], dict[str, Any]]) -> Answer:
        """Answer as FTS does: one id gives a row, many a list, and 207 with no word for the known ones."""
        rows = [
            tell(self.jobs[one])
            if one in self.jobs
            else {"job_id": one, "http_status": "404 Not Found", "http_message": f"No job with the id {one}"}
            for one in ids
        ]
        if len(ids) == 1:
            return int(rows[0]["http_status"][:3]), rows[0]
        return (200 if all(row["http_status"].startswith(("2", "3")) for row in rows) else 207), rows

    def _tell(self, ids: list[str], fields: list[str] | None) -> Answer:
        if fields:
            self.looks.append(len(ids))
        if fields and sum(len(self.jobs[one].files) for one in ids if one in self.jobs) > self.most_files:
            return self.too_many
        return self._many(ids, lambda job: self._row(job, fields))

    def _row(self, job: Job, fields: list[str] | None) -> dict[str, Any]:
        row: dict[str, Any] = {"job_id": job.id, "job_state": job.state, "http_status": "200 Ok", "vo_name": VO}
        row["job_metadata"] = job.body["params"]["job_metadata"]
        if fields:
            row["files"] = [{name: file.get(name) for name in fields[0].split(",")} for file in job.files]
        return row

    def _cancel(self, job: Job) -> dict[str, Any]:
        if job.state in OVER:
            return {"job_id": job.id, "job_state": job.state, "http_status": "304 Not Modified"}
        job.state = "CANCELED"
        for file in job.files:
            if file["file_state"] not in {"FINISHED", "FAILED"}:
                file |= {"file_state": "CANCELED", "reason": "Job canceled by the user"}
        return {"job_id": job.id, "job_state": job.state, "http_status": "200 Ok"}


class _Handler(BaseHTTPRequestHandler):
    fts: FakeFts
    gone: threading.Event

    def _serve(self) -> None:
        fts, url = self.fts, urlsplit(self.path)
        path = "/" + url.path.lstrip("/")  # FTS's client asks for //jobs
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fts.seen.append((self.command, path, dict(self.headers)))
        given = _taken(fts.instead, self.command, path)
        if given is None:
            given = fts.answer(self.command, path, parse_qs(url.query), body)
            given = _taken(fts.after, self.command, path) or given
        self._send(*given)

    def _send(self, status: int, content: Any) -> None:
        if status == HANG:
            self.gone.wait(30)
        if status < 0:
            self.close_connection = True
            return
        text = content if isinstance(content, str) else json.dumps(content)
        body = b"" if status == 304 else text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if isinstance(content, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def _taken(answers: list[tuple[str, str, Answer]], method: str, path: str) -> Answer | None:
    for number, (wanted, start, answer) in enumerate(answers):
        if wanted == method and path.startswith(start):
            del answers[number]
            return answer
    return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        """Say nothing: clients of these tests hang up."""


@contextmanager
def running(store: Store) -> Iterator[FakeFts]:
    """Run a service on a free port of this machine."""
    fts, gone = FakeFts(store), threading.Event()
    handler = type("Handler", (_Handler,), {"fts": fts, "gone": gone})
    server = _Server(("127.0.0.1", 0), handler)
    fts.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fts
    finally:
        gone.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
