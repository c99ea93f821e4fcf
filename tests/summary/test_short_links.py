"""Links that move too little are found within two cycles, share a line, and name whom to call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Cycle, FlowKey, Held, Hold, Injection, Link
from dc_inject.model.ports import Observation, Outcome, Status
from dc_inject.summary.short_links import RAMP, JudgedLink, compute_since, grouped, judge_links
from tests.cli.ledgers import FNAL, GB, KIT, ME, START, injection

LENGTH = timedelta(minutes=15)
CERN, IHEP, RAL, CNAF, PIC = "CERN", "IHEP", "RAL", "CNAF", "PIC"


def link(source: str, destination: str, *, cause: str = "", service: str = "rucio", hold: Hold | None = None):
    key = FlowKey("test", Link(f"{source}_Disk", f"{destination}_Disk", service))
    moved = 0 if cause else 100
    since = START if cause else None
    held = None if hold is None else Held(hold)
    return JudgedLink(key, source, destination, 100, moved, since, cause=hold.value if hold else cause, held=held)


def lines(links: Iterable[JudgedLink]) -> list[tuple[str, int, str]]:
    return [(group.subject, len(group.links), group.call) for group in grouped(list(links))]


def silent(source: str, destination: str, service: str = "rucio") -> JudgedLink:
    return link(source, destination, cause="silent", service=service)


WORKS = [link(CERN, CNAF), link(IHEP, PIC)]


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([*WORKS, silent(CERN, RAL), silent(IHEP, RAL)], [("all 2 links into RAL", 2, "RAL")]),
        ([*WORKS, silent(RAL, CNAF), silent(RAL, PIC)], [("all 2 links from RAL", 2, "RAL")]),
        ([*WORKS, silent(RAL, CNAF), silent(CERN, RAL)], [("all 2 links into and from RAL", 2, "RAL")]),
        ([*WORKS, silent(CERN, RAL)], [("CERN_Disk -> RAL_Disk", 1, "RAL")]),
        ([*WORKS, silent(CERN, PIC)], [("CERN_Disk -> PIC_Disk", 1, "the network between them")]),
        (
            [silent(CERN, RAL, "fts"), silent(IHEP, CNAF, "fts"), silent(CERN, PIC, "fts")],
            [("all 3 links", 3, "FTS's operators")],
        ),
        (
            [*WORKS, silent(CERN, RAL, "fts"), silent(IHEP, CNAF, "fts")],
            [("all 2 links through FTS", 2, "FTS's operators")],
        ),
        (
            [silent(CERN, RAL, "reads"), silent(IHEP, PIC, "reads")],
            [("all 2 links", 2, "workers")],
        ),
        ([silent(CERN, RAL), silent(CERN, PIC)], [("all 2 links", 2, "Rucio's and FTS's operators or CERN")]),
        ([silent(CERN, RAL)], [("CERN_Disk -> RAL_Disk", 1, "Rucio's and FTS's operators or RAL or CERN")]),
        (
            [*WORKS, silent(CERN, RAL), silent(IHEP, RAL), silent(CERN, PIC)],
            [("all 2 links into RAL", 2, "RAL"), ("CERN_Disk -> PIC_Disk", 1, "the network between them")],
        ),
        (
            [*WORKS, *(link(CERN, RAL, hold=hold) for hold in (Hold.DELETION_LAG, Hold.QUOTA))],
            [(f"{CERN}_Disk -> {RAL}_Disk", 1, f"{who}Rucio's operators") for who in (f"{RAL}, then ", "")],
        ),
        (
            [link(CERN, RAL, hold=Hold.API_ERRORS), link(IHEP, PIC, hold=Hold.API_ERRORS)],
            [("all 2 links", 2, "Rucio's operators")],
        ),
        (
            [link(CERN, RAL, hold=Hold.QUARANTINED, service="reads")],
            [("CERN -> RAL", 1, "workers, if the menu is right")],
        ),
        ([*WORKS, link(CERN, PIC, hold=Hold.FAILING), link(RAL, CNAF, hold=Hold.FAILING)], [("2 links", 2, "")]),
        (WORKS, []),
    ],
)  # fmt: skip
def test_links_share_a_line_with_whom_to_call(links, expected):
    """Whoever carries a link that works is no suspect; where nobody is one, the network is left."""
    found = lines(links)
    if expected == [("2 links", 2, "")]:  # they have nothing in common
        assert sorted(found) == [
            ("CERN_Disk -> PIC_Disk", 1, "the network between them"),
            ("RAL_Disk -> CNAF_Disk", 1, "RAL"),
        ]
    else:  # of readers, the person who runs them
        assert [(*row, call.partition(" the ")[2] or call) for *row, call in found] == expected


# --------------------------------------------------------------------------- from a ledger

Made = Callable[..., list[JudgedLink]]


def move(ledger: Ledger, one: Injection, injected: int, moved: int, look: Mapping[str, Any] | None = None) -> None:
    """Inject gigabytes in a cycle, of which some move in it; what else a look at it shows may be given."""
    if injected:
        start, one = one.cycle.start, replace(one, item=replace(one.item, bytes=injected * GB))
        ledger.add_injections([one], start)
        ledger.call([one.key], start)
        ledger.answer([Outcome(one.key, one.key)], start, {})
        status = Status.COMPLETE if moved == injected else Status.MOVING
        seen = Observation(one.key, status, files_done=10 * moved // injected, moved=moved * GB)
        ledger.observe([seen._replace(**look or {})], start)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Judge two links by the gigabytes that move on the first in each cycle of those 100 that are due.

    With `more`, so many more are injected in each cycle than move.
    """

    def make(
        *moved: int,
        held: Held | None = None,
        injected: int = 100,
        more: int | None = None,
        down: bool = False,
        before: Any = None,
        most: int = 0,
        **look: Any,
    ) -> list[JudgedLink]:
        path, now = tmp_path / "dc27.sqlite", START + len(moved) * LENGTH
        with Ledger.open(path, synchronous="OFF") as ledger:
            ledger.bind("dc27", LENGTH, [ME], START)
            ledger.begin(START)
            for number, size in enumerate(moved):
                cycle = Cycle(START + number * LENGTH, LENGTH)
                ledger.open_cycle(cycle, {FNAL: (100 * GB, held), KIT: (100 * GB, None)}, cycle.start)
                move(
                    ledger,
                    injection(FNAL, number, cycle),
                    injected if more is None else size + more,
                    size,
                    before if before and number < 3 else look,
                )
                move(ledger, injection(KIT, number, cycle), 100, 100)
                ledger.close_cycle(cycle, cycle.end)
            if down:
                ledger.signal("service", "rucio", None, now, "503")
            if most:
                ledger.signal("fts_queue", str(FNAL.link), most, now)
        with LedgerView.open(path) as view:
            return judge_links(view, now)

    return make


