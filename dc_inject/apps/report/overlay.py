"""Readings of a site's WAN next to the figures of a report: `report --overlay FILE`.

WLCG sites publish a JSON document every minute, with `UpdatedLast`, `InBytesPerSec` and `OutBytesPerSec`, of all
their traffic. A file of them is a list of such documents, or any number of them one after another, on one line
or indented; a CSV has the columns `time`, `in` and `out`, in bytes per second. Times are UTC unless they have an
offset, or seconds since 1970.

Source of the format: the three exporters in github.com/osg-htc/WLCG-Site-Net-Monitoring. The one in Go indents by
tabs and writes an offset of +00:00; the one in Python to a file writes one line without its end, with an offset;
the one in Python with a server indents by four spaces, and writes UTC without an offset.

What others measure is not to be trusted blindly: what is no rate, what repeats a time (a document that was not
renewed) and what is outside of the report's time is dropped, counted and reported. A step has the mean of its
readings.
"""

from __future__ import annotations

import csv
import json
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from statistics import fmean
from typing import Any, NamedTuple

from dc_inject.model.errors import UsageError
from dc_inject.model.redaction import visible

LARGEST = 64_000_000  # bytes of a file
MOST_READINGS = 1_000_000  # two years of minutes
FASTEST = 1.25e13  # bytes per second, 100 Tb/s: more is a mistake of whoever measures
NAMES = {"time": ("updatedlast", "time"), "in": ("inbytespersec", "in"), "out": ("outbytespersec", "out")}
_BLANKS = re.compile(r"\s*")
CUT = "cut it to the time of the report"
HINT = "JSON with UpdatedLast, InBytesPerSec and OutBytesPerSec, or CSV with the columns time, in and out"


class Reading(NamedTuple):
    """What a site measured: bytes per second into it, and out of it."""

    at: datetime
    into: float
    out: float


def overlay(data: bytes, name: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return readings by step of a report, in bytes per second; raises UsageError where a file has none."""
    if len(data) > LARGEST:
        raise UsageError(f"{name} has more than {LARGEST // 1_000_000} MB", CUT)
    dropped: Counter[str] = Counter()
    by_time: dict[datetime, Reading] = {}
    for record in _records(data, name):
        reading = _reading(record)
        if reading is None:
            dropped["no rate"] += 1
            continue
        dropped["repeated"] += reading.at in by_time
        by_time[reading.at] = reading
    if not by_time:
        raise UsageError(f"{name} has no reading of a WAN", HINT)
    steps: dict[int, list[Reading]] = defaultdict(list)
    starts = [datetime.fromisoformat(step["start"]) for step in report["steps"]]
    end = datetime.fromisoformat(report["steps"][-1]["end"])
    for at, reading in sorted(by_time.items()):
        number = bisect_right(starts, at) - 1
        if number >= 0 and at < end:
            steps[number].append(reading)
        else:
            dropped["outside"] += 1
    numbers = range(len(report["steps"]))
    return {
        "name": visible(name),
        "readings": sum(map(len, steps.values())),
        "dropped": {why: count for why, count in dropped.items() if count},
        "in": [fmean(reading.into for reading in steps[n]) if n in steps else None for n in numbers],
        "out": [fmean(reading.out for reading in steps[n]) if n in steps else None for n in numbers],
    }


def _records(data: bytes, name: str) -> Iterator[Mapping[str, object]]:
    """Yield what a file has, with keys in small letters."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8", HINT) from None
    rows: Iterable[Any] = (
        _json(text, name) if text.lstrip()[:1] in {"{", "["} else csv.DictReader(text.splitlines())
    )
    try:
        for number, row in enumerate(rows):
            if number >= MOST_READINGS:
                raise UsageError(f"{name} has more than {MOST_READINGS} readings", CUT)
            yield {str(key).strip().lower(): value for key, value in row.items()} if isinstance(row, dict) else {}
    except csv.Error as error:
        raise UsageError(f"{name} is no CSV: {error}", HINT) from None


def _json(text: str, name: str) -> Iterator[Any]:
    """Yield the documents of a file: of a list, or one after another."""
    decoder, at = json.JSONDecoder(), _BLANKS.match(text, 0)
    while at is not None and at.end() < len(text):
        try:
            document, end = decoder.raw_decode(text, at.end())
        except (ValueError, RecursionError):
            raise UsageError(f"{name}:{text.count(chr(10), 0, at.end()) + 1}: this is no JSON", HINT) from None
        yield from document if isinstance(document, list) else [document]
        at = _BLANKS.match(text, end)


def _reading(record: Mapping[str, object]) -> Reading | None:
    """Return a reading; None for what is none."""
    time, *rates = (next((record[key] for key in keys if key in record), None) for keys in NAMES.values())
    at, (inwards, outwards) = _moment(time), map(_rate, rates)
    return None if at is None or inwards is None or outwards is None else Reading(at, inwards, outwards)


def _moment(value: object) -> datetime | None:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        at = datetime.fromisoformat(str(value).strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _rate(value: object) -> float | None:
    try:
        rate = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return rate if 0 <= rate <= FASTEST else None
