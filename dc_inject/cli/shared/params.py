"""The types of arguments and options: texts that a function reads, in the words and forms that menus use.

Values with a unit (`RATE`, `SIZE`, `DURATION`) become numbers. Texts that are copied into a menu (`NAME`, `DID`,
`menu_time`) are checked as a menu would be, and stay as they were written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click

from dc_inject.menu import addresses, values
from dc_inject.menu.values import WrongError
from dc_inject.model import redaction, units
from dc_inject.model.shards import read_shard
from dc_inject.system.clock import SystemClock

LONGEST = timedelta(days=400)  # that a command may be asked for
T = TypeVar("T")


class Parsed(click.ParamType[T]):
    """A text that `parse` reads, or refuses with a ValueError; `name` is what the help calls it."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        """Take the name and the function."""
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:  # noqa: ANN401  as click has it
        """Return what the text means; a default that is a value already stays so."""
        if not isinstance(value, str):
            parsed: T = value
            return parsed
        try:
            return self._parse(value.strip())
        except ValueError as error:
            message, hint = values.explain(error)
            self.fail(f"{message} ({hint})" if hint else message, param, ctx)


class MenuFile(click.Path):
    """The path of a menu, which is no URL: a path would lose one of its slashes."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        """Take any path, and `-` if that is allowed."""
        super().__init__(path_type=Path, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  as click has it
        """Return the path."""
        if "://" in str(value):
            shown = redaction.scrub(str(value))
            self.fail(f"{shown} is a URL, and no menu (give the path of a menu that has it)", param, ctx)
        return super().convert(value, param, ctx)


class FiniteRange(click.FloatRange):
    """A number in a range; `nan` and `inf` are none, and `like` is an example for errors."""

    def __init__(self, like: str, **bounds: Any) -> None:
        """Take the example and the bounds."""
        super().__init__(**bounds)
        self._like = like

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  as click has it
        """Read it."""
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number (such as {self._like})", param, ctx)
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


# --------------------------------------------------------------------------- values


def _moment(text: str, zone: tzinfo | None = None) -> datetime:
    """Read ISO 8601 or `now`; a time without an offset is in `zone`, or refused: its zone would be a guess."""
    try:
        moment = SystemClock().now() if text == "now" else datetime.fromisoformat(text)
        if moment.tzinfo is not None or zone is not None:
            return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongError(f"{text!r} is not a time", "such as 2027-02-08T10:00Z") from None
    raise WrongError(f"{text!r} has no zone", f"{text}Z for UTC, or an offset such as +01:00")


def utc(text: str) -> datetime:
    """Read a time that chooses what is shown: in UTC unless it has an offset, as all times are shown."""
    return _moment(text, UTC)


def _duration(text: str) -> timedelta:
    """Read a duration as menus write it, and `m` for minutes too; sums of a few do not leave the calendar."""
    duration = units.parse_duration(re.sub(r"(?<=[0-9 ])m\b", "min", text))
    if duration > LONGEST:
        raise WrongError(f"{text!r} is too long", f"at most {units.format_duration(LONGEST)}")
    return duration


def _per_hour(text: str) -> float:
    """Read a number above 0 per hour or minute; a bare number is refused."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?)\s*/\s*(h|min)", text)
    if match is None or float(match[1]) == 0:
        raise WrongError(f"{text!r} is not a number per time", "such as 600/h or 10/min")
    return float(match[1]) * {"h": 1, "min": 60}[match[2]]


def _factor(text: str) -> Fraction:
    match = re.fullmatch(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<percent>%?)", text)
    factor = Fraction(match["number"]) / (100 if match["percent"] else 1) if match else Fraction(0)
    if factor <= 0:
        raise WrongError(f"{text!r} is not a factor", "such as 0.5 or 50%")
    return factor


def _positive(name: str, parse: Callable[[str], T]) -> Parsed[T]:
    """Return the type of a value with a unit that may not be 0."""

    def above_zero(text: str) -> T:
        value = parse(text)
        if not value:
            raise WrongError(f"a {name} must be above 0", "")
        return value

    return Parsed(name, above_zero)


TIME = Parsed("time", _moment)
UTC_TIME = Parsed("time", utc)
RATE = _positive("rate", units.parse_rate)  # bytes per second
SIZE = _positive("size", units.parse_size)  # bytes
DURATION = _positive("duration", _duration)
LAG = Parsed("duration", _duration)
PER_HOUR = Parsed("rate", _per_hour)
COUNT = click.IntRange(min=1)
FACTOR = Parsed("factor", _factor)
LINK = Parsed("link", addresses.link)  # two RSEs or two URL prefixes, in the one form that menus and ledgers have
SHARD = Parsed("shard", read_shard)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)  # to read
PREFIX = Parsed("prefix", addresses.prefix)  # an end of a link through FTS, in the same form


# --------------------------------------------------------------------------- texts of a menu


def as_written(name: str, check: Callable[[str], object]) -> Parsed[str]:
    """Return the type of a text that is checked as menus have it, and kept as it was written."""

    def checked(text: str) -> str:
        check(text)
        return text

    return Parsed(name, checked)


def menu_time(zone: ZoneInfo) -> Parsed[str]:
    """Return the type of a time of a menu in a zone; `now` becomes a time with its offset."""

    def checked(text: str) -> str:
        time = SystemClock().now().isoformat(" ", "seconds") if text.lower() == "now" else text
        values.moment(time, zone)
        return time

    return Parsed("time", checked)


class _Port(click.ParamType[int]):
    """A port; whoever wrote a menu behind the option `--serve` meant it without one."""

    name = "port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401  as click has it
        """Read it."""
        if isinstance(value, int):
            return value
        if not (value.isascii() and value.isdigit() and int(value) < 65536):
            hint = f"a number up to 65535, such as {PAGE_PORT}"
            if param is not None and param.name == "serve_port":
                hint = f"write --serve={PAGE_PORT}, or --serve behind the menus"
            self.fail(f"{value!r} is no port ({hint})", param, ctx)
        return int(value)


PAGE_PORT = 9466  # of the pages of a report
PORT = _Port()
NAME = as_written("name", values.name)
LINE = as_written("text", values.line)
MENU_RATE = as_written("rate", values.rate)
LINK_END = as_written("end", addresses.end_name)  # an RSE or a URL prefix
MENU_END = as_written("end", addresses.end)  # or an RSE expression
ZONE = as_written("zone", values.zone)
DID = as_written("pattern", values.did)
FOLDER = as_written("path", addresses.path)
ENDPOINT = as_written("url", addresses.endpoint)
