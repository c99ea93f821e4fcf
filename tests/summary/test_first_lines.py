"""The first lines say what moves, since when, what is short, what happened and what the campaign waits for."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dc_inject.apps.report import watch_figures
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.records import INJECTOR
from dc_inject.model import Cycle
from dc_inject.model.ports import Identity, Observation, Outcome, Status
from dc_inject.model.services import SIMULATED
from dc_inject.summary import first_lines, marks, menu_terms, standing
from tests.apps.report import campaigns_to_watch as watching
from tests.apps.report.campaigns_to_watch import BEGIN, LENGTH, MENU, NOW
from tests.cli.ledgers import GB, KIT, ME, injection

SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watching.campaign(tmp_path_factory.mktemp("lines") / "dc27.sqlite")


def shown(path: Path, now: Any = NOW) -> dict[str, Any]:
    with LedgerView.open(path) as view, view.snapshot():
        return standing.standing("dc27", view, now)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """A ledger of a link through a few cycles, with signals at minutes."""

    def make(
        *signals: tuple[int, str, str, Any],
        cycles: int = 3,
        menu: str = MENU,
        me: Identity = ME,
        due: int = 90 * GB,
    ) -> Path:
        path = tmp_path / "dc27.sqlite"
        with Ledger.open(path, synchronous="OFF") as ledger:
            ledger.bind("dc27", LENGTH, [me], BEGIN)
            ledger.begin(BEGIN)
            ledger.put_in_force([("day.yaml", "0", menu)], BEGIN)
            for number in range(cycles):
                cycle = Cycle(BEGIN + number * LENGTH, LENGTH)
                ledger.open_cycle(cycle, {KIT: (due, None)}, cycle.start)
                ledger.close_cycle(cycle, cycle.end)
            for minute, name, subject, value in signals:
                ledger.signal(name, subject, value, BEGIN + timedelta(minutes=minute), "" if value else "503")
        return path

    return make


def test_the_rates_are_those_of_the_last_closed_cycle_and_since_the_menus_changed(ledger: Path):
    """In Gb/s, of what was due: 4.03 TB in 15 minutes are 35.8 Gb/s."""
    now, since, short, events, waits = shown(ledger)["first_lines"]
    assert now.startswith("dc27 10:07:31Z: 27.7 of 35.8 Gb/s due (77.5 %) ▄▄▆▆▆▆▆▆▆▆▆▆ in 09:45-10:00Z")
    assert since.startswith("day 1, since 02-08 04:00Z: 26.9 of 35.8 Gb/s due")
    assert short.startswith("! short: 3 of 14 links, 3 groups; failing: ")
    assert events.index("us-mesh") < events.index("LHCOPN") < events.index("40 Gb/s")
    assert waits.startswith("! waits")


@pytest.mark.parametrize(("cycles", "later", "is_known"), [(3, 2, True), (3, 3, False), (0, 1, False)])
def test_old_figures_are_not_called_current(made, cycles: int, later: int, is_known: bool):
    """With the injector dead in a menu's time, the first line needs somebody, and the third accuses no link."""
    values = shown(made(cycles=cycles), BEGIN + (cycles + later) * LENGTH)
    assert values["first_lines"][0].startswith("! ") == (bool(cycles) and not is_known)
    assert ("02-08 04:45Z" in values["first_lines"][0]) == (bool(cycles) and not is_known)
    assert (bool(values["short"]), "unknown" in values["first_lines"][2]) == (is_known, not is_known)
    assert "none" not in values["first_lines"][2]


def test_a_campaign_that_has_ended_is_over_and_not_stuck(made):
    path = made()
    first = shown(path, BEGIN + timedelta(days=2))["first_lines"][0]
    assert " over since 02-09 04:00Z" in first
    assert " 0.00 of 0.80 Gb/s " in first
    assert " over " not in shown(path, BEGIN + 6 * LENGTH)["first_lines"][0]


