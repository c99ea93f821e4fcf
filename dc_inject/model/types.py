"""The nouns of dc_inject, all frozen: contents of menus, plans of cycles, and states of injections."""

# Units everywhere: sizes in bytes (int), rates in bytes per second (float), times in aware UTC.
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from dc_inject.model.control import UNCONTROLLED, Control
from dc_inject.model.goals import Goal
from dc_inject.model.items import File, Item, ReadOptions, Slicing
from dc_inject.model.services import DEFAULT, SERVICES, Service
from dc_inject.model.shape import Shape
from dc_inject.model.tape import Tape

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST, LONGEST = timedelta(hours=1), timedelta(hours=2)  # lifetimes of rules, where no menu gives others


class Link(NamedTuple):
    """A source and a destination RSE (through FTS: two URL prefixes), and the service that serves them."""

    source: str
    destination: str
    through: str = DEFAULT.name

    def __str__(self) -> str:
        return f"{self.source}:{self.destination}"

    @property
    def ends(self) -> tuple[str, str]:
        """The source and the destination."""
        return self[:2]

    @property
    def service(self) -> Service:
        """What its service can do, and what its things are called."""
        return SERVICES[self.through]

    @property
    def shown(self) -> str:
        """The link as people read it; `str` gives the key that options and ledgers have of it."""
        return f"{self.source} -> {self.destination}"


class FlowKey(NamedTuple):
    """What an account is kept for: a link under a scenario, in one campaign."""

    scenario: str
    link: Link

    def __str__(self) -> str:
        return f"{self.scenario} {self.link.shown}"

    def names(self) -> dict[str, str]:
        """Return its parts by the names that they have in tables, in JSON and in the ledger's signals."""
        source, destination, service = self.link
        return {"scenario": self.scenario, "source": source, "destination": destination, "service": service}


_flow_key = lru_cache(maxsize=1 << 14)(FlowKey)  # a campaign has few of them, and asks for them all the time


