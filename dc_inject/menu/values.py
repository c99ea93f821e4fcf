"""What the texts of a menu mean: numbers, bounds, shares, local times, names; every error has a fix.

Rates, sizes and durations themselves are read by dc_inject.model.units.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, NoReturn
from zoneinfo import ZoneInfo

from dc_inject.menu.nodes import Place
from dc_inject.model import naming, redaction, units

_RSE = re.compile(r"[A-Za-z0-9_.-]+")
_TIME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)(?:[ T]+(?P<time>\d\d:\d\d(?::\d\d)?))?\s*(?P<offset>Z|UTC|[+-]\d\d:?\d\d)?"
)
_DECIMAL = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_WHOLE = re.compile(r"[0-9]{1,15}")
# Files of the database that are no zone of IANA: those of this machine, copies, and those with leap seconds.
_NO_ZONE = re.compile(r"localtime|posixrules|Factory|(?:posix|right|SystemV)/.*")
_CLOCK = re.compile(r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9])")
_SIZE_UNIT = re.compile(r"[0-9.\s]*(?P<unit>[A-Za-z]+)")
_FIRST_YEAR, _LAST_YEAR = 2000, 2199

VERSION = 1  # of menus and of grid files
LONGEST = timedelta(days=366)  # of times that something lasts; no challenge is longer
MOST = 1_000_000_000  # of whatever a menu counts, such as files or rules


class WrongError(ValueError):
    """A text with a wrong value: the reason, and with `hint` what to write instead.

    `place` is where to look for it, if that is not where the value stands.
    """

    def __init__(self, message: str, hint: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place


class NotedError(WrongError):
    """A file that cannot be used, each of whose problems is noted already, with its place in that file."""

    def __init__(self) -> None:
        super().__init__("the file cannot be used", "fix the problems of that file")


def shown(text: str, longest: int = 60) -> str:
    """Return a text as a message may quote it: short, and without the secrets that a URL may carry."""
    quoted = redaction.scrub("".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in text))
    return quoted if len(quoted) <= longest else quoted[: longest - 3] + "..."


def odd_character(text: str, odd: re.Pattern[str] = re.compile("[^ -~]")) -> str:
    """Return the part of a sentence that names a character which looks like another one, or like none."""
    found = odd.search(text)
    if found is None or found[0].isascii():
        return "" if found is None else f": character {found.start() + 1} is {found[0]!r}"
    return f": character {found.start() + 1} is {units.character(found[0])}"


def explain(error: ValueError) -> tuple[str, str]:
    """Return message and hint of an error from here or from model/units.py (`what is wrong; what is right`)."""
    if isinstance(error, WrongError):
        return error.message, error.hint
    message, _, hint = str(error).rpartition("; ")
    return (message, hint) if message else (hint, "write a value of a usual size")


def version(text: str) -> int:
    """Read the version of a format."""
    if text != str(VERSION):
        raise WrongError(
            f"{shown(text)!r} is not a version of the format",
            f"this release reads version {VERSION}: write {VERSION}",
        )
    return VERSION


def rate(text: str) -> float:
    """Read a rate above zero; bytes per second."""
    value = units.parse_rate(text)
    if value <= 0:
        raise WrongError(
            f"{text!r} must be above 0", "write a rate above 0; to stop a link, remove or `exclude` it"
        )
    return value


def amount(text: str) -> int:
    """Read a size above zero; bytes."""
    value = units.parse_size(text)
    if value <= 0:
        raise WrongError(f"{text!r} must be above 0", "write a size above 0, or remove the link")
    return value


def lasting(text: str) -> timedelta:
    """Read a duration of at least a second."""
    value = units.parse_duration(text)
    if value > LONGEST:
        raise WrongError(f"{shown(text)!r} is longer than {LONGEST.days} d", "write a shorter time")
    if value < timedelta(seconds=1):
        raise WrongError(f"{text!r} is shorter than a second", "write a longer duration, such as 15 min")
    return value


def cycle(text: str) -> timedelta:
    """Read the length of a cycle: whole seconds, at most a day."""
    value = lasting(text)
    if value > timedelta(days=1) or value.microseconds:
        raise WrongError(
            f"{text!r} is not a valid length of a cycle", "write whole seconds up to 1 d, usually 15 min"
        )
    return value


def block(text: str) -> int:
    """Read the size of a block that a worker reads at a time: 1 kB to 64 MiB, since workers keep it in memory."""
    with suppress(ValueError):  # whatever is wrong with it, the hint names the bounds
        if 1000 <= units.parse_size(text) <= 64 * 2**20:
            return units.parse_size(text)
    raise WrongError(f"{shown(text)!r} is not the size of a block", "write 1 kB to 64 MiB, such as 4 MB")


def fraction(text: str) -> float:
    """Read a part of one: `10 %` or `0.1`."""
    number, percent = (text[:-1].strip(), 100) if text.endswith("%") else (text, 1)
    if not _DECIMAL.fullmatch(number) or float(number) > percent:
        _not(text, "a part of one", "0 % to 100 %, such as 10 % or 0.1")
    return float(number) / percent


class Level(NamedTuple):
    """How much of a rate holds: a part of it, or a rate of its own (bytes per second)."""

    part: float | None
    rate: float | None = None


def level(text: str) -> Level:
    """Read a level of a shape: `25 %`, `0.25`, or a rate; zero is one too."""
    if text.endswith("%") or _DECIMAL.fullmatch(text):
        return Level(fraction(text))
    try:
        return Level(None, units.parse_rate(text))
    except ValueError:
        _not(text, "a level", "25 %, 0.25, or a rate such as 10 Gb/s")


def clock(text: str) -> timedelta:
    """Read a time of the day: `08:00` to `23:59`; returns the time since midnight."""
    if (match := _CLOCK.fullmatch(text)) is None:
        _not(text, "a time of the day", "00:00 to 23:59")
    return timedelta(hours=int(match["hour"]), minutes=int(match["minute"]))


def part(text: str) -> float:
    """Read a part of one that is not zero."""
    with suppress(WrongError):  # whatever is wrong with it, the hint names the bounds
        if fraction(text) > 0:
            return fraction(text)
    raise WrongError(f"{shown(text)!r} is not a part of one", "write more than 0 %, up to 100 %, such as 0.25")


def share(text: str) -> float:
    """Read a share: a number from zero on; what counts is its part of the sum."""
    if text.startswith("-"):
        raise WrongError(f"{text!r} is a negative share", "shares are numbers from 0 on, such as 40")
    if not _DECIMAL.fullmatch(text):
        _not(text, "a share", "a plain number, such as 40")
    return float(text)


def counts(text: str, least: int = 0, most: int = MOST) -> tuple[int, int]:
    """Read bounds on a number, both inclusive: `1..1000`; what they let pass may not be 0 alone."""
    low, high = _bounds(text, "1..1000")
    if not _WHOLE.fullmatch(low) or not _WHOLE.fullmatch(high):
        _not(text, "bounds on a number", "1..1000")
    first, last = _ordered(int(low), int(high), text)
    if not least <= first <= last <= most:
        raise WrongError(f"{text!r} is not within {least} to {most}", f"write bounds such as 2..{min(most, 200)}")
    return first, last


def sizes(text: str) -> tuple[int, int]:
    """Read bounds on a size, both inclusive: `1..20 GB` or `500 MB..20 GB`."""
    low, high = _bounds(text, "1..20 GB or 500 MB..20 GB")
    unit = _SIZE_UNIT.fullmatch(high)
    if unit is not None and _DECIMAL.fullmatch(low):
        low = f"{low} {unit['unit']}"
    return _ordered(units.parse_size(low), units.parse_size(high), text)


def zone(text: str) -> ZoneInfo:
    """Read the name of a time zone."""
    try:
        if not _NO_ZONE.fullmatch(text):
            return ZoneInfo(text)
    except (ValueError, OSError, KeyError):  # odd names are ValueErrors, folders of the database OSErrors
        pass
    raise WrongError(f"{text!r} is not a known time zone", "a name such as Europe/Zurich or UTC")


def moment(text: str, where: ZoneInfo) -> datetime:
    """Read a time in a zone, or with an offset of its own, into UTC; gaps and doubles of DST are errors."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        _not(text, "a time", "2027-02-08 10:00, or with an offset: 2027-02-08 10:00+01:00")
    try:
        naive = datetime.fromisoformat(f"{match['date']}T{match['time'] or '00:00'}")
    except ValueError as error:
        raise WrongError(f"{text!r} is not a valid time: {error}", "write 2027-02-08 10:00") from None
    if not _FIRST_YEAR <= naive.year <= _LAST_YEAR:
        raise WrongError(f"the year of {text!r} is out of range", f"a year from {_FIRST_YEAR} to {_LAST_YEAR}")
    if match["offset"] is None:
        return _local(naive, where, text)
    offset = match["offset"].replace("Z", "+00:00").replace("UTC", "+00:00")
    try:
        return datetime.fromisoformat(naive.isoformat() + offset).astimezone(UTC)
    except ValueError:
        raise WrongError(f"{text!r} has an offset of a day or more", "write an offset such as +01:00") from None