def test_after_the_menus_the_last_cycle_in_which_anything_was_due_is_shown_and_nothing_is_short(made):
    """What arrives later, of what was due before, counts in the sum alone."""
    menu, late = MENU.replace("end: 2027-02-09 04:00", "end: 2027-02-08 04:45"), Cycle(BEGIN + 3 * LENGTH, LENGTH)
    path = made(menu=menu)
    with Ledger.open(path, synchronous="OFF") as ledger:
        short = shown(path, late.start - SECOND)["short"]
        assert [group["cause"] for group in short] == ["few-bytes"]
        assert shown(path, late.start)["short"] == []
        ledger.open_cycle(late, {KIT: (0, None)}, late.start)
        one = injection(KIT, 0, late)
        ledger.add_injections([one], late.start)
        ledger.call([one.key], late.start)
        ledger.answer([Outcome(one.key, one.key)], late.start, {})
        ledger.observe([Observation(one.key, Status.COMPLETE, files_done=10)], late.start)
        ledger.close_cycle(late, late.end)
    values = shown(path, late.end)
    first, since, third, *_ = values["first_lines"]
    assert " 0.00 of 0.80 Gb/s " in first
    assert f"{late.start - LENGTH:%H:%M}-{late.start:%H:%M}Z" in first
    assert since.endswith("100 GB of 270 GB")
    assert (values["short"], third.startswith("!")) == ([], False)


@pytest.mark.parametrize(("due", "rate"), [(12 * GB, "0.11 Gb/s"), (GB, "8.89 Mb/s")])
def test_small_rates_are_in_megabits(made, due: int, rate: str):
    assert f" 0.00 of {rate} due " in shown(made(due=due), BEGIN + 3 * LENGTH)["first_lines"][0]


def test_what_fell_in_the_last_cycle_alone_is_counted_beside_a_total_that_fell(tmp_path: Path):
    """One cycle is no news, but nobody reads of 0 % and then of no link that is short."""
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
        ledger.bind("dc27", LENGTH, [ME], BEGIN)
        ledger.begin(BEGIN)
        for number in range(5):
            cycle = Cycle(BEGIN + number * LENGTH, LENGTH)
            ledger.open_cycle(cycle, {KIT: (100 * GB, None)}, cycle.start)
            if number < 4:
                one = injection(KIT, number, cycle)
                ledger.add_injections([one], cycle.start)
                ledger.call([one.key], cycle.start)
                ledger.answer([Outcome(one.key, one.key)], cycle.start, {})
                ledger.observe([Observation(one.key, Status.COMPLETE, files_done=10)], cycle.start)
            ledger.close_cycle(cycle, cycle.end)
    lines = [shown(tmp_path / "dc27.sqlite", BEGIN + cycles * LENGTH)["first_lines"] for cycles in (5,)]
    assert "(0.0 %)" in lines[0][0]
    assert re.findall("[0-9]+", lines[0][2]) == ["1", "1"]


@pytest.mark.parametrize(
    ("length", "span"),
    [
        (timedelta(seconds=10), "04:00:00-04:00:10Z"),
        (LENGTH, "04:00-04:15Z"),
        (timedelta(days=1), "02-08 04:00-02-09 04:00Z"),
    ],
)
def test_the_last_cycle_has_seconds_or_dates_where_they_are_needed(tmp_path: Path, length: timedelta, span: str):
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
        ledger.bind("dc27", length, [ME], BEGIN)
        ledger.begin(BEGIN)
        cycle = Cycle(BEGIN, length)
        ledger.open_cycle(cycle, {KIT: (90 * GB, None)}, BEGIN)
        ledger.close_cycle(cycle, cycle.end)
    assert shown(tmp_path / "dc27.sqlite", cycle.end)["first_lines"][0].endswith(f" in {span}")


def test_yesterday_does_not_count_once_the_menus_have_changed(made):
    later = MENU.replace("start: 2027-02-08 04:00", "start: 2027-02-08 04:30")
    with LedgerView.open(made(menu=later)) as view:
        assert first_lines.changed_at(view, BEGIN + 3 * LENGTH) == BEGIN + 2 * LENGTH
        assert first_lines.changed_at(view, BEGIN + LENGTH) == BEGIN


