"""What the texts of a menu mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from pydantic import TypeAdapter

from dc_inject.menu import addresses, fields, values
from dc_inject.menu.nodes import Place, Text
from dc_inject.model import Order, Verify, units
from tests.menu.texts import problems, text

ZURICH = ZoneInfo("Europe/Zurich")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-02-08 10:00", datetime(2027, 2, 8, 9, tzinfo=UTC)),
        ("2027-02-08T10:00:30", datetime(2027, 2, 8, 9, 0, 30, tzinfo=UTC)),
        ("2027-02-08", datetime(2027, 2, 7, 23, tzinfo=UTC)),
        ("2027-07-01 10:00", datetime(2027, 7, 1, 8, tzinfo=UTC)),
        ("2027-02-08 10:00Z", datetime(2027, 2, 8, 10, tzinfo=UTC)),
        ("2027-02-08 10:00 UTC", datetime(2027, 2, 8, 10, tzinfo=UTC)),
        ("2027-02-08 10:00-0500", datetime(2027, 2, 8, 15, tzinfo=UTC)),
        ("2027-10-31 02:30+02:00", datetime(2027, 10, 31, 0, 30, tzinfo=UTC)),
        ("2027-10-31 02:30+01:00", datetime(2027, 10, 31, 1, 30, tzinfo=UTC)),
        ("2027-03-28 01:59", datetime(2027, 3, 28, 0, 59, tzinfo=UTC)),
        ("2027-03-28 03:00", datetime(2027, 3, 28, 1, 0, tzinfo=UTC)),
    ],
)
def test_moments(text: str, expected: datetime) -> None:
    """A time is read in the menu's zone, or with the offset that it says."""
    assert values.moment(text, ZURICH) == expected


@pytest.mark.parametrize(
    "text",
    [
        "2027-03-28 02:00",
        "2027-03-28 02:59",
        "2027-10-31 02:00",
        "2027-02-30 10:00",
        "2027-02-08 25:00",
        "10:00",
        "1812-01-01",
        "2027-02-08 10:00+24:00",
    ],
)
def test_wrong_moments(text: str, wording) -> None:
    """A time that clocks jump over, or show twice, or that is none, is refused with what to write."""
    with pytest.raises(values.WrongError) as caught:
        values.moment(text, ZURICH)
    wording(f"{caught.value.message} ({caught.value.hint})")


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (values.rate, "8 Gb/s", 1e9),
        (values.counts, "1..1000", (1, 1000)),
        (values.counts, "5 .. 5", (5, 5)),
        (values.sizes, "1..20 GB", (10**9, 20 * 10**9)),
        (values.sizes, "0.5 .. 2 GiB", (2**29, 2**31)),
        (values.sizes, "500 MB..20 GB", (5 * 10**8, 20 * 10**9)),
        (values.fraction, "10 %", 0.1),
        (values.fraction, "0.1", 0.1),
        (values.fraction, "0", 0.0),
        (values.part, "25%", 0.25),
        (values.share, "15.79", 15.79),
        (addresses.link, "A:B", "A:B"),
        (addresses.link, "A->B", "A:B"),
        (addresses.link, " A -> B ", "A:B"),
        (addresses.link, "davs://a/b->root://c//d", "davs://a/b:root://c//d"),
        (values.cycle, "15 min", timedelta(minutes=15)),
        (units.parse_duration, "0 s", timedelta(0)),
        (values.did, "cms:/*/RAW#*", "cms:/*/RAW#*"),
        (addresses.end, " tier=1&country=DE ", "tier=1&country=DE"),
    ],
)
def test_values(read, text: str, expected: object) -> None:
    """What is right is read."""
    assert read(text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (values.rate, "10"),
        (values.rate, "10 Gb"),
        (values.rate, "-1 Gb/s"),
        (values.rate, "0 Gb/s"),
        (values.rate, "inf Gb/s"),
        (values.rate, "nan"),
        (values.rate, "1e29 EB/s"),
        (units.parse_size, "10 Gb"),
        (values.counts, "1000"),
        (values.counts, "9..1"),
        (values.counts, "a..b"),
        (values.counts, "0..0"),
        (values.counts, "1..1000000001"),
        (values.counts, "1000000001..1000000002"),
        (values.sizes, "1..20"),
        (values.sizes, "20..1 GB"),
        (values.sizes, "0..0 GB"),
        (values.fraction, "110 %"),
        (values.fraction, "-0.1"),
        (values.fraction, "1e-1"),
        (values.part, "0"),
        (values.share, "-1"),
        (values.share, "nan"),
        (values.share, "10 Gb/s"),
        (addresses.link, "A->"),
        (addresses.link, "A->B->C"),
        (values.cycle, "2 d"),
        (values.cycle, "1.5 s"),
        (values.lasting, "0 s"),
        (values.zone, "Europe/Zürich"),
        (values.zone, "/etc/passwd"),
        (values.zone, "../UTC"),
        (values.zone, "Europe"),
        (values.zone, ""),
        (values.did, "cms"),
        (values.did, "cms:"),
        (values.rse, "a b"),
        (addresses.end, "a\nb"),
        (values.name, "-x"),
        (values.name, "x" * 65),
        (values.activity, "x" * 51),
        (values.line, "a\nb"),
    ],
)
def test_wrong_values(read, text: str) -> None:
    """What is wrong is explained, with what to write instead."""
    with pytest.raises(ValueError, match=r".") as caught:
        read(text)
    message, hint = values.explain(caught.value)
    assert message
    assert hint


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (fields.Count, "3_000", 3000),
        (fields.Priority, "5", 5),
        (fields.Switch, "true", True),
        (fields.Switch, "Yes", True),
        (fields.Switch, "on", True),
        (fields.Switch, "no", False),
        (fields.Switch, "OFF", False),
        (fields.TakeOrder, "random", Order.RANDOM),
        (fields.Checksums, "target", Verify.TARGET),
    ],
)
def test_what_pydantic_reads(kind: object, text: str, expected: object) -> None:
    """Whole numbers, switches and words."""
    assert TypeAdapter(kind).validate_python(Text(text, Place("m.yaml", 1))) == expected


@pytest.mark.parametrize(
    "content",
    [
        {"limits": "limits: {files_in_flight: 0}"},
        {"limits": "limits: {files_in_flight: 1.5}"},
        {"limits": "limits: {files_in_flight: _}"},
        {"limits": f"limits: {{files_in_flight: {'9' * 5000}}}"},
        {"limits": "limits: {files_in_flight: 1000000000000}"},
        {"limits": "limits: {rules_per_hour: 1000000001}"},
        {"limits": "limits: {files_in_flight: [1]}"},
        {"defaults": "defaults: {datasets: {did: 'a:b'}, priority: 6}"},
        {"defaults": "defaults: {datasets: {did: 'a:b'}, jobs: {scitag: 64}}"},
        {"x": "above_production: perhaps"},
        {"x": "above_production: {a: b}"},
        {"defaults": "defaults: {datasets: {did: 'a:b', order: first}}"},
    ],
)
def test_what_pydantic_refuses(content: dict[str, str], wording) -> None:
    """With what it expected, and where it stands."""
    (problem,) = problems(text(**content))
    wording(problem)
    assert problem.column >= 1
    assert problem.hint.startswith("write ")
