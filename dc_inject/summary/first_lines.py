"""The lines with which `watch`, `run`, `status` and the live page begin: five, and what to run for more.

1. what moves now, in the last closed cycle, and what was due, with what moved in each cycle before
2. the same since the menus last changed: a day began or ended, or a menu was edited
3. which links are short, what they have in common, and whom to call (`short_links.py`)
4. what changed or broke, first what still lasts, then the newest
5. what the campaign waits for

A line that begins with `!` needs action; each group of short links has its key for `dc-inject explain`. Views may
cut lines at their ends, colour them, and draw the trend with other characters; they change nothing else.
"""

from __future__ import annotations

import textwrap
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from dc_inject.ledger import Reader, ledger_files
from dc_inject.model import EPOCH, Cycle, Hold, State, overrides, units
from dc_inject.model.redaction import visible
from dc_inject.model.services import SERVICES, injections
from dc_inject.summary import marks, short_links, why
from dc_inject.summary.criteria import CURRENT, ENOUGH
from dc_inject.summary.days import list_days
from dc_inject.summary.short_links import ShortGroup, grouped, is_current, show_time

HEIGHTS = " ▁▂▃▄▅▆▇"
STEPS = 12  # cycles of a trend, at most
EVENTS = 5  # of the fourth line, at most
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
UNDER_WAY = (State.CALLED, State.LIVE)


def one_line(text: str) -> str:
    """Return a text that is one line of a terminal and moves no cursor, whoever wrote it."""
    return " ".join(visible(text).split())


