"""Rules that Rucio holds back: suspended, or not begun some minutes after they were accepted.

Rucio takes rules of 10,000 files and more asynchronously, whatever it is asked for, and suspends what has no quota
then. Such a rule blocks its dataset and counts as injected, and may never move a byte. A job that waits in FTS's
queue is none of these: that is a backlog.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from dc_inject.model import Entry, State
from dc_inject.model.ports import Observation, Status

PATIENCE = timedelta(minutes=10)  # judge-injector takes 100 rules a minute
WORDS = {Status.SUSPENDED: "suspended", Status.WAITING: "not-begun"}  # classes of what failed


def is_stalled(entry: Entry, seen: Observation, now: datetime) -> bool:
    """Whether a rule should be ended, since it does nothing."""
    return (
        entry.state is State.LIVE
        and entry.injection.job is None
        and seen.status in WORDS
        and entry.accepted_at is not None
        and entry.accepted_at + PATIENCE <= now
    )


def told(entry: Entry, seen: Observation, now: datetime) -> Observation:
    """Return an observation that says so of a rule; when the rule is gone, what it has not moved is given back.

    The words are in the ledger meanwhile, so that it makes no difference which process sees the end.
    """
    if is_stalled(entry, seen, now):
        why = f"{WORDS[seen.status]}: the rule does nothing {PATIENCE.seconds // 60} minutes after it was accepted"
        return replace(seen, error=f"{why} ({seen.error})" if seen.error else why)
    word, colon, _ = entry.error.partition(":")
    if seen.status is Status.ABSENT and entry.state is State.LIVE and colon and word in WORDS.values():
        item = entry.injection.item
        missing = item.files - entry.files_done
        failed = item.bytes - entry.present - entry.moved
        return replace(seen, failed=failed, reasons={word: missing}, error=entry.error)
    return seen
