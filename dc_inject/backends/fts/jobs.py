"""FTS jobs of ours: their ids, how they are submitted, adopted from an earlier call and cancelled.

`JobList` finds them without a ledger, by their metadata and the names of their files.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any
from urllib.parse import urlencode

from dc_inject.backends.answers import count
from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.errors import Banned
from dc_inject.backends.service_connection import Breaker
from dc_inject.credentials.trust import hint, refusal
from dc_inject.model import Entry, Injection, Link, deletion, naming, urls
from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary, blame
from dc_inject.model.items import LARGEST_FILE, label_of_job
from dc_inject.model.naming import Copy, Origin
from dc_inject.model.ports import FoundInjection, Made, Outcome, Status, in_parts
from dc_inject.model.redaction import scrub

log = logging.getLogger(__name__)

AT_ONCE = 100  # ids that FTS takes in a call
OVER = frozenset({"FINISHED", "FINISHEDDIRTY", "FAILED", "CANCELED"})  # states of jobs
_SHARED = frozenset({0, 429, 503})  # statuses that the next job would get as well; 0 is none at all
_OUTAGES = 2  # jobs in a row that FTS fails with, after which the others are not tried
Row = Mapping[str, Any]
LISTED_AT_ONCE = 20  # jobs whose files are asked for in a call
LONGEST = timedelta(days=14)  # how far back jobs that are over are looked for; FTS archives its own after a week
_FIELDS = ("file_state", "filesize", "user_filesize", "source_surl", "dest_surl")
_HOUR = timedelta(hours=1)
_DEPTH = 6  # names of a copy's path below the prefix: naming.copies


@dataclass(frozen=True, slots=True)
class Jobs:
    """Makes and cancels jobs, one for each injection; the key is the job's `sid`."""

    connection: Connection
    trusted: Callable[[str], bool] = lambda _url: True  # whether the host of a URL may get a token of ours
    origin: Origin | None = None  # goes into each job

    def id_of(self, key: str) -> str:
        """Return the id that FTS gives to the job of an injection, by its key: known before it is submitted."""
        return naming.job_id(self.connection.vo(), key)

    def is_own(self, row: Row, key: str) -> bool:
        """Return whether a row that FTS shows is about the job of an injection, by what the job has in it."""
        vo = self.connection.vo()
        return read_metadata(row).get("key") == key and row.get("vo_name", vo) == vo

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Make a job for each; trouble that all share ends the asking, and the rest is known not to be made."""
        outcomes: list[Outcome] = []
        outages = Breaker[ServiceError](_OUTAGES)  # one may be that of a single job, several are of FTS
        for number, injection in enumerate(injections):
            try:
                outcomes.append(self._submit(injection))
                outages.note(None)
            except ServiceError as error:
                error = _with_end_named(error, injection)
                outcomes.append(Outcome(injection.key, error=error))
                outages.note(error if error.outage else None)
                persists = isinstance(error, NeedsOperator | LinkRefused)
                if persists or outages.open or self.connection.status in _SHARED:
                    unasked = error if persists else Temporary(error.message, error.hint)
                    outcomes += [Outcome(other.key, error=unasked) for other in injections[number + 1 :]]
                    break
        return outcomes

    def _submit(self, injection: Injection) -> Outcome:
        tokens = self.connection.credentials.transfer_tokens()
        for url in injection.link.ends:
            if tokens is not None and not self.trusted(url):
                raise Permanent(refusal(url, "your token"), hint(url))
        try:
            made = self.connection.call("submit", injection, tokens, self.origin, writes=True)
        except ServiceError:
            if self.connection.status == 409:
                return self._adopt(injection)
            raise
        try:
            job_id = self.id_of(injection.key)
        except ServiceError as error:
            raise Temporary(f"FTS took a job, and does not know us ({error.message})", lost=True) from error
        if made != job_id:
            message = "FTS's answer cannot be understood (it names another job than the one that was submitted)"
            raise Temporary(message, "is there a cache before FTS?", lost=True)
        return Outcome(injection.key, job_id)

    def _adopt(self, injection: Injection) -> Outcome:
        """Take over the job of an earlier call; it is looked at, since a wrong id would be lost for good."""
        try:
            job_id = self.id_of(injection.key)
            rows = self.connection.call("statuses", [job_id], files=False)
        except ServiceError as error:
            message = f"FTS knows the key of this job, but does not show the job ({error.message})"
            raise Temporary(message, lost=True) from error
        if not any(row.get("job_id") == job_id and self.is_own(row, injection.key) for row in rows):
            raise Temporary("FTS knows the key of this job, and shows another job under its id", lost=True)
        origin = naming.read_origin(read_metadata(rows[0]))
        return Outcome(injection.key, job_id, adopted=True, origin=origin)

    def cancel(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Cancel what is not over; a job that is over, or unknown, is a success."""
        outcomes: list[Outcome] = []
        for batch in in_parts(entries, AT_ONCE):
            try:
                outcomes += self._cancel(batch)
            except ServiceError as error:
                outcomes += [Outcome(entry.injection.key, error=error) for entry in batch]
        return outcomes

    def _cancel(self, entries: Sequence[Entry]) -> list[Outcome]:
        vo = self.connection.vo()
        jobs = [deletion.Job(self.id_of(entry.injection.key), vo, entry.injection.key) for entry in entries]
        ids = {job.key: deletion.address(job) for job in jobs}
        try:
            rows = self.connection.call("cancel", list(ids.values()), writes=True)
        except ServiceError:
            if not (self.connection.unknown and len(ids) == 1):
                raise
            rows = []
        codes = {row.get("job_id"): str(row.get("http_status") or "200") for row in rows}
        return [
            Outcome(key, job, error=_refused(job, codes[job]) if codes.get(job, "200")[:3] >= "400" else None)
            if codes.get(job, "404")[:3] != "404"
            else Outcome(key, job)
            for key, job in ids.items()
        ]