def rse(text: str) -> str:
    """Read the name of one RSE (or site): letters, digits, `_`, `.`, `-`."""
    if not is_name(text):
        _not(text, "the name of one RSE or site", "a name such as T1_DE_KIT_Disk, without spaces")
    return text


def is_name(text: str) -> bool:
    """Return whether a text is a plain name; anything else that can be an end is an RSE expression."""
    return _RSE.fullmatch(text) is not None


def name(text: str) -> str:
    """Read the name of a campaign or scenario, which goes into comments and file names."""
    if not naming.NAME.fullmatch(text):
        _not(text, "a name", "up to 64 letters, digits, `.`, `_`, `-`, beginning with a letter or digit")
    return text


def did(text: str) -> str:
    """Read a pattern of DIDs, `scope:name`, with wildcards in either part."""
    scope, _, rest = text.partition(":")
    if not scope or not rest or not text.isascii() or not text.isprintable() or " " in text:
        _not(text, "a DID", "`scope:name`, such as cms:/*/RAW#*")
    return text


def line(text: str, longest: int = 200) -> str:
    """Read a text of one line."""
    if not text.strip() or len(text) > longest or not text.isprintable():
        _not(text, f"one line of up to {longest} characters", "a short text in one line")
    return text.strip()


def activity(text: str) -> str:
    """Read the name of an activity, which Rucio keeps 50 characters of."""
    return line(text, 50)


