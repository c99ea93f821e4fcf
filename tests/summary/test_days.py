"""Challenge days: where they begin, and that each has its menu alone, also across a change of summer time."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dc_inject.ledger import Ledger, LedgerView, Reader
from dc_inject.menu import nodes, window_of
from dc_inject.model import EPOCH, Cycle, FlowKey, Link
from dc_inject.model.thresholds import parse
from dc_inject.summary import figures, standing, thresholds
from dc_inject.summary.adding import Times
from dc_inject.summary.days import Days, list_days
from dc_inject.summary.figures import ReportScope
from tests.cli.ledgers import ME, run

DAY, HOUR, QUARTER, MINUTE = (timedelta(minutes=count) for count in (1440, 60, 15, 1))
ZURICH = ZoneInfo("Europe/Zurich")
BEGUN = datetime(2027, 3, 22, 10, tzinfo=ZURICH).astimezone(UTC)  # summer time begins on the 28th, in day 6
BY_DAY = ("due >= 23 GB by day", "due < 40 GB by day", 'due{scenario="x"} > 1 GB by day', "rate >= 1 Mb/s by day")
LINK = FlowKey("t0-export", Link("CERN", "KIT"))
GB = 10**9
HEAD = "menu: 1\ncampaign: dc27\ntimezone: Europe/Zurich\n"


def menu(start: str, end: str) -> str:
    return f"{HEAD}start: {start}\nend: {end}\n"


def twelve() -> list[tuple[str, str, str]]:
    """Menus of a day each, which change at 10:00 in Zurich; day 7 lies in a folder."""
    days = [f"{date(2027, 3, 22) + number * DAY} 10:00" for number in range(13)]
    texts = starmap(menu, pairwise(days))
    return [(f"week/day-{number:02}.yaml", f"digest {number}", text) for number, text in enumerate(texts, start=1)]


def cycles(since: datetime, until: datetime, length: timedelta) -> Iterator[Cycle]:
    while since < until:
        yield Cycle(since, length)
        since += length


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve menus and an hour before the first; the day's number times 1 GB is due in each hour, and moves."""
    path, menus = tmp_path_factory.mktemp("days") / "dc27.sqlite", twelve()
    with Ledger.open(path, synchronous="OFF") as made:
        made.bind("dc27", HOUR, [ME], BEGUN - 2 * HOUR)
        early = ("early.yaml", "digest 0", menu("2027-03-20 08:00", "2027-03-21 09:00"))
        made.put_in_force([early, *menus], BEGUN - 9 * HOUR)
        made.put_in_force(menus, BEGUN - 8 * HOUR)  # early.yaml was over before it came into force
        for number in range(1, 13):
            clocks = (datetime(2027, 3, 21, 10) + n * DAY for n in (number, number + 1))  # noqa: DTZ001  of the clock
            first, last = (clock.replace(tzinfo=ZURICH).astimezone(UTC) for clock in clocks)
            if number == 4:  # somebody edits the menus of days 1 and 4
                edited = [(name, f"{digest}, edited", f"{text}# mended\n") for name, digest, text in menus]
                made.put_in_force([edited[0], *menus[1:3], edited[3], *menus[4:]], first + 3 * HOUR)
            for cycle in cycles(first, last, HOUR):
                made.open_cycle(cycle, {LINK: (number * GB, None)}, cycle.start)
                made.close_cycle(cycle, cycle.end)
    return path


