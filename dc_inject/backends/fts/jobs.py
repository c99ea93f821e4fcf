"""FTS jobs of ours: their ids, submitting them, adopting those of an earlier call, cancelling them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.errors import Banned
from dc_inject.credentials.destinations import hint, refusal
from dc_inject.model import Entry, Injection, deletion, naming, urls
from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary, judged
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Outcome

AT_ONCE = 100  # ids that FTS takes in a call
_SHARED = frozenset({0, 429, 503})  # statuses that the next job would get as well; 0 is none at all
_OUTAGES = 2  # jobs in a row that FTS fails with, after which the others are not tried

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Jobs:
    """Makes and cancels jobs, one for each injection; the key is the job's `sid`."""

    connection: Connection
    trusted: Callable[[str], bool] = lambda _url: True  # whether the host of a URL may get a token of ours
    origin: Origin | None = None  # goes into each job

    def id_of(self, injection: Injection) -> str:
        """Return the id that FTS gives to the job of an injection: known before it is submitted."""
        return naming.job_id(self.connection.vo(), injection.key)

    def is_own(self, row: Mapping[str, Any], injection: Injection) -> bool:
        """Return whether a row that FTS shows is about the job of an injection, by what the job has in it."""
        vo = self.connection.vo()
        return metadata(row).get("key") == injection.key and row.get("vo_name", vo) == vo

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Make a job for each; trouble that all share ends the asking, and the rest is known not to be made."""
        outcomes: list[Outcome] = []
        outages = 0  # in a row: one may be that of a single job, several are of FTS
        for number, injection in enumerate(injections):
            try:
                outcomes.append(self._submit(injection))
                outages = 0
            except ServiceError as error:
                error = _with_end_named(error, injection)
                outcomes.append(Outcome(injection.key, error=error))
                outages = outages + 1 if error.outage else 0
                shared = isinstance(error, NeedsOperator | LinkRefused) or outages == _OUTAGES
                if shared or self.connection.status in _SHARED:
                    unasked = _unasked(error)
                    outcomes += [Outcome(other.key, error=unasked) for other in injections[number + 1 :]]
                    break
        return outcomes

    def _submit(self, injection: Injection) -> Outcome:
        tokens = self.connection.credentials.transfer_tokens()
        for url in injection.link.source, injection.link.destination:
            if tokens is not None and not self.trusted(url):
                raise Permanent(refusal(url, "your token"), hint(url))
        try:
            made = self.connection.call("submit", injection, tokens, self.origin, writes=True)
        except ServiceError:
            if self.connection.status == 409:
                return self._adopt(injection)
            raise
        try:
            job_id = self.id_of(injection)
        except ServiceError as error:
            raise Temporary(f"FTS took a job, and does not know us ({error.message})", lost=True) from error
        if made != job_id:
            message = "FTS's answer cannot be understood (it names another job than the one that was submitted)"
            raise Temporary(message, "is there a cache before FTS?", lost=True)
        return Outcome(injection.key, job_id)

    def _adopt(self, injection: Injection) -> Outcome:
        """Take over the job of an earlier call; it is looked at, since a wrong id would be lost for good."""
        try:
            job_id = self.id_of(injection)
            rows = self.connection.call("statuses", [job_id], files=False)
        except ServiceError as error:
            message = f"FTS knows the key of this job, but does not tell of the job ({error.message})"
            raise Temporary(message, lost=True) from error
        if not any(row.get("job_id") == job_id and self.is_own(row, injection) for row in rows):
            raise Temporary("FTS knows the key of this job, and shows another job under its id", lost=True)
        origin = naming.read_origin(metadata(rows[0]))
        return Outcome(injection.key, job_id, adopted=True, origin=origin)

    def cancel(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Cancel what is not over; a job that is over, or unknown, is a success."""
        outcomes: list[Outcome] = []
        for batch in parts(entries, AT_ONCE):
            try:
                outcomes += self._cancel(batch)
            except ServiceError as error:
                outcomes += [Outcome(entry.injection.key, error=error) for entry in batch]
        return outcomes

    def _cancel(self, entries: Sequence[Entry]) -> list[Outcome]:
        vo = self.connection.vo()
        jobs = [deletion.Job(self.id_of(entry.injection), vo, entry.injection.key) for entry in entries]
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


def metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what dc_inject wrote into a job; nothing if the job is not one of dc_inject."""
    written = row.get("job_metadata")
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except ValueError:
            return {}
    return dict(written) if isinstance(written, Mapping) and written.get("dc_inject") == 1 else {}


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into parts of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _refused(job: str, status: str) -> ServiceError:
    return Temporary(f"FTS did not cancel the job {job}: {status}")


def _unasked(error: ServiceError) -> ServiceError:
    """Return the error of those that were not sent, because another one met with it."""
    return error if isinstance(error, NeedsOperator | LinkRefused) else Temporary(error.message, error.hint)


def _with_end_named(error: ServiceError, injection: Injection) -> ServiceError:
    """Return the error with the hold of the source, if that is the end of the link that is banned."""
    if isinstance(error, Banned) and error.storage == urls.host_key(injection.link.source):
        return judged(Banned(error.message, error.hint, error.storage, hold="source-unavailable"), error.fault)
    return error