@pytest.mark.parametrize(
    ("moved", "nothing_since"),
    [
        ([0], None),  # too young
        ([0, 0], 0),
        ([30, 90], None),  # what is due arrives later
        ([100, 100, 100, 100, 0], None),  # one cycle is no news
        ([100, 100, 100, 100, 0, 0], 4),
        ([100, 100, 100, 40, 0], 4),
        ([100] * 9 + [0] * 7, 9),
    ],
)  # fmt: skip
def test_a_cut_is_seen_after_two_cycles(made: Made, moved: list[int], nothing_since: int | None):
    one = next(link for link in made(*moved) if link.key == FNAL) if len(moved) > 1 else None
    if nothing_since is None:
        assert one is None or not one.cause
    else:
        assert (one.cause, one.since) == ("silent", START + nothing_since * LENGTH)


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(11, "since 10:00Z"), (13, "since 02-08 10:00Z"), (24, "since 02-08 10:00Z"), (25, None)],
)
def test_the_time_without_arrivals_has_a_date_and_never_one_that_is_not_known(hours: int, shown: str | None):
    words = compute_since(START, START + timedelta(hours=hours))
    assert words == shown if shown else not re.search("[0-9]", words)


def test_time_without_due_does_not_count(tmp_path: Path):
    """After a pause of six hours, nothing has arrived since its end."""
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
        ledger.bind("dc27", LENGTH, [ME], START)
        ledger.begin(START)
        for number, moved in ((0, 100), (25, 0), (26, 0)):
            cycle = Cycle(START + number * LENGTH, LENGTH)
            ledger.open_cycle(cycle, {FNAL: (100 * GB, None)}, cycle.start)
            move(ledger, injection(FNAL, number, cycle), 100, moved)
            ledger.close_cycle(cycle, cycle.end)
        assert ledger.last_arrivals(START) == {FNAL: START + 25 * LENGTH}