class Order(StrEnum):
    """The order in which datasets of a pool are taken; any but largest-first has to be named in the menu."""

    LARGEST_FIRST = "largest-first"
    SMALLEST_FIRST = "smallest-first"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class DatasetFilter:
    """Which datasets of a source may be injected.

    `dids` and `exclude` are `scope:name` patterns with shell wildcards in either part; `containers` are
    DIDs whose datasets count. `files` bounds the number of files of a dataset and `mean_file` the mean
    file size in bytes, both inclusive. With `landed` it is what has landed at the source in that scenario.
    """

    dids: tuple[str, ...]
    containers: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    files: tuple[int, int] = (1, 1000)
    mean_file: tuple[int, int] = (10**9, 20 * 10**9)
    landed: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Listing:
    """A list of source files that a menu names: how it was called, the SHA-256 of its bytes, and its files.

    A file's name is a URL, or a path below the source prefix. Its size is 0 where the list does not have it.
    """

    name: str
    digest: str
    files: tuple[File, ...] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Which files below a source's URL prefix may be injected through FTS.

    One of three names them: a `listing`; a `folder` below the prefix (`""` is the prefix itself), which the
    storage lists; or `datasets`, whose replicas below the prefix Rucio knows. `pattern` (shell wildcards, on the
    path below the prefix) and `size` (bytes, both inclusive) choose among what is found. With `reading` a file
    counts for the bytes that are read of it. With `recalls` files that are on tape only are taken, too.
    """

    listing: Listing | None = None
    folder: str | None = None
    datasets: DatasetFilter | None = None
    pattern: str = "*"
    size: tuple[int, int] = (1, 2**63 - 1)
    landed: str = ""  # instead: the scenario of which the copies are meant that have landed at the source
    reading: ReadOptions | None = None
    recalls: bool = False


class Verify(StrEnum):
    """Where FTS compares checksums; the words are FTS's own."""

    NONE = "none"
    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How files are bundled into FTS jobs, and the options that FTS gets for them.

    `files` is the most that one job has; `retry` how often FTS tries a file again; `verify` where it compares
    checksums; `scitag` the flow label (65 to 65535) of experiment and activity; `longest_transfer` how long a
    transfer that was cancelled or failed may still write to its destination. `reading` is how files are read.
    `recalls` is whether the source is tape, so that files are staged first, `archives` whether the destination is.
    """

    files: int = 200
    retry: int = 3
    verify: Verify = Verify.BOTH
    scitag: int | None = None
    longest_transfer: timedelta = timedelta(hours=1)
    reading: ReadOptions | None = None
    recalls: bool = False
    archives: bool = False


class PoolKey(NamedTuple):
    """A source and a filter: what an inventory is read for, and what links share."""

    source: str
    datasets: DatasetFilter | FileFilter


@dataclass(frozen=True)  # without slots: what is asked of it all the time is kept
class Flow:
    """One link of a scenario with its rate and all its terms in a menu, defaults filled in.

    `rate` is bytes per second inside [start, end), the highest if there is a `shape`, which has what part holds
    when. `overhead` is a fraction, `grain` the part of a cycle's worth that a dataset may have before smaller ones
    are preferred. `priority` (1 to 5) divides our budgets; `service_priority` is sent to Rucio.
    """

    scenario: str
    link: Link
    rate: float
    start: datetime
    end: datetime
    datasets: DatasetFilter | FileFilter
    shape: Shape | None = None  # constant
    goal: Goal | None = None  # None: the rate alone gives what is due
    order: Order = Order.LARGEST_FIRST
    grain: float = 0.25
    type: str = ""  # what reports call such links
    activity: str = "Data Challenge"
    priority: int = 3
    service_priority: int = 3
    lifetime_min: timedelta = SHORTEST
    lifetime_max: timedelta = LONGEST
    dwell: timedelta = timedelta(0)
    overhead: float = 0.0
    menu: str = ""  # the file that it comes from
    line: int = 0
    stated: bool = False  # its rate was written for this link alone, not shared out
    job: JobOptions | None = None  # through FTS
    slices: Slicing | None = None  # its datasets may be cut
    control: Control = UNCONTROLLED

    @cached_property
    def key(self) -> FlowKey:
        """What its account is kept for."""
        return _flow_key(self.scenario, self.link)

    @property
    def once(self) -> bool:
        """Whether a dataset or file goes out once in its scenario."""
        return self.goal is not None and self.goal.once

    @cached_property
    def pool(self) -> PoolKey:
        """What its datasets are chosen from."""
        return PoolKey(self.link.source, self.datasets)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A time in which something adds no due: a site, RSE or scenario, or a link `SRC:DST`, with the reason."""

    start: datetime
    end: datetime
    reason: str
    site: str = ""
    rse: str = ""
    link: str = ""
    scenario: str = ""
    redistribute: bool = False  # its rate is shared among the scenario's other links, in proportion to theirs
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RseSpec:
    """An RSE in a menu: the space that we may fill (bytes), and how long its deletions lag."""

    space: int | None = None
    deletion_lag: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Site:
    """A place behind one WAN (bytes per second), with our limits on it and its RSEs by name."""

    name: str
    wan: float | None = None
    max_ingress: float | None = None
    max_egress: float | None = None
    rses: Mapping[str, RseSpec] = field(default_factory=dict)
    tape: Tape | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The brakes, which a menu raises by naming them; `total` and `per_site` (each direction) are in bytes/s."""

    total: float = 100e9 / 8
    per_site: float = 50e9 / 8
    rules_per_hour: int = 1000
    files_in_flight: int = 100_000


@dataclass(frozen=True, slots=True)
class Menu:
    """One menu with its ends resolved: what one file asks for in one window of time."""

    name: str
    campaign: str
    contact: str
    start: datetime
    end: datetime
    flows: tuple[Flow, ...]
    timezone: str = "UTC"
    target: float | None = None
    target_line: int = 0  # where it stands
    cycle: timedelta = timedelta(minutes=15)
    limits: Limits = Limits()
    sites: tuple[Site, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    tape_agreed: Mapping[str, str] = field(default_factory=dict)  # RSE -> who agreed
    accept: frozenset[str] = frozenset()
    endpoint: str = ""  # of FTS; empty: the environment names it
    elsewhere: tuple[Flow, ...] = ()  # flows that other injectors have: what is shared out is shared with them


@dataclass(frozen=True, slots=True)
class Campaign:
    """All menus of one campaign; at any time those whose window holds are in force and their links add up."""

    name: str
    contact: str
    cycle: timedelta
    menus: tuple[Menu, ...]

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The flows of all menus, in the order of the menus."""
        return tuple(flow for menu in self.menus for flow in menu.flows)

    def left(self, now: datetime) -> Iterator[Flow]:
        """Give the flows that have not ended by `now`, in the order of the menus."""
        return (flow for menu in self.menus for flow in menu.flows if now < flow.end)

    @property
    def start(self) -> datetime:
        """When the first menu begins."""
        return min(menu.start for menu in self.menus)

    @property
    def end(self) -> datetime:
        """When the last menu ends."""
        return max(menu.end for menu in self.menus)

    def in_force(self, start: datetime, end: datetime) -> tuple[Menu, ...]:
        """Return the menus whose window overlaps [start, end)."""
        return tuple(menu for menu in self.menus if menu.start < end and start < menu.end)


