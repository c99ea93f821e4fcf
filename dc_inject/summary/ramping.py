"""Links on which FTS may still be growing to the transfers that they take."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import inf

from dc_inject.ledger import Reader, Row
from dc_inject.model import FlowKey
from dc_inject.planning import ramp
from dc_inject.planning.ramp import FOLLOWS
from dc_inject.summary.criteria import LESS


def growing(view: Reader, now: datetime) -> Iterator[FlowKey]:
    """Yield the links that move less than is due while FTS may still be growing to the transfers that they take.

    Links of which nothing is on its way are left out, and links that move nothing, or less than they did: neither
    is a matter of growing. FTS grows since the first cycle in which something went out,
    as far back as that can matter. It keeps what it has grown to while nothing does: a link with a dataset every
    few cycles does not begin again with each of them.
    """
    cycle, accounts = view.last_cycle(), view.accounts()
    by_link: dict[FlowKey, list[Row]] = {}
    for row in view.rows(since=cycle.start - ramp.time(inf) - cycle.length) if cycle else ():
        by_link.setdefault(row.key, []).append(row)
    for key, rows in by_link.items():
        last = rows[-1]
        closed = next((row for row in reversed(rows) if row.cycle.end <= now), None)
        begun = next((row.cycle.start for row in rows if row.injected > 0), None)
        rate = last.due / last.cycle.length.total_seconds()
        moved = closed.moved / closed.cycle.length.total_seconds() if closed else 0.0
        most_moved = max((row.moved for row in rows if row.cycle.end <= now), default=0)
        if closed and (not closed.moved or closed.moved < LESS * most_moved):
            continue
        if begun is None or last.cycle != cycle or not accounts[key].coming or moved >= FOLLOWS * rate:
            continue
        if ramp.possible(rate, max(now - max(begun, view.since or begun), timedelta(0)), moved):
            yield key