@pytest.mark.parametrize(("last", "cause"), [(100, "few-bytes"), (60, "silent")])
def test_a_link_that_moves_all_of_its_due_again_accuses_nobody(made: Made, last: int, cause: str):
    """It was short in the cycles before, as after an outage of Rucio."""
    links = made(100, 0, 0, 0, last, injected=300)
    assert next(link.cause for link in links if link.key == FNAL) == cause


def test_links_that_return_to_their_rates_name_whom_to_call_if_they_do_not(made: Made):
    """After eight cycles with too little, and something on its way, a person has to act."""
    (group,) = grouped(made(20, 20, injected=20))
    assert (group.cause, group.needs_action) == ("few-bytes", False)
    assert re.search(rf"T1_US_FNAL_Disk .* {START + 8 * LENGTH:%H:%M}Z", group.call)


@pytest.mark.parametrize(
    ("moved", "more", "cause"),
    [
        ([20] * 7, 1, "few-bytes"),
        ([20] * 8, 1, "silent"),
        ([20] * 10, 1, "silent"),
        ([20] * 10, 0, "few-bytes"),  # nothing is on its way, and so nothing can arrive
        ([45, 20] * 5, 1, "silent"),  # nor is a cycle that is worse than the one before the begin of a return
    ],
)
def test_links_that_do_not_return_to_their_rates_need_action(made: Made, moved: list[int], more: int, cause: str):
    (group,) = grouped(made(*moved, more=more))
    assert (group.cause, group.needs_action) == (cause, cause == "silent")
    assert "T1_US_FNAL_Disk" in group.call


@pytest.mark.parametrize(("latest", "shown"), [(0.04, "4.0 %"), (0.3, None)])
def test_a_line_shows_what_moved_in_the_last_cycle_where_that_is_less_than_half(latest: float, shown: str | None):
    """Most of an hour was before the cut."""
    one = link(CERN, RAL, cause="silent")._replace(moved=57, since=None, latest=latest)
    (group,) = grouped([one, *WORKS])
    assert re.findall("[0-9.]+ %", group.line) == ["57.0 %", *filter(None, [shown])]


@pytest.mark.parametrize(("hours", "shown"), [(2, "at 12:00Z"), (32, "at 02-09 18:00Z")])
def test_the_time_at_which_to_call_has_its_date_where_cycles_are_long(hours: int, shown: str):
    one = link(CERN, RAL, cause="few-bytes")._replace(returning=START + timedelta(hours=hours), until=START)
    (group,) = grouped([one, *WORKS])
    assert group.call.endswith(shown)


def test_links_that_return_to_their_rates_share_a_line_with_their_site():
    """Also where it carries links that work."""
    short = [link(one, RAL, cause="few-bytes")._replace(latest=0.5) for one in (CERN, IHEP)]
    (group,) = grouped([*WORKS, *short])
    assert (group.subject, group.needs_action) == ("all 2 links into RAL", False)


@pytest.mark.parametrize(
    ("moved", "injected", "cause"),
    [
        ([40, 40, 40], 100, "fts-limit"),
        ([20, 20], 20, "few-bytes"),  # nothing waits
        ([100, 0, 0, 0, 100], 300, "few-bytes"),  # all of its due moves again
    ],
)
def test_a_limit_of_fts_is_the_cause_only_where_bytes_wait_for_it(
    made: Made, moved: list[int], injected: int, cause: str
):
    (group,) = grouped(made(*moved, injected=injected, most=40))
    assert group.cause == cause
    assert ("40 transfers" in group.line) == (cause == "fts-limit")


def test_a_slow_link_is_short_though_nothing_holds_it(made: Made):
    fnal, kit = sorted(made(100, 60, 60, 60, 60), key=lambda link: link.cause, reverse=True)
    assert (fnal.cause, fnal.since, kit.cause) == ("silent", None, "")


