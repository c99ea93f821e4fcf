"""The sections of a report as people read it: titles, sentences and tables, for text and for pages alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from dc_inject.model.units import counted, format_duration, format_rate, format_size
from dc_inject.report.figures import SITES

Told = Mapping[str, Any]
WORST = 20  # links in the tables of those that are furthest behind, and slowest
NONE = "-"


class Cell(NamedTuple):
    """What stands in a table; `grade` is the colour of a ratio, whose sign is in the text.

    `value` is the number by which a page sorts what is written with a unit.
    """

    text: str
    grade: str | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its heads, of which the first `texts` are of texts and the others of numbers, and its rows."""

    heads: tuple[str, ...]
    texts: int
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: its name in links, its title, what it says, and its table."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    table: Table | None = None


def sections(told: Told) -> Iterator[Section]:
    """Yield the sections of a report, in their order; those without content are left out."""
    yield Section("verdict", "Verdict", tuple(_verdict(told)), _totals(told))
    if told["thresholds"]:
        yield Section("thresholds", "Thresholds", (), _thresholds(told))
    yield Section("over-time", _over_time(told), (), _steps(told))
    yield Section("days", "By day", (), _days(told))
    for name in ("scenario", "source", "destination"):
        yield Section(f"{name}s", f"By {name}", ("Moved / due, in all and by day.",), _names(told, name))
    for name in SITES:
        if told[f"{name}s"]:
            title = f"By site, as {name.removesuffix('_site')}"
            yield Section(f"{name}s", title, ("Moved / due, in all and by day.",), _names(told, name))
    yield from _beside(told)
    if told["holds"]:
        why = "Why links got less than they were due, and in how many rows (a link in a cycle)."
        words = (why, "Later cycles may have made up what was missing.")
        yield Section("holds", "Holds", words, _holds(told))
    if told["failed_files"]:
        yield Section("failures", "Failed files", ("In the whole campaign.",), _failures(told))
    yield Section("behind", "Links that are furthest behind", (), _behind(told))
    if told["completion"]:
        yield Section("slowest", "Slowest links", tuple(_completion(told)), _slowest(told))
    if told["excluded_windows"]:
        yield Section("excluded", "Left out of averages", (), _excluded(told))
    if told["marks"]:
        yield Section("marks", "What happened", (), _marks(told))
    yield Section("method", "How it is computed", tuple(told["method"]))


def size(value: int, estimated: int = 0) -> Cell:
    """Return a size, with ~ where a part of it is an estimate."""
    return Cell(("~" if estimated > 0 else "") + format_size(value), value=value)


def ratio(value: float | None, colour: str | None, sign: str) -> Cell:
    """Return a ratio in percent, with the sign of its colour beside."""
    return Cell(NONE) if value is None else Cell(f"{100 * value:.1f} % {sign}", colour, value)


def heading(told: Told) -> str:
    """Return in a sentence of which time a report is, and from when."""
    running = "; it is running" if told["running"] else ""
    when = f"{_time(told['since'])} to {_time(told['until'])} UTC"
    return f"{when}, as the ledger stood at {_time(told['at'])}{running}."