def test_a_closed_cycle_without_rows_has_moved_nothing(made):
    """As between the days of a challenge, when all has arrived; the next menu may have begun since."""
    path, last = made(), Cycle(BEGIN + 3 * LENGTH, LENGTH)
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.open_cycle(last, {}, last.start)
        ledger.close_cycle(last, last.end)
        ledger.put_in_force([("day.yaml", "1", MENU.replace("250 Gb/s", "240 Gb/s"))], last.end)
    first = shown(path, last.end + SECOND)["first_lines"][0]
    assert " 0.00 of 0.00 Gb/s " in first
    assert f"in {last.start:%H:%M}-{last.end:%H:%M}Z" in first


def test_a_simulation_is_shown_as_it_was_in_its_last_cycle_and_waits_for_no_injector(made):
    path = made(me=replace(ME, address=f"{SIMULATED}grid"))
    with LedgerView.open(path) as view, view.snapshot():
        assert standing.shown_moment(view, NOW + 300 * LENGTH) == BEGIN + 3 * LENGTH
    assert watch_figures.read(path, "dc27", NOW + 300 * LENGTH).at == BEGIN + 3 * LENGTH
    assert not shown(path, BEGIN + 3 * LENGTH)["first_lines"][4].startswith("!")


def test_an_outage_is_an_event_with_its_end_and_what_lasts_comes_first(made):
    path = made((5, "service", "rucio", None), (6, "service", "rucio", None), (9, "service", "rucio", "answers"),
                (2, "writable", "T1_DE_KIT_Disk", 0), (1, "free", "T1_DE_KIT_Disk", None))  # fmt: skip
    with LedgerView.open(path) as view:
        outages = [mark for mark in marks.marks(view, BEGIN, NOW) if mark["kind"] == "outage"]
        assert [(mark["at"], mark["until"], mark["why"]) for mark in outages] == [
            (BEGIN + timedelta(minutes=2), None, "503"),
            (BEGIN + timedelta(minutes=5), BEGIN + timedelta(minutes=9), "503"),
        ]
        assert view.changes() == ()
    events = shown(path)["events"]
    assert events[0].startswith("04:02Z T1_DE_KIT_Disk ")
    assert events[1].startswith("04:05Z rucio ")


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (BEGIN - SECOND, "next menu"),
        (BEGIN + SECOND, "an injector"),
        (BEGIN + timedelta(days=2), "for nothing"),
    ],
)
def test_the_last_line_says_what_it_waits_for(made, now, wanted: str):
    assert shown(made(), now)["first_lines"][4].count(wanted) == 1


def test_a_cycle_without_a_plan_waits_for_it(made, monkeypatch: pytest.MonkeyPatch):
    """A person who reads of the end of the cycle looks for the reason elsewhere."""
    monkeypatch.setattr(standing, "_injector", lambda _: {"who": "me"})
    path, now = made((31, "plan", "cycle", None)), BEGIN + timedelta(minutes=32)
    assert "503" in shown(path, now)["first_lines"][4]
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.signal("plan", "cycle", "made", now)
    assert "04:45Z" in shown(path, now)["first_lines"][4]


