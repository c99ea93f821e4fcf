"""What can be read from a ledger, all frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from dc_inject.model import Cycle, FlowKey, Held, Hold, Numbers


@dataclass(frozen=True, slots=True)
class Totals:
    """The running totals of one flow key since its campaign began, in bytes but for `rules` and `files_in_flight`.

    `estimated` is the part of `moved` that is an estimate. `resident` are bytes at the destination or on their way
    there, intents included; `coming` those that were asked for and have not arrived; `failed` those that failed
    for good, which are not in `injected` any more.
    """

    due: int = 0
    injected: int = 0
    forgiven: int = 0
    in_doubt: int = 0
    moved: int = 0
    estimated: int = 0
    resident: int = 0
    rules: int = 0
    coming: int = 0
    files_in_flight: int = 0
    failed: int = 0

    @property
    def on_its_way(self) -> int:
        """The part of `injected` that has not arrived and still may; `coming` has what is in doubt as well."""
        return self.coming - self.in_doubt

    @property
    def not_moved(self) -> int:
        """The part of `injected` that had not arrived when its rule or job ended: it will not arrive any more."""
        return self.injected - self.moved - self.on_its_way

    @property
    def accepted(self) -> int:
        """What was ever injected, whatever became of it: it does not go down at a failure, as `injected` does."""
        return self.injected + self.failed

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, name) + getattr(other, name) for name in Totals.__slots__))


class Row(NamedTuple):
    """What one cycle did for one flow key; it never changes once the cycle is closed.

    `injected`, `moved` and `rules` are the account's totals less those at the last close, so that late news lands
    in the cycle in which it became known and rows always sum to the account. `estimated` is the change of the part
    of `moved` that is an estimate, negative when that has become exact. `want`, `cap` and `budget` are 0, and the
    lifetime and the pool unknown, until the cycle is planned.
    """

    cycle: Cycle
    key: FlowKey
    due: int
    want: int
    cap: int
    budget: int
    forgiven: int
    injected: int
    moved: int
    estimated: int
    rules: int
    held: Held | None
    lifetime: timedelta | None
    pool_items: int | None
    pool_bytes: int | None
    closed: bool

    def expected(self, coming: int) -> int:
        """Return what should have arrived: without what waits for a dataset that fits, if nothing is `coming`.

        `ledger/cycles.py` has the same in SQL.
        """
        waits = self.held is not None and self.held.hold.harmless and not coming
        return min(self.due, max(self.injected, 0)) if waits else self.due


@dataclass(frozen=True, slots=True)
class ControlDecision:
    """What control decided (mode `act`) or advised of a link in a cycle, and on what that rests.

    `hold` is the leading one, None where nothing holds the link; with `act` the same as in the cycle's row, unless
    that names something else than control. `target` is in bytes per second. `numbers` are
    those of its window, in bytes. `held` are the numbers behind `hold`, which follow from them and from the
    cycle's row.
    """

    cycle: Cycle
    key: FlowKey
    mode: str
    hold: Hold | None
    target: float
    numbers: Numbers
    bias: float = 0.0  # of dc_inject 0.1.0, as are guards
    guards: Mapping[Hold, Numbers] = field(default_factory=dict)
    held: Numbers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """A flow key in the closing table: its totals, its cycles with a due, how often each hold led."""

    key: FlowKey
    totals: Totals
    cycles: int
    holds: Mapping[Hold, int]

    @property
    def due(self) -> int:
        """Bytes that it was to be given."""
        return self.totals.due

    @property
    def injected(self) -> int:
        """Bytes of accepted rules, less what was there already."""
        return self.totals.injected

    @property
    def moved(self) -> int:
        """Bytes that arrived, estimates included."""
        return self.totals.moved


@dataclass(frozen=True, slots=True)
class Pause:
    """A person stopped a subject: `*` (the campaign), a scenario, or a link `SRC:DST`."""

    subject: str
    who: str
    why: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """What a person changed, and why."""

    at: datetime
    who: str
    what: str
    why: str


BLAMED = "blamed"  # the signal that has the hold of a service's last error


@dataclass(frozen=True, slots=True)
class Signal:
    """The latest reading of a signal; without a value the signal is missing, for the reason `why`."""

    name: str
    subject: str
    value: float | str | None
    at: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class MenuInForce:
    """A menu's text as it came into force; `until` is None while it is."""

    name: str
    digest: str
    text: str = field(repr=False)
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class BoundIdentity:
    """Whom the ledger is bound to at a service, and what may be done there."""

    service: str
    address: str
    vo: str
    account: str
    version: str
    may_end: bool | None
    credentials_until: datetime | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check of a ledger found: its code, what it is about, and what is wrong with that.

    A `note` is worth to know, and no contradiction.
    """

    code: str
    subject: str
    message: str
    note: bool = False
