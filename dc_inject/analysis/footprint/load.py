"""The load of one flow at its two ends, with the assumptions behind it, and the rows that loads are added up to.

Loads are proportional to the rate. Each default in `Assumptions` has its source.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from dc_inject.model import DatasetFilter, FileFilter, Flow, Item
from dc_inject.model.goals import Keep, SecondHop
from dc_inject.model.transfers import FILE_SPEED, LINK_LIMIT, transfers_needed
from dc_inject.planning import lifetime, pool


class Load(NamedTuple):
    """What traffic asks of a place: rates in bytes per second, sizes in bytes, the rest as numbers (per second).

    `ingress` and `egress` cross the border of a site, `inside` does not. `resident` bytes take up space with the
    assumed lifetime, `shortest` with the shortest one that the menu allows. `cancelled` are bytes on their way
    when nothing has moved for a lifetime; those of rules need `quota`. Rules stand for jobs too, where FTS is
    given directly.
    """

    ingress: float = 0.0
    egress: float = 0.0
    inside: float = 0.0
    read: float = 0.0  # of what arrives, what is only read
    resident: float = 0.0
    shortest: float = 0.0
    cancelled: float = 0.0
    quota: float = 0.0
    files: float = 0.0  # that arrive, per second; in the steady state as many are deleted
    transfers_in: float = 0.0
    transfers_out: float = 0.0
    rules: float = 0.0  # made per second
    live_rules: float = 0.0
    locks: float = 0.0
    calls: float = 0.0  # per second
    tokens: float = 0.0  # requests per second

    @property
    def arriving(self) -> float:
        """All bytes per second that arrive, whether they cross the border or not."""
        return self.ingress + self.inside

    @property
    def written(self) -> float:
        """What of it is written, and not only read."""
        return self.arriving - self.read


def add(loads: Iterable[Load]) -> Load:
    """Return the sum of loads, exactly rounded: the same in whatever order they come."""
    columns = list(zip(*loads, strict=True))
    return Load(*map(math.fsum, columns)) if columns else Load()


class EndLoads(NamedTuple):
    """The loads of one byte per second of a flow: on its source and on its destination."""

    source: Load
    destination: Load


def end_loads(flow: Flow, lag: timedelta, file: float, assumed: Assumptions, *, inside: bool) -> EndLoads:
    """Return what one byte per second of a flow lays on its ends; `lag` in deleting, `file` the mean size."""
    goal, window = flow.goal, flow.end - flow.start
    if flow.job is not None and (reading := flow.job.reading):  # nothing is written
        readers = transfers_needed(1.0, reading.rate)
        return EndLoads(
            Load(egress=0.0 if inside else 1.0, transfers_out=readers),
            Load(ingress=0.0 if inside else 1.0, inside=1.0 if inside else 0.0, read=1.0, transfers_in=readers),
        )
    longest = flow.lifetime_max if assumed.lifetime is None else assumed.lifetime
    stay, shortest, live = (
        lifetime.horizon(life, after, window).total_seconds()
        for life, after in ((longest, lag), (flow.lifetime_min, lag), (longest, timedelta(0)))
    )
    rules = 1 / (file * dataset_files(flow, assumed.dataset_files))
    transfers = transfers_needed(1.0, assumed.file_speed)
    tokens = TOKENS_PER_END / file
    return EndLoads(
        Load(egress=0.0 if inside else 1.0, transfers_out=transfers, tokens=tokens),
        Load(
            ingress=0.0 if inside else 1.0,
            inside=1.0 if inside else 0.0,
            resident=stay,
            shortest=shortest,
            cancelled=min(live, goal.bytes / flow.rate) if isinstance(goal, Keep) and flow.rate else live,
            quota=live if flow.link.service.has_quota else 0.0,
            files=1 / file,
            transfers_in=transfers,
            rules=rules,
            live_rules=rules * live,
            locks=live / file if flow.link.service.has_quota else 0.0,
            calls=rules * CALLS_PER_RULE,
            tokens=tokens,
        ),
    )


def times(load: Load, rate: float) -> Load:
    """Return the load of so many bytes per second."""
    return Load(*[amount * rate for amount in load])


MEAN_FILE = 5 * 10**9
FILES = 1000
CALLS_PER_RULE = 4
TOKENS_PER_END = 1


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is not in a menu; sizes in bytes, speeds in bytes per second.

    The sources of the defaults are "WLCG/DOMA Data Challenge 2024, Final Report" (zenodo 11444180) and what
    others measured:

    - `mean_file`, of files whose sizes no inventory and no list has: 5 GB. Datasets of DC24 had files of 5 to
      7 GB; the UK's mini challenge, Belle II and JUNO moved files of 5 GB.
    - `dataset_files`, of a dataset: 1000 as in DC24, within the bounds of the menu.
    - `file_speed`: 6 MB/s, as CERN to RAL in DC24; 3 to 8 in mini challenges, 20 to 25 planned by ATLAS.
    - `deletion_seconds`, of one file: 1 s at RAL, 20 s there under load, 0.3 s elsewhere.
    - `deletion_lag`, from the end of a rule to free space: the menu's for the RSE (None), plus one cycle.
    - `lifetime` of rules and jobs: the longest that the menu lets them have (None).
    - `link_limit`, transfers at a time that FTS allows on a link: the default of LIMITS_OF.
    """

    mean_file: int | None = None
    dataset_files: int = FILES
    file_speed: float = FILE_SPEED
    deletion_seconds: float = 1.0
    deletion_lag: timedelta | None = None
    lifetime: timedelta | None = None
    link_limit: int = LINK_LIMIT


