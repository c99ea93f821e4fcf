"""Reading and writing of rates, sizes and durations: each has its unit, and units are never mixed up.

Inside dc_inject sizes are bytes (int), rates are bytes per second (float) and durations are timedeltas.
`b` is a bit and `B` a byte, written out too (`Gbit/s`, `MByte/s`); k, M, G, T, P, E are powers of 1000 and Ki, Mi,
Gi, Ti, Pi, Ei of 1024. Counts and lists of names are here too, as messages have them.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction

_PREFIXES = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    "K": 1000,  # written by many for k; there is no other reading of it in front of a bit or a byte
}
_SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "day": 86400, "w": 604800}
_PER = _SECONDS | {"sec": 1, "hour": 3600}  # what a rate may be per
_NUMBER = r"(?P<number>[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_PREFIX = r"(?P<prefix>(?:[KMGTPE]i|[kKMGTPE])?)"
_WORD = r"(?P<unit>[bB]its?|[bB]ytes?|[bB])"  # words mean the same with a capital first letter
_RATE_UNIT = rf"{_PREFIX}{_WORD}(?:ps|/(?P<per>sec|s|min|hour|h|day|d))"
_RATE = re.compile(rf"{_NUMBER}\s*{_RATE_UNIT}")
_NAMED_UNIT = re.compile(rf"(?<![A-Za-z0-9/]){_RATE_UNIT}(?![A-Za-z0-9/])")
_SIZE = re.compile(rf"{_NUMBER}\s*{_PREFIX}(?P<unit>B|[bB]ytes?)")
_DURATION_PART = re.compile(rf"(?<![0-9_]){_NUMBER}\s*(?P<unit>[a-z]+)")
_BARE = re.compile(rf"{_NUMBER}")


def parse_rate(text: str) -> float:
    """Read a rate such as `10 Gb/s`, `512 MiB/s`, `450 GiB/h` or `8000 Mbps`; returns bytes per second.

    Raises ValueError, with a sentence for the writer of a menu, for anything else; a bare number has no unit.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(_complaint(text, "rate", "10 Gb/s, 1.25 GB/s, 512 MiB/s, 450 GiB/h or 8000 Mbps"))
    amount = _number(match["number"]) * _bytes(match)
    return _finite(amount / _PER[match["per"] or "s"], text)


