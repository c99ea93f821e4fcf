"""`status`: what control decided of links, as people and programs read it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dc_inject.cli.shared import tables
from dc_inject.ledger import ControlDecision, Ledger
from dc_inject.model import Held, Hold
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, MESH, START, Made, make, run


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "dc27.sqlite", {FNAL: 3, MESH: 1}, dry=(KIT,))


def test_without_decisions_a_sentence_says_why(made: Made, tmp_path: Path, wording) -> None:
    """In tables only: programs get an empty list, or heads without a row."""
    asked = ("status", made.path, "--decisions", "8")
    wording(run(*asked).stdout)  # it is the same of one link, and before the first cycle
    assert json.loads(run(*asked, "--format", "json").stdout) == []
    (heads,) = run(*asked, "--format", "csv").stdout.splitlines()
    assert heads.startswith("cycle,scenario,")
    of_one = (*asked, "--link", str(KIT.link))
    nothing = run(*asked).stdout
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.record_decisions([ControlDecision(CYCLE, FNAL, "act", Hold.BACKLOG, 5e8, {})])
    assert "backlog" in run(*asked).stdout
    assert run(*of_one).stdout == nothing
    with Ledger.open(tmp_path / "new.sqlite", synchronous="OFF"):
        pass
    assert run("status", tmp_path / "new.sqlite", "--decisions", "8").stdout == nothing


def test_decisions_of_one_link_are_shown_with_their_reasons_on_a_narrow_terminal(
    made: Made, monkeypatch: pytest.MonkeyPatch, wording
) -> None:
    numbers = {"in_flight": 800 * GB, "window": 900 * GB, "arrives": 300 * GB}
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.record_decisions(
            [ControlDecision(CYCLE, key, "act", Hold.BACKLOG, 5e8, numbers) for key in (FNAL, KIT)]
        )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    shown = run("status", made.path, "--decisions", "1", "--link", str(KIT.link)).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "800 GB in flight on the link, window 900 GB 300 GB arrive" in " ".join(shown.split())
    assert KIT.link.destination in shown
    assert FNAL.link.destination not in shown
    unknown = run("status", made.path, "--decisions", "1", "--link", "A:B").exception
    wording(str(unknown))


@pytest.mark.parametrize(("words", "key"), [((), "rows"), (("--summary",), "links")])
def test_status_shows_the_links_that_are_asked_for(made: Made, words: tuple[str, ...], key: str) -> None:
    shown = json.loads(run("status", made.path, *words, "--link", str(KIT.link), "--format", "json").stdout)
    assert [row["destination"] for row in shown[key]] == [KIT.link.destination]
    table = run("status", made.path, *words, "--link", str(KIT.link)).stdout
    assert KIT.link.destination in table
    assert FNAL.link.destination not in table.split("rules and jobs")[-1].split("day 1")[0]
    assert run("status", made.path, *words, "--link", "A:B").exception.exit_code == 2


def test_a_link_whose_destination_is_full_shows_its_space_before_its_window(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the row of the cycle, if control acts."""
    numbers = {"in_flight": 800 * GB, "window": 2100 * GB, "arrives": 300 * GB}
    space = {"space": 6000 * GB, "age": 900, "resident": 5600 * GB, "withdrawn": 500 * GB}
    later = CYCLE.next
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        full = Held(Hold.DESTINATION_FULL, space)
        ledger.open_cycle(later, dict.fromkeys((FNAL, KIT, MESH), (GB, full)), later.start)
        ledger.record_decisions(
            [
                ControlDecision(later, FNAL, "act", None, 5e8, numbers),
                ControlDecision(later, KIT, "advise", Hold.BACKLOG, 5e8, numbers),
                ControlDecision(later, MESH, "advise", None, 5e8, numbers),
            ]
        )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)

    def shown(*more: str) -> str:
        told = run("status", made.path, "--decisions", "1", *more).stdout
        assert max(map(len, told.splitlines())) <= 80
        return " ".join(told.split())

    window = "800 GB in flight on the link, window 2.1 TB 300 GB arrive in a cycle"
    assert f"space=6 TB age=15min resident=5.6 TB withdrawn=500 GB {window}" in shown("--link", str(FNAL.link))
    assert f"advise backlog {window}" in shown("--link", str(KIT.link))
    assert f"advise 4 Gb/s - {window}" in shown("--link", str(MESH.link))
    held = {
        row["destination"]: row["held"]
        for row in json.loads(run("status", made.path, "--decisions", "1", "--format", "json").stdout)
    }
    assert held == {FNAL.link.destination: space, KIT.link.destination: numbers, MESH.link.destination: {}}


