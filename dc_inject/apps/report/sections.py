"""The sections of a report as people read it: titles, sentences and tables, for text and for pages alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from dc_inject.apps.report import day_tables, losses
from dc_inject.apps.report.tables import (
    NONE,
    Cell,
    Report,
    Section,
    Table,
    day_of,
    number,
    percent,
    rate,
    ratio,
    size,
    time_of,
)
from dc_inject.model import Hold
from dc_inject.model.units import counted, format_duration, format_size
from dc_inject.summary.adding import DIMENSIONS, SITES
from dc_inject.summary.thresholds import in_words

FIXED = {"fixed": "a fixed rate"}  # a policy of simulations
NAMED = 3  # links that the verdict names
WORST = 20  # links in the tables of those that are furthest behind, and slowest


def sections(report: Report, *, whole: bool = False, part: str = "") -> Iterator[Section]:
    """Yield the sections of a report, in their order, without empty ones but a `part` that is asked for.

    `whole` tables have all columns, and none is left out because it shows nothing new.
    """
    yield Section("verdict", "Verdict", tuple(_verdict(report)), _totals(report))
    if report["thresholds"]:
        yield Section("thresholds", "Thresholds", (), _thresholds(report))
    yield Section("over-time", _over_time(report), (), _steps(report) if _is_finer(report) else None)
    yield Section("days", "By day", (), _days(report))
    if report["challenge"] is None:  # else one link, of which each of these tables has the same row
        yield from day_tables.sections(report, sys.maxsize if whole else day_tables.MOST)
    if report["challenge"] is None or whole or part:
        yield from _by_name(report)
    yield from _comparisons(report)
    if report["holds"]:
        why = "Why links got less than they were due, and in how many rows (a link in a cycle)."
        words = (why, "Later cycles may have made up what was missing.")
        yield Section("holds", "Holds", words, _holds(report))
    yield from losses.sections(report)
    if report["failed_files"]:
        yield Section("failures", "Failed files", ("In the whole campaign.",), _failures(report))
    if (behind := _behind(report)).rows or whole or part:
        yield Section("behind", "Links that are furthest behind", (), behind)
    if report["completion"]:
        yield Section("slowest", "Slowest links", tuple(_completion(report)), _slowest(report))
    if report["tape"]:
        why = "Files of the whole campaign; a file waits from its request at the tape system until it is on disk."
        yield Section("tape", "Tape", (why,), _tape(report))
    if report["excluded_windows"]:
        late = "What was due in a window and was made up later counts with the window, too."
        yield Section("excluded", "Left out of averages", (late,), _excluded(report["excluded_windows"], report))
    if report["menu_exclusions"]:
        none = "Nothing is due then: menus exclude it."
        yield Section(
            "menu-exclusions", "Excluded by menus", (none,), _excluded(report["menu_exclusions"], report)
        )
    if report["marks"]:
        yield Section("marks", "What happened", (), _marks(report))
    yield Section("method", "How it is computed", tuple(report["method"]))


def _by_name(report: Report) -> Iterator[Section]:
    for name in (*DIMENSIONS, *SITES):
        if report[f"{name}s"]:
            title = f"By site, as {name.removesuffix('_site')}" if name in SITES else f"By {name}"
            yield Section(f"{name}s", title, (), _names(report, name))


def title(report: Report) -> str:
    """Return the title of a report, which names a simulation as one."""
    kind = "Report" if report["simulated_in"] is None else "Report of a simulation"
    return f"{kind}: {report['campaign']}"


def heading(report: Report) -> str:
    """Return a report's period and the time of its data; before it a simulation's grid, after it the scale."""
    grid = report["simulated_in"]
    simulated = "" if grid is None else f"Simulated in the grid {grid}: no real transfer is in it. "
    running = "; it is running" if report["running"] else ""
    times = (f"{change['scale']:g} since {time_of(change['at'], report)}" for change in report["scales"])
    scaled = (
        f" Rates are those of the menus times {', '.join(times)}, by `run --scale`." if report["scales"] else ""
    )
    when = f"{time_of(report['since'], report)} to {time_of(report['until'], report)} UTC"
    known = f"as the ledger stood at {time_of(report['at'], report)}{running}"
    return f"{simulated}{when}, {known}.{scaled}{_control(report['control'], report)}"


def _control(modes: Sequence[Report], report: Report) -> str:
    """Return which control was in force, with times if that changed; nothing if no cycle was planned."""
    changed = len({(row["since"], row["until"]) for row in modes}) > 1

    def when(row: Report) -> str:
        return f" ({time_of(row['since'], report)} to {time_of(row['until'], report)})" if changed else ""

    parts = [
        f"{FIXED.get(row['mode'], row['mode'])} for {counted(row['links'], 'links')}{when(row)}" for row in modes
    ]
    return f" Control: {', '.join(parts)}." if parts else ""


def _verdict(report: Report) -> Iterator[str]:
    counted_, verdict, challenge = report["counted"], report["verdict"], report["challenge"]
    if challenge:
        link = "".join(f" of {row['source']} -> {row['destination']}" for row in report["links"][:1])
        yield f"Mini-challenge{link}: {challenge['outcome']}: {in_words(challenge)}."
    if verdict["ratio"] is None:
        yield "Nothing that counts in averages was due so far."
    else:
        moved, due = size(counted_["moved"], counted_["moved_estimated"]).text, format_size(counted_["due"])
        colour = "" if challenge else f", {verdict['grade']} ({verdict['sign']})"  # a test has its own outcome
        injected = f"{percent(verdict['injected_ratio'])} were injected"
        yield f"{moved} of {due} due have moved: {percent(verdict['ratio'])}{colour}; {injected}."
    if lost := losses.sentence(report):
        yield lost
    colours = ", ".join(f"{number} {colour}" for colour, number in verdict["scenarios"].items() if number)
    if colours and not challenge:
        yield f"Scenarios: {colours}."
    if behind := [_shortfall(row) for row in _worst(report) if row["grade"] != "green"]:
        yield f"Furthest behind: {'; '.join(behind[:NAMED])}."


def _shortfall(link: Report) -> str:
    """Return what a link moved of its due, and in words the hold that led most often, with its cycles."""
    held = [(name, counted(count, "cycles")) for name, count in link["held"].items() if not Hold(name).harmless]
    why = "".join(f" (held for {time} by {one}: {link['why']})" for one, time in held[:1])
    lack = format_size(link["due"] - link["moved"])
    return f"{link['source']} -> {link['destination']} moved {percent(link['ratio'])}, {lack} less than due{why}"


def _totals(report: Report) -> Table:
    names = {"counted": "counted", "excluded": "excluded", "open": "in open cycles", "totals": "in all"}
    rows = [
        (Cell(words), *_amounts(report[key], averaged=key == "counted"), number(report[key]["rules"]))
        for key, words in names.items()
        if key == "counted" or (report["counted"] != report["totals"] and _is_filled(report[key]))
    ]
    return Table(("", *_AMOUNTS, "rules/jobs"), 1, tuple(rows))


def _is_filled(row: Report) -> bool:
    return any(row[name] for name in ("due", "injected", "moved"))


def _thresholds(report: Report) -> Table:
    rows = ((Cell(row["threshold"]), Cell(row["outcome"]), Cell(row["reason"])) for row in report["thresholds"])
    return Table(("threshold", "outcome", "found"), 3, tuple(rows))


_AMOUNTS = ("moved / due", "due", "injected", "moved")


def _amounts(row: Report, *, averaged: bool = True) -> tuple[Cell, ...]:
    return (
        ratio(row["ratio"], row["grade"], row["sign"]) if averaged else Cell(NONE),
        size(row["due"]),
        size(row["injected"]),
        size(row["moved"], row["moved_estimated"]),
    )


def _over_time(report: Report) -> str:
    return f"By {'hour' if report['step_seconds'] == 3600 else 'cycle'}" if _is_finer(report) else "Over time"


def _is_finer(report: Report) -> bool:
    """Whether steps are shorter than a day; else the table of days has the same."""
    return bool(report["step_seconds"] < 86400)


def _apart(row: Report) -> Cell:
    """Return why a time is left out of ratios, or that a part of it is, if it has a ratio nevertheless."""
    why = ", ".join(name for name in ("excluded", "open") if row[name])
    return Cell(f"in part: {why}" if why and row["ratio"] is not None else why)


def _of_time(report: Report, key: str, show: Callable[[Report], tuple[str, ...]], *heads: str) -> Table:
    is_part = any(_apart(row).text for row in report[key])
    rows = tuple(
        (
            *map(Cell, show(row)),
            *([_apart(row)] if is_part else []),
            *_amounts(row),
            *(rate(row[name], row["seconds"]) for name in ("due", "injected", "moved")),
        )
        for row in report[key]
    )
    amounts = (*_AMOUNTS, "target", "injected rate", "moved rate")
    texts = (*heads, *(["left out"] if is_part else []))
    return Table((*texts, *amounts), len(texts), rows)


def _steps(report: Report) -> Table:
    return _of_time(report, "steps", lambda row: (time_of(row["start"], report),), "from (UTC)")


def _days(report: Report) -> Table:
    return _of_time(report, "days", lambda row: (day_of(row), ", ".join(row["menus"])), "day", "menus")


def _names(report: Report, dimension: str) -> Table:
    rows = tuple(
        (Cell(row["name"] + (" (second hop)" if row.get("second_hops") else "")), *_amounts(row))
        for row in report[f"{dimension}s"]
    )
    return Table((dimension.replace("_", " "), *_AMOUNTS), 1, rows)


def _holds(report: Report) -> Table:
    rows = tuple(
        (
            Cell(row["hold"]),
            Cell("harmless" if row["harmless"] else ""),
            number(row["cycles"]),
            size(row["missing"]),
        )
        for row in report["holds"]
    )
    return Table(("hold", "", "rows", "missing"), 2, rows)


def _failures(report: Report) -> Table:
    rows = tuple((Cell(name), number(files)) for name, files in report["failed_files"].items())
    return Table(("class", "files"), 1, rows)


def _link(row: Report) -> tuple[Cell, ...]:
    hop = " (second hop)" if row["second_hop"] else ""
    return Cell(row["scenario"] + hop), Cell(row["source"]), Cell(row["destination"])


def _worst(report: Report) -> list[Report]:
    """Return the links that moved less than their due, those first that lack most bytes."""
    links = (row for row in report["links"] if row["due"] > row["moved"])
    return sorted(links, key=lambda row: row["moved"] - row["due"])


def _behind(report: Report) -> Table:
    rows = tuple(
        (
            *_link(row),
            Cell(", ".join(f"{count} {hold}" for hold, count in list(row["held"].items())[:3])),
            *_amounts(row),
            size(row["due"] - row["moved"]),
        )
        for row in _worst(report)[:WORST]
    )
    return Table(("scenario", "source", "destination", "held (cycles)", *_AMOUNTS, "behind"), 4, rows)


def _seconds(seconds: int) -> str:
    return format_duration(timedelta(seconds=seconds))


def _duration(seconds: int) -> Cell:
    return Cell(_seconds(seconds), value=seconds)


def _completion(report: Report) -> Iterator[str]:
    row = report["completion"]
    times = f"median {_seconds(row['median'])}, 90th percentile {_seconds(row['p90'])}"
    yield f"Time from acceptance to completion of {counted(row['count'], 'rules and jobs')}: {times}."


def _slowest(report: Report) -> Table:
    done = [row for row in report["links"] if row["completion"]]
    worst = sorted(done, key=lambda row: -row["completion"]["median"])[:WORST]
    rows = tuple(
        (
            *_link(row),
            _duration(row["completion"]["median"]),
            _duration(row["completion"]["p90"]),
            number(row["completion"]["count"]),
        )
        for row in worst
    )
    return Table(("scenario", "source", "destination", "median", "90th percentile", "rules/jobs"), 3, rows)


def _tape(report: Report) -> Table:
    def wait(seconds: int | None) -> Cell:
        return Cell(NONE) if seconds is None else _duration(seconds)

    rows = tuple(
        (
            *(Cell(row[name]) for name in ("scenario", "source", "destination")),
            *(number(row[name]) for name in ("staging", "staged")),
            *(wait(row[name]) for name in ("wait_median", "wait_longest")),
            size(row["moved"]),
            *(number(row[name]) for name in ("archiving", "archived")),
        )
        for row in report["tape"]
    )
    heads = ("staging", "staged", "median wait", "longest wait", "moved", "archiving", "archived")
    return Table(("scenario", "source", "destination", *heads), 3, rows)


def _excluded(windows: Sequence[Report], report: Report) -> Table:
    rows = (
        (
            *(Cell(time_of(row[end], report)) for end in ("since", "until")),
            Cell(row["of"] or "everything"),
            Cell(row["why"]),
            *([number(row["cycles"])] if "cycles" in row else []),
        )
        for row in windows
    )
    heads = ("from (UTC)", "to", "of", "why", "cycles")
    return Table(heads[: 5 if "cycles" in windows[0] else 4], 4, tuple(rows))


def _marks(report: Report) -> Table:
    rows = tuple(
        (
            Cell(str(number)),
            Cell(" to ".join(time_of(at, report) for at in (row["at"], row["until"]) if at)),
            Cell(row["kind"]),
            Cell(row["what"]),
            Cell(row["why"]),
            Cell(row["who"]),
        )
        for number, row in enumerate(report["marks"], start=1)
    )
    return Table(("number", "time (UTC)", "kind", "what", "why", "by"), 6, rows)


# --------------------------------------------------------------------------- another campaign, WANs, repeats


def _comparisons(report: Report) -> Iterator[Section]:
    if report["overlay"]:
        yield Section("wan", "A site's WAN", tuple(_readings(report)), _wan(report))
    if report["compared"]:
        yield from _compared(report)
    if report["repeats"]:
        words = "What moved each time that a scenario had the same rate: the mean, and its interval of 95 %."
        yield Section("repeats", "Repeats of a step", (words,), _repeats(report))


def _readings(report: Report) -> Iterator[str]:
    overlay = report["overlay"]
    dropped = ", ".join(f"{count} {why}" for why, count in overlay["dropped"].items())
    yield f"{counted(overlay['readings'], 'readings')} of {overlay['name']}" + (
        f"; dropped: {dropped}." if dropped else "."
    )
    yield "They are of all traffic of the site; what moved is of all links of the campaign."


def _wan(report: Report) -> Table:
    overlay = report["overlay"]

    def shown(value: float | None) -> Cell:
        return Cell(NONE) if value is None else rate(value, 1)

    rows = tuple(
        (Cell(time_of(row["start"], report)), shown(into), shown(out), rate(row["moved"], row["seconds"]))
        for row, into, out in zip(report["steps"], overlay["in"], overlay["out"], strict=True)
    )
    return Table(("from (UTC)", "WAN in", "WAN out", "moved rate"), 1, rows)


def _compared(report: Report) -> Iterator[Section]:
    other = report["compared"]
    when = f"{time_of(other['since'], report)} to {time_of(other['until'], report)} UTC"
    grid, name = other["simulated_in"], other["campaign"]
    simulated = "" if grid is None else f" was simulated in the grid {grid}: no real transfer is in it. It"
    words = f"{name}, {when},{simulated} stands to the right.{_control(other['control'], report)} "
    words += "The difference is that of the ratios, in points of a percent."
    pairs = [{**other["counted"], "name": "in all"}, *other["scenarios"]]
    title = f"Compared with {name}" if grid is None else f"Compared with a simulation of {name}"
    yield Section("compared", title, (words,), _pairs("scenario", pairs))
    for name in ("source", "destination"):
        yield Section(f"compared-{name}s", f"Compared by {name}", (), _pairs(name, other[f"{name}s"]))


def _pairs(noun: str, pairs: Sequence[Report]) -> Table:
    is_lost = any(row[side] and row[side]["not_moved"] for row in pairs for side in ("this", "other"))
    heads = ("due", "moved", "moved / due", *(["not moved"] if is_lost else []))

    def both(row: Report | None) -> tuple[Cell, ...]:
        if row is None:
            return (Cell(NONE),) * len(heads)
        cells = size(row["due"]), size(row["moved"]), ratio(row["ratio"], row["grade"], row["sign"])
        return (*cells, size(row["not_moved"]))[: len(heads)]

    def points(value: float | None) -> Cell:
        if value is None:
            return Cell(NONE)
        return Cell(f"{round(100 * value, 1) + 0.0:+.1f}", value=value)  # + 0.0: no -0.0

    rows = (
        (Cell(row["name"]), *both(row["this"]), *both(row["other"]), points(row["difference"])) for row in pairs
    )
    return Table((noun, *heads, *(f"other: {head}" for head in heads), "difference"), 1, tuple(rows))


def _repeats(report: Report) -> Table:
    rows = (
        (
            Cell(row["scenario"]),
            *(rate(value, 1) for value in (row["rate"], row["mean"], *row["interval"])),
            Cell(str(row["repeats"])),
        )
        for row in sorted(report["repeats"], key=lambda row: -row["repeats"])[:WORST]
    )
    return Table(("scenario", "target", "mean of moved", "from", "to (95 %)", "repeats"), 1, tuple(rows))
