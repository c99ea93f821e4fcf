"""Thresholds judged by a ledger: those of a command, and those of the menus that were in force.

What a threshold is, and how it is compared, is in `model/thresholds.py`. Here rows are added up for it. Only
closed cycles outside of excluded windows count, as in every average of a report; with `over 6h`, the newest of
them that make up six hours; with `by day` those of each day of the challenge, the worst of which decides. Where
there are not so many yet, the threshold is inconclusive.

The ledger keeps the text of each menu that came into force, with its thresholds in it. A menu that was edited
counts as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import Any
from xml.etree import ElementTree as ET

from dc_inject import menu
from dc_inject.ledger import Reader
from dc_inject.ledger.series import CycleKind, Period
from dc_inject.model import Cycle, FlowKey, units
from dc_inject.model.errors import DcInjectError, ThresholdMissed, UsageError
from dc_inject.model.redaction import visible
from dc_inject.model.thresholds import Amounts, Judgement, Threshold, ThresholdOutcome, inconclusive, judge
from dc_inject.model.units import counted, format_duration
from dc_inject.summary.adding import Added, add_up, move_made_up_bytes, together
from dc_inject.summary.days import list_days

AT_ONCE = timedelta(days=200 * 365)  # a step that has every cycle in it


def list_thresholds(view: Reader) -> tuple[Threshold, ...]:
    """Return the thresholds of all menus that are or were in force, each once."""
    written = (threshold for record in view.last_menus() for threshold in menu.thresholds_of(record.text))
    return tuple(dict.fromkeys(written))


def judge_thresholds(view: Reader, chosen: Period | None, thresholds: Sequence[Threshold]) -> list[Judgement]:
    """Judge thresholds by the cycles of a period (None: there is no cycle)."""
    if not thresholds:
        return []
    kinds = [] if chosen is None else view.cycles(chosen)
    cycles = [cycle for cycle, kind in kinds if kind is CycleKind.COUNTED]
    if chosen is None or not cycles:
        return [inconclusive(threshold, "no cycle that counts is over") for threshold in thresholds]
    sums = _Sums(view, chosen, cycles)
    return [(_judged_by_day if threshold.by_day else _judged)(threshold, sums) for threshold in thresholds]


def _judged_by_day(threshold: Threshold, sums: _Sums) -> Judgement:
    """Judge each day on which there was something to judge; return what became of the worst."""
    days = list_days(sums.view)
    judged_days = [
        (number, judge(threshold, sums.amounts(threshold, tuple(cycles))))
        for number, cycles in groupby(sums.newest(None), days.of)
    ]
    known = [(number, made.value, made) for number, made in judged_days if made.value is not None]
    if not known:
        return judged_days[-1][1]

    def badness(day: tuple[int, float, Judgement]) -> float:
        off = abs(day[1] - threshold.bound)
        return off if day[2].outcome is ThresholdOutcome.MISSED else -off

    number, _, worst = max(known, key=badness)
    return replace(worst, reason=f"day {number}: {worst.reason}")


def _judged(threshold: Threshold, sums: _Sums) -> Judgement:
    chosen = sums.newest(threshold.over)
    if threshold.over is not None and sums.seconds(chosen) < threshold.over.total_seconds():
        have = format_duration(timedelta(seconds=sums.seconds(chosen)))
        return inconclusive(threshold, f"only {have} of {format_duration(threshold.over)} can be judged so far")
    return judge(threshold, sums.amounts(threshold, chosen))


class _Sums:
    """What each link got in the newest cycles, read once for each time that a threshold is over."""

    def __init__(self, view: Reader, chosen: Period, cycles: Sequence[Cycle]) -> None:
        """Take the cycles that count, oldest first."""
        self.view = view
        self._excluded = chosen.excluded
        self._cycles = cycles
        self._since = view.since or cycles[0].start
        self._read: dict[tuple[Period, Cycle], dict[FlowKey, Added]] = {}

    def newest(self, over: timedelta | None) -> Sequence[Cycle]:
        """Return the newest cycles that make up a time, or as many as there are."""
        if over is None:
            return self._cycles
        seconds, number = 0.0, len(self._cycles)
        while number and seconds < over.total_seconds():
            number -= 1
            seconds += self.seconds(self._cycles[number : number + 1])
        return self._cycles[number:]

    def seconds(self, cycles: Sequence[Cycle]) -> float:
        """Return how long cycles are together; nothing is due before the first run begins."""
        return sum(max((cycle.end - max(cycle.start, self._since)).total_seconds(), 0.0) for cycle in cycles)

    def amounts(self, threshold: Threshold, cycles: Sequence[Cycle]) -> Amounts:
        """Return what the links of a threshold got in these cycles, which come one after another."""
        since = self._cycles[0].start if self._excluded else cycles[0].start  # for what is made up later
        period = Period(since, cycles[-1].end, self._excluded)
        if (period, cycles[0]) not in self._read:
            step = cycles[0].length if self._excluded else AT_ONCE
            spans = move_made_up_bytes(self.view.spans(period, step))
            counted = (s for s in spans if s.kind is CycleKind.COUNTED and s.start + step > cycles[0].start)
            self._read[period, cycles[0]] = add_up(counted, lambda key: key)
        of_links = [added for key, added in self._read[period, cycles[0]].items() if threshold.matches(key)]
        total = together(of_links).total()
        failed = (sum(classes.values()) for key, classes in self.view.failures().items() if threshold.matches(key))
        return Amounts(
            links=len(of_links),
            seconds=self.seconds(cycles),
            due=total.due,
            injected=total.injected,
            moved=total.moved,
            forgiven=total.forgiven,
            rules=total.rules,
            failed_files=sum(failed),
        )


# --------------------------------------------------------------------------- as data, as an error, for CI


def figures(view: Reader, chosen: Period | None, more: Sequence[Threshold] = ()) -> list[dict[str, Any]]:
    """Judge the thresholds of the menus, and more, by the cycles of a period; return what a report has of them."""
    judgements = judge_thresholds(view, chosen, [*dict.fromkeys((*more, *list_thresholds(view)))])
    return [
        {
            "threshold": judgement.threshold.text,
            "outcome": judgement.outcome.value,
            "value": judgement.value,
            "bound": judgement.threshold.bound,
            "missed_by": judgement.missed_by,
            "reason": judgement.reason,
        }
        for judgement in judgements
    ]


def error(judgements: Sequence[dict[str, Any]]) -> DcInjectError | None:
    """Return what a command ends with: exit code 5 if a threshold was missed, 2 if one could not be judged."""
    missed = [judgement for judgement in judgements if judgement["outcome"] == ThresholdOutcome.MISSED]
    unknown = [judgement for judgement in judgements if judgement["outcome"] == ThresholdOutcome.INCONCLUSIVE]
    lines = "".join(
        f"\n  {judgement['threshold']}: {judgement['outcome']}: {judgement['reason']}"
        for judgement in (*missed, *unknown)
    )
    of = counted(len(judgements), "thresholds")
    if missed:
        return ThresholdMissed(
            f"{len(missed)} of {of} missed:{lines}", "`dc-inject report CAMPAIGN` shows where and why"
        )
    if unknown:
        hint = "wait until there is more to judge, or correct the threshold"
        return UsageError(f"{len(unknown)} of {of} inconclusive, which is no pass:{lines}", hint)
    return None


def junit(report: Mapping[str, Any]) -> str:
    """Return a report as JUnit's XML: a test case for each threshold, and for the verdict of a mini-challenge."""
    cases = [("thresholds", one["threshold"], one["outcome"], one["reason"]) for one in report["thresholds"]]
    if challenge := report["challenge"]:
        cases.append(("mini-challenge", report["campaign"], challenge["outcome"], in_words(challenge)))
    if not cases:
        hint = "name one with --fail-under, or in the menu under `thresholds`"
        raise UsageError("there is no threshold and no mini-challenge to make test cases of", hint)
    grid = report["simulated_in"]
    name = report["campaign"] + ("" if grid is None else f", simulated in the grid {grid}")
    return suite(name, report["at"], cases)


