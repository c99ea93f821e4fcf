"""Files that failed: how many of each link, and the class of their reasons, whichever service reported them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from dc_inject.ledger import Reader
from dc_inject.model import FlowKey, State

OF_STUCK = 1000  # rules with files that Rucio has given up are looked at, at most


def classify(reason: str) -> str:
    """Return the class of Rucio's reason for failed files, which quotes FTS."""
    from dc_inject.backends.fts import failed_files  # noqa: PLC0415  only when something has failed

    where = re.search(r"\b(?:SOURCE|DESTINATION|TRANSFER)\b", reason[:1000])
    return failed_files.classify("FAILED", reason[where.start() : 1000] if where else reason[:1000])


def count_failed(view: Reader) -> Mapping[FlowKey, Counter[str]]:
    """Return how many files of each link failed so far, by class: those of stuck rules by Rucio's error."""
    counts = defaultdict(Counter[str], {key: Counter(classes) for key, classes in view.failures().items()})
    for entry in [entry for entry in view.entries(State.LIVE) if entry.files_stuck][:OF_STUCK]:
        counts[entry.injection.flow][classify(entry.error)] += entry.files_stuck
    return counts
