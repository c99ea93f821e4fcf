"""The ports of the engine: what it needs from a service, a clock and an executor (see `events.py` for observers).

Each has at least two implementations: the real one, and a simulated one that the tests and dry runs use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from dc_inject.model import units
from dc_inject.model.errors import ServiceError
from dc_inject.model.items import Item, ItemId
from dc_inject.model.naming import Copy, Origin
from dc_inject.model.tape import TapeFiles
from dc_inject.model.types import DatasetFilter, Entry, FileFilter, Injection, Link


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are at a service and what we may do there.

    `may_end` is whether rules or jobs of ours can be ended early (None: could not be found out).
    `credentials_until` is when the credentials expire, as far as the service or the files show.
    """

    service: str
    address: str
    version: str
    vo: str
    account: str
    admin: bool
    may_end: bool | None
    credentials_until: datetime | None = None


# What `submit` takes in one call: a batch is one transaction, behind a front end with little patience.
FILES_AT_ONCE = 2000
INJECTIONS_AT_ONCE = 100


class Candidate(NamedTuple):
    """An item that is about to be chosen for a link."""

    item: ItemId
    link: Link


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The state of a candidate at a service now: whether it is whole at the source, and at the destination.

    `source_until` is when the source may lose it (None: no end known). `destination_bytes` are bytes that
    are available at the destination, whoever put them there; a replica row without them is a ghost.
    `destination_busy` is whether any of its files is on its way there, or being deleted there: the service would
    make no transfer of it for us. `files` identify its files, within this process only; None if they
    cannot be listed.
    """

    item: Item | None  # as it is now: bytes and files; None if it does not exist any more
    closed: bool
    source_complete: bool
    source_locked: bool
    source_until: datetime | None
    destination_bytes: int
    destination_locked: bool
    destination_busy: bool = False
    files: frozenset[int] | None = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one submitted or ended injection: an id, or an error whose class is what to do next.

    `present` are bytes that were at the destination already when the service accepted it.
    `adopted` means that the service had it already from an earlier call of ours (same key), made by `origin`.
    """

    key: str
    external_id: str = ""
    present: int = 0
    adopted: bool = False
    error: ServiceError | None = None
    origin: Origin | None = None


class Status(StrEnum):
    """The status of a rule or job of ours at its service."""

    ABSENT = "absent"  # it does not exist (any more)
    WAITING = "waiting"  # known, not yet at work (INJECT, SUBMITTED)
    MOVING = "moving"
    STUCK = "stuck"
    SUSPENDED = "suspended"
    COMPLETE = "complete"
    UNKNOWN = "unknown"  # the service did not report this one


VANISHED = (
    "vanished"  # the class of a failure: the service does not know what it accepted, and its end was not seen
)


class Observation(NamedTuple):
    """What was seen of one injection: status, and how far it got.

    `moved` is exact when `exact`; else an estimate, bytes x files done / files; None when nothing was seen
    of it. `size` is its size as the service found it, whatever was listed; None when it is not reported.
    `again_at` is when to look again for what is UNKNOWN only because one look is not enough to believe that it is
    gone. `external_id` is set when an injection in doubt was found. `failed` are bytes that will not arrive;
    `reasons` counts the files behind them by the class of their reason, and `unfit` names the source files among
    them that would fail again (missing, or with another checksum). `undone` names the source files that did
    not arrive, for whatever reason, once it is over and where the service reports them. `tape` is None if no end
    is tape.
    """

    key: str
    status: Status
    external_id: str = ""
    files_done: int = 0
    files_stuck: int = 0
    moved: int | None = None
    exact: bool = False
    size: int | None = None
    present: int | None = None
    failed: int = 0
    reasons: Mapping[str, int] = MappingProxyType({})
    unfit: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    expires_at: datetime | None = None
    error: str = ""
    again_at: datetime | None = None
    tape: TapeFiles | None = None

    @property
    def silent(self) -> bool:
        """Whether the service did not answer anything about it."""
        return self.status is Status.UNKNOWN and self.again_at is None


@dataclass(frozen=True, slots=True)
class Removal:
    """What is known of the bytes that an ended injection left at its destination.

    `gone` when nothing of it is there any more, nor can come; else `left` are the bytes that are still there
    (None: not known), `again_at` is when to ask next (None: when it suits), and `error` what stands in the way.
    """

    key: str
    gone: bool
    left: int | None = None
    again_at: datetime | None = None
    error: ServiceError | None = None


@dataclass(frozen=True, slots=True)
class RseFacts:
    """The state of an RSE as a service reports it; None is a signal that could not be read ("signal missing").

    `near` is the RSE that is most like one that does not exist. `means` are the RSEs that its name means where the
    service takes names as expressions, sorted; None where it does not. `free` is bytes not yet used, as they were
    at `free_at` (None: now); `quota_left` is what our account may still put there.
    """

    name: str
    exists: bool = True
    near: str = ""
    means: tuple[str, ...] | None = None
    readable: bool | None = None
    writable: bool | None = None
    deletable: bool | None = None
    free: int | None = None
    free_at: datetime | None = None
    quota_left: int | None = None
    tape: bool = False
    site: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)  # signal -> why it could not be read
    # `readable` or `writable`, if False -> why, where known; `quota_left`, where every rule is refused
    closed: Mapping[str, str] = field(default_factory=dict)

    @property
    def ambiguity(self) -> str:
        """Why the name must not be used as an RSE expression: it means other RSEs, or none. Empty if it may be."""
        if self.means is None or self.means == (self.name,):
            return ""
        means = f"{units.some(self.means, 5)}, not {self.name} alone" if self.means else "no RSE"
        return f"as an RSE expression, {self.name} means {means}"


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """What transfers of a link wait in, whoever asked for them: files, bytes per second, bytes of a mean file.

    `at` is when its service looked at it. `limit` is how many transfers at a time FTS's optimizer allows now, and
    `decision` why, in its words (None and empty: not reported). `by` is the FTS that reported it, where that is
    not the link's own service.
    """

    waiting: int
    rate: float
    file: int
    at: datetime
    limit: int | None = None
    decision: str = ""
    by: str = ""


