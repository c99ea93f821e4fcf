"""Menus of what was imported: one file, or a folder with a file a day and one for what all have in common.

What is wrong with a menu that was made is put down to the cell that its link came from.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dc_inject import menu
from dc_inject.apps.menutools import importing, new_menus
from dc_inject.apps.menutools.new_menus import Origins
from dc_inject.apps.menutools.schedules import Book, Part
from dc_inject.menu import differences, values, writing
from dc_inject.menu.includes import Load, MenuReader
from dc_inject.menu.nodes import Map, Node, Seq
from dc_inject.menu.writing import Heading
from dc_inject.model import units
from dc_inject.model.errors import MenuError, Problem, UsageError
from dc_inject.model.services import DEFAULT
from dc_inject.system import files

COMMON = "_common.yaml"
DECIDED = {  # by a common part that is kept: option of a menu's top -> its keys, and what counts without them
    "timezone": ("--timezone", "timezone", "UTC"),
    "contact": ("--contact", "contact", ""),
    "through": ("--through", "defaults through", DEFAULT.name),
    "datasets": ("--did", "defaults datasets did", ""),
    "folder": ("--folder", "defaults files folder", ""),
    "endpoint": ("--fts", "fts endpoint", ""),
}
EXPLAINED = "`dc-inject check MENU` lists what is wrong or odd in it; docs/reference/menus.md explains every key."


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to write; `change` is how it differs from the one that is there, None if there is none."""

    path: Path
    text: str
    change: str | None = None


def build_menu(heading: Heading, file: str, parts: Sequence[Part], name: str) -> tuple[str, list[str]]:
    """Return a menu with these scenarios, and notes on it; raises MenuError for what cannot work."""
    lines, total, origins = _scenarios(parts, file)
    links = units.counted(sum(len(part.links.links) for part in parts), "links")
    comments = [f"Imported from {os.path.basename(file)}, {links} with {total} together.", EXPLAINED]  # noqa: PTH119  it may be `stdin`
    text = writing.menu(heading, comments, total, lines)
    made, warnings = new_menus.checked({name: text}, origins=_numbered(name, text, origins))
    summary = f"imported {new_menus.together(made)}, from {parts[0].links.form}"
    return text, [*warnings, summary, *new_menus.describe_assumptions(heading)]