@pytest.mark.parametrize(
    ("hold", "injected", "cause"),
    [
        (Hold.DESTINATION_FULL, 10, "destination-full"),
        (Hold.DESTINATION_FULL, 100, "silent"),  # what is on its way would be enough
        (Hold.BACKLOG, 100, "silent"),
        (Hold.BACKLOG, 10, "silent"),
        (Hold.FAILING, 100, "failing"),
        (Hold.SOURCE_UNAVAILABLE, 100, "source-unavailable"),
    ],
)
def test_a_hold_is_the_cause_where_it_kept_bytes_back(made: Made, hold: Hold, injected: int, cause: str):
    links = made(0, 0, 0, 0, held=Held(hold), injected=injected)
    assert next(link.cause for link in links if link.key == FNAL) == cause


@pytest.mark.parametrize(
    ("storage", "more"),
    [
        ("to T1_US_FNAL_Disk", 60),
        ("from T2_CH_CERN", 60),
        ("from T2_CH_CERN", 0),
    ],
)
def test_the_storage_whose_window_holds_links_is_called_first(made: Made, storage: str, more: int):
    """Though other links of it work: its window leaves some of them their full rate."""
    held = Held(Hold.BACKLOG, {"storage": storage, "window": 100 * GB, "in_flight": 99 * GB, "arrives": GB})
    works = link(IHEP, "T1_US_FNAL")._replace(destination="T1_US_FNAL_Disk")
    (group,) = grouped([*made(20, 20, held=held, more=more), works])
    site = storage.split()[1]
    assert (re.findall(r"\w+_\w+", group.call)[0], group.party) == (site, ("site", site))
    assert f"of {site} is full" in group.line


@pytest.mark.parametrize(
    ("moved", "cause", "more"),
    [
        ([100, 0, 0, 0], "silent", {"more": 60}),
        ([20, 20], "failing", {"files_stuck": 10}),
        ([40, 40, 40], "fts-limit", {"most": 40}),
    ],
)
def test_a_full_window_is_no_cause_where_nothing_arrives_or_another_cause_is_known(
    made: Made, moved: list[int], cause: str, more: dict[str, Any]
):
    """So links from a source that is silent share a line, whichever of them control's windows hold."""
    held = Held(Hold.BACKLOG, {"storage": "to T1_US_FNAL_Disk", "window": 100 * GB, "in_flight": 99 * GB})
    links = made(*moved, held=held, **more)
    one = next(link for link in links if link.key == FNAL)
    assert one.cause == cause
    works = link(IHEP, "T1_US_FNAL")._replace(destination="T1_US_FNAL_Disk")
    fnal = next(group for group in grouped([*links, works]) if one in group.links)
    assert "window of" not in fnal.line
    if cause != "fts-limit":
        others = [one._replace(key=FlowKey("test", Link("T2_CH_CERN", to)), destination=to) for to in (RAL, CNAF)]
        links = [one, *others, *(link(IHEP, to) for to in (RAL, CNAF)), works]
        (group,) = grouped([each._replace(full="") if each in others else each for each in links])
        assert (group.subject, group.call) == ("all 3 links from T2_CH_CERN", "T2_CH_CERN")


STUCK = {"files_stuck": 10, "error": "TRANSFER [110] Operation timed out"}
AT_END = {**STUCK, "error": "DESTINATION [5] Input/output error"}
JOB = {**STUCK, "status": Status.COMPLETE, "failed": 100 * GB, "reasons": {"timeout": 10}, "exact": True}


@pytest.mark.parametrize(
    ("look", "failed", "call"),
    [
        (STUCK, ("timeout", 30), "FNAL"),
        (AT_END, ("destination-error", 30), "FNAL"),
        (JOB, ("timeout", 30), "FNAL"),
        ({**JOB, "error": "SOURCE read root://se: [3005]"}, ("source-error", 30), "CERN"),
        ({**STUCK, "error": "SOURCE [2] No such file"}, ("source-missing", 30), "operator, then T2_CH_CERN"),
        ({**STUCK, "error": "it was odd \x1b[2J"}, ("other", 30), "FNAL"),
    ],
    ids=["Rucio's stuck locks", "that name an end", "FTS's failed files", "of readers", "menu", "other"],
)
def test_a_link_whose_attempts_fail_is_failing_before_a_hold_names_it(
    made: Made, look: dict[str, Any], failed: tuple[str, int], call: str
):
    """Nothing arrives, as on a cut link; but files are known to have failed, with their reasons."""
    (group,) = grouped(made(0, 0, 0, **look))
    (link,) = group.links
    assert (group.cause, group.row["failed"].most_common(1)) == ("failing", [failed])
    assert f"failing: {link.key.link.shown}" in group.line
    assert call in group.call
    assert ("it was odd" in group.line) == (failed[0] == "other")