class Missing(NamedTuple):
    """A signal that cannot be read: of what (a link, an RSE, a service), and why.

    A limit of 0 is not reported: it is impossible.
    """

    subject: str
    why: str


@dataclass(frozen=True, slots=True)
class FoundInjection:
    """A rule or job of ours as its service has it, found without a ledger.

    `key` is that of the injection it was made for. `done`, `moving` and `stuck` count files. `changed_at` is when
    it was last at work: of a complete one, the moment of that. `sources` names its files where they were chosen
    one by one, and its `link` then has only what they have in common.
    """

    key: str
    external_id: str
    campaign: str
    scenario: str
    cycle: datetime
    link: Link
    item: ItemId
    bytes: int | None
    status: Status
    done: int
    moving: int
    stuck: int
    created_at: datetime
    expires_at: datetime | None
    changed_at: datetime | None = None
    sources: tuple[str, ...] = ()
    contact: str = ""
    error: str = ""
    origin: Origin | None = None

    @property
    def files(self) -> int:
        """How many files it has; 0 until its service has begun with it."""
        return self.done + self.moving + self.stuck


class Made(NamedTuple):
    """A rule or job of a campaign: the key that it was made for, by whom, and when (None: not known)."""

    key: str
    origin: Origin | None
    at: datetime | None


@runtime_checkable
class Listing(Protocol):
    """A service that lists who made the rules or jobs of a campaign."""

    def made(self, campaign: str, *, since: datetime) -> Iterator[Made]:
        """Stream those that were made after `since`; one long call, so that it is asked once a cycle at most."""


@runtime_checkable
class Closable(Protocol):
    """A service of which something ends with this process."""

    def close(self) -> None:
        """End it; what became of it can be observed afterwards."""


class Stray(NamedTuple):
    """A file of ours as it was found at a destination, whether a ledger knows it or not."""

    url: str
    copy: Copy
    bytes: int
    modified: datetime | None = None  # where the storage reports it


Endpoint = tuple[str, int]  # host or address, and port


class Note(Protocol):
    """Takes each dataset of a source, before the filter."""

    def __call__(self, item: Item, *, in_container: bool) -> None:
        """Note a dataset."""


class Backend(Protocol):
    """A service that moves bytes; every method may be called again with the same arguments, from any thread.

    Methods that take many answer for each; they raise a ServiceError only when there is no answer at all.
    """

    name: str  # of its entry in `services.SERVICES`

    def check(self) -> Identity:
        """Return who we are and what we may do; raises NeedsOperator with a hint when nothing will work."""

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Return the names that an RSE expression means now, sorted; raises Permanent if it is not valid."""

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: Note | None = None
    ) -> Iterator[Item]:
        """Stream the items of a source that pass the filter; costly, so it is asked rarely.

        Where a service has datasets, `note` is given each dataset before the filter.
        """

    def check_replicas(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        """Check once more what was chosen, in bulk, just before use."""

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Ask for injections of one link; one outcome for each, idempotent by key."""

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """Return the state of entries, also of those in doubt; `exact` settles moved bytes by looking at locks."""

    def end(self, entries: Sequence[Entry]) -> list[Outcome]:
        """End rules or jobs of ours; one that is gone already is a success."""

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        """Return whether the bytes of ended entries are gone, and delete them where the service does not."""

    def sites(self, rses: Iterable[str]) -> Mapping[str, RseFacts]:
        """Return space, quota and availability of RSEs, in bulk."""

    def endpoints(self, rse: str) -> list[Endpoint]:
        """Return where a storage is served, as far as it is known."""

    def queues(self, links: Sequence[Link]) -> Mapping[Link, LinkQueue | Missing]:
        """Return what waits on links in FTS, or why that cannot be read, for the links that FTS knows."""


class Clock(Protocol):
    """The time, in aware UTC."""

    def now(self) -> datetime:
        """Return the present instant."""


@runtime_checkable
class MachineClock(Protocol):
    """A machine's clock, which may leap: then the engine's time goes on evenly until a service confirms it."""

    def guard(self) -> None:
        """Follow no leap from now on."""

    def leap(self) -> timedelta:
        """Return how far the machine's clock is ahead of the engine's."""

    def farthest(self) -> timedelta:
        """Return how far it leapt since this was last asked, also if it is back."""

    def follow(self) -> None:
        """Take the time that the machine's clock shows."""

    def ahead(self, address: str) -> timedelta | None:
        """Return how far the machine's clock is ahead of a service's; None where that is not known."""


class Finished(NamedTuple):
    """A task that the executor has done: its tag, and its result or the error that it raised."""

    tag: Hashable
    result: Any
    error: BaseException | None


class Executor(Protocol):
    """Runs calls to services in parallel to the engine, which waits on it."""

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        """Run a task; its end is handed back by `wait`. Tasks that hang in one lane hold up no other lane."""

    def wait(self, until: datetime) -> list[Finished]:
        """Wait until tasks have finished, `wake` was called or `until` has come; return what finished."""

    def wake(self) -> None:
        """End a wait now; may be called from a signal handler."""


T = TypeVar("T")


def in_parts(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Cut things into parts of at most so many, each for one call."""
    return [items[start : start + size] for start in range(0, len(items), size)]
