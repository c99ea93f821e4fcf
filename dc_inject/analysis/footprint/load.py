"""What one flow requires of its two ends; loads add up, and are proportional to the rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from dc_inject.analysis.footprint.assumptions import CALLS_PER_RULE, TOKENS_PER_END, Assumptions, dataset_files
from dc_inject.model import Flow
from dc_inject.model.goals import Keep
from dc_inject.model.transfers import transfers_needed
from dc_inject.planning import lifetime


class Load(NamedTuple):
    """What traffic asks of a place: rates in bytes per second, sizes in bytes, the rest as numbers (per second).

    `ingress` and `egress` cross the border of a site, `inside` does not. `resident` bytes take up space with the
    assumed lifetime, `shortest` with the shortest one that the menu allows. `cancelled` are bytes on their way
    when nothing has moved for a lifetime; those of rules need `quota`. Rules stand for jobs too, where FTS is told
    directly.
    """

    ingress: float = 0.0
    egress: float = 0.0
    inside: float = 0.0
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
        """All bytes per second that are written, whether they cross the border or not."""
        return self.ingress + self.inside


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
