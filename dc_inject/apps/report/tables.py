"""What sections of a report are made of: tables, their cells, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dc_inject.model import units

Report = Mapping[str, Any]
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
    """A part of a report: its name in links, its title, its sentences, and its table."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    table: Table | None = None


def size(value: int, estimated: int = 0) -> Cell:
    """Return a size, with ~ where a part of it is an estimate."""
    return Cell(("~" if estimated > 0 else "") + units.format_size(value), value=value)


def number(value: int) -> Cell:
    """Return a count."""
    return Cell(f"{value:,}", value=value)


def ratio(value: float | None, colour: str | None, sign: str) -> Cell:
    """Return a ratio in percent, followed by the sign of its colour."""
    return Cell(NONE) if value is None else Cell(f"{units.percent(value)} {sign}", colour, value)


def rate(value: float, seconds: float) -> Cell:
    """Return the mean rate of bytes over a time, or that there was no time."""
    return Cell(units.format_rate(value / seconds), value=value / seconds) if seconds else Cell(NONE)


def time_of(moment: str, report: Report) -> str:
    """Return a time in minutes, or in seconds where steps are not of whole minutes."""
    return moment[: 19 if report["step_seconds"] % 60 else 16].replace("T", " ")


def day_of(row: Report) -> str:
    """Return the name of a day: its number and date."""
    return f"{row['number']} ({row['date']})"


def percent(value: float | None) -> str:
    """Return a part in percent."""
    return NONE if value is None else units.percent(value)
