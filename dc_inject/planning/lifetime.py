"""How long a rule or job lives, and for how long its bytes take up space: the whole policy.

**Every rule is born with its lifetime**, so that traffic ends by itself if no process is there to end it. Rucio
ends a rule whose lifetime is over. FTS ends nothing, so that `run` and `end` cancel a job that is older than its
lifetime, and FTS keeps its files in the queue no longer than that.

    fitting  = max                                     where the space is not known, or nothing comes in
             = clamp(space / ingress - lag, min, max)  else
    lifetime = max                                     where early ending works
             = fitting                                 else
    r        = measured time to completion + dwell     where early ending works and the time is known; at most max
             = fitting                                 else
    horizon  = min(r + lag, the flow's window)         a short menu never fills more than it injects
    space needed in the steady state = ingress x horizon

`min`, `max` and `dwell` are the menu's, else the defaults of `model/types.py`. Space is in bytes, and ingress,
what is due to the destination from all links, in bytes per second. The lag is what the destination's deletions
take after a rule's end, and a cycle: what goes in the course of one is free for planning at the start of the next.

**What does not fit is held, and no lifetime is stretched for it.** Where even `min` would need more than the
space, the ingress is cut (hold `destination-full`); what would not arrive within `max` is not asked for (hold
`backlog`). For `volume` and `again` a pool is not paced by how long rules stay: they decide how often a dataset
goes out.

**Complete rules end early** where the account may end them, after their dwell (`reconcile.select_to_end`). Each
service has rights of its own: what an account of Rucio may not end changes nothing for jobs of FTS. A first copy
stays until its second hop is complete, and a second copy's lifetime ends before that of its first one, from which
it is read. So a first copy stays for both, and for a cycle in which the second hop waits for its plan.

**While `run` is active**, an edited `lifetime` is that of rules made from then on; an edited `dwell` holds for
all. A rate that is set changes the ingress, and with it what fits.

**From then on** the states of a rule follow each other as in `model/transitions.py`; `engine/reconciler.py`
observes and ends it, and `engine/deleting.py` deletes what it leaves.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

from dc_inject.model import Cycle, Entry, Flow, FlowKey, Injection
from dc_inject.model.goals import SecondHop
from dc_inject.model.types import LONGEST

UNKNOWN_CYCLES = 4  # of a campaign, in which times to completion and observed rates are not believed yet
MEASURED_OVER = timedelta(hours=6)  # over which the time to completion is measured
ARRIVING_FLOOR = 0.1  # of the target: what an observed rate counts as at least, so that a link can come back
SLICE_LONGER = timedelta(days=1)  # by which the dataset of a slice outlives its rule, if nothing deletes it before
SLICE_AFTER = timedelta(hours=1)  # its rule was ended, it goes

_SECOND, _HOUR = timedelta(seconds=1), timedelta(hours=1)


# --------------------------------------------------------------------------- what a rule is born with


class Life(NamedTuple):
    """The lifetime that rules of a link get, and for how long each takes up space and keeps its dataset away."""

    lifetime: timedelta
    horizon: timedelta


def planned(
    flow: Flow, space: int | None, ingress: float, lag: timedelta, completion: timedelta | None, *, may_end: bool
) -> Life:
    """Return the lifetime of the rules of a flow in this cycle, and their horizon.

    `space` (bytes; None: not known) and `ingress` (bytes per second) are the destination's, `completion` is the
    measured time until data may be ended (None: not known), and `may_end` whether complete rules can be.
    """
    longest = flow.lifetime_max
    fitted = fitting(space, ingress, lag, flow.lifetime_min, longest)
    r = stay(fitted, longest, completion if may_end else None, flow.dwell)
    return Life(longest if may_end else fitted, horizon(r, lag, flow.end - flow.start))


def fitting(
    space: int | None, ingress: float, lag: timedelta, shortest: timedelta, longest: timedelta
) -> timedelta:
    """Return the lifetime at which the ingress (bytes per second) just fills the space (bytes).

    It is `longest` when either is unknown or 0.
    """
    if space is None or ingress <= 0:
        return longest
    seconds = max(space, 0) / ingress
    if seconds >= (longest + lag).total_seconds():
        return longest
    return max(shortest, timedelta(seconds=int(seconds)) - lag)


def stay(fitted: timedelta, longest: timedelta, completion: timedelta | None, dwell: timedelta) -> timedelta:
    """Return r, how long a rule stays: `completion` (None: not ended early, or not known yet) and dwell.

    Never more than `longest`, since a rule expires by itself; without a measurement it is the fitted lifetime.
    """
    return fitted if completion is None else min(completion + dwell, longest)


def horizon(r: timedelta, lag: timedelta, window: timedelta) -> timedelta:
    """Return for how long a byte takes up space or keeps its dataset from being used again.

    That is r + lag, but no longer than the window of its flow: what a short menu injects in all is never more
    than ingress x window.
    """
    return min(r + lag, window)


def needed(
    parts: Iterable[tuple[Flow, float, timedelta | None]],
    space: int | None,
    lag: timedelta,
    *,
    may_end: Container[str],
) -> int:
    """Return the bytes that flows fill at a destination in the steady state, if deletions take `lag`.

    `parts` are flows with their ingress, in bytes per second, and measured times to completion; `may_end` are the
    services in which complete rules or jobs can be ended.
    """
    flows = list(parts)
    ingress, total = sum(rate for _, rate, _ in flows), 0.0
    for flow, rate, completion in flows:
        life = planned(flow, space, ingress, lag, completion, may_end=flow.link.through in may_end)
        total += rate * life.horizon.total_seconds()
    return round(total)


def until_ended(
    completion: Mapping[FlowKey, timedelta], flows: Mapping[FlowKey, Flow], cycle: Cycle
) -> dict[FlowKey, timedelta | None]:
    """Return the measured times until data of flows may be ended, but for dwell; None while that is unknown.

    A first copy waits for the next plan of its second hop, and for that to complete.
    """
    onward = {
        (key.scenario, key.link.source): key for key, flow in flows.items() if isinstance(flow.goal, SecondHop)
    }
    times: dict[FlowKey, timedelta | None] = {}
    for key in flows:
        own, hop = completion.get(key), onward.get((key.scenario, key.link.destination))
        second = timedelta(0) if hop is None else completion.get(hop)
        wait = timedelta(0) if hop is None else cycle.length
        times[key] = None if own is None or second is None else own + wait + second
    return times


def deliverable_bytes(flow: Flow, arriving: float | None, coming: int) -> int | None:
    """Return how many bytes more would arrive within the longest lifetime; None where nothing was observed.

    That is the limit of the hold `backlog`. `arriving` is the rate at which bytes came in the last cycles, in
    bytes per second; `coming` are bytes on their way.
    """
    if arriving is None:
        return None
    rate = max(arriving, ARRIVING_FLOOR * flow.rate)
    return max(int(rate * flow.lifetime_max.total_seconds()) - coming, 0)


# --------------------------------------------------------------------------- what is read from something that ends


def may_go_on(first: Entry, now: datetime, shortest: timedelta) -> bool:
    """Whether a first copy lives long enough for a second one of `shortest` lifetime that is read from it."""
    return first.end_asked_at is None and (first.expires_at is None or first.expires_at >= now + shortest)


def limit_second_copy(injection: Injection, until: datetime, shortest: timedelta) -> timedelta:
    """Return the lifetime of a second copy that has to end by `until`; its own where too little would be left."""
    lifetime_left = min(injection.lifetime, until - injection.release)
    return lifetime_left if lifetime_left >= shortest else injection.lifetime


def is_outliving(ends_at: datetime, until: datetime | None) -> bool:
    """Whether a rule would live on when what it reads from may be gone; None: nothing is known of an end."""
    return until is not None and until < ends_at


# --------------------------------------------------------------------------- what services get, and report


def seconds(lifetime: timedelta) -> int:
    """Return a lifetime as Rucio takes it, in whole seconds."""
    return ceil(lifetime / _SECOND)


def get_queue_time(lifetime: timedelta) -> int:
    """Return for how long FTS may keep files of a job in its queue, which it counts in whole hours."""
    return max(1, ceil(lifetime / _HOUR))


def estimate_found_lifetime(flow: Flow | None, created: datetime, expires: datetime | None) -> timedelta:
    """Return the lifetime of a rule or job that was found: as reported, else the longest of its flow, if any."""
    if expires is not None:
        return max(expires - created, timedelta(0))
    return flow.lifetime_max if flow else LONGEST