def read_metadata(row: Row) -> dict[str, Any]:
    """Return what dc_inject wrote into a job; nothing if the job is not one of dc_inject."""
    written = row.get("job_metadata")
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except ValueError:
            return {}
    return dict(written) if isinstance(written, Mapping) and written.get("dc_inject") == 1 else {}


def _refused(job: str, status: str) -> ServiceError:
    return Temporary(f"FTS did not cancel the job {job}: {status}")


def _with_end_named(error: ServiceError, injection: Injection) -> ServiceError:
    """Return the error with the hold of the source, if that is the end of the link that is banned."""
    if isinstance(error, Banned) and error.storage == urls.host_key(injection.link.source):
        return blame(Banned(error.message, error.hint, error.storage, hold="source-unavailable"), error.fault)
    return error


def choose_size(file: Row) -> int:
    """Return the bytes of a file: what FTS has found, else what was listed; 0 where neither is known.

    FTS copies a file whatever was listed, and reports its own number once it has read the source: 0 until then.
    What no file can have (`LARGEST_FILE`) is not believed.
    """
    sizes = count(file.get("filesize")), count(file.get("user_filesize"))
    return next((size for size in sizes if 0 < size <= LARGEST_FILE), 0)


@dataclass(frozen=True, slots=True)
class JobList:
    """Finds the jobs of a campaign that we submitted; other people's with the same words are left alone."""

    connection: Connection
    service: str

    def ours(self, campaign: str, since: datetime | None) -> Iterator[FoundInjection]:
        """Stream the jobs of a campaign that are at work, and those that were over after `since`.

        A job whose files are not named as ours is left out, whatever its metadata is. The link's source is the
        folder that all source files lie in: the prefix of the menu is that one, or one above it.
        """
        for batch in in_parts(self._rows(campaign, since), LISTED_AT_ONCE):
            files = self._files([row["job_id"] for row in batch])
            for row in batch:
                injection = self._injection(row, files.get(row["job_id"], ()))
                if injection is not None:
                    yield injection

    def made(self, campaign: str, since: datetime) -> Iterator[Made]:
        """Stream who made the jobs of a campaign since then, by their metadata alone."""
        for row in self._rows(campaign, since):
            metadata, at = read_metadata(row), _moment(row["submit_time"])
            if at >= since:
                yield Made(str(metadata.get("key")), naming.read_origin(metadata), at)

    def _rows(self, campaign: str, since: datetime | None) -> list[Row]:
        """Return the jobs of a campaign that are at work, and those that were over after `since`."""
        answer = self.connection.call("whoami")
        mine = {"user_dn": str(answer["user_dn"]), "vo_name": self.connection.vo()}
        now = self.connection.now()
        hours = max(1, ceil((now - max(since or now - LONGEST, now - LONGEST)) / _HOUR))
        finished = mine | {"state_in": ",".join(sorted(OVER)), "time_window": str(hours)}
        # in this order: a job that ends between the two answers is in both
        jobs = {row["job_id"]: row for query in (mine, finished) for row in self._list(query)}
        return [row for row in jobs.values() if read_metadata(row).get("campaign") == campaign]

    def _list(self, query: Mapping[str, str]) -> list[Row]:
        rows: list[Row] = self.connection.call("get", f"/jobs?{urlencode(query)}")
        return rows

    def _files(self, ids: Sequence[str]) -> dict[str, Sequence[Row]]:
        answer = self.connection.call("get", f"/jobs/{','.join(ids)}?files={','.join(_FIELDS)}")
        rows = answer if isinstance(answer, list) else [answer]
        return {row["job_id"]: tuple(row.get("files") or ()) for row in rows}

    def _injection(self, row: Row, files: Sequence[Row]) -> FoundInjection | None:
        """Return a job of ours; None when its files' names do not match its metadata."""
        metadata, job = read_metadata(row), row["job_id"]
        prefix = str(files[0]["dest_surl"]).rsplit("/", _DEPTH)[0] if files else ""
        copy = _common_copy(prefix, files)
        if copy is None:
            log.warning("the metadata of the job %s names %s, and its files do not", job, metadata["campaign"])
            return None
        if (copy.campaign, copy.key) != (metadata["campaign"], metadata.get("key")):
            log.warning("the metadata of the job %s does not match its files", job)
            return None
        if not deletion.is_ours(deletion.Job(job, self.connection.vo(), copy.key)):
            log.warning("the job %s has files of another job", job)
            return None
        sources = tuple(urls.normal(str(file["source_surl"])) for file in files)
        states = Counter(str(file["file_state"]) for file in files)
        stuck = states["FAILED"] + states["CANCELED"]
        return FoundInjection(
            key=copy.key,
            external_id=job,
            campaign=copy.campaign,
            scenario=copy.scenario,
            cycle=copy.cycle,
            link=Link(_common_folder(sources), prefix, self.service),
            item=label_of_job(len(files), job),
            bytes=sum(choose_size(file) for file in files),
            status=Status.COMPLETE if row["job_state"] in OVER else Status.MOVING,
            done=states["FINISHED"],
            moving=len(files) - states["FINISHED"] - stuck,
            stuck=stuck,
            created_at=_moment(row["submit_time"]),
            expires_at=None,  # FTS ends nothing but what waits too long
            changed_at=_moment(row["job_finished"]) if row.get("job_finished") else None,
            sources=sources,
            contact=scrub(str(metadata.get("contact") or "")),
            origin=naming.read_origin(metadata),
        )


def _common_copy(prefix: str, files: Sequence[Row]) -> Copy | None:
    """Return what the names of a job's files have in common; None unless they are all of one injection's."""
    copies = [naming.read_copy(prefix, str(file["dest_surl"])) for file in files]
    whole = sorted(copy for copy in copies if copy is not None)
    same = {copy._replace(number=0) for copy in whole}
    numbered = [copy.number for copy in whole] == list(range(len(files)))
    return same.pop() if len(same) == 1 and numbered else None


def _common_folder(sources: Sequence[str]) -> str:
    """Return the innermost folder that holds all of these files."""
    folder = urls.parent(sources[0])
    while not all(urls.is_below(folder, url) for url in sources) and urls.parent(folder) != folder:
        folder = urls.parent(folder)
    return folder


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
