"""A campaign in a few lines: what `watch` shows above its table, and `run` and `link` below their log.

Colours only repeat what words and signs say: `!` before what is wrong, and behind ratios `++`, `+`, `-` and `--`,
as in reports. Where a terminal has no more than ASCII, bars and trends are drawn with that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.text import Text

from dc_inject.apps.report.watch_figures import Line, Standing, current_window, one_line
from dc_inject.cli.shared import summary_output
from dc_inject.model import overrides, units
from dc_inject.summary.standing import TROUBLES

STYLES = {"green": "green", "yellow": "gold3", "orange": "dark_orange3", "red": "bold red", None: ""}
HEIGHTS, ASCII_HEIGHTS = " ▁▂▃▄▅▆▇", " .:-=+*#"
LABEL = 13  # characters before the figures of a line
BAR = 30  # characters of a bar, at most
MOST = 3  # lines about the same kind of thing; `status` has all of them
WARNING = "bold red"


def heading(standing: Standing, now: datetime, width: int, *, ascii_only: bool = False) -> list[Text]:
    """Return what is to be known of a campaign first, in lines of a width: progress, sums, what is wrong."""
    lines = [
        _name(standing, now),
        *_progress(standing, now, width, ascii_only=ascii_only),
        *_sums(standing),
        _links(standing),
        *_warnings(standing),
    ]
    for line in lines:
        line.truncate(width, overflow="ellipsis" if not ascii_only else "crop")
    return lines


def _name(standing: Standing, now: datetime) -> Text:
    line = Text(f"{one_line(standing.campaign)}  ", "bold")
    line.append(f"{now:%Y-%m-%d %H:%M:%S}Z  ", "not bold")
    injector = standing.status["injector"]
    if injector is None:
        wanted = standing.is_in_force(now)
        return line.append(
            "! no injector is running" if wanted else "no injector is running", WARNING if wanted else "not bold"
        )
    return line.append(f"injector: {one_line(injector['who'])}", "not bold")


def _progress(standing: Standing, now: datetime, width: int, *, ascii_only: bool) -> Iterator[Text]:
    cycle = standing.status["cycle"]
    if standing.cycle is None or cycle is None:
        yield Text(f"{'cycle':<{LABEL}}none so far")
    else:
        start, end = standing.cycle.start, standing.cycle.end
        state = "closed" if cycle["closed"] else "planned" if cycle["planned"] else "not planned"
        span = f"{start:%H:%M}-{end:%H:%M}Z" if end - start >= timedelta(minutes=1) else f"{start:%H:%M:%S}Z"
        yield _bar("cycle", start, end, now, f"{span} {state}", width, ascii_only=ascii_only)
    if window := current_window(standing.windows, now):
        start, end = window
        day = standing.status["day"]
        span = f"{'day {number}, '.format(**day) if day else ''}{start:%m-%d %H:%M} to {end:%m-%d %H:%M}Z"
        if now < start:
            span += f", begins in {units.format_duration(_whole(start - now))}"
        elif now >= end:
            span += ", over"
        yield _bar("menus", start, end, now, span, width, ascii_only=ascii_only)


def _whole(duration: timedelta) -> timedelta:
    """Return a duration in whole hours, or if it is short in whole minutes or seconds."""
    for unit in (timedelta(hours=1), timedelta(minutes=1)):
        if duration >= 2 * unit:
            return round(duration / unit) * unit
    return timedelta(seconds=round(duration.total_seconds()))


def _bar(
    label: str, start: datetime, end: datetime, now: datetime, words: str, width: int, *, ascii_only: bool
) -> Text:
    """Return a line that shows how much of a time is over."""
    part = min(max((now - start) / (end - start), 0.0), 1.0)
    length = max(min(BAR, width - LABEL - len(words) - 8), 4)
    done = int(part * length)
    full, empty = ("#", ".") if ascii_only else ("━", "─")
    line = Text(f"{label:<{LABEL}}")
    line.append(full * done, "green").append(empty * (length - done), "dim")
    return line.append(f" {int(100 * part):3d} %  {words}")


def _sums(standing: Standing) -> Iterator[Text]:
    lately, total = standing.lately, standing.total
    if standing.open is not None:
        yield Text(f"{'open cycle':<{LABEL}}{_bytes(standing.open)}")
    if standing.since is not None and standing.until is not None and standing.until > standing.since:
        line = Text(f"{f'last {_hours(standing.until - standing.since)}':<{LABEL}}{_bytes(lately)}")
        yield line.append("  ratio ").append_text(ratio(lately)) if lately["ratio"] is not None else line
    part = "" if total["injected_ratio"] is None else f"  injected/due {units.percent(total['injected_ratio'])}"
    yield Text(f"{'since start':<{LABEL}}{_bytes(total)}{part}")


def _hours(duration: timedelta) -> str:
    """Return a duration in one unit, so that it fits before the figures: `105 min`, `6 h`."""
    for unit, name in ((timedelta(hours=1), "h"), (timedelta(minutes=1), "min")):
        if duration >= 2 * unit or not duration % unit:
            return f"{round(duration / unit)} {name}"
    return f"{round(duration.total_seconds())} s"


def _bytes(sums: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {summary_output.size(sums[name])}" for name in ("due", "injected", "moved"))


def _links(standing: Standing) -> Text:
    """Show how many links there are, and how many are short, by reason."""
    holds = standing.shortfalls
    line = Text(f"{'links':<{LABEL}}{len(standing.links):,}")
    if not holds:
        return line.append(", none short")
    reasons = ", ".join(f"{count:,} {hold}" for hold, count in holds.most_common())
    return line.append(f", {holds.total():,} short: {reasons}", "yellow")


def _warnings(standing: Standing) -> Iterator[Text]:
    shown = standing.status
    for trouble in shown["troubles"][:MOST]:
        sentence = TROUBLES[trouble["what"]].format(of=trouble["of"])
        yield Text(one_line(f"! {sentence}, since {trouble['since'][11:16]}Z: {trouble['why']}"), WARNING)
    for pause in shown["pauses"][:MOST]:
        what = overrides.shown(pause["subject"], "everything")
        yield Text(
            one_line(f"! stopped: {what}, since {pause['since'][11:16]}Z by {pause['who']} {_why(pause)}"),
            "yellow",
        )
    for override in shown["overrides"][:MOST]:
        what = overrides.shown(override["subject"], "everything")
        yield Text(one_line(f"set: {what}: {override['what']}, by {override['who']} {_why(override)}"), "cyan")
    left = sum(max(len(shown[name]) - MOST, 0) for name in ("troubles", "pauses", "overrides"))
    if left:
        yield Text(f"and {left} more: `dc-inject status {one_line(standing.campaign)}`")


def _why(action: Mapping[str, Any]) -> str:
    return f"({action['why']})" if action["why"] else ""


# --------------------------------------------------------------------------- parts of lines


def ratio(line: Mapping[str, Any]) -> Text:
    """Return a ratio with its sign, in the colour of reports; `-` where there is none, since no cycle is over."""
    if line["ratio"] is None:
        return Text("-")
    return Text(f"{units.percent(line['ratio'])} {line['sign']:<2}", STYLES[line["grade"]])


def trend(steps: Sequence[tuple[int, int]], most: int, *, ascii_only: bool = False) -> str:
    """Return what moved in each of the last steps, as heights of at most what moved or was due in any step."""
    heights = ASCII_HEIGHTS if ascii_only else HEIGHTS
    highest = max((max(step) for step in steps), default=0)
    if highest <= 0:
        return ""
    levels = len(heights) - 1
    return "".join(heights[min(max(-(-moved * levels // highest), 0), levels)] for moved, _ in steps[-most:])


def short_link(line: Line) -> Text:
    """Return one line about a link that is short: why, how much of what was due has moved, and which it is."""
    size = summary_output.size
    part = f"{size(line['moved'])} of {size(line['due'])}"
    text = Text.assemble(("! ", "yellow"), (f"{line['held']:<17}", "bold yellow"), f"{part:<20}")
    return text.append(f"{line['scenario']} {line['source']} -> {line['destination']}  {line['why']}")
