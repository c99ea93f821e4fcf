"""Why links get less than they are due: the one place that status, watch, reports, forecasts and verdicts ask.

In one cycle the hold of its row is the reason, with the numbers behind it. Before the row is closed, what the
services do counts as well (`explain_hold`). Over a campaign, links that were held for one reason share a line,
with the reason as it was in the last cycle of each; where that has figures, it names that cycle. So a
disk that is too small is one line, however many links lead to it. Holds that need no action are left out. Of
several seeds a link has the holds that half of them or more have, with medians, and the sentence of most seeds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from dc_inject.ledger import Reader, Row, Signal
from dc_inject.ledger.series import ALWAYS, HeldFlow, Period
from dc_inject.ledger.types import BLAMED
from dc_inject.model import FlowKey, Held, Hold, State, units
from dc_inject.model.held import find_fault, read_hold, sentence
from dc_inject.model.holds import Fault, Trait
from dc_inject.model.on_call import CHANGE_THE_MENU
from dc_inject.summary import what_to_do
from dc_inject.summary.criteria import ENOUGH
from dc_inject.summary.menu_terms import site_of

MOST_NAMED = 2  # links that are named for each reason
UNEXPLAINED = "silent"  # the cause where no hold is known
THEIRS = "the services and sites of these links"  # whom to call where no line names anyone


# --------------------------------------------------------------------------- in one cycle


def of_cycle(held: Held | None) -> dict[str, Any]:
    """Return why a link got less in a cycle, as its row has it: hold, whether that needs no action, numbers."""
    return {
        "held": held.hold.value if held else None,
        "harmless": held.hold.harmless if held else None,
        "numbers": dict(held.numbers) if held else {},
    }


def holding_rows(
    rows: Iterable[Mapping[str, Any]], before: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows that hold links now: those of the cycle `before`, then those of this one, which count more.

    A hold that only explains why older debt is forgiven is left out: nothing holds its link in this cycle.
    """
    yield from before
    yield from (
        r for r in rows if r["held"] and not (r["held"] == Hold.NOT_RUNNING and "forgiven" in r["numbers"])
    )


def explain_hold(key: FlowKey, ledger: Reader, since: datetime | None) -> Held | None:
    """Return why a link got less in the last cycle, as far as that is known before its row is closed.

    The cycles after a stop are `not-running`, too, where they forgive debt of the time before it: that shows
    nothing of a step that began afterwards, at `since`.
    """
    cycle = ledger.last_cycle()
    if cycle is None:
        return None
    every, service = ledger.signals(), key.link.through
    row = next((row for row in ledger.rows(cycle=cycle) if row.key == key), None)
    if row is not None and _no_injector(row) and since is not None and not _was_absent(key, ledger, since):
        row = row._replace(held=None)
    if row is not None and row.held is not None and Trait.OUTRANKS in row.held.hold.traits:
        return row.held
    if row is None or row.due == 0:
        return row.held if row else None
    if (outage := explain_outage(service, every, planned=ledger.is_planned(cycle))) is not None:
        return outage
    unanswered = [e for e in ledger.entries(State.INTENDED, State.CALLED, cycle=cycle) if e.error]
    if 2 * sum(entry.injection.item.bytes for entry in unanswered) > row.due - row.injected > 0:
        return read_hold(unanswered[-1].error)
    return row.held


def explain_outage(service: str, signals: Iterable[Signal], *, planned: bool = True) -> Held | None:
    """Return why nothing goes through a service: it does not work, or no cycle can be planned; None if neither."""
    by_name = {(signal.name, signal.subject): signal for signal in signals}
    blamed = by_name.get((BLAMED, service))
    for name in (("service", service), *([] if planned else [("plan", "cycle")])):
        if name in by_name and by_name[name].value is None:
            return Held(Hold(str(blamed.value) if blamed else Hold.API_ERRORS), {"message": by_name[name].why})
    return None


def _was_absent(key: FlowKey, ledger: Reader, since: datetime) -> bool:
    """Whether a whole cycle has passed since a moment in which no injector ran: it was not planned."""
    blamed = (row.cycle for row in ledger.rows(since=since) if row.key == key and _no_injector(row))
    return not all(ledger.is_planned(cycle) for cycle in blamed)


def _no_injector(row: Row) -> bool:
    return row.held is not None and row.held.hold is Hold.NOT_RUNNING


# --------------------------------------------------------------------------- over a campaign