@pytest.mark.parametrize("error", [AT_END["error"], "503"])
def test_what_failed_long_ago_accuses_nobody_now(made: Made, error: str):
    """The source has been repaired since; fewer files have failed in another way."""
    before = {**JOB, "reasons": {"source-error": 99}, "error": "SOURCE [5] Input/output error"}
    (group,) = grouped(made(*[0] * 12, before=before, **{**JOB, "error": error}))
    expected = {"other": 90} if error == "503" else {"destination-error": 90}
    assert group.row["failed"] == expected
    assert "CERN" not in group.call


def test_one_failed_file_of_many_that_arrive_is_no_failing_link(made: Made):
    assert {link.cause for link in made(100, 100, 100, 30, 30, files_stuck=1)} == {"", "silent"}


def test_files_that_fail_at_one_end_are_its_fault():
    failing = link(CERN, RAL, cause="failing")
    calls = [
        grouped([failing._replace(failed={reason: 3, "other": 2})])[0].call
        for reason in ("source-error", "destination-full", "connection", "of-another-version")
    ]
    assert calls == [CERN, RAL, *["Rucio's and FTS's operators or RAL or CERN"] * 2]


def test_while_nothing_arrives_anywhere_what_most_links_share_comes_first_and_only_that_needs_action():
    old = link(CERN, RAL, hold=Hold.QUOTA)._replace(due=9_000, latest=0.1)
    stopped = [silent(CERN, CNAF), silent(IHEP, PIC), old]
    assert [group.cause for group in grouped(stopped)] == ["quota", "silent"]
    groups = grouped([one._replace(latest=0.0) for one in stopped])
    assert [(group.cause, group.needs_action) for group in groups] == [("silent", True), ("quota", False)]
    sites = [link(CERN, RAL, hold=Hold.QUOTA), link(IHEP, CNAF, hold=Hold.DESTINATION_UNAVAILABLE)]
    groups = grouped([one._replace(latest=0.0) for one in sites])  # neither site stops the other's links
    assert [group.needs_action for group in groups] == [True, True]


def test_a_service_that_is_down_is_the_cause_on_all_its_links(made: Made):
    links = made(0, 0, 0, held=Held(Hold.FAILING), down=True)
    assert next(link.cause for link in links if link.key == FNAL) == Hold.API_ERRORS.value


def test_a_link_that_waits_for_a_large_dataset_is_not_short(made: Made):
    links = made(0, 0, 0, held=Held(Hold.TOO_COARSE), injected=0)
    assert not any(link.cause for link in links)


def test_groups_for_which_somebody_has_to_act_come_first_whatever_the_others_lack():
    growing = [link(CERN, CNAF, cause=RAMP)._replace(due=9_000), link(RAL, PIC, hold=Hold.QUOTA)]
    assert [(group.cause, group.needs_action) for group in grouped(growing)] == [
        ("quota", True),
        ((RAMP, False)),
    ]


def test_a_space_that_the_menu_sized_too_small_is_not_the_sites_fault():
    full = link(CERN, RAL, hold=Hold.DESTINATION_FULL)
    sized = full._replace(held=Held(Hold.DESTINATION_FULL, {"message": "the space holds 30 % of the rates"}))
    late = full._replace(held=Held(Hold.DESTINATION_FULL, {**sized.held.numbers, "overdue": GB}))
    groups = [group for one in (full, sized, late) for group in grouped([one])]
    assert [group.call for group in groups] == ["RAL", Hold.SITE_LIMIT.on_call.call, "RAL"]
    assert [group.needs_action for group in groups] == [True, False, True]


def test_a_line_has_the_answer_of_a_storage_without_the_call():
    """The URL alone fills the row of a terminal, and the line has both ends; other colons stay."""
    for message in ("PROPFIND davs://ral.example.org:1094/dc: it is closed: again", "it is closed: again"):
        one = link(CERN, RAL)._replace(held=Held(Hold.DESTINATION_UNAVAILABLE, {"message": message}))
        (group,) = grouped([one._replace(cause=Hold.DESTINATION_UNAVAILABLE.value)])
        assert group.line.endswith(": call RAL; it is closed: again")