def _time(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _verdict(told: Told) -> Iterator[str]:
    counted_, verdict = told["counted"], told["verdict"]
    if verdict["ratio"] is None:
        yield "Nothing that counts in averages was due so far."
    else:
        moved, due = size(counted_["moved"], counted_["moved_estimated"]).text, format_size(counted_["due"])
        colour = f"{verdict['grade']} ({verdict['sign']})"
        injected = f"injected were {_percent(verdict['injected_ratio'])}"
        yield f"{moved} of {due} due have moved: {_percent(verdict['ratio'])}, {colour}; {injected}."
    colours = ", ".join(f"{number} {colour}" for colour, number in verdict["scenarios"].items() if number)
    if colours:
        yield f"Scenarios: {colours}."
    if verdict["leading_hold"]:
        yield f"Most of what was not injected was held by {verdict['leading_hold']}."
    if challenge := told["challenge"]:
        rate = "" if challenge["stands"] is None else f" It takes {format_rate(challenge['stands'])}."
        yield f"Mini-challenge: {challenge['outcome']}: {challenge['reason']}.{rate}"


def _totals(told: Told) -> Table:
    names = {"counted": "counted", "excluded": "excluded", "open": "in open cycles", "totals": "in all"}
    rows = [
        (Cell(words), *_amounts(told[key]), Cell(str(told[key]["rules"])))
        for key, words in names.items()
        if key in {"counted", "totals"} or any(told[key][name] for name in ("due", "injected", "moved"))
    ]
    return Table(("", *_AMOUNTS, "rules, jobs"), 1, tuple(rows))


def _thresholds(told: Told) -> Table:
    rows = ((Cell(one["threshold"]), Cell(one["outcome"]), Cell(one["reason"])) for one in told["thresholds"])
    return Table(("threshold", "outcome", ""), 3, tuple(rows))


_AMOUNTS = ("due", "injected", "moved", "moved / due")


def _amounts(one: Told) -> tuple[Cell, ...]:
    return (
        size(one["due"]),
        size(one["injected"]),
        size(one["moved"], one["moved_estimated"]),
        ratio(one["ratio"], one["grade"], one["sign"]),
    )


def rate(value: float, seconds: float) -> Cell:
    """Return the mean rate of bytes over a time, or that there was no time."""
    return Cell(format_rate(value / seconds), value=value / seconds) if seconds else Cell(NONE)


def _over_time(told: Told) -> str:
    return f"By {'hour' if told['step_seconds'] == 3600 else 'cycle'}"


def _apart(one: Told) -> Cell:
    return Cell(", ".join(name for name in ("excluded", "open") if one[name]))


def _of_time(told: Told, key: str, show: Callable[[Told], str]) -> Table:
    rows = tuple(
        (
            Cell(show(one)),
            _apart(one),
            *_amounts(one),
            *(rate(one[name], one["seconds"]) for name in ("due", "injected", "moved")),
        )
        for one in told[key]
    )
    heads = (*_AMOUNTS, "target", "injected rate", "moved rate")
    return Table(("from (UTC)", "left out", *heads), 2, rows)


def _steps(told: Told) -> Table:
    return _of_time(told, "steps", lambda one: _time(one["start"]))


def _days(told: Told) -> Table:
    return _of_time(told, "days", lambda one: str(one["day"]))


def _names(told: Told, dimension: str) -> Table:
    days = [day["day"][5:] for day in told["days"]]
    rows = tuple(
        (
            Cell(one["name"] + (" (second hop)" if one.get("second_hops") else "")),
            *_amounts(one),
            *(ratio(day["ratio"], day["grade"], day["sign"]) for day in one["days"]),
        )
        for one in told[f"{dimension}s"]
    )
    return Table((dimension.replace("_", " "), *_AMOUNTS, *days), 1, rows)


def _holds(told: Told) -> Table:
    rows = tuple(
        (
            Cell(one["hold"]),
            Cell("harmless" if one["harmless"] else ""),
            Cell(str(one["cycles"])),
            size(one["missing"]),
        )
        for one in told["holds"]
    )
    return Table(("hold", "", "rows", "missing"), 2, rows)


def _failures(told: Told) -> Table:
    rows = tuple((Cell(name), Cell(str(files))) for name, files in told["failed_files"].items())
    return Table(("class", "files"), 1, rows)


def _link(one: Told) -> tuple[Cell, ...]:
    hop = " (second hop)" if one["second_hop"] else ""
    return Cell(one["scenario"] + hop), Cell(one["source"]), Cell(one["destination"])


def _behind(told: Told) -> Table:
    links: Sequence[Told] = [one for one in told["links"] if one["due"] > one["moved"]]
    worst = sorted(links, key=lambda one: one["moved"] - one["due"])[:WORST]
    rows = tuple(
        (
            *_link(one),
            Cell(", ".join(f"{count} {hold}" for hold, count in list(one["held"].items())[:3])),
            *_amounts(one),
            size(one["due"] - one["moved"]),
        )
        for one in worst
    )
    return Table(("scenario", "source", "destination", "held (cycles)", *_AMOUNTS, "behind"), 4, rows)


def _seconds(seconds: int) -> str:
    return format_duration(timedelta(seconds=seconds))


def _duration(seconds: int) -> Cell:
    return Cell(_seconds(seconds), value=seconds)


def _completion(told: Told) -> Iterator[str]:
    one = told["completion"]
    times = f"median {_seconds(one['median'])}, 90th percentile {_seconds(one['p90'])}"
    yield f"Time from acceptance to completion of {counted(one['count'], 'rules and jobs')}: {times}."


def _slowest(told: Told) -> Table:
    done = [one for one in told["links"] if one["completion"]]
    worst = sorted(done, key=lambda one: -one["completion"]["median"])[:WORST]
    rows = tuple(
        (
            *_link(one),
            _duration(one["completion"]["median"]),
            _duration(one["completion"]["p90"]),
            Cell(str(one["completion"]["count"])),
        )
        for one in worst
    )
    return Table(("scenario", "source", "destination", "median", "90th percentile", "rules, jobs"), 3, rows)


def _excluded(told: Told) -> Table:
    windows = told["excluded_windows"]
    rows = ((Cell(_time(one["since"])), Cell(_time(one["until"])), Cell(one["why"])) for one in windows)
    return Table(("from (UTC)", "to", "why"), 3, tuple(rows))


def _marks(told: Told) -> Table:
    rows = tuple(
        (
            Cell(str(number)),
            Cell(_time(one["at"]) + (f" to {_time(one['until'])}" if one["until"] else "")),
            Cell(one["kind"]),
            Cell(one["what"]),
            Cell(one["why"]),
            Cell(one["who"]),
        )
        for number, one in enumerate(told["marks"], start=1)
    )
    return Table(("number", "time (UTC)", "kind", "what", "why", "by"), 6, rows)


# --------------------------------------------------------------------------- another campaign, WANs, repeats


def _beside(told: Told) -> Iterator[Section]:
    if told["overlay"]:
        yield Section("wan", "A site's WAN", tuple(_readings(told)), _wan(told))
    if told["compared"]:
        yield from _compared(told)
    if told["repeats"]:
        words = "What moved each time that a scenario had the same rate: the mean, and its interval of 95 %."
        yield Section("repeats", "Repeats of a step", (words,), _repeats(told))


def _readings(told: Told) -> Iterator[str]:
    overlay = told["overlay"]
    dropped = ", ".join(f"{count} {why}" for why, count in overlay["dropped"].items())
    yield f"{counted(overlay['readings'], 'readings')} of {overlay['name']}" + (
        f"; dropped: {dropped}." if dropped else "."
    )
    yield "They are of all traffic of the site; what moved is of all links of the campaign."


def _wan(told: Told) -> Table:
    overlay = told["overlay"]

    def shown(value: float | None) -> Cell:
        return Cell(NONE) if value is None else rate(value, 1)

    rows = tuple(
        (Cell(_time(one["start"])), shown(into), shown(out), rate(one["moved"], one["seconds"]))
        for one, into, out in zip(told["steps"], overlay["in"], overlay["out"], strict=True)
    )
    return Table(("from (UTC)", "WAN in", "WAN out", "moved rate"), 1, rows)


def _compared(told: Told) -> Iterator[Section]:
    other = told["compared"]
    words = f"{other['campaign']}, {_time(other['since'])} to {_time(other['until'])} UTC, stands to the right. "
    words += "The difference is that of the ratios, in points of a percent."
    pairs = [{**other["counted"], "name": "in all"}, *other["scenarios"]]
    yield Section("compared", f"Compared with {other['campaign']}", (words,), _pairs("scenario", pairs))
    for name in ("source", "destination"):
        yield Section(f"compared-{name}s", f"Compared by {name}", (), _pairs(name, other[f"{name}s"]))


def _pairs(noun: str, pairs: Sequence[Told]) -> Table:
    def both(one: Told | None) -> tuple[Cell, ...]:
        if one is None:
            return (Cell(NONE),) * 3
        return size(one["due"]), size(one["moved"]), ratio(one["ratio"], one["grade"], one["sign"])

    def points(value: float | None) -> Cell:
        return Cell(NONE) if value is None else Cell(f"{100 * value:+.1f}", value=value)

    rows = (
        (Cell(one["name"]), *both(one["this"]), *both(one["other"]), points(one["difference"])) for one in pairs
    )
    heads = ("due", "moved", "moved / due")
    return Table((noun, *heads, *(f"other: {head}" for head in heads), "difference"), 1, tuple(rows))


def _repeats(told: Told) -> Table:
    rows = (
        (
            Cell(one["scenario"]),
            *(rate(value, 1) for value in (one["rate"], one["mean"], *one["interval"])),
            Cell(str(one["repeats"])),
        )
        for one in told["repeats"]
    )
    return Table(("scenario", "target", "mean of moved", "from", "to (95 %)", "repeats"), 1, tuple(rows))