def in_words(figures: Mapping[str, Any]) -> str:
    """Return the capacity, if it is known, and the reason of a conclusion's figures."""
    if figures["capacity"] is None:
        return str(figures["reason"])
    least = "" if figures["interval"] and figures["cause"] else "at least "  # without a cause it may carry more
    words = f"capacity {least}{units.format_rate(figures['capacity'])}"
    if figures["interval"]:
        words += " (95 %: {} to {})".format(*map(units.format_rate, figures["interval"]))
    return f"{words}; {figures['reason']}"


_RESULTS = {
    **dict.fromkeys(("missed", "not reached", "failed"), "failure"),
    **dict.fromkeys(("inconclusive", "no result"), "error"),
}


def suite(name: str, at: str, cases: Iterable[tuple[str, str, str, str]]) -> str:
    """Return test cases as JUnit's XML: the kind, name, outcome and reason of each, judged at a time."""
    made = ET.Element("testsuite", {"name": visible(name)})
    for kind, test, outcome, reason in cases:
        case = ET.SubElement(made, "testcase", {"classname": f"dc_inject.{kind}", "name": visible(test)})
        if outcome in _RESULTS:
            ET.SubElement(case, _RESULTS[outcome], {"message": visible(f"{outcome}: {reason}")})
        else:
            ET.SubElement(case, "system-out").text = visible(reason)
    count = {kind: str(len(made.findall(f"testcase/{kind}"))) for kind in ("failure", "error")}
    totals = {"tests": str(len(made)), "failures": count["failure"], "errors": count["error"]}
    made.attrib.update({**totals, "timestamp": at})
    suites = ET.Element("testsuites", totals)
    suites.append(made)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
