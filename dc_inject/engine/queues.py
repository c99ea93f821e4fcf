"""Queues: what waits in FTS on controlled links, and in Rucio before it, and how many transfers FTS allows.

FTS tells all users of a VO what its optimizer sees, and Rucio some accounts of its requests. What cannot be read,
or says nothing of the link now, is noted as a missing signal. Two things are made of it:

- the reading of the guard `fts-queue`: how long FTS needs for all that waits (`guarding.py`);
- the transfers of links from which FTS takes them away, since too many attempts fail: with these the law decides
  anew (`planning/control.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.calls import in_parts
from dc_inject.engine.context import EngineContext
from dc_inject.engine.control_records import Records, known_before, subject
from dc_inject.model import Cycle, FlowKey, Hold, Link
from dc_inject.model.ports import LinkQueue, Missing, Requests
from dc_inject.model.services import SERVICES
from dc_inject.planning import ramp
from dc_inject.planning.control import Transfers
from dc_inject.planning.guards import GuardReading
from dc_inject.planning.situation import Demand

LINKS_AT_ONCE = 20  # that one call asks for queues
LONGEST = 1e9  # seconds that a queue may seem to need: FTS's rate may be anything above 0
# FTS's optimizer runs once a minute, and looks at a link at the latest after five, but only while something waits
# or is under way there. So twice that time without a word means that the queue is gone, or the optimizer stands.
OLD = timedelta(minutes=10)
WAITING = 0.1  # of the transfers that FTS allows: while fewer files wait, it takes none away
OTHERS = 1.1  # times what we have on its way: more than that in FTS is of others, as sizes are means
FIXED, AT_LEAST = "Range fixed", "Hit lower range limit"  # words of the optimizer: it takes nothing (more) away
AT_MOST = "Hit upper range limit"  # it adds nothing more
MOST = "most:"  # before the number of transfers, in the signal `fts_queue` of a link that has the most


def read(
    context: EngineContext,
    records: Records,
    cycle: Cycle,
    demands: Sequence[Demand],
    deadline: datetime,
) -> tuple[dict[Link, LinkQueue], dict[Link, Requests]]:
    """Return what waits in FTS on links, and before it; if that cannot be read, the reason is noted as missing.

    Those are asked about that have anything on its way, were held by a queue before, or carried less than they
    were due.
    """
    links_of: dict[str, dict[Link, None]] = defaultdict(dict)  # each link once, in order
    idle = [demand.flow.key for demand in demands if not demand.coming]
    before = {key: known_before(records.get(subject(key), {}), cycle) for key in idle}
    for demand in demands:
        link, key = demand.flow.link, demand.flow.key
        used = demand.coming or Hold.FTS_QUEUE.value in before[key].guards or before[key].memory.delivered
        if used and demand.held is None:
            links_of[link.through][link] = None
    parts = {
        ("queues", service, number): part
        for service, links in links_of.items()
        for number, part in enumerate(in_parts(list(links), LINKS_AT_ONCE))
    }
    parts |= {
        ("requests", name, 0): list(links)
        for name, links in links_of.items()
        if links and SERVICES[name].has_requests
    }
    tasks = {
        (what, name, number): partial(getattr(context.backends[name], what), part)
        for (what, name, number), part in parts.items()
    }
    # In a lane of their own: an FTS that hangs must not hold up the calls of who gives it work.
    results, errors = context.calls.gather(tasks, deadline, lambda name: f"the queues of {name[1]}")
    now = context.clock.now()
    queues: dict[Link, LinkQueue] = {}
    requests: dict[Link, Requests] = {}
    missing: dict[tuple[str, str], str] = {}  # signal and subject -> why it is missing; nothing where it is known
    for name, part in parts.items():
        what, service, _ = name
        if what == "requests":
            requests |= results.get(name, {})
            missing[what, service] = errors[name].message if name in errors else ""
            continue
        for link in part:
            queue = results.get(name, {}).get(link)
            if isinstance(queue, Missing):
                missing["fts_queue", queue.subject] = queue.why
            else:
                missing["fts_queue", str(link)] = (
                    errors[name].message if name in errors else _why_unknown(queue, now)
                )
                if queue is not None:
                    missing.setdefault(("fts_queue", queue.by), "")
                    queues[link] = queue
    most = {str(link): f"{MOST}{queue.limit}" for link, queue in queues.items() if AT_MOST in queue.decision}
    readings = (
        (signal, subject, None if why else most.get(subject, "known"), why)
        for (signal, subject), why in missing.items()
        if subject
    )
    context.ledger.record_signals(readings, now)
    return {link: queue for link, queue in queues.items() if abs(now - queue.at) <= OLD}, requests


def _stands(queue: LinkQueue) -> bool:
    """Whether files wait and none has moved of late."""
    return queue.waiting > 0 and (queue.rate <= 0 or queue.file <= 0)


def _why_unknown(queue: LinkQueue | None, now: datetime) -> str:
    """Say why it is not known how long a queue takes FTS; nothing where it is."""
    if queue is None:
        return "FTS's optimizer tells nothing of this link"
    if abs(now - queue.at) > OLD:
        return f"inconclusive: FTS's optimizer last told of this link at {queue.at:%F %TZ}"
    if _stands(queue):
        return "inconclusive: files wait, and in the last minutes FTS has moved none"
    return ""


def taken_away(
    demands: Sequence[Demand], queues: Mapping[Link, LinkQueue], now: datetime
) -> dict[FlowKey, Transfers]:
    """Return the transfers of links from which FTS takes them away, at least while files wait, where it tells.

    Several flows of a link share them by what they are due. Nothing is said of links on which files of others
    wait: they would take the place that we leave in the queue, and FTS takes its transfers away all the same.
    """
    of_link: dict[Link, list[Demand]] = defaultdict(list)
    for demand in demands:
        of_link[demand.flow.link].append(demand)
    taken: dict[FlowKey, Transfers] = {}
    for link, flows in of_link.items():
        queue = queues.get(link)
        if queue is None or _others_wait(queue, sum(demand.coming for demand in flows)):
            continue
        transfers, due = _taken_away(queue, now), sum(demand.due for demand in flows)
        if transfers is not None:
            parts = {demand.flow.key: demand.due / due if due else 1 / len(flows) for demand in flows}
            taken |= {key: transfers.part(part) for key, part in parts.items()}
    return taken


def _others_wait(queue: LinkQueue, coming: int) -> bool:
    """Whether so many files wait that FTS takes transfers away, and it has more than we have on its way."""
    in_fts = (queue.waiting + queue.active) * queue.file
    return queue.waiting >= WAITING * (queue.limit or 0) and in_fts > OTHERS * coming


def _taken_away(queue: LinkQueue, now: datetime) -> Transfers | None:
    if queue.limit is None or queue.success is None or queue.success >= ramp.ENOUGH:
        return None
    if queue.speed <= 0 or queue.file <= 0 or queue.decision.startswith(FIXED):
        return None
    return Transfers(
        queue.limit,
        queue.speed,
        queue.file,
        queue.success,
        max(now - queue.at, timedelta(0)),
        queue.limit if AT_LEAST in queue.decision else ramp.FEWEST,
    )


def reading(demand: Demand, queue: LinkQueue | None, in_rucio: Requests | None) -> GuardReading:
    """Return how long it takes until all that waits on a link has gone, as a part of the lifetime.

    While nothing moves that is unknown: FTS may have just begun, or the link may stand still. Without a report of
    FTS the rate is what arrived in the last hour. That says nothing as long as our transfers are younger.
    """
    numbers: dict[str, int | float | str] = {}
    waiting, rate = 0, 0.0
    if queue is not None:
        numbers |= {"waiting": queue.waiting, "active": queue.active}
        if queue.limit is not None:
            numbers["limit"] = queue.limit
        if queue.decision:
            numbers["decision"] = queue.decision
        if queue.success is not None and queue.success < ramp.ENOUGH:
            numbers["success"] = round(queue.success, 3)
        waiting, rate = queue.waiting * queue.file, queue.rate
    elif in_rucio is not None:
        young = demand.coming and demand.arriving is None
        rate = 0.0 if young else max(in_rucio.rate, demand.arriving or 0.0)
    else:
        return GuardReading(None, numbers)
    if in_rucio is not None:
        numbers["requests"] = in_rucio.files
        waiting += in_rucio.bytes
    if (queue is not None and _stands(queue)) or (waiting and rate <= 0):
        return GuardReading(None, numbers, "inconclusive")
    waits = min(waiting / rate, LONGEST) if waiting else 0.0
    return GuardReading(waits / demand.flow.lifetime_max.total_seconds(), {**numbers, "waits": round(waits)})
