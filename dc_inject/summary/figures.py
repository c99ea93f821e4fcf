"""The figures of a report: what a campaign was due, injected and moved, over time and in total, from its ledger.

Everything is added up (`adding.py`) from the rows of cycles, which never change once a cycle is closed, and from
what is over and did not move (`ledger/series.py`). So the figures of the whole campaign are its accounts, to the
byte, also while it runs. A second hop is a link of its own, so a byte that hops twice has moved twice, once on
each link.

Everything has three sums: *counted*, *excluded* (cycles that touch a window which a user left out with a reason)
and *open* (cycles that are not over). Averages, that is all ratios, are of counted cycles only: an open cycle is
due in full from its first second.

The ratio is that of the reports of DC24, achieved to expected: moved to due. Theirs counted all traffic of a link,
production included; the ledger knows only what this tool injected.

The result is plain data (dictionaries, lists, numbers, texts), as `--format json` prints it. Its keys are an
interface, described in docs/reference/report.md. Text and pages are made of it and compute nothing themselves.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Any, NamedTuple

from dc_inject.ledger import Reader
from dc_inject.ledger.series import CycleKind, Period, Sums, Window
from dc_inject.model import EPOCH, Cycle, FlowKey, Hold, units
from dc_inject.model.errors import UsageError
from dc_inject.model.goals import SecondHop
from dc_inject.model.losses import Lost
from dc_inject.model.thresholds import Threshold
from dc_inject.summary import marks, menu_terms, repeats, tape, thresholds, why
from dc_inject.summary.adding import DIMENSIONS, HOUR, SITES, TYPE, Added, ByName, Times, read_rows, together
from dc_inject.summary.criteria import GRADES
from dc_inject.summary.days import ONE, Days, list_days

BY = ("day", "hour", "cycle", "calendar-day")  # what a step may be
SHORT = timedelta(hours=12)  # of a period that is no longer, each cycle is a step
OF = ("site", "rse", "link", "scenario")  # what a menu may exclude
LARGEST = 20  # names that have a series of their own
OTHERS = "others"
POLICY = "policy"  # the signal with the way in which a simulation injects, where it is not by control
SERIES = {"due": "target", "injected": "injected", "moved": "moved"}  # over time, and how people call them
_COLOURS = ", ".join(f"{colour} ({sign}) from {least}" for least, colour, sign in GRADES)
METHOD = f"""
Everything is from the ledger of dc_inject: what it was to inject, what it injected, and what it saw arrive. Other
traffic on the same links is not in it. The ratios published of DC24 included production traffic; these do not.

Due: the integral of the rates of the menus, and of what people set over them, when each cycle began. Nothing is
due before the first run, outside windows, or while a link is paused.

Injected: bytes of accepted rules and jobs, less what was at the destination before, and less what failed.

Moved: bytes that arrived. What is complete is exact; what is under way is estimated from the files that have
arrived, and marked with ~.

Bytes stand in the cycle in which they became known; a cycle stands in the hour and the day in which it began. A
day of the challenge has 24 hours from the clock time at which its first menu starts, in the zone of that menu.

What is injected late in an hour moves in the next one, so the ratio of an hour may be above 1.

Ratio: moved / due. Ratios leave out excluded windows and cycles that are not over; a cycle that an excluded window
touches is left out as a whole.

Colours: {_COLOURS.replace("from -inf", "below")}.

Each byte counts under exactly one scenario. A second hop is a link of its own: what goes on moves once more there.

Sources and destinations are the RSEs, or the URL prefixes, of the links.

Time to completion: from the acceptance of a rule or job until all of it had arrived, of those that became complete
in this time.

Not moved: what was injected, and had not moved when its rule or job ended, as of the last look at it some minutes
before. It will not arrive any more, and the debt does not ask for it again. Files that had failed in all attempts
by then have failed; their bytes are by the mean size of the files of their rule. The rest was cancelled if
dc_inject was to end it before its lifetime was over (dc-inject end --cancel), expired if it was there until then,
and ended otherwise if it was gone before and the ledger does not know why. It stands in the cycle in which that
was seen.
Bytes that failed and are due again are not part of it: they are no longer injected.

