"""A grid as the twin knows it: sites, storages, links, FTS, Rucio, what others do, and what goes wrong when.

Rates are bytes per second, sizes bytes, and times seconds; moments count from the beginning of the simulation.
None is no limit. What a grid file leaves out has the values that stand here; their sources are in
`docs/reference/grids.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from dc_inject.model import urls

T = TypeVar("T")
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class Overload(StrEnum):
    """What a storage does with more connections than it can serve."""

    SLOWS = "slows"  # the speed of each file falls with the square of the excess, so that the sum falls too
    FAILS = "fails"  # the transfers in excess fail


@dataclass(frozen=True, slots=True)
class Site:
    """A place behind one WAN, with what it can carry in each direction."""

    name: str
    wan_in: float | None = None
    wan_out: float | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """An RSE: what it can hold, serve and delete; `host` is that of its URLs, by which FTS knows it.

    `space` is what is free when the simulation begins. Up to `connections` transfers at a time, in and out
    together, it works as it should. FTS keeps at most `fts_in` and `fts_out` transfers at it. Its reaper
    deletes `deleting` files at a time, each in `delete_seconds`, and no file before `delete_lag` is over.
    """

    name: str
    site: str
    space: float | None = None
    read: float | None = None
    write: float | None = None
    connections: int | None = None
    overload: Overload = Overload.SLOWS
    fts_in: int | None = None
    fts_out: int | None = None
    delete_seconds: float = 0.3
    deleting: int = 10
    delete_lag: float = 0.0
    host: str = ""


@dataclass(frozen=True, slots=True)
class LinkTraits:
    """How one link behaves: a bound on its rate, the speed and overhead of a file, and failures per attempt.

    `actives` is the range in which FTS's optimizer may choose; None is FTS's own. `highest_measured` is the most
    that the real link was seen to carry, failed attempts included: it limits nothing here, but what a link moves
    beyond it is no forecast.
    """

    rate: float | None = None
    file_speed: float = 25e6
    overhead: float = 5.0
    failures: float = 0.0
    actives: tuple[int, int] | None = None
    highest_measured: float | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """A part of the network that several links share, such as a cable; links are `SRC:DST`, where `*` is any."""

    name: str
    rate: float
    links: tuple[str, ...]


class Mode(StrEnum):
    """How boldly FTS's optimizer grows."""

    CONSERVATIVE = "conservative"  # one more at a time, never more than are queued
    NORMAL = "normal"  # two more at a time


@dataclass(frozen=True, slots=True)
class Fts:
    """FTS: the optimizer's range on a link, limits of storages, and how much the service can do.

    `operations` are transfers started or cancelled in a second. `retries` is how often a file is tried again.
    `shares` are the weights of activities that wait on one link; those not named have 1. `named` is whether we
    have named it, so that it is asked about links through Rucio.
    """

    actives: tuple[int, int] = (2, 130)
    per_storage: int = 200
    mode: Mode = Mode.NORMAL
    operations: float = 200.0
    retries: int = 3
    shares: Mapping[str, float] = field(default_factory=dict)
    named: bool = False


@dataclass(frozen=True, slots=True)
class Rucio:
    """Rucio's daemons: how often each of them works, and how much it does at a time.

    The submitter passes on up to `requests` a second, in passes; the poller sees at each pass what is done;
    the judge ends up to `rules_a_pass` expired rules; the reaper takes up to `reaper_chunk` files of a storage
    at each pass. `usage_every` is how old the space of a storage may be that Rucio reports.
    `may_end` is whether its policy lets us end rules before their lifetime is over.
    """

    submit_every: float = MINUTE
    requests: float = 200.0
    poll_every: float = MINUTE
    judge_every: float = MINUTE
    rules_a_pass: int = 1000
    reap_every: float = MINUTE
    reaper_chunk: int = 10_000
    usage_every: float = HOUR
    may_end: bool = True


@dataclass(frozen=True, slots=True)
class Production:
    """Traffic of others on a link, which waits in the same queues of FTS: files of one size, in bytes."""

    source: str
    destination: str
    rate: float
    file_size: float = 2e9
    activity: str = "Production"
    priority: int = 3


class Fault(StrEnum):
    """What can go wrong for a while."""

    RUCIO_DOWN = "rucio-down"  # its server refuses calls and its daemons stand still
    FTS_DOWN = "fts-down"  # nothing new is started
    STORAGE_DOWN = "storage-down"  # what moves there fails, and so does what is started
    CAPACITY = "capacity"  # a site, storage, path or link `SRC:DST` carries only a part
    FAILURES = "failures"  # a part of the transfers of a storage, or of all, fails, as with bad tokens
    DELETION = "deletion-slow"  # deleting takes so many times as long


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong from `at` on for `lasting` seconds; `part` is how much (see `Fault`)."""

    fault: Fault
    at: float
    lasting: float
    subject: str = ""
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Stock:
    """Datasets that sources hold: how many, and between which bounds files and file sizes lie."""

    sources: tuple[str, ...]
    count: int
    files: tuple[int, int]
    file_size: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Grid:
    """All of it. Links are named by `SRC:DST`, where either may be `*`; the most exact name counts.

    `inconclusive` has the links that it does not predict, and why: nothing that they move in it is a forecast.
    """

    name: str
    sites: Mapping[str, Site]
    storages: Mapping[str, Storage]
    links: Mapping[str, LinkTraits] = field(default_factory=dict)
    default_link: LinkTraits = LinkTraits()
    paths: tuple[Path, ...] = ()
    fts: Fts = Fts()
    rucio: Rucio = Rucio()
    production: tuple[Production, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    stocks: tuple[Stock, ...] = ()
    inconclusive: Mapping[str, str] = field(default_factory=dict)

    def storage_at(self, end: str) -> str | None:
        """Return the storage that the end of a link is: its name, or a URL of its host; None if there is none."""
        if end in self.storages:
            return end
        host = urls.host_of(end)
        return next((storage.name for storage in self.storages.values() if storage.host == host), None)

    def traits(self, source: str, destination: str) -> LinkTraits:
        """Return how a link behaves: the entry for it, its destination, its source, or all links."""
        return _most_exact(self.links, source, destination) or self.default_link

    def why_inconclusive(self, source: str, destination: str) -> str:
        """Return why the grid does not predict a link; empty where it does."""
        return _most_exact(self.inconclusive, source, destination) or ""


def _most_exact(of_links: Mapping[str, T], source: str, destination: str) -> T | None:
    names = (f"{source}:{destination}", f"*:{destination}", f"{source}:*", "*:*")
    return next((of_links[name] for name in names if name in of_links), None)


def names_link(pattern: str, source: str, destination: str) -> bool:
    """Whether a pattern `SRC:DST`, in which either may be `*`, means this link."""
    first, _, second = pattern.partition(":")
    return first in {"*", source} and second in {"*", destination}