def with_kept_zone(given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the options of a menu's top, with the zone of the common part that the folder has, if it has one.

    Raises UsageError for an option that differs from that part, and MenuError for one that cannot be read.
    """
    common = folder / COMMON
    if not (text := _existing(common)):
        return dict(given)
    reader = MenuReader(str(common), files.load)
    root = reader.document(text.encode())
    if root is None or reader.problems:
        raise MenuError(reader.problems)
    for key, (option, path, usual) in DECIDED.items():
        node: Node | None = root
        for name in path.split():
            node = node.get(name) if isinstance(node, Map) else None
        kept = [str(each) for each in node] if isinstance(node, Seq) else [str(node or usual)]
        wanted = [given[key]] if isinstance(given[key], str) else [*(given[key] or ())]
        if wanted and wanted != kept:
            stands = ", ".join(kept) or "none"
            message = f"{option} is {', '.join(wanted)}, but {path.replace(' ', '.')} in {common} is {stands}"
            raise UsageError(message, f"leave out {option}, or edit the file")
    zone = str(root.get("timezone", "UTC"))
    try:
        values.zone(zone)
    except values.WrongError as error:
        at = root.place_of("timezone")
        raise MenuError([Problem(at.file, at.line, error.message, error.hint, column=at.column)]) from None
    return {**given, "timezone": zone}


def build_daily_menus(heading: Heading, file: str, book: Book, folder: Path) -> tuple[list[NewFile], list[str]]:
    """Return a menu for each day that has a scenario, and notes on them.

    A day begins at the clock time of `heading.start`, which is also the first day if the book has no dates. The
    part that all include is kept as it is where it exists: people write limits, datasets and so on into it.
    Raises MenuError for what cannot work, and UsageError for dates that do not agree.
    """
    zone = values.zone(heading.timezone)
    begin = values.moment(heading.start, zone).astimezone(zone)
    first = next((day.date - timedelta(days=day.number - 1) for day in book.days if day.date), begin.date())
    if first != begin.date() and "start" not in heading.assumed:
        raise UsageError(f"--start is on {begin:%F}, but the schedule begins on {first}", "correct one of them")
    days = [day for day in book.days if day.parts]
    notes = [f"day {day.number} has no scenario, and no menu" for day in book.days if not day.parts]
    common = folder / COMMON
    existing = _existing(common)
    decided = DECIDED.keys() if existing else set[str]()
    stated = replace(heading, assumed=heading.assumed - {"start", "end"} - decided)
    new: dict[str, str] = {}
    totals, origins = [], Origins()
    for day in days:
        start, end = (
            new_menus.local(datetime.combine(first + timedelta(days=n), begin.time(), zone), zone)
            for n in (day.number - 1, day.number)
        )
        lines, total, cells = _scenarios(day.parts, file)
        name = str(folder / f"day-{day.number:02}.yaml")
        about = f"{heading.description or 'Day'} {day.number}: {', '.join(part.sheet for part in day.parts)}"
        top = replace(stated, start=start, end=end, include=COMMON, description=about)
        new[name] = writing.day(top, total, lines)
        totals.append(total)
        origins |= _numbered(name, new[name], cells)
    highest = max(totals, key=units.parse_rate)
    written = writing.common(heading, ["What all days have in common.", EXPLAINED], highest)
    kept = existing or written
    if kept != written:
        notes.append(f"{common} is kept as it is; remove it to have it made from the options")

    def load(path: str, most: int) -> bytes:
        is_common = posixpath.normpath(path) == posixpath.normpath(str(common))
        return kept.encode()[:most] if is_common else files.load(path, most)

    _, warnings = new_menus.checked(new, load, origins)
    paths = {*map(Path, new), common}
    if stale := sorted(path for path in folder.glob("day-*.y*ml") if path not in paths):
        raise UsageError(f"{stale[0]} is not a day of the schedule", "remove it, or name another folder")
    made = [NewFile(common, kept, "" if existing else None)]
    for (name, text), total, day in zip(new.items(), totals, days, strict=True):
        made.append(NewFile(Path(name), text, _change(name, text, load)))
        links = units.counted(sum(len(part.links.links) for part in day.parts), "links")
        notes.append(f"{name}: {links}, {units.format_rate(units.parse_rate(total))}")
    if "start" in heading.assumed:
        notes.append(f"each day begins at {begin:%H:%M} (--start)")
    return made, [*warnings, *notes, *new_menus.describe_assumptions(stated)]


def _change(name: str, text: str, load: Load) -> str | None:
    """Return how a menu differs from the file that it would replace; nothing if it does not."""
    old = _existing(Path(name))
    if old is None or old == text:
        return old and ""
    try:
        before, after = (menu.campaign([menu.read(each, name, load).preview]) for each in (old, text))
    except MenuError as error:
        return f"the file there is no menu: {error.problems[0].message}"
    renamed = f"campaign {before.name} -> {after.name}; " if before.name != after.name else ""
    return renamed + differences.sentence(before, after)


def _existing(path: Path) -> str | None:
    return files.load(str(path), files.LARGEST).decode(errors="replace") if files.exists(path) else None


def _scenarios(parts: Sequence[Part], file: str) -> tuple[list[str], str, list[Problem | None]]:
    """Return the lines of scenarios, the sum of their rates, and the cell of each line that is a link."""
    lines: list[str] = []
    cells: list[Problem | None] = []
    for part in parts:
        links = zip(part.links.links, part.amounts, strict=True)
        own = [writing.link(source, to, [("rate", str(amount))]) for (source, to, _), amount in links]
        lines += writing.links(part.scenario, own)
        cells += [None] * (len(lines) - len(cells) - len(own))
        at = (cell.place for cell in part.links.cells)
        cells += [Problem(file, place.line, "", column=place.column, sheet=part.sheet) for place in at]
    return lines, importing.total([amount for part in parts for amount in part.amounts]), cells


def _numbered(name: str, text: str, cells: Sequence[Problem | None]) -> Origins:
    """Return the cells by the lines of a menu, at whose end they are."""
    first = text.count("\n") - len(cells) + 1
    return {(name, first + index): cell for index, cell in enumerate(cells) if cell is not None}