def test_status_shows_the_same_sentence_of_a_window_as_decisions(made: Made) -> None:
    """Also what found no room; the window of the row may be another one than that of the plan."""
    later, of_link = CYCLE.next, {"window": 900 * GB, "in_flight": 0, "arrives": 300 * GB}
    full = {"storage": "to T1_US_FNAL_Disk", "window": 800 * GB, "in_flight": 790 * GB, "not_sent": 3}
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.open_cycle(later, {FNAL: (GB, Held(Hold.BACKLOG, full))}, later.start)
        ledger.record_decisions([ControlDecision(later, FNAL, "act", Hold.BACKLOG, 5e8, of_link)])
    assert run("status", made.path, "--decisions").stdout == run("status", made.path, "--decisions", "1").stdout
    assert run("status", made.path, "--decisions", "--summary").exception.exit_code == 2
    window = "790 GB in flight to T1_US_FNAL_Disk, window 800 GB; "
    assert f"{window}not_sent=3" in run("status", made.path, "--wide").stdout
    assert f"{window}300 GB arrive in a cycle; not_sent=3" in run("status", made.path, "--decisions", "1").stdout


def test_what_is_over_is_not_shown_where_old_debt_is_forgiven(made: Made) -> None:
    """The row names what the debt is of, which is over: nothing holds the link any more."""
    later = CYCLE.next
    forgiven = Held(Hold.FAILING, {"debt": 654 * GB, "cap": 338 * GB, "forgiven": 204 * GB})
    window = {"in_flight": 8 * GB, "window": 9 * GB}
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.open_cycle(later, dict.fromkeys((FNAL, KIT), (GB, forgiven)), later.start)
        ledger.record_decisions(
            [
                ControlDecision(later, FNAL, "act", None, 5e8, {"in_flight": 0}),
                ControlDecision(later, KIT, "act", Hold.BACKLOG, 5e8, window),
            ]
        )
    rows = json.loads(run("status", made.path, "--decisions", "1", "--format", "json").stdout)
    assert {row["destination"]: (row["hold"], row["held"]) for row in rows} == {
        FNAL.link.destination: (None, {}), KIT.link.destination: ("backlog", window),
    }  # fmt: skip
    row, *_ = json.loads(run("status", made.path, "--format", "json").stdout)["rows"]
    assert row["held"] == "failing"  # the row still says why it gets less than its debt


def test_times_are_whole_on_a_narrow_terminal(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long what is said beside them."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.pause("*", "someone@a-host.example.org", "a reason that takes more than its part of a line", START)
        what = "set T1_UK_RAL_Disk -> T2_UK_London_IC rate 800 Mb/s"
        ledger.change("dc-inject link of dc@vobox", what, "between, after 1.04 Gb/s", START)
        ledger.signal("space", "T1_DE_KIT_Disk", None, START, "a reason that takes more than its part of a line")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    lines = run("status", made.path).stdout.splitlines()
    table = lines[next(n for n, line in enumerate(lines) if "stopped" in line) :]
    for head in ("stopped", "changed at"):
        at = next(n for n, line in enumerate(table) if line.startswith(head))
        assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", table[at + 1]), table[at + 1]