def trend(steps: Sequence[tuple[int, int]], most: int = STEPS) -> str:
    """Return what moved in each of the last steps (moved, due), as heights of at most the largest of them."""
    highest, levels = max((max(step) for step in steps), default=0), len(HEIGHTS) - 1
    if highest <= 0:
        return ""
    return "".join(HEIGHTS[min(max(-(-moved * levels // highest), 0), levels)] for moved, _ in steps[-most:])


def changed_at(view: Reader, now: datetime) -> datetime | None:
    """Return the beginning of the cycle in which the menus last changed; None before the first cycle.

    The end of all of them is no change: what was last in force is shown then.
    """
    first, last = view.first_cycle(), view.last_cycle()
    if first is None or last is None:
        return None
    ends = 2 if in_force(view, now, now) else 1
    moments = (moment for _, *span in list_days(view).menus for moment in span[:ends])
    latest = max((at for at in moments if at <= now), default=first.start)
    return max(EPOCH + (latest - EPOCH) // last.length * last.length, first.start)


def in_force(view: Reader, since: datetime, now: datetime) -> bool:
    """Whether a menu is in force now, and was already."""
    return any(begin <= since and now < end for _, begin, end in list_days(view).menus)


def lines(view: Reader, status: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the five lines, with the groups of short links and the events behind them, as `status` has them."""
    is_known, links = is_current(view, now), short_links.judge_links(view, now)
    groups, happened = grouped(links), events(view, now)
    in_all = _count_short(view) if list_days(view).ended_at(now) else None
    made = [
        *_rates(view, status, now, is_known=is_known),
        _short(groups, links) if in_all is None else _short_in_all(*in_all),
        "; ".join(["events", *happened[:EVENTS]]).replace(";", ":", 1) if happened else "events: none so far",
        _waits(view, status, now),
    ]
    asks = groups or halted(view, status, now) or (in_all and in_all[0])
    return {
        "first_lines": [one_line(line) for line in made],
        "short": [group.row for group in groups],
        "events": happened,
        "more": f"dc-inject explain {ledger_files.argument_for(view)}" if asks else "",
    }


def halted(view: Reader, status: Mapping[str, Any], now: datetime) -> Hold | None:
    """Return why nothing is injected although a menu is in force: no injector runs, or the campaign is stopped."""
    if not in_force(view, now, now):
        return None
    if status["injector"] is None and status["simulated_in"] is None:
        return Hold.NOT_RUNNING
    return Hold.PAUSED if any(pause["subject"] == overrides.EVERYTHING for pause in status["pauses"]) else None


def block(status: Mapping[str, Any], width: int = 0, rows: int = 0) -> list[str]:
    """Return all of them, with the other groups of short links: the third line has the first one.

    With `rows`, as many groups as find room in so many rows of a terminal of this width.
    """
    others = [one_line(f"{'! ' * group['needs_action']}{group['line']}") for group in status["short"][1:]]
    more = [f"more: {status['more']}"] if status["more"] else []
    lines = [*status["first_lines"], *more]
    if rows:
        heights = accumulate(len(textwrap.wrap(line, width)) for line in (*lines, *others[:rows]))
        del others[max(bisect(list(heights), rows) - len(lines), 0) :]
    return [*status["first_lines"], *others, *more]


def _rates(view: Reader, status: Mapping[str, Any], now: datetime, *, is_known: bool) -> Iterator[str]:
    name, change, last = f"{status['campaign']} {now:%H:%M:%S}Z:", changed_at(view, now), view.last_closed()
    if change is None or last is None:
        yield f"{name} no cycle is closed so far"
        yield "since the menus began: nothing is known yet"
        return
    every, ended = view.sums_of_cycles(min(change, last.start), closed=True), list_days(view).ended_at(now)
    rows = [row for row in every if not ended or row[0] < ended]  # what arrives later is no rate
    if not rows or not (ended or rows[-1][0] == last.start):
        rows.append((last.start, 0, 0))  # nothing was due or moved in it
    start, due, moved = rows[-1]
    end, steps = start + last.length, [(moved, due) for _, due, moved in rows]
    form = "%m-%d %H:%M" if last.length >= DAY else "%H:%M:%S" if last.length < MINUTE else "%H:%M"
    latest = f"{_of(moved, due, last.length)} {trend(steps)} in {start:{form}}-{end:{form}}Z"
    ago = f"over since {ended:%m-%d %H:%MZ}; before: " if ended else ""
    if not (ended or is_known):
        name = "! " * in_force(view, now - CURRENT * last.length, now) + name
        ago = f"no cycle is closed since {last.end:%m-%d %H:%MZ}; before: "
    yield f"{name} {ago}{latest}"
    sums = [(moved, due) for at, due, moved in every if at >= change]
    moved, due = (sum(one[column] for one in sums) for column in (0, 1))
    cycles, day = sum(row[0] >= change for row in rows), list_days(view).of(Cycle(start, last.length))
    rates = _of(moved, due, cycles * last.length) if cycles else "no cycle is closed so far"
    sizes = " of ".join(map(units.format_size, (moved, due)))
    yield f"day {day}, since {change:%m-%d %H:%MZ}: {rates}, {sizes}"


def _of(moved: int, due: int, time: timedelta) -> str:
    """Return what moved and what was due as rates: `312 of 400 Gb/s due (78.0 %)`."""
    rates = [8 * size / time.total_seconds() for size in (moved, due)]
    unit, size = ("Mb/s", 1e6) if 0 < max(rates) < 1e8 else ("Gb/s", 1e9)
    texts = (f"{one:,.{0 if one >= 100 else 1 if one >= 10 else 2}f}" for one in (rate / size for rate in rates))
    return f"{' of '.join(texts)} {unit} due" + (f" ({units.percent(moved / due)})" if due else "")


def _count_short(view: Reader) -> tuple[int, int]:
    """Return how many links were short over the whole campaign, and of how many that were due anything."""
    return len(why.short_in_all(view)), sum(totals.due > 0 for totals in view.accounts().values())


def _short_in_all(short: int, every: int) -> str:
    number = f"{short:,}" if short else "none"
    words = f"{number} of {units.counted(every, 'links')} moved under {100 * ENOUGH:.0f} % of their due in all"
    return f"short: nothing is due any more; {words}"


def _short(groups: Sequence[ShortGroup], links: Sequence[short_links.JudgedLink]) -> str:
    if groups:
        short, others = sum(bool(link.cause) for link in links), units.counted(len(groups), "groups")
        count = f"{short:,} of {len(links):,} links{f', {others}' * (len(groups) > 1)}"
        return f"{'! ' * groups[0].needs_action}short: {count}; {groups[0].line}"
    if links:
        slow = sum(link.latest < ENOUGH for link in links)
        again = f"; {slow:,} moved too little in the last cycle: wait for the next one" if slow else ""
        return f"short: none of {units.counted(len(links), 'links')}{again}"
    return "short: unknown, it takes two closed cycles to judge a link"


def events(view: Reader, now: datetime) -> list[str]:
    """Return what changed or broke: first what lasts, then the newest."""
    known = marks.marks(view, EPOCH, now + timedelta.resolution)
    menus = list_days(view).menus
    begun, ended = {(name, begin) for name, begin, _ in menus}, {(name, end) for name, _, end in menus}
    for name, at in begun | ended:  # the version of a menu that ends as another one begins was edited
        if at <= now:
            what = ("changes" if (name, at) in ended else "begins") if (name, at) in begun else "ends"
            mark = {"at": at, "until": None, "kind": "menu", "who": "", "what": f"menu `{name}` {what}", "why": ""}
            known.append(mark)

    def rank(mark: Mapping[str, Any]) -> tuple[bool, datetime]:
        return mark["kind"] in marks.LASTING and mark["until"] is None, mark["at"]

    return [_event(mark, now) for mark in sorted(known, key=rank, reverse=True)[: 4 * EVENTS]]


def _event(mark: Mapping[str, Any], now: datetime) -> str:
    by = f" by {mark['who']}" if mark["kind"] in {"pause", "change", "note"} else ""
    until = f", until {show_time(mark['until'], now)}" if mark["until"] else ""
    return one_line(
        f"{show_time(mark['at'], now)} {mark['what']}{until}{by}" + (f" ({mark['why']})" if mark["why"] else "")
    )


def _waits(view: Reader, status: Mapping[str, Any], now: datetime) -> str:
    """Return what the campaign waits for."""
    windows = [window[1:] for window in list_days(view).menus]
    under_way = sum(status["rules"][state.value] for state in UNDER_WAY)
    services = [identity.service for identity in view.identities()]
    noun = injections(services)
    rules = f"{units.counted(under_way, noun)} under way" if under_way else "nothing is under way"
    reads = any(SERVICES[service].reads for service in services)
    if under_way and reads and status["injector"] is None:  # most readers end with their injector
        seen = max(e.observed_at or e.injection.release for e in view.entries(*UNDER_WAY))
        rules = f"{units.counted(under_way, noun)} when last seen at {show_time(seen, now)}"
    halt = halted(view, status, now)
    if halt is Hold.NOT_RUNNING:
        return f"! waits for an injector: none is running; {rules}"
    if halt is not None:
        stop = next(pause for pause in status["pauses"] if pause["subject"] == overrides.EVERYTHING)
        by, why = stop["who"], f" ({stop['why']})" if stop["why"] else ""
        return f"! waits for `dc-inject resume {ledger_files.argument_for(view)}`: stopped by {by}{why}; {rules}"
    if in_force(view, now, now):
        cycle = view.last_cycle()
        ends = f"the end of its cycle at {cycle.end:%H:%MZ}" if cycle and cycle.end > now else "its next cycle"
        ends = next((f"its cycle's plan: {t['why']}" for t in status["troubles"] if t["what"] == "plan"), ends)
        return f"waits for {ends}; {rules}; the menus end at {max(end for _, end in windows):%m-%d %H:%MZ}"
    if later := [start for start, _ in windows if start > now]:
        return f"waits for the next menu at {min(later):%m-%d %H:%MZ}; {rules}"
    by = (
        ""
        if status["injector"] or status["simulated_in"]
        else f": run `dc-inject end {ledger_files.argument_for(view)}`"
    )
    if under_way:
        until = max((e.expires_at for e in view.entries(*UNDER_WAY) if e.expires_at), default=None)
        last = "" if until is None else f", the last of them until {show_time(until, now)}"
        return f"waits for what is left: {'the menus are over, ' if windows else ''}{rules}{last}{by}"
    ended = status["rules"][State.ENDED.value]
    return f"waits for deletions of {units.counted(ended, noun)}{by}" if ended else "waits for nothing: it is over"