def count(holds: Iterable[tuple[Hold, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return in how many cycles each hold led, the most frequent first, and apart those that are harmless."""
    held, harmless = Counter[str](), Counter[str]()
    for hold, cycles in holds:
        (harmless if hold.harmless else held)[hold.value] += cycles
    return dict(held.most_common()), dict(harmless.most_common())


class HeldLink(NamedTuple):
    """For how many cycles a hold held a link, why it did last, and how many bytes were missing in these cycles.

    `held` is the hold with its numbers, as they were last.
    """

    key: FlowKey
    hold: Hold
    why: str
    cycles: int
    missing: int
    held: Held | None = None

    @property
    def limit(self) -> str:
        """Which of a campaign's limits it is; empty if it is none."""
        return str(self.held.numbers.get("limit", "")) if self.held and self.hold is Hold.CAMPAIGN_LIMIT else ""

    @property
    def name(self) -> str:
        """The hold, with the limit that it is: `campaign-limit (total)`."""
        return f"{self.hold.value} ({self.limit})" if self.limit else self.hold.value


def held_links(ledger: Reader, period: Period = ALWAYS) -> list[HeldLink]:
    """Return the links that were held in a period, and why, but for holds that need no action."""
    return [
        HeldLink(line.key, line.held.hold, _why(line), line.cycles, line.missing, line.held)
        for line in ledger.held_flows(period)
        if not line.held.hold.harmless
    ]


def _why(line: HeldFlow) -> str:
    """Return the reason; a message is that of one cycle, with figures that others of its cycles need not have."""
    words = sentence(line.held)
    return f"in the last such cycle: {words}" if line.held.numbers.get("message") else words


def merge_seed_causes(runs: Sequence[Sequence[HeldLink]]) -> list[HeldLink]:
    """Return what at least half of the seeds have in common: medians, and the sentence that most of them have."""
    seeds: dict[tuple[FlowKey, Hold, str], list[HeldLink]] = defaultdict(list)
    for run in runs:
        for link in run:
            seeds[link.key, link.hold, link.limit].append(link)
    common = []
    for links in seeds.values():
        if 2 * len(links) >= len(runs):
            none = [0] * (len(runs) - len(links))
            ((why, _),) = Counter(link.why for link in links).most_common(1)
            amounts = zip(*((link.cycles, link.missing) for link in links), strict=True)
            cycles, missing = (median([*of, *none]) for of in amounts)
            common.append(links[0]._replace(why=why, cycles=round(cycles), missing=round(missing)))
    return common


def explain_all(ledger: Reader) -> list[dict[str, Any]]:
    """Return why links were held over the whole campaign, as groups of short links are, without action.

    What is short in all without any such hold comes last.
    """
    held, sites = held_links(ledger), site_of(ledger)
    groups = [
        _group(
            row["hold"],
            f"{units.counted(row['links'], 'links')} lacked {units.format_size(row['missing'])} in "
            f"{units.counted(row['cycles'], 'cycles')}, most {units.some(row['most_held'])}; {row['why']}",
            [link.key for link in links],
            _call(links, sites),
        )
        for row, links in _reasons(held)
    ]
    known = {link.key for link in held}
    if others := [key for key in short_in_all(ledger) if key not in known]:
        moved = f"{units.counted(len(others), 'links')} moved under {100 * ENOUGH:.0f} % of their due in all"
        line = f"{moved}, {units.some(map(str, others))}; no hold that needs action is known"
        groups.append(_group(UNEXPLAINED, line, others, THEIRS))
    return groups


def _group(cause: str, line: str, keys: Iterable[FlowKey], call: str) -> dict[str, Any]:
    names = [key.names() for key in keys]
    line = f"{cause}: {line}"
    return {"cause": cause, "line": line, "links": names, "numbers": {}, "call": call, "needs_action": False}


def short_in_all(ledger: Reader) -> list[FlowKey]:
    """Return the links that were short over the whole campaign."""
    return [key for key, totals in ledger.accounts().items() if totals.moved < ENOUGH * totals.due]


def _call(links: Sequence[HeldLink], sites: Mapping[str, str]) -> str:
    """Return whom to call about links that were held for one reason."""
    held = [link.held or Held(link.hold) for link in links]
    if all(find_fault(one) is Fault.MENU for one in held):
        return CHANGE_THE_MENU
    if links[0].hold.fault is not Fault.UNKNOWN:
        return what_to_do.whom(what_to_do.entry(links[0].hold))
    storage = str(held[0].numbers.get("storage", "")).partition(" ")[2]  # that of all: the reason names it
    return sites.get(storage, storage) or THEIRS


def reasons(held: Sequence[HeldLink]) -> list[dict[str, Any]]:
    """Return the reasons for which links were held, those first in whose cycles most bytes were missing."""
    return [row for row, _ in _reasons(held)]


def _reasons(held: Sequence[HeldLink]) -> list[tuple[dict[str, Any], Sequence[HeldLink]]]:
    """Return them with the links of each."""
    groups: dict[tuple[Hold, str], list[HeldLink]] = defaultdict(list)
    for link in held:
        groups[link.hold, link.why].append(link)
    rows = [
        {
            "hold": hold.value,
            "why": _name_end(hold, links) + why,
            "links": len(links),
            "cycles": sum(link.cycles for link in links),
            "missing": sum(link.missing for link in links),
            "most_held": [str(link.key) for link in sorted(links, key=lambda link: -link.missing)[:MOST_NAMED]],
        }
        for (hold, why), links in groups.items()
    ]
    both = zip(rows, groups.values(), strict=True)
    return sorted(both, key=lambda one: (-one[0]["missing"], one[0]["hold"], one[0]["why"]))


def _name_end(hold: Hold, links: Sequence[HeldLink]) -> str:
    """Return the end that all of these links share and that holds them; empty if there is none."""
    of = {Trait.AT_SOURCE: "source", Trait.AT_DESTINATION: "destination"}
    ends = {getattr(link.key.link, end) for link in links for trait, end in of.items() if trait in hold.traits}
    return f"{ends.pop()}: " if len(ends) == 1 else ""
