"""FTS jobs of ours: their ids, submitting them, adopting those of an earlier call, cancelling them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dc_inject.backends.answers import name
from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.errors import Banned
from dc_inject.credentials.destinations import hint, refusal
from dc_inject.model import Entry, Injection, urls
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.ports import Outcome

AT_ONCE = 100  # ids that FTS takes in a call
_FTS = uuid.UUID("01874efb-4735-4595-bc9c-591aef8240c9")  # FTS's name space of job ids
_SHARED = frozenset({0, 429, 503})  # statuses that the next job would get as well; 0 is none at all

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Jobs:
    """Makes and cancels jobs, one for each injection; the key is the job's `sid`."""

    connection: Connection
    trusted: Callable[[str], bool] = lambda _url: True  # whether the host of a URL may get a token of ours

    def id_of(self, injection: Injection) -> str:
        """Return the id that FTS gives to the job of an injection."""
        return str(uuid.uuid5(uuid.uuid5(_FTS, self.connection.vo()), injection.key))

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Make a job for each; trouble that all share ends the asking, and the rest is known not to be made."""
        outcomes: list[Outcome] = []
        for number, injection in enumerate(injections):
            try:
                outcomes.append(self._submit(injection))
            except ServiceError as error:
                outcomes.append(Outcome(injection.key, error=_held_by_source(error, injection)))
                if isinstance(error, NeedsOperator) or self.connection.status in _SHARED:
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
            made = self.connection.call("submit", injection, tokens, writes=True)
        except ServiceError:
            if self.connection.status == 409:
                return self._adopt(injection)
            raise
        return Outcome(injection.key, name(made))

    def _adopt(self, injection: Injection) -> Outcome:
        """Take over the job of an earlier call; it is looked at, since a wrong id would be lost for good."""
        try:
            job_id = self.id_of(injection)
            self.connection.call("statuses", [job_id], files=False)
        except ServiceError as error:
            message = f"FTS knows the key of this job, but does not tell of the job ({error.message})"
            raise Temporary(message, lost=True) from error
        return Outcome(injection.key, job_id, adopted=True)

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
        ids = {entry.injection.key: entry.external_id or self.id_of(entry.injection) for entry in entries}
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


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into parts of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _refused(job: str, status: str) -> ServiceError:
    return Temporary(f"FTS did not cancel the job {job}: {status}")


def _unasked(error: ServiceError) -> ServiceError:
    """Return the error of those that were not sent, because another one met with it."""
    return error if isinstance(error, NeedsOperator) else Temporary(error.message, error.hint)


def _held_by_source(error: ServiceError, injection: Injection) -> ServiceError:
    if isinstance(error, Banned) and error.storage == urls.host_key(injection.link.source):
        return Temporary(error.message, error.hint, hold="source-unavailable")
    return error