def _local(naive: datetime, where: ZoneInfo, text: str) -> datetime:
    first, second = (naive.replace(tzinfo=where, fold=fold) for fold in (0, 1))
    if first.astimezone(UTC).astimezone(where).replace(tzinfo=None) != naive:
        later = first.astimezone(UTC).astimezone(where)
        raise WrongError(
            f"{text!r} does not exist in {where.key}: clocks go forward then",
            f"the next time that does is {later:%Y-%m-%d %H:%M}",
        )
    if first.utcoffset() != second.utcoffset():
        raise WrongError(
            f"{text!r} happens twice in {where.key}: clocks go back then",
            f"write the offset: {first.isoformat(' ', 'minutes')} or {second.isoformat(' ', 'minutes')}",
        )
    return first.astimezone(UTC)


def _bounds(text: str, example: str) -> tuple[str, str]:
    low, dots, high = text.partition("..")
    if not dots:
        _not(text, "bounds", f"lower and upper bound: {example}")
    return low.strip(), high.strip()


def _ordered(low: int, high: int, text: str) -> tuple[int, int]:
    if low > high:
        raise WrongError(f"{text!r} has its lower bound above its upper bound", "write the smaller bound first")
    if not high:
        raise WrongError(f"{text!r} matches only 0", "write an upper bound above 0")
    return low, high


def _not(text: str, noun: str, right: str) -> NoReturn:
    raise WrongError(
        f"{shown(text)!r} is not {noun}{odd_character(text)}",
        f"write {right}" if not right.startswith("write") else right,
    )


def scope(text: str) -> str:
    """Read a scope of Rucio."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,30}", text):
        raise WrongError(f"{shown(text)!r} is not a scope", "one of the account's own, such as user.dcops")
    return text


def slice_name(text: str) -> str:
    """Read the template of the names of slices."""
    plain = re.sub(r"\{(?:mark|campaign|scenario)\}", "", text)
    if text.count("{mark}") != 1 or not re.fullmatch(r"[A-Za-z0-9._/#-]{0,60}", plain):
        raise WrongError(
            f"{shown(text)!r} is not a template of names",
            "letters, digits and ._/#- with {mark} once, and {campaign} and {scenario} if wanted",
        )
    return text
