"""The plan of a cycle: what planning has decided, and the ledger writes down before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from dc_inject.model.held import Held
from dc_inject.model.items import Item
from dc_inject.model.types import Cycle, FlowKey, Injection


@dataclass(frozen=True, slots=True)
class FlowDecision:
    """What planning decided for one flow: the row of the cycle, before it is known what comes of it.

    `want` is the debt before anything of it is forgiven; `pool_items` and `pool_bytes` were free for this link.
    """

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
    decisions: tuple[FlowDecision, ...]
    injections: tuple[Injection, ...]