def parse_size(text: str) -> int:
    """Read a size such as `500 TB` or `2 PiB`; returns bytes, rounded to whole ones. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(_complaint(text, "size", "500 TB, 1.5 PB or 2 PiB, in bytes (B)"))
    size = _number(match["number"]) * _bytes(match)
    _finite(size, text)
    return round(size)  # exactly: a float has no odd bytes from 9 PB on


def parse_duration(text: str) -> timedelta:
    """Read a duration such as `15 min`, `2 h`, `1 h 30 min` or `90 s`. Raises ValueError."""
    stripped = text.strip()
    seconds, end = Fraction(0), 0
    for match in _DURATION_PART.finditer(stripped):
        if stripped[end : match.start()].strip() or match["unit"] not in _SECONDS:
            break
        seconds += _number(match["number"]) * _SECONDS[match["unit"]]
        end = match.end()
    if not end or stripped[end:].strip():
        raise ValueError(_complaint(text, "duration", "90 s, 15 min, 2 h, 1 h 30 min or 1 d"))
    try:
        return timedelta(microseconds=round(seconds * 1_000_000))
    except OverflowError:
        raise ValueError(f"{_quoted(text)} is too long for a duration") from None


def rate_units(text: str) -> tuple[str, ...]:
    """Return the units of rates that a text names, such as the head of a column: `to [Gbps]` gives `Gb/s`."""
    return tuple(dict.fromkeys(_canonical(match) for match in _NAMED_UNIT.finditer(text)))


def rate_unit(text: str) -> str:
    """Return the unit of rates that a text is, in one spelling: `Gbit/s` and `Gbps` are `Gb/s`; else nothing."""
    match = _NAMED_UNIT.fullmatch(text.strip())
    return "" if match is None else _canonical(match)


def ratio(unit: str, other: str) -> Fraction:
    """Return how many of another unit of rates one unit is: `GB/s` is 8 `Gb/s`; raises ValueError for no unit."""
    sizes = []
    for text in (unit, other):
        match = _RATE.fullmatch(f"1 {text}")
        if match is None:
            raise ValueError(f"{text!r} is no unit of rates")
        sizes.append(_bytes(match) / _PER[match["per"] or "s"])
    return sizes[0] / sizes[1]


def times(text: str, factor: Fraction) -> str:
    """Return a rate or size with its number multiplied, exactly, in its own unit: half of `9 Gb/s` is `4.5 Gb/s`.

    `text` is one that was read before. What has more than 30 digits then is rounded to 17, as floats are.
    """
    match = re.match(_NUMBER, text.strip())
    if match is None:
        raise ValueError(f"{text!r} does not begin with a number")
    number, unit = _number(match["number"]) * factor, text.strip()[match.end() :]
    return f"{decimal(number)}{unit}"


def decimal(number: Fraction) -> str:
    """Write a number without an exponent: exactly where that takes up to 30 digits, else with 17."""
    with localcontext(prec=31) as context:
        value = Decimal(number.numerator) / Decimal(number.denominator)
        if context.flags[Inexact] or len(value.normalize().as_tuple().digits) > 30:
            context.prec = 17
            value = +value
        return format(value.normalize(), "f")


def exact_size(size: int) -> str:
    """Write a size (bytes) with a decimal prefix and all its digits: `1.234567890123 TB`."""
    prefix = next((p for p in "PTGMk" if size >= _PREFIXES[p]), "")
    return f"{decimal(Fraction(size, _PREFIXES[prefix]))} {prefix}B"


def exact_rate(rate: float) -> str:
    """Write a rate (bytes per second) so that `parse_rate` returns the very same: `33.3333333333333 Gb/s`."""
    prefix = next((p for p in "TGMk" if rate * 8 >= _PREFIXES[p]), "")
    bits = rate * 8 / _PREFIXES[prefix]
    for digits in (6, 12, 15, 16, 17):
        text = f"{Decimal(f'{bits:.{digits}g}'):f} {prefix}b/s"
        if parse_rate(text) == rate:
            return text
    return f"{rate!r} B/s"


def format_rate(rate: float) -> str:
    """Write a rate (bytes per second) in bits per second, as networks count: `12.5 Gb/s`."""
    return _scaled(rate * 8, "b/s")


def format_size(size: float) -> str:
    """Write a size (bytes) with a decimal prefix: `1.25 TB`."""
    return _scaled(size, "B")


def format_duration(duration: timedelta) -> str:
    """Write a duration by its two largest units: `1 h 30 min`, `45 s`."""
    seconds = duration.total_seconds()
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    sign, rest = ("-" if seconds < 0 else ""), round(abs(seconds))
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts[:2])


def format_time(when: datetime) -> str:
    """Write a time to the second, in UTC: `2027-02-08T10:00:00Z`."""
    return f"{when.astimezone(UTC).isoformat()[:19]}Z"  # strftime takes three times as long


def format_minute(when: datetime) -> str:
    """Write a time to the minute, in UTC: `2027-02-08T10:00Z`."""
    return f"{format_time(when)[:16]}Z"


def format_time_or_none(when: datetime | None) -> str | None:
    """Write a time as `format_time` does; None stays None."""
    return None if when is None else format_time(when)


def _bytes(match: re.Match[str]) -> Fraction:
    return Fraction(_PREFIXES[match["prefix"]], 8 if _is_bit(match["unit"]) else 1)


def _is_bit(unit: str) -> bool:
    return unit == "b" or unit.lower().startswith("bit")


def _canonical(match: re.Match[str]) -> str:
    per = {"sec": "s", "hour": "h", None: "s"}.get(match["per"], match["per"])
    return f"{match['prefix']}{'b' if _is_bit(match['unit']) else 'B'}/{per}"


def _number(text: str) -> Fraction:
    if len(text) > 40 or abs(int(text.lower().partition("e")[2] or 0)) > 30:
        raise ValueError(f"{text[:20]}... is no number that a menu needs")
    return Fraction(text)


def _finite(value: Fraction, text: str) -> float:
    result = float(value)
    if not math.isfinite(result) or result > 1e24:
        raise ValueError(f"{_quoted(text)} is out of any real range")
    return result


def _complaint(text: str, noun: str, examples: str) -> str:
    stripped = text.strip()
    if stripped.startswith("-"):
        return f"{_quoted(text)} is negative; a {noun} is {examples}"
    if _BARE.fullmatch(stripped):
        return f"{_quoted(text)} has no unit; a {noun} is {examples}"
    return f"{_quoted(text)} is not a {noun}; a {noun} is {examples}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _scaled(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:.4g} E{unit}"


def percent(ratio: float) -> str:
    """Return a ratio in percent with one decimal: `99.7 %`."""
    return f"{100 * ratio:.1f} %"


def some(names: Iterable[str], most: int = 8) -> str:
    """Return the first of some names, and how many more there are: `A, B and 3 more`."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def nearest(text: str, candidates: Iterable[str], most: int = 1) -> list[str]:
    """Return the candidates of which a text is a part between `_`, or that are most like it, ignoring case.

    None if none is similar.
    """
    folded, text = {name.casefold(): name for name in candidates}, text.casefold()
    near = [name for name in folded if text in name.split("_")][:most]
    return [folded[name] for name in near or difflib.get_close_matches(text, folded, most, cutoff=0.6)]


def did_you_mean(text: str, candidates: Iterable[str], mark: str = "") -> str:
    """Return the hint for an unknown name: the nearest candidate, or some of them. `mark` quotes names."""
    names = sorted(candidates)
    if near := nearest(text, names):
        odd = next((f" ({character(char)} is no letter of it)" for char in text if not char.isascii()), "")
        return f"did you mean {mark}{near[0]}{mark}?{odd}"
    return f"known: {some(f'{mark}{name}{mark}' for name in names)}" if names else "there is none"


def character(char: str) -> str:
    """Return what a character is called, which may look like another one: `U+0422 CYRILLIC CAPITAL LETTER TE`."""
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def grouped(number: float) -> str:
    """Return a count with separators of thousands, `1,200`; a mean of counts is rounded to a whole one."""
    return f"{number:,.0f}"


def counted(number: int, plural: str, singular: str = "") -> str:
    """Return a number with what it counts, which is given in the plural: `1,200 links`, `1 link`, `1 rule or job`.

    `singular` is the noun for a single thing where it is not the plural without its `s`.
    """
    if number != 1:
        return f"{grouped(number)} {plural}"
    return f"1 {singular or ' or '.join(part.removesuffix('s') for part in plural.split(' and '))}"
