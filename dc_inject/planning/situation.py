"""The input of planning: frozen snapshots, in bytes and aware UTC. Its answer is a `Plan` of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject.model import Cycle, Flow, Held, Hold, Item, Limits, Link, Numbers, PoolKey, Site
from dc_inject.model.items import ItemId
from dc_inject.planning.limits import Destination


@dataclass(frozen=True, slots=True)
class Account:
    """The totals of one flow key up to now, in bytes, this cycle's due included.

    `extra` are the bytes that overheads added to the due of each cycle; None: the overhead was always today's.
    """

    due: int = 0
    injected: int = 0
    forgiven: int = 0
    in_doubt: int = 0
    extra: int | None = None

    def debt(self, overhead: float) -> int:
        """Return the debt in bytes: due x (1 + overhead) - forgiven - injected - in doubt; negative when ahead."""
        extra = round(self.due * overhead) if self.extra is None else self.extra
        return self.due + extra - self.forgiven - self.injected - self.in_doubt


@dataclass(frozen=True, slots=True)
class Demand:
    """What one flow wants in this cycle.

    `due` is this cycle's; `recent_due` the largest of the last three cycles, this one included. `extra` are the
    bytes on top of this cycle's due: overhead, and with control what was lost; None: the overhead.
    `intended` are bytes of intents of this cycle that are already in the ledger, and not yet in the account.
    `held` is a hold that is known before planning (paused, excluded, credentials, unavailable ...): budget 0.
    `before` is the hold of the cycle before, which the debt comes from, and `made_up` whether that one was of
    earlier cycles already, while their debt was made up. `saved` is the debt that it
    left at its end (want - forgiven - injected) when it had no hold or `too-coarse`, else 0: what waits for a
    dataset and is not forgiven.
    `completion` is the measured time from release to completion, None while unknown (first four cycles). `failed`
    is the part of what came to its end in the last cycles that did not arrive, None where that is not known.
    `coming` are bytes on their way; `arriving` is the rate at which they came in the last cycles, None unless some
    were on their way all the time.
    `releasable` are the bytes for which its window has room in the cycle, None where control does not bound it,
    and `window` the numbers behind that. `refused` is whether its service refused the link when it was last
    tried: its choice will hardly go out, so it takes what others leave.
    """

    flow: Flow
    due: int
    recent_due: int
    account: Account
    intended: int = 0
    held: Held | None = None
    before: Hold | None = Hold.NOT_RUNNING
    made_up: bool = False
    saved: int = 0
    completion: timedelta | None = None
    failed: float | None = None
    coming: int = 0
    arriving: float | None = None
    releasable: int | None = None
    window: Numbers = field(default_factory=dict)
    extra: int | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """All that planning knows: the frozen snapshot of one cycle.

    `rules_last_hour` and `last_hour` (bytes by link) count what was given in the cycles that began within an
    hour before the END of this cycle, this cycle not included: so that four quarters of an hour make an hour.
    `withheld` are injections of the last cycle for which control had no room. `submits` are rules and jobs for
    which there was time in the last cycles, of services that were not given all.
    """

    campaign: str
    contact: str
    cycle: Cycle
    now: datetime
    demands: tuple[Demand, ...]
    pools: Mapping[PoolKey, Sequence[Item]]
    taken: AbstractSet[tuple[ItemId, str]] = frozenset()  # (item, destination) resident, on its way or set aside
    once_only: AbstractSet[tuple[str, str]] = frozenset()  # (item or file, scenario) that goes out once, and did
    leaving: AbstractSet[tuple[ItemId, str]] = frozenset()  # (item, source) that leaves that source now
    used: Mapping[str, Mapping[str, datetime]] = field(default_factory=dict)  # source -> item -> last cycle of use
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()
    site_of: Mapping[str, str] = field(default_factory=dict)  # RSE -> site; an RSE without one is its own
    limits: Limits = field(default_factory=Limits)
    rules_last_hour: int = 0
    withheld: int = 0
    last_hour: Mapping[Link, int] = field(default_factory=dict)
    files_in_flight: int = 0
    submits: Mapping[str, int] = field(default_factory=dict)  # a cycle, by service
    may_end: AbstractSet[str] = frozenset()  # services where what is complete can be ended early
