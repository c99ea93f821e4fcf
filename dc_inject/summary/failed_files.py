"""Files that failed: how many of each link, and the class of their reasons, whichever service reported them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime

from dc_inject.ledger import Reader
from dc_inject.model import FlowKey, State, failed_files

MOST = 1000  # rules and jobs with such files that are looked at, at most, the newest
Failed = tuple[Mapping[FlowKey, Counter[str]], Mapping[FlowKey, str]]


def classify(reason: str) -> str:
    """Return the class of Rucio's reason for failed files, which quotes FTS."""
    where = re.search(r"\b(?:SOURCE|DESTINATION|TRANSFER)\b", reason[:1000])
    return failed_files.classify("FAILED", reason[where.start() : 1000] if where else reason[:1000])


def count_failed(view: Reader, since: datetime | None = None) -> Failed:
    """Return how many files of each link failed, by class: so far, or of what is live or began since a moment.

    Those of stuck rules, and of what began since, by the error of each, which is that of most of its files. Also
    the last error of each link that shows no class.
    """
    so_far = view.failures() if since is None else {}
    counts = defaultdict(Counter[str], {key: Counter(classes) for key, classes in so_far.items()})
    unclear = defaultdict[FlowKey, str](str)
    over = () if since is None else (e for e in view.entries(since=since) if e.state is not State.LIVE)
    for entry in [entry for entry in (*over, *view.entries(State.LIVE)) if entry.files_stuck][-MOST:]:
        counts[entry.injection.flow][reason := classify(entry.error)] += entry.files_stuck
        unclear[entry.injection.flow] = entry.error if reason == "other" else unclear[entry.injection.flow]
    return counts, unclear
