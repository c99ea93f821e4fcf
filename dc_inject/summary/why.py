"""Why links were held, in sentences: what stands below the closing table of a simulation.

A closing table counts the cycles of each hold; the sentence of one stands in its rows. Here links that were held
for the same reason share a line, with the reason as it was in the last cycle of each, which it says where it may
have figures. So a disk that is too small is one line, however many links lead to it. Holds that need no action are
left out.

Of several seeds a link has the holds that half of them or more have, with medians, and the sentence of most seeds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from dc_inject.ledger.reading import Reader
from dc_inject.ledger.series import HeldFlow
from dc_inject.model import FlowKey, Held, Hold
from dc_inject.model.holds import sentence

MOST_NAMED = 2  # links that are named for each


class HeldLink(NamedTuple):
    """For how many cycles a hold held a link, why it did last, and how many bytes were missing in these cycles.

    `limit` is which of a campaign's limits it is, where it is one.
    """

    key: FlowKey
    hold: Hold
    why: str
    cycles: int
    missing: int
    limit: str = ""

    @property
    def name(self) -> str:
        """The hold, with the limit that it is: `campaign-limit (total)`."""
        return f"{self.hold.value} ({self.limit})" if self.limit else self.hold.value


def held_links(ledger: Reader) -> list[HeldLink]:
    """Return the links that were held, and why, but for holds that need no action."""
    return [
        HeldLink(line.key, line.held.hold, _why(line), line.cycles, line.missing, _limit(line.held))
        for line in ledger.held_flows()
        if not line.held.hold.harmless
    ]


def _why(line: HeldFlow) -> str:
    """Return the reason; a message is that of one cycle, with figures that others of its cycles need not have.

    That attempts fail is said if FTS told so in half of the cycles or more.
    """
    words = sentence(line.held, attempts_fail=2 * line.attempts_fail >= line.cycles)
    return f"in the last such cycle: {words}" if line.held.numbers.get("message") else words


def _limit(held: Held) -> str:
    return str(held.numbers.get("limit", "")) if held.hold is Hold.CAMPAIGN_LIMIT else ""


def of_seeds(runs: Sequence[Sequence[HeldLink]]) -> list[HeldLink]:
    """Return what at least half of the seeds have in common: medians, and the sentence that most of them have."""
    seeds: dict[tuple[FlowKey, Hold, str], list[HeldLink]] = defaultdict(list)
    for run in runs:
        for link in run:
            seeds[link.key, link.hold, link.limit].append(link)
    common = []
    for (key, hold, limit), links in seeds.items():
        if 2 * len(links) >= len(runs):
            none = [0] * (len(runs) - len(links))
            ((why, _),) = Counter(link.why for link in links).most_common(1)
            amounts = zip(*((link.cycles, link.missing) for link in links), strict=True)
            cycles, missing = (median([*of, *none]) for of in amounts)
            common.append(HeldLink(key, hold, why, round(cycles), round(missing), limit))
    return common


def reasons(held: Sequence[HeldLink]) -> list[dict[str, Any]]:
    """Return the reasons for which links were held, those first in whose cycles most bytes were missing."""
    groups: dict[tuple[Hold, str], list[HeldLink]] = defaultdict(list)
    for link in held:
        groups[link.hold, link.why].append(link)
    rows = [
        {
            "hold": hold.value,
            "why": why,
            "links": len(links),
            "cycles": sum(link.cycles for link in links),
            "missing": sum(link.missing for link in links),
            "most_held": [str(link.key) for link in sorted(links, key=lambda link: -link.missing)[:MOST_NAMED]],
        }
        for (hold, why), links in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["missing"], row["hold"], row["why"]))
