"""Planning of one cycle: from what is due and what is known, to what will be injected, when, and why not more.

Everything here is pure: the same Situation gives the same Plan, whatever the order of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject.model import Cycle, Flow, FlowKey, Held, Injection, Item, Limits, PoolKey, Site


@dataclass(frozen=True, slots=True)
class Account:
    """The totals of one flow key up to now, in bytes, this cycle's due included (design: debt)."""

    due: int = 0
    injected: int = 0
    forgiven: int = 0
    in_doubt: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """What one flow wants in this cycle.

    `due` is this cycle's; `recent_due` the largest of the last three cycles, this one included.
    `intended` are bytes of intents of this cycle that are already in the ledger.
    `held` is a hold that is known before planning (paused, excluded, credentials, unavailable ...): budget 0.
    `completion` is the measured time from release to completion, None while unknown (first four cycles).
    """

    flow: Flow
    due: int
    recent_due: int
    account: Account
    intended: int = 0
    held: Held | None = None
    completion: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """What is known of a destination RSE, in bytes; None where a signal is missing (then it does not hold).

    `space` is all that we may fill in the steady state; `free` what can be written right now, less what is on
    its way there; `quota_left` what the account may still put there.
    """

    space: int | None = None
    free: int | None = None
    quota_left: int | None = None
    deletion_lag: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Situation:
    """All that planning knows: the frozen snapshot of one cycle."""

    campaign: str
    contact: str
    cycle: Cycle
    now: datetime
    demands: tuple[Demand, ...]
    pools: Mapping[PoolKey, Sequence[Item]]
    taken: AbstractSet[tuple[str, str]] = frozenset()  # (item, destination) resident, on its way or set aside
    leaving: AbstractSet[tuple[str, str]] = frozenset()  # (item, source) that leaves that source now
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()
    site_of: Mapping[str, str] = field(default_factory=dict)  # RSE -> site; an RSE without one is its own
    limits: Limits = Limits()
    rules_last_hour: int = 0
    files_in_flight: int = 0
    may_end: bool = False  # complete rules can be ended early


@dataclass(frozen=True, slots=True)
class Decision:
    """What planning decided for one flow: the row of the cycle, before it is known what comes of it."""

    key: FlowKey
    due: int
    want: int
    cap: int
    budget: int
    forgiven: int
    held: Held | None
    lifetime: timedelta
    items: tuple[Item, ...]
    pool_items: int
    pool_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for every demand (sorted by flow key) and the injections that follow from them."""

    cycle: Cycle
    decisions: tuple[Decision, ...]
    injections: tuple[Injection, ...]