Failed files are those of the whole campaign, because the ledger keeps no times of them.
"""


class ExcludedWindow(NamedTuple):
    """A window that is left out of averages, and why; `of` is `site=NAME`, `link=...`, `scenario=...`, or all."""

    since: datetime
    until: datetime
    why: str
    of: str = ""


@dataclass(frozen=True, slots=True)
class ReportScope:
    """Of which time a report is (None: from the first cycle, to the last), and what is left out of averages."""

    since: datetime | None = None
    until: datetime | None = None
    excluded: tuple[ExcludedWindow, ...] = ()
    thresholds: tuple[Threshold, ...] = ()  # in addition to those of the menus
    by: str = ""  # one of BY; hours, or cycles of a short time


def grade(ratio: float | None) -> tuple[str | None, str]:
    """Return the colour of a ratio of moved to due, and the sign that means the same; none without a due."""
    if ratio is None:
        return None, ""
    return next((colour, sign) for least, colour, sign in GRADES if ratio >= least)


def period(view: Reader, scope: ReportScope) -> Period | None:
    """Return which cycles a report has; None where there is no cycle at all, or none in that time.

    Raises UsageError for a window of a name that no link has.
    """
    first, last = view.first_cycle(), view.last_cycle()
    if first is None or last is None:
        return None
    keys = tuple(view.accounts())
    windows = tuple(Window(one.since, one.until, _keys(view, one.of, keys)) for one in scope.excluded)
    chosen = Period(scope.since or first.start, scope.until or last.end, windows)
    return chosen if view.cycles(chosen) else None


def _keys(view: Reader, of: str, keys: Sequence[FlowKey]) -> frozenset[FlowKey] | None:
    """Return the flow keys that a window is of; None for all."""
    kind, _, name = of.partition("=")
    if not kind:
        return None
    site_of = menu_terms.site_of(view) if kind == "site" else {}
    names = {
        key: {*ends, *(site_of.get(end, end) for end in ends)} if kind in {"site", "rse"} else
        {str(key.link), key.link.shown, key.link.shown.replace(" ", "")} if kind == "link" else {key.scenario}
        for key in keys for ends in (key.link.ends,)
    }  # fmt: skip
    if found := frozenset(key for key in keys if name in names[key]):
        return found
    hint = units.did_you_mean(name, set().union(*names.values()))
    if kind == "site" and not site_of:
        hint += " (the menus give RSEs no sites: write rse=NAME, or add `sites` to a menu)"
    raise UsageError(f"no link has the {kind} {name}", hint)


def cut_time(view: Reader, cycles: Sequence[Cycle], by: str, *, exact: bool) -> tuple[Times, Days]:
    """Return the steps of a report, and its days.

    With `exact`, rows are read by cycle, as `move_made_up_bytes` needs them. By default (`by`), a step is
    an hour, and a cycle where that is longer or the period is short.
    """
    days, length = list_days(view), cycles[-1].length
    is_short = cycles[-1].end - cycles[0].start <= SHORT
    by = by or ("cycle" if is_short else "hour")
    if by == "calendar-day":
        days = days.calendar()
    long = {"cycle": length, "hour": max(HOUR, length)}.get(by)
    return Times(cycles, days, long, max(view.since or cycles[0].start, cycles[0].start), exact=exact), days


def report(
    view: Reader, scope: ReportScope, challenge: Mapping[str, Any] | None, now: datetime
) -> dict[str, Any] | None:
    """Return all figures; `challenge` are those of a mini-challenge. None where there is no cycle."""
    chosen = period(view, scope)
    if chosen is None:
        return None
    cycles = [cycle for cycle, _ in view.cycles(chosen)]
    times, days = cut_time(view, cycles, scope.by, exact=bool(scope.excluded))
    total, names, links = read_rows(view, chosen, times, menu_terms.site_of(view), menu_terms.list_types(view))
    until = max(cycles[-1].end, now) if scope.until is None else chosen.until  # late completions are of the last
    completions = view.times_to_completion(chosen.since, until)
    hops = {key for key, (kind, _) in view.goals().items() if kind == SecondHop.kind}
    values: dict[str, Any] = {
        "campaign": view.campaign or view.path.stem,
        "simulated_in": view.simulated_in,
        "scales": marks.scales(view, chosen.since, chosen.until),
        "control": _control(view, chosen),
        "at": units.format_time(now),
        "running": view.holder() is not None,
        "since": units.format_time(cycles[0].start),
        "until": units.format_time(cycles[-1].end),
        "cycle_seconds": round(cycles[-1].length.total_seconds()),
        "step_seconds": round((times.long or ONE).total_seconds()),
        "totals": with_losses(total.total()),
        **{kind.name.lower(): with_losses(total.total(kind)) for kind in CycleKind},
        "excluded_windows": [
            {
                "since": units.format_time(window.since),
                "until": units.format_time(window.until),
                "of": window.of,
                "why": window.why,
                "cycles": sum(Window(window.since, window.until).touches(cycle) for cycle in cycles),
            }
            for window in scope.excluded
        ],
        "menu_exclusions": [
            {
                "since": units.format_time(one.start),
                "until": units.format_time(one.end),
                "of": next((f"{kind}={name}" for kind in OF if (name := getattr(one, kind))), ""),
                "why": one.reason,
            }
            for one in menu_terms.list_exclusions(view)
            if one.start < chosen.until and one.end > chosen.since
        ],
        **_over_time(total, times, days),
        **{
            f"{dimension}s": [_name(name, added, times) for name, added in _sorted(names[dimension])]
            for dimension in (*DIMENSIONS, *SITES, TYPE)
        },
        "series": {dimension: _series(names[dimension]) for dimension in DIMENSIONS},
        "holds": _holds(view, chosen, times),
        "failed_files": _failures(view),
        "completion": completion(completions.values()),
        "tape": tape.rows(view),
        "links": _links(links, view.holds_of_links(chosen), completions, hops, why.held_links(view, chosen)),
        "marks": _marks(view, scope.since or EPOCH, until),  # what came before the first cycle too
    }
    for scenario in values["scenarios"]:
        ours = {key for key in links if key.scenario == scenario["name"]}
        scenario["second_hops"] = sum(key in hops for key in ours)
        scenario["completion"] = completion(completions.get(key, ()) for key in ours)
    return {
        **values,
        "verdict": _verdict(values),
        "thresholds": thresholds.figures(view, chosen, scope.thresholds),
        "challenge": challenge,
        "repeats": repeats.repeats(view, chosen) if challenge is None else [],  # its conclusion has their estimate
        "compared": None,  # a command may put another campaign and readings here
        "overlay": None,
        "method": [" ".join(words.split()) for words in METHOD.strip().split("\n\n")],
    }


def _links(
    links: Mapping[FlowKey, Added],
    holds: Mapping[FlowKey, Mapping[Hold, int]],
    completions: Mapping[FlowKey, Sequence[int]],
    hops: set[FlowKey],
    reasons: Iterable[why.HeldLink],
) -> list[dict[str, Any]]:
    """Return the counted figures of each link, and how often each hold led; `hops` are those of second hops.

    `why` is the reason of the hold that led most often, but for those that need no action. Of a campaign's limits,
    which are one hold, it is the one that did.
    """
    by_hold = {(one.key, one.hold): one.why for one in sorted(reasons, key=lambda one: one.cycles)}
    return [
        {
            **key.names(),
            "second_hop": key in hops,
            **with_losses(added.total(CycleKind.COUNTED)),
            "completion": completion([completions.get(key, ())]),
            "held": {hold.value: count for hold, count in holds.get(key, {}).items()},
            "why": next((by_hold.get((key, hold), "") for hold in holds.get(key, {}) if not hold.harmless), ""),
        }
        for key, added in sorted(links.items())
    ]


def figures(sums: Sums) -> dict[str, Any]:
    """Return sums with their ratios and the colour of what was achieved."""
    ratio = sums.moved / sums.due if sums.due else None
    colour, sign = grade(ratio)
    return {
        "due": sums.due,
        "injected": sums.injected,
        "moved": sums.moved,
        "moved_estimated": sums.estimated,
        "forgiven": sums.forgiven,
        "rules": sums.rules,
        "injected_ratio": sums.injected / sums.due if sums.due else None,
        "ratio": ratio,
        "grade": colour,
        "sign": sign,
    }


def with_losses(sums: Sums) -> dict[str, Any]:
    """Return figures and what was lost: bytes that will not arrive, by how their rule or job ended."""
    return {**figures(sums), "not_moved": sums.not_moved, **{name: getattr(sums, name) for name in Lost._fields}}


def completion(times: Iterable[Sequence[int]]) -> dict[str, Any] | None:
    """Return how many rules and jobs became complete, and their median and 90th percentile, in seconds."""
    durations = array("q", chain.from_iterable(times))
    if not durations:
        return None
    ordered = sorted(durations)
    median, most = (_quantile(ordered, part) / 1e6 for part in (0.5, 0.9))
    return {"count": len(ordered), "median": round(median), "p90": round(most)}


# --------------------------------------------------------------------------- over time, by name


def _over_time(added: Added, times: Times, of: Days) -> dict[str, Any]:
    """Return the figures of each step and of each day."""
    steps = [
        {
            "start": units.format_time(start),
            "end": units.format_time(end),
            "seconds": round(times.seconds[number]),
            **_of_time(added, range(number, number + 1)),
        }
        for number, (start, end) in enumerate(pairwise([*times.starts, times.end]))
    ]
    days = [
        {**of.day(number), "seconds": round(sum(times.due_seconds[n] for n in span)), **_of_time(added, span)}
        for number, span in times.days.items()
    ]
    return {"steps": steps, "days": days}


def _of_time(added: Added, span: range) -> dict[str, Any]:
    """Return what there was in a span of steps; its ratio is that of what counts."""
    counted = figures(added.total(CycleKind.COUNTED, span=span))
    everything = with_losses(added.total(span=span))
    apart = {kind.name.lower(): added.total(kind, span=span) for kind in (CycleKind.EXCLUDED, CycleKind.OPEN)}
    return {
        **everything,
        **{name: counted[name] for name in ("injected_ratio", "ratio", "grade", "sign")},
        **{name: any(sums) for name, sums in apart.items()},
    }


def _sorted(names: ByName) -> list[tuple[str, Added]]:
    """Return names with their sums, the largest first."""

    def size(item: tuple[str, Added]) -> tuple[int, str]:
        sums = item[1].total()
        return -max(sums.due, sums.moved), item[0]

    return sorted(names.items(), key=size)


def _name(name: str, added: Added, times: Times) -> dict[str, Any]:
    """Return what counts of a scenario, source or destination, in all and by day."""
    days = (figures(added.total(CycleKind.COUNTED, span=span)) for span in times.days.values())
    brief = ("due", "injected", "moved", "moved_estimated", "ratio", "grade", "sign")
    return {
        "name": name,
        **with_losses(added.total(CycleKind.COUNTED)),
        "days": [{key: day[key] for key in brief} for day in days],
    }


def _series(names: ByName) -> list[dict[str, Any]]:
    """Return bytes by step of the largest names, and of the others together."""
    ordered = _sorted(names)
    rest = ordered[LARGEST:] if len(ordered) > LARGEST + 1 else []  # one other has its own name
    shown = ordered[: len(ordered) - len(rest)]
    if rest:
        shown.append((f"{OTHERS} ({len(rest)})", together([added for _, added in rest])))
    return [{"name": name, **{field: added.series(field) for field in SERIES}} for name, added in shown]


# --------------------------------------------------------------------------- holds, failures, marks


def _holds(view: Reader, chosen: Period, times: Times) -> list[dict[str, Any]]:
    """Return for each hold in how many rows it led, what was missing in them, and both by step."""
    entries: dict[str, dict[str, Any]] = {}
    for row in view.holds_over_time(chosen, times.fine, times.phase):
        empty = {"cycles": 0, "missing": 0, "by_step": [0] * len(times.starts)}
        entry = entries.setdefault(
            row.hold.value, {"hold": row.hold.value, "harmless": row.hold.harmless, **empty}
        )
        entry["cycles"] += row.cycles
        entry["missing"] += row.missing
        entry["by_step"][times.number(row.start)] += row.cycles
    return sorted(entries.values(), key=lambda entry: (-entry["missing"], -entry["cycles"], entry["hold"]))


def _failures(view: Reader) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for classes in view.failures().values():
        counts.update(classes)
    return dict(counts.most_common())


def _control(view: Reader, chosen: Period) -> list[dict[str, Any]]:
    """Return which control, or which other policy of a simulation, was in force, for how many links, and when."""
    if policy := get_policy(view):
        counts = view.cycle_counts().values()
        modes = [(policy, sum(count > 0 for count in counts), sum(counts), chosen.since, chosen.until)]
    else:
        modes = [(row.mode.value, *row[1:]) for row in view.control_modes(chosen)]
    return [
        {
            "mode": mode,
            "links": links,
            "cycles": cycles,
            "since": units.format_time(since),
            "until": units.format_time(until),
        }
        for mode, links, cycles, since, until in modes
    ]


def get_policy(view: Reader) -> str | None:
    """Return by which policy a simulation injected, if it was another one than control."""
    return next((str(signal.value) for signal in view.signals(POLICY)), None)


def _marks(view: Reader, since: datetime, until: datetime) -> list[dict[str, Any]]:
    return [
        {**mark, "at": units.format_time(mark["at"]), "until": units.format_time_or_none(mark["until"])}
        for mark in marks.marks(view, since, until)
    ]


# --------------------------------------------------------------------------- verdicts


def _verdict(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all of it comes to: the ratio of what counts, and how many scenarios are of which colour."""
    counted = values["counted"]
    colours = Counter(scenario["grade"] for scenario in values["scenarios"] if scenario["grade"])
    return {
        **{name: counted[name] for name in ("ratio", "injected_ratio", "grade", "sign")},
        "scenarios": {colour: colours[colour] for _, colour, _ in GRADES},
    }


def _quantile(values: Iterable[int], part: float) -> float:
    """Return the value below which a part of them is, between two of them in proportion."""
    ordered = sorted(values)
    below, rest = divmod(part * (len(ordered) - 1), 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + (high - low) * rest
