"""Queues: what FTS shows of controlled links, for the words of `status` alone.

FTS shows all users of a VO what its optimizer sees: for a link that is short, `ramp` shows whether FTS still adds
transfers. What cannot be read, or has nothing on the link now, is noted as a missing signal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from dc_inject.engine.calls import Batch
from dc_inject.engine.context import EngineContext
from dc_inject.model import Link, Mode
from dc_inject.model.ports import LinkQueue, Missing, in_parts
from dc_inject.planning.situation import Demand

LINKS_AT_ONCE = 20  # that one call asks for queues
# FTS's optimizer runs once a minute, and looks at a link at the latest after five, but only while something waits
# or is under way there. So twice that time without a word means that the queue is gone, or the optimizer stands.
OLD = timedelta(minutes=10)
AT_MOST = "Hit upper range limit"  # words of the optimizer: it adds nothing more


def record(context: EngineContext, demands: Iterable[Demand], deadline: datetime) -> None:
    """Record which controlled links with anything on their way have the most transfers that FTS allows."""
    links_of: dict[str, dict[Link, None]] = defaultdict(dict)  # each link once, in order
    for demand in demands:
        if demand.flow.control.mode is not Mode.OFF and demand.coming and demand.held is None:
            links_of[demand.flow.link.through][demand.flow.link] = None
    # In a lane of their own: an FTS that hangs must not hold up the calls of who gives it work.
    batches = [
        Batch(f"the queues of {service}", part, partial(context.backends[service].queues, part))
        for service, links in links_of.items()
        for part in in_parts(list(links), LINKS_AT_ONCE)
    ]
    answers, errors = context.calls.gather(batches, deadline)
    queues = {link: queue for _, answer in answers for link, queue in answer.items()}
    unanswered = {link: error.message for batch, error in errors for link in batch.subjects}
    now = context.clock.now()
    most: dict[str, int] = {}
    missing: dict[str, str] = {}  # subject -> why it is missing; nothing where it is known
    for link in chain.from_iterable(links_of.values()):
        queue = queues.get(link)
        if isinstance(queue, Missing):
            missing[queue.subject] = queue.why
            continue
        missing[str(link)] = unanswered[link] if link in unanswered else _why_unknown(queue, now)
        if queue is not None:
            missing.setdefault(queue.by, "")
            if AT_MOST in queue.decision and queue.limit:
                most[str(link)] = queue.limit
    readings = (
        ("fts_queue", subject, None if why else most.get(subject, "known"), why)
        for subject, why in missing.items()
        if subject
    )
    context.ledger.record_signals(readings, now)


def _why_unknown(queue: LinkQueue | None, now: datetime) -> str:
    """Return why it is not known how long a queue takes FTS; nothing where it is."""
    if queue is None:
        return "FTS's optimizer does not know this link"
    if abs(now - queue.at) > OLD:
        return f"inconclusive: FTS's optimizer last reported this link at {queue.at:%F %TZ}"
    if queue.waiting > 0 and (queue.rate <= 0 or queue.file <= 0):
        return "inconclusive: files wait, and in the last minutes FTS has moved none"
    return ""