def test_with_what_is_left_it_says_until_when(ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And by which command, unless an injector runs, which ends and deletes by itself."""
    path = tmp_path / "copy.sqlite"
    by = f"`dc-inject end {path}`"  # it is not in the default place
    path.write_bytes(ledger.read_bytes())
    with Ledger.open(path) as one:
        cycle = Cycle.at(NOW, LENGTH)

        left = injection(watching.LINKS[0], 7, cycle)
        one.add_injections([left], NOW)
        one.call([left.key], NOW)
        one.answer([Outcome(left.key, "x")], NOW, {})
        (until,) = [entry.expires_at for entry in one.entries() if entry.injection.key == left.key]
    waits = shown(path, NOW + timedelta(days=1))["first_lines"][4]
    assert "is left" in waits
    assert f"{until:%H:%MZ}" in waits
    assert by in waits
    with Ledger.open(path) as one:
        one.ended([left.key], NOW)
    waits = shown(path, NOW + timedelta(days=1))["first_lines"][4]
    assert "deletions" in waits
    assert by in waits
    monkeypatch.setattr(standing, "_injector", lambda _: {"who": "me"})
    assert by not in shown(path, NOW + timedelta(days=1))["first_lines"][4]


def test_sites_of_an_included_file_are_known(tmp_path: Path):
    """The ledger keeps what a menu includes."""
    included = b"sites:\n  KIT: {rses: {T1_DE_KIT_Disk: {}}}\n"
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", LENGTH, [ME], BEGIN)
        ledger.put_in_force(
            [("day.yaml", "d", MENU)], BEGIN, {"d": {"sites.yaml": included, "list.csv": b"sites,\xff"}}
        )
        ledger.open_cycle(Cycle(BEGIN, LENGTH), {KIT: (90 * GB, None)}, BEGIN)
    with LedgerView.open(path) as view:
        assert menu_terms.site_of(view) == {"T1_DE_KIT_Disk": "KIT"}


def test_an_edited_menu_changes_and_does_not_end(tmp_path: Path):
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", LENGTH, [ME], BEGIN)
        for digest, at in (("d", BEGIN), ("e", BEGIN + LENGTH)):
            ledger.put_in_force(
                [("day.yaml", digest, MENU.replace("10 Gb/s", "9 Gb/s" if digest == "e" else "10 Gb/s"))], at
            )
        ledger.open_cycle(Cycle(BEGIN + LENGTH, LENGTH), {KIT: (90 * GB, None)}, BEGIN + LENGTH)
    events = shown(path, BEGIN + 2 * LENGTH)["events"]
    assert [event.split()[-1] for event in events if " menu " in event] == ["changes", "begins"]


def test_an_outage_of_a_later_version_is_shown_by_its_name(tmp_path: Path):
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", LENGTH, [ME], BEGIN)
        ledger.change(INJECTOR, "begin volume T1_X", "why", BEGIN)
    with LedgerView.open(path) as view:
        assert [mark["what"] for mark in marks.marks(view, BEGIN, NOW)] == ["volume T1_X"]


def test_the_block_ends_with_what_to_run_and_marks_only_what_a_person_has_to_act_on() -> None:
    groups = [{"needs_action": call != "nobody", "line": call} for call in ("KIT", "nobody", "RAL")]
    status = {"first_lines": ["a"], "short": groups, "more": "dc-inject explain x"}
    assert first_lines.block(status) == ["a", "nobody", "! RAL", "more: dc-inject explain x"]
    assert first_lines.block(status, 80, 3) == ["a", "nobody", "more: dc-inject explain x"]
    assert first_lines.block(status, 5, 7) == ["a", "more: dc-inject explain x"], "that is folded to five rows"
    assert first_lines.block({**status, "short": [], "more": ""}) == ["a"]


def test_many_groups_are_folded_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded again for each that finds no room, 1200 of them would take `watch` two minutes."""
    folded = Mock(side_effect=textwrap.wrap)
    monkeypatch.setattr(textwrap, "wrap", folded)
    status = {"first_lines": ["a"], "short": [{"needs_action": True, "line": "b"}] * 100, "more": ""}
    assert len(first_lines.block(status, 80, 20)) == 20
    assert folded.call_count <= 100


def test_each_line_of_what_is_short_begins_with_its_key(ledger: Path):
    status = shown(ledger)
    assert [group["line"].partition(": ")[0] for group in status["short"]] == [
        group["cause"] for group in status["short"]
    ]
    assert f"; {status['short'][0]['cause']}: " in status["first_lines"][2]


def test_what_to_run_names_the_file_of_a_ledger_in_another_place(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(ledger.parent)
    for path in (ledger, Path(ledger.name)):
        assert shown(path)["more"] == f"dc-inject explain {ledger}"
    place = tmp_path / "dc_inject" / "dc27-rehearsal.sqlite"
    place.parent.mkdir()
    place.write_bytes(ledger.read_bytes())
    assert shown(place)["more"] == "dc-inject explain dc27-rehearsal"
