"""The part of the REST interface that is about jobs and their files."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from .answers import file_plain, job_plain, moment, only
from .delegation import Delegations
from .frontend import Frontend, multistatus, single
from .jobs import ACTIVE_STATES, HELD_STATES, Jobs
from .people import CERTIFICATE, Person
from .refusals import Refused
from .scheduler import Scheduler
from .settings import Knobs
from .submission import build

_LIST_LIMIT = 500
_FILES_LIMIT = 1000
_EVERYTHING = 10**6


class JobsApi:
    """Handlers; each answers one kind of request."""

    def __init__(
        self, frontend: Frontend, knobs: Knobs, jobs: Jobs, scheduler: Scheduler, delegations: Delegations
    ) -> None:
        self._frontend, self._knobs, self._jobs = frontend, knobs, jobs
        self._scheduler, self._delegations = scheduler, delegations

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        """Name method, path and handler of each."""
        return [
            ("GET", "/jobs", self.list_jobs),
            ("POST", "/jobs", self.submit),
            ("PUT", "/jobs", self.submit),
            ("DELETE", "/jobs/all", self.cancel_all),
            ("DELETE", "/jobs/vo/{vo}", self.cancel_all),
            ("GET", "/jobs/{ids}", self.get),
            ("POST", "/jobs/{ids}", self.modify),
            ("DELETE", "/jobs/{ids}", self.cancel),
            ("GET", "/jobs/{id}/files", self.files),
            ("GET", "/jobs/{id}/dm", self.data_management),
            ("DELETE", "/jobs/{id}/files/{files}", self.cancel_files),
            ("GET", "/jobs/{id}/files/{file}/retries", self.retries),
            ("GET", "/jobs/{id}/{field}", self.field),
            ("GET", "/files", self.list_files),
        ]

    async def submit(self, request: web.Request) -> web.Response:
        """Take a job."""
        person = self._frontend.who(request)
        body = await self._frontend.body(request)
        if self._knobs.happens("submit_503"):
            raise Refused(503, "The service is overloaded, try again later")
        if person.method == CERTIFICATE:
            self._delegations.refuse_without(person)
        job, files = build(body, person, self._knobs.now, time.time())
        if not self._jobs.add(job, files):
            raise Refused(409, "The sid provided by the user is duplicated")
        self._scheduler.add(row["file_id"] for row in self._jobs.files_of(job["job_id"]))
        if self._knobs.happens("lose_answers") and request.transport:
            request.transport.abort()
        return web.json_response({"job_id": job["job_id"]})

    async def get(self, request: web.Request) -> web.Response:
        """Return the states of jobs, with some fields of their files when these are asked for."""
        person, ids = self._frontend.who_of_jobs(request), self._ids(request)
        fields = [field for field in request.query.get("files", "").split(",") if field]

        def answer(job_id: str) -> dict[str, Any]:
            plain = job_plain(self._job(job_id, person)) | {"http_status": "200 Ok"}
            if fields:
                plain["files"] = [only(file_plain(row), fields) for row in self._jobs.files_of(job_id)]
            return plain

        answers = [_or_refusal(job_id, answer) for job_id in ids if job_id]
        return single(answers[0]) if len(ids) == 1 and answers else multistatus(answers)

    async def files(self, request: web.Request) -> web.Response:
        """Return the files of a job."""
        job_id = request.match_info["id"]
        self._job(job_id, self._frontend.who(request))
        return web.json_response([file_plain(row) for row in self._jobs.files_of(job_id)])

    async def data_management(self, request: web.Request) -> web.Response:
        """Return the deletions of a job: there are none."""
        self._job(request.match_info["id"], self._frontend.who(request))
        return web.json_response([])

    async def field(self, request: web.Request) -> web.Response:
        """Return one field of a job."""
        plain = job_plain(self._job(request.match_info["id"], self._frontend.who(request)))
        if request.match_info["field"] not in plain:
            raise Refused(404, "No such field")
        return web.json_response(plain[request.match_info["field"]])

    async def retries(self, request: web.Request) -> web.Response:
        """Return the failed attempts of a file."""
        job_id, file_id = request.match_info["id"], request.match_info["file"]
        self._job(job_id, self._frontend.who(request))
        if file_id not in {str(row["file_id"]) for row in self._jobs.files_of(job_id)}:
            raise Refused(404, f'No file with the id "{file_id}" has been found')
        rows = [dict(row) for row in self._jobs.attempts(int(file_id))]
        return web.json_response([row | {"datetime": moment(row["datetime"])} for row in rows])

    async def list_jobs(self, request: web.Request) -> web.Response:
        """List jobs of the own VO; without a limit or a time window only those that are not over."""
        person, query = self._frontend.who(request), request.query
        if query.get("dlg_id") not in (None, person.delegation_id):
            raise Refused(403, "The provided delegation id does not match your delegation id")
        if query.get("user_dn") not in (None, person.dn):
            raise Refused(400, "The provided DN and delegation id do not correspond to the same user")
        limit = _number(query.get("limit"))  # 0 is all of them, as for FTS3
        if limit is not None and not 0 <= limit <= _LIST_LIMIT:
            raise Refused(400, "The limit must be positive and less or equal than 500")
        wanted: dict[str, Any] = {"vo_name": person.vo}
        if states := query.get("state_in"):
            wanted["job_state"] = states.split(",")
        window = _window(query.get("time_window"))
        if not states or (limit is None and window is None):
            wanted["job_finished"] = None
        elif limit is None and window is not None:
            wanted["job_finished >= ?"] = time.time() - window
        wanted |= {key: query[key] for key in ("user_dn", "source_se", "dest_se") if query.get(key)}
        if query.get("dlg_id"):
            wanted["cred_id"] = query["dlg_id"]
        rows = [
            job_plain(row) for row in self._jobs.select("job", wanted, "submit_time DESC", limit or _EVERYTHING)
        ]
        if fields := query.get("fields"):
            rows = [only(row, fields.split(",")) for row in rows]
        return web.json_response(rows)

    async def list_files(self, request: web.Request) -> web.Response:
        """List files of the own VO, 1000 at most; without states those that are not over."""
        person, query = self._frontend.who(request), request.query
        asked = [state for state in query.get("state_in", "").split(",") if state]
        wanted: dict[str, Any] = {"vo_name": person.vo, "file_state": asked or ACTIVE_STATES + HELD_STATES}
        wanted |= {key: query[key] for key in ("source_se", "dest_se") if query.get(key)}
        rows = self._jobs.select("file", wanted, "file_id DESC", _FILES_LIMIT)
        return web.json_response([file_plain(row) for row in rows[: _number(query.get("limit"))]])

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel jobs; those that are over stay what they are."""
        person, ids = self._frontend.who(request), self._ids(request)

        def answer(job_id: str) -> dict[str, Any]:
            if self._job(job_id, person)["job_finished"] is not None:
                over = {"http_status": "304 Not Modified", "http_message": "The job is in a terminal state"}
                return job_plain(self._job(job_id, person)) | over
            self._scheduler.drop(self._jobs.cancel(job_id, time.time()))
            return job_plain(self._job(job_id, person)) | {"http_status": "200 Ok", "http_message": None}

        answers = [_or_refusal(job_id, answer) for job_id in ids if job_id]
        return single(answers[0]) if len(ids) == 1 and answers else multistatus(answers)

    async def cancel_files(self, request: web.Request) -> web.Response:
        """Cancel files of a job; answers their states."""
        job_id = request.match_info["id"]
        job = self._job(job_id, self._frontend.who(request))
        if job["job_type"] != "N":
            raise Refused(400, f"Multihop or reuse jobs must be cancelled at once ({job['job_type']})")
        states = {str(row["file_id"]): row["file_state"] for row in self._jobs.files_of(job_id)}
        answers = []
        for file_id in request.match_info["files"].split(","):
            state = states.get(file_id, "File does not belong to the job")
            if state in ACTIVE_STATES:
                self._jobs.cancel_file(int(file_id), time.time())
                self._scheduler.drop([int(file_id)])
                state = "CANCELED"
            answers.append(state)
        return web.json_response(answers if len(answers) > 1 else answers[0])

    async def cancel_all(self, request: web.Request) -> web.Response:
        """Refuse to cancel everybody's jobs."""
        self._frontend.who(request)
        raise Refused(403, "User does not have root privileges")

    async def modify(self, request: web.Request) -> web.Response:
        """Change the priority of jobs."""
        person, ids = self._frontend.who(request), self._ids(request)
        wanted = await self._frontend.json(request)
        try:
            priority = max(1, min(5, int(wanted["params"]["priority"])))
        except (KeyError, TypeError, ValueError):
            raise Refused(400, "Invalid priority value") from None

        def answer(job_id: str) -> dict[str, Any]:
            self._job(job_id, person)
            self._jobs.prioritise(job_id, priority)
            self._scheduler.add(row["file_id"] for row in self._jobs.files_of(job_id))
            return job_plain(self._job(job_id, person)) | {"http_status": "200 Ok", "http_message": None}

        answers = [_or_refusal(job_id, answer) for job_id in ids if job_id]
        return single(answers[0]) if len(ids) == 1 and answers else multistatus(answers)

    # parts ------------------------------------------------------------------------------------------------

    def _ids(self, request: web.Request) -> list[str]:
        ids: list[str] = request.match_info["ids"].split(",")
        if len(ids) > self._knobs.now.max_ids:
            raise Refused(414, f"{len(ids)} job ids are too many for one request")
        return ids

    def _job(self, job_id: str, person: Person) -> sqlite3.Row:
        job = None if job_id in self._knobs.now.forget else self._jobs.job(job_id)
        if job is None:
            raise Refused(404, f'No job with the id "{job_id}" has been found')
        if job["vo_name"] != person.vo:
            raise Refused(403, f'Not enough permissions to check the job "{job_id}"')
        return job


def _or_refusal(job_id: str, answer: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return answer(job_id)
    except Refused as refusal:
        return {"job_id": job_id, "http_status": refusal.line, "http_message": refusal.message}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None


def _window(text: str | None) -> float | None:
    """Read hours, or hours:minutes, as seconds."""
    hours, _, minutes = (text or "").partition(":")
    return (
        int(hours) * 3600.0 + int(minutes or 0) * 60.0 if hours.isdigit() and (minutes or "0").isdigit() else None
    )