@lru_cache(maxsize=1 << 10)  # each link asks for the names of a few cycles
def _stamp(moment: datetime) -> str:
    """Return an instant in UTC as names of cycles have it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, order=True)
class Cycle:
    """A slot of the grid that is counted from 1970-01-01T00:00Z; named by its start in UTC."""

    start: datetime
    length: timedelta

    @classmethod
    def at(cls, moment: datetime, length: timedelta) -> Cycle:
        """Return the cycle that holds `moment`."""
        return cls(EPOCH + (moment - EPOCH) // length * length, length)

    @property
    def end(self) -> datetime:
        """The first instant after the cycle."""
        return self.start + self.length

    @property
    def next(self) -> Cycle:
        """The cycle after this one."""
        return Cycle(self.end, self.length)

    @property
    def name(self) -> str:
        """The start in UTC, `2027-02-08T10:00:00Z`."""
        return _stamp(self.start)

    def __str__(self) -> str:
        return self.name


# --------------------------------------------------------------------------- what is injected


class State(StrEnum):
    """The life of an injection, from its intent to the deletion of its bytes."""

    INTENDED = "intended"  # on disk, never asked for
    CALLED = "called"  # asked for, no answer known: in doubt
    LIVE = "live"  # accepted by the service
    COMPLETE = "complete"  # everything has arrived
    ENDED = "ended"  # the rule or job is gone, its bytes may still be there
    GONE = "gone"  # its bytes are known to be gone from the destination
    REFUSED = "refused"  # the service does not want it, or no more; it never moved a byte
    WITHDRAWN = "withdrawn"  # dropped by us before it was asked for

    @property
    def in_service(self) -> bool:
        """Whether a rule or job of it may exist in the service."""
        return self in {State.CALLED, State.LIVE, State.COMPLETE}

    @property
    def resident(self) -> bool:
        """Whether its bytes may be, or may come to be, at the destination."""
        return self in {State.INTENDED, State.CALLED, State.LIVE, State.COMPLETE, State.ENDED}


@dataclass(frozen=True)  # without slots, as a Flow
class Injection:
    """The intent to give one item to one link in one cycle; `key` makes every call about it repeatable."""

    key: str
    campaign: str
    cycle: Cycle
    scenario: str
    link: Link
    item: Item
    release: datetime
    lifetime: timedelta
    activity: str
    service_priority: int
    contact: str
    job: JobOptions | None = None  # through FTS
    once: bool = field(default=False, compare=False)  # its item, or members, go out once in their scenario
    keeps_files: bool = False  # its members are known until it has ended: a second hop needs them

    @cached_property
    def flow(self) -> FlowKey:
        """The account that it counts for."""
        return _flow_key(self.scenario, self.link)


@dataclass(frozen=True)  # without slots, so that `changed` is quick
class Entry:
    """An injection and what became of it, as the ledger keeps it.

    `present` are the bytes that were at the destination already (no traffic: not counted as injected).
    `failed` are bytes that will not arrive (files of FTS that failed or were cancelled), given back to the debt.
    `moved` are bytes that arrived; `moved_exact` is False while they are estimated from locks.
    """

    injection: Injection
    state: State
    external_id: str = ""
    attempt: int = 0
    not_before: datetime | None = None
    called_at: datetime | None = None
    accepted_at: datetime | None = None
    expires_at: datetime | None = None
    completed_at: datetime | None = None
    end_asked_at: datetime | None = None
    ended_at: datetime | None = None
    gone_at: datetime | None = None
    observed_at: datetime | None = None
    present: int = 0
    failed: int = 0
    moved: int = 0
    moved_exact: bool = False
    files_done: int = 0
    files_stuck: int = 0
    undone: tuple[str, ...] = ()  # the members that did not arrive, of one that keeps its files
    error: str = ""

    def changed(self, **values: Any) -> Entry:
        """Return it with other values of some fields.

        It takes a fifth of the time of what the standard library has for it: each observation makes one.
        """
        fields = self.__dict__ | values
        if len(fields) > len(self.__dict__):
            raise TypeError(f"an entry has no {', '.join(sorted(values.keys() - self.__dict__.keys()))}")
        entry = object.__new__(Entry)
        object.__setattr__(entry, "__dict__", fields)
        return entry

    @property
    def injected(self) -> int:
        """Bytes that count as injected: of what was accepted, less what was there already or will not arrive."""
        return 0 if self.accepted_at is None else self.injection.item.bytes - self.present - self.failed