def dataset_files(flow: Flow, assumed: int) -> int:
    """Return the files of one dataset or job of a flow: what is assumed, within what its menu allows."""
    if isinstance(flow.datasets, DatasetFilter):
        fewest, most = flow.datasets.files
        return min(max(assumed, fewest), most)
    return min(assumed, flow.job.files) if flow.job is not None else assumed


def mean_file(flow: Flow, items: Sequence[Item] | None, assumed: int | None) -> float:
    """Return the mean file size of a flow in bytes: the one that is assumed, or that of known items.

    Without either it is 5 GB, within the bounds of the menu.
    """
    if assumed is not None:
        return assumed
    if items:
        return sum(item.bytes for item in items) / sum(item.files for item in items)
    bounds = flow.datasets.mean_file if isinstance(flow.datasets, DatasetFilter) else flow.datasets.size
    return min(max(MEAN_FILE, bounds[0]), bounds[1])


KINDS = ("site", "scenario", "total")


class Group(NamedTuple):
    """What a row is about: `site`, `scenario` or `total`, and its name."""

    by: str
    name: str


TOTAL = Group("total", "total")


@dataclass(frozen=True, slots=True)
class FootprintRow:
    """The footprint of one site, one scenario or of all; rates in bytes per second, sizes in bytes.

    `peak` has the largest value of each quantity at any one time. `volume` is all that arrives while the menus
    last, `written` what is written in the 24 hours in which most is. `busiest` are the transfers at a time of the
    busiest link.
    `fits` is the lifetime that just fills the space, `pool_lasts` how long the poorest source has data before it
    must use some again. None: not known.
    """

    group: Group
    links: int
    peak: Load
    volume: float
    written: float
    busiest: float
    wan: float | None = None
    max_ingress: float | None = None
    max_egress: float | None = None
    space: int | None = None
    fits: timedelta | None = None
    pool_lasts: timedelta | None = None


@dataclass(frozen=True)
class Footprint:
    """The footprint of campaigns: a row for each site, for each scenario, and one for all."""

    rows: tuple[FootprintRow, ...]

    def by(self, kind: str) -> tuple[FootprintRow, ...]:
        """Return the rows of `site`, `scenario` or `total`, by name."""
        return tuple(row for row in self.rows if row.group.by == kind)

    @cached_property
    def total(self) -> FootprintRow:
        """The row for all."""
        return self.by("total")[0]


def list_known_items(flow: Flow, inventory: Mapping[str, Sequence[Item]] | None) -> Sequence[Item] | None:
    """Return the items that a flow may take, as far as they are known without a service; None: they are not."""
    datasets, source = flow.datasets, flow.link.source
    if isinstance(flow.goal, SecondHop):
        return None  # what the first hop brings
    if isinstance(datasets, FileFilter):
        listed = datasets.listing
        if listed is None or inventory is not None:
            return None if inventory is None else [i for i in inventory.get(source, ()) if i.bytes > 0]
        files = [f for f in listed.files if "://" not in f.name or f.name.startswith(f"{source}/")]
        chosen = [file for file in files if pool.passes(file, source, datasets)]
        return chosen if files and all(file.bytes > 0 for file in files) else None
    if inventory is None or datasets.landed:
        return None
    inside = bool(datasets.containers)  # a file of datasets does not have the contents of containers
    return [i for i in inventory.get(source, ()) if pool.matches(i, datasets, in_container=inside)]


Parts = Sequence[tuple[datetime, datetime, float]]  # in order of time; nothing between them


def volume(parts: Parts) -> float:
    """Return the integral over all parts, in bytes for a rate in bytes per second."""
    return sum(rate * (end - start).total_seconds() for start, end, rate in parts)


def most(parts: Parts, window: timedelta) -> float:
    """Return the largest integral over any window of that length.

    The integral over a window is linear in its begin between the borders of parts, so that it is largest where the
    window begins or ends at one.
    """
    sums = [0.0, *accumulate(rate * (end - start).total_seconds() for start, end, rate in parts)]
    starts = [start for start, _, _ in parts]

    def until(moment: datetime) -> float:
        index = bisect_right(starts, moment)
        if index == 0:
            return 0.0
        start, end, rate = parts[index - 1]
        return sums[index - 1] + rate * (min(end, moment) - start).total_seconds()

    begins = {*starts, *(end - window for _, end, _ in parts)}
    return max((until(begin + window) - until(begin) for begin in begins), default=0.0)