def test_what_menus_brought_in_is_read_once(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each view that is renewed: lists of 10,000 links took half a second of CPU each time."""
    asked: list[str] = []
    parts = Reader.menu_parts

    def heard(view: Reader, digest: str) -> Mapping[str, bytes]:
        asked.append(digest)
        return parts(view, digest)

    monkeypatch.setattr(Reader, "menu_parts", heard)
    with LedgerView.open(ledger) as view:
        before = list_days(view)
        asked.clear()
        assert list_days(view) == before
    assert asked == []


def report(path: Path, *more: str) -> dict[str, Any]:
    done = run("report", path, "--format", "json", *more)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_twelve_menus_that_change_at_ten_are_twelve_days_of_a_menu_each(ledger: Path) -> None:
    """Also across the change of summer time, an edit, and a menu that was removed before it was in force."""
    days = report(ledger)["days"]
    assert [day["menus"] for day in days] == [[f"day-{number:02}"] for number in range(1, 13)]
    assert [day["number"] for day in days] == list(range(1, 13))
    hours = [24] * 5 + [23] + [24] * 6
    assert [day["due"] for day in days] == [number * hours[number - 1] * GB for number in range(1, 13)]
    assert [day["seconds"] for day in days] == [3600 * count for count in hours]
    assert (days[0]["date"], days[-1]["date"]) == ("2027-03-22", "2027-04-02")
    assert [day["start"][11:16] for day in days] == ["09:00"] * 6 + ["08:00"] * 6


@pytest.mark.parametrize(
    ("by", "count", "second"),
    [
        ("day", 12, "2027-03-23T09:00:00Z"),
        ("calendar-day", 13, "2027-03-22T23:00:00Z"),
        ("hour", 287, "2027-03-22T10:00:00Z"),
        ("cycle", 287, "2027-03-22T10:00:00Z"),
    ],
)
def test_rows_are_by_what_is_asked_for(ledger: Path, by: str, count: int, second: str) -> None:
    made = report(ledger, "--by", by)
    assert (len(made["steps"]), made["steps"][1]["start"]) == (count, second)
    assert len(made["days"]) == (13 if by == "calendar-day" else 12)
    assert sum(step["due"] for step in made["steps"]) == made["totals"]["due"]
    rows = list(csv.DictReader(run("report", ledger, "--format", "csv", "--by", by).stdout.splitlines()))
    lengths = {step["start"]: step["seconds"] for step in made["steps"]}
    assert [(row["start"], int(row["due"])) for row in rows] == [
        (step["start"], step["due"]) for step in made["steps"]
    ]
    if by == "day":
        assert {row["start"]: int(row["seconds"]) for row in rows} == lengths


def test_status_export_and_thresholds_have_the_same_days(ledger: Path) -> None:
    with LedgerView.open(ledger) as view:
        now = datetime(2027, 3, 29, 7, 59, tzinfo=UTC)
        shown = standing.standing("dc27", view, now)["day"]
        assert (shown["number"], shown["menus"]) == (7, ["day-07"])
        shown = standing.standing("dc27", view, now + timedelta(minutes=1))["day"]
        assert (shown["number"], shown["date"], shown["menus"]) == (8, "2027-03-29", ["day-08"])
        assert standing.standing("dc27", view, BEGUN - timedelta(days=1))["day"] is None
    with LedgerView.open(ledger) as view:
        judged = thresholds.judge_thresholds(view, figures.period(view, ReportScope()), [*map(parse, BY_DAY)])
    assert [(one.outcome, one.value) for one in judged] == [
        ("met", 24 * GB), ("missed", 12 * 24 * GB), ("inconclusive", None), ("missed", 0),
    ]  # fmt: skip
    assert [one.reason.partition(":")[0] for one in judged[:2]] == ["day 1", "day 12"]


def test_twelve_days_are_twelve_at_whatever_minute_they_begin() -> None:
    """All of the cycle in which the first menu starts is of day 1."""
    days = Days(BEGUN + 5 * MINUTE, ZURICH)
    days = replace(days, menus=(("all", days.begun, days.start(13)),))
    made = [*cycles(BEGUN, days.start(13), QUARTER)]
    for long in (QUARTER, HOUR, None):
        times = Times(made, days, long, BEGUN)
        assert list(times.days) == list(range(1, 13)), long
        assert sum(times.seconds) == len(made) * 900
        assert [times.starts[span.start] for span in times.days.values()] == [
            BEGUN,
            *map(days.start, range(2, 13)),
        ]
    assert days.number(BEGUN) == 0
    assert days.of(Cycle(BEGUN - QUARTER, QUARTER)) == 0
    assert days.number(BEGUN - 50 * HOUR) == -2


def test_what_arrives_after_the_last_menu_is_of_the_last_day() -> None:
    days = Days(BEGUN, ZURICH, (("day-01", BEGUN, BEGUN + DAY), ("day-02", BEGUN + DAY, BEGUN + 2 * DAY)))
    made = [*cycles(BEGUN, BEGUN + 2 * DAY + HOUR, QUARTER)]
    for long, count in ((HOUR, 49), (None, 2)):
        times = Times(made, days, long, BEGUN)
        assert (list(times.days), len(times.starts)) == ([1, 2], count)
        assert (times.number(made[-1].start), times.end) == (count - 1, BEGUN + 2 * DAY + HOUR)
        rated = [sum(times.due_seconds[span.start : span.stop]) for span in times.days.values()]
        assert rated == [DAY.total_seconds()] * 2  # the hour after it lowers no rate


def test_hours_begin_with_the_day_where_summer_time_is_half_an_hour() -> None:
    """Lord Howe Island: on 2027-04-04 clocks go back by 30 minutes, in day 2."""
    zone = ZoneInfo("Australia/Lord_Howe")
    days = Days(datetime(2027, 4, 2, 10, tzinfo=zone).astimezone(UTC), zone)
    times = Times([*cycles(days.begun, days.start(4), QUARTER)], days, HOUR, days.begun)
    assert [len(span) for span in times.days.values()] == [24, 25, 24]
    assert (times.fine, times.phase) == (QUARTER, timedelta(0))
    assert times.seconds[24:49] == [3600.0] * 24 + [1800.0]


def test_a_campaign_that_began_in_mid_day_is_numbered_from_its_first_menu(tmp_path: Path) -> None:
    """And one without menus has days from its first cycle."""
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as made:
        third = Cycle(BEGUN + 2 * DAY + 5 * HOUR, QUARTER)
        made.open_cycle(third, {LINK: (GB, None)}, third.start)
        assert list_days(made) == Days(third.start)
        made.put_in_force(twelve(), third.start)
        days = list_days(made)
    assert (days.begun, days.of(third)) == (BEGUN, 3)
    assert days.current(third.start)["menus"] == ["day-03"]
    assert days.current(BEGUN) is None, "nothing was in force yet"


@pytest.mark.parametrize("by", ["day", "hour", "cycle", "calendar-day"])
def test_a_cycle_in_which_a_day_begins_is_divided_between_the_days(tmp_path: Path, by: str) -> None:
    """Of the cycle from 08:00 to 12:00 UTC a quarter is of the old day; all of the first is of day 1."""
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as made:
        made.bind("dc27", 4 * HOUR, [ME], BEGUN - HOUR)
        made.put_in_force([("all.yaml", "digest", menu("2027-03-22 10:00", "2027-03-25 10:00"))], BEGUN - HOUR)
        for number, cycle in enumerate(cycles(BEGUN - HOUR, BEGUN + 71 * HOUR, 4 * HOUR)):
            made.open_cycle(cycle, {LINK: (GB if number == 6 else 10 * GB + 1, None)}, cycle.start)
            made.close_cycle(cycle, cycle.end)
    found = report(tmp_path / "dc27.sqlite", "--by", by)
    assert sum(step["due"] for step in found["steps"]) == sum(day["due"] for day in found["days"]) == 171 * GB + 17
    assert sum(step["seconds"] for step in found["steps"]) == 72 * 3600
    if by != "calendar-day":
        assert [day["due"] for day in found["days"]] == [
            60 * GB + 6 + GB // 4,
            50 * GB + 5 + 3 * GB // 4 + 2500000000,
            57500000006,
        ]
        assert [day["seconds"] for day in found["days"]] == [25 * 3600, 24 * 3600, 23 * 3600]
    rows = list(
        csv.DictReader(run("report", tmp_path / "dc27.sqlite", "--format", "csv", "--by", by).stdout.splitlines())
    )
    assert [(row["start"], int(row["due"])) for row in rows] == [
        (step["start"], step["due"]) for step in found["steps"] if step["due"]
    ]


@pytest.mark.parametrize("minutes", [25, 50, 420, 1440])
def test_days_have_the_same_time_by_hour_and_by_cycle(minutes: int) -> None:
    """Whatever the length of cycles: an hour of a day ends where the next day begins, in a cycle of both."""
    length, begun = minutes * MINUTE, datetime(2027, 3, 27, 0, 10, tzinfo=UTC)
    days = Days(begun, ZURICH)
    days = replace(days, menus=(("all", begun, days.start(6)),))
    made = [*cycles(begun - (begun - EPOCH) % length, days.start(6), length)]
    by_day: list[dict[int, float]] = []
    for long in (length, max(HOUR, length), None):
        times = Times(made, days, long, begun)
        assert times.starts == sorted({*times.starts}), long
        assert times.end >= made[-1].end, long
        by_day.append({number: sum(times.seconds[span.start : span.stop]) for number, span in times.days.items()})
    assert by_day[0] == by_day[1] == by_day[2]


@pytest.mark.parametrize(
    "text",
    [
        menu("2027-03-22 10:00", "2027-03-23 10:00"),
        "{menu: 1, timezone: Europe/Zurich, start: 2027-03-22 10:00, end: 2027-03-23 10:00}",
        '"timezone": Europe/Zurich\nstart: 2027-03-22 10:00\nend: 2027-03-23 10:00\n',
        "x-from: &from 2027-03-22 10:00\ntimezone: Europe/Zurich\nstart: *from\nend: 2027-03-23 10:00\n",
        "timezone: Europe/Zurich\nstart: 2027-03-22 10:00\ninclude:\n- part.yaml\n",
        "description: |\n  start: now\n" + menu("2027-03-22 10:00", "2027-03-23 10:00"),
    ],
)
def test_the_head_of_a_menu_says_when_it_is_in_force(text: str) -> None:
    part = b"end: 2027-03-23 10:00\n"
    assert window_of(text, "day.yaml", lambda *_: part) == (BEGUN, BEGUN + DAY, ZURICH)


def test_links_of_a_menu_are_not_read_for_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign has many versions of menus of a thousand links."""
    read: list[bytes] = []
    compose = nodes.compose
    monkeypatch.setattr(nodes, "compose", lambda data, *rest: read.append(data) or compose(data, *rest))
    text = menu("2027-03-22 10:00", "2027-03-23 10:00") + "scenarios:\n" + "  x: {rate: 1 Gb/s}\n" * 1000
    assert window_of(text, "day.yaml", lambda *_: b"") == (BEGUN, BEGUN + DAY, ZURICH)
    assert sum(map(len, read)) < 200
