"""`status` tells the ledger's numbers, to people and to programs, whoever writes it meanwhile."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.cli.shared import tables
from dc_inject.ledger import ControlDecision, Ledger, LedgerView
from dc_inject.model import Cycle, Held, Hold, Mode
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.goals import Keep, Volume
from dc_inject.model.overrides import Kind
from dc_inject.model.ports import Observation, Status
from dc_inject.summary.days import Days
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, ME, MESH, START, Made, injection, make, make_moving, run

TB = 1000 * GB
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "status.md"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Two links with rules, one dry; one rule complete, one half way, a stop and a missing signal."""
    made = make_moving(tmp_path / "dc27.sqlite")
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.signal("free", "T1_US_FNAL_Disk", None, START, "403 Forbidden")
        ledger.signal("service", "rucio", None, START, "the password was refused")
        ledger.pause("us-mesh", "me@here", "lunch", START)
        ledger.override("T2_CH_CERN:T1_US_FNAL_Disk", Kind.RATE, 5e9, "me@here", "more", START)
        ledger.note("the trace of an error", START)
    return made


def test_the_summary_agrees_with_the_ledger_to_the_byte(made: Made) -> None:
    """Every number of every link, and the sums."""
    told = json.loads(run("status", "dc27", "--summary", "--ledger", made.path, "--format", "json").stdout)
    with LedgerView.open(made.path) as view:
        accounts = view.accounts()
    assert len(told["links"]) == len(accounts) == 3
    for line in told["links"]:
        key = next(k for k in accounts if (k.scenario, *k.link) == tuple(line[name] for name in (
            "scenario", "source", "destination", "service")))  # fmt: skip
        for name in ("due", "injected", "moved", "rules", "forgiven"):
            assert line[name] == getattr(accounts[key], name)
        assert line["moved_estimated"] == accounts[key].estimated
    for name in ("due", "injected", "moved", "rules", "forgiven"):
        assert told["total"][name] == sum(getattr(one, name) for one in accounts.values())
    assert told["total"]["injected_ratio"] == 400 / 1350
    assert told["total"]["moved_ratio"] == 150 / 400
    assert told["total"]["held"] == {"pool-dry": 1}


def test_a_terminal_shows_last_what_is_short_folded_between_words(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is below it; a pipe has it first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # its place has no word that is longer than a line
    (tmp_path / "dc_inject").mkdir()
    made.path.rename(tmp_path / "dc_inject" / "dc27.sqlite")
    first = run("status", "dc27").stdout.splitlines()[1:5]
    monkeypatch.setattr(tables, "_is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    lines = run("status", "dc27").stdout.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines[-24:]).split()).endswith(" ".join(first))


def test_reasons_that_need_nobody_are_counted_apart(made: Made) -> None:
    """Else they are most of what there is to read, and the others are not seen."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        cycle = ledger.unclosed()[0]
        held = {FNAL: Held(Hold.TOO_COARSE, {"left": 7}), MESH: Held(Hold.FAILING, {"failed": 0.6})}
        ledger.close_cycle(cycle, cycle.end, leading=held)
        ledger.open_cycle(cycle.next, {FNAL: (0, Held(Hold.OUTSIDE_WINDOW))}, cycle.end)
    told = json.loads(run("status", "dc27", "--summary", "--ledger", made.path, "--format", "json").stdout)
    assert told["total"]["held"] == {"pool-dry": 1, "failing": 1}
    assert told["total"]["harmless"] == {"too-coarse": 1, "outside-window": 1}
    rows = json.loads(run("status", "dc27", "--ledger", made.path, "--format", "json").stdout)
    assert [(row["held"], row["harmless"]) for row in rows["rows"]] == [("outside-window", True)]
    before = {row["held"]: row["harmless"] for row in rows["held_before"]}
    assert before == {"too-coarse": True, "failing": False, "pool-dry": False}
    table = run("status", "dc27", "--summary", "--ledger", made.path).stdout.splitlines()
    assert "harmless (cycles)" in table[0]


def test_the_table_has_units_a_mark_for_estimates_and_a_row_of_totals(made: Made) -> None:
    """What a person reads at the end of a day."""
    lines = run("status", "dc27", "--summary", "--ledger", made.path).stdout.splitlines()
    fnal = next(line for line in lines if "T1_US_FNAL_Disk" in line)
    kit = next(line for line in lines if "T1_DE_KIT_Disk" in line)
    assert re.search(r"450 GB +300 GB +66.7 % +~150 GB +50.0 % +3 +0 B", fnal)
    assert kit.rstrip().endswith("1 pool-dry")
    assert " - " in kit  # moved of nothing injected is no ratio
    (total,) = (line for line in lines if line.startswith("total"))
    assert "1.35 TB" in total
    assert lines[-1].startswith("pool-dry")  # why links were held, with the end that all of them share
    assert f" {KIT.link.source}: " in lines[-1]


def test_signals_that_are_missing_for_one_reason_share_a_row(made: Made) -> None:
    """FTS may be asked about none of a thousand links."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        for number in range(9):
            ledger.signal("fts_queue", f"link{number}", None, START + timedelta(minutes=number), "no host")
        ledger.signal("fts_queue", "other", None, START, "503")
        ledger.signal("fts_queue", "works", "known", START)
    lines = [line for line in run("status", made.path).stdout.splitlines() if line.startswith("fts_queue")]
    assert [(len(re.findall("link", line)), "8 more" in line, "10:00:00Z" in line) for line in lines] == [
        (0, False, True),
        (1, True, True),
    ]
    told = json.loads(run("status", made.path, "--format", "json").stdout)["signals_missing"]
    assert len([one for one in told if one["signal"] == "fts_queue"]) == 10


def test_a_ratio_of_nothing_is_null(tmp_path: Path) -> None:
    """Neither a division by zero nor a lie."""
    with Ledger.open(tmp_path / "new.sqlite") as ledger:
        ledger.begin(START)
    told = json.loads(run("status", tmp_path / "new.sqlite", "--summary", "--format", "json").stdout)
    assert told["links"] == []
    assert told["total"]["injected_ratio"] is None


def test_what_stands_now_is_told_in_words(made: Made) -> None:
    """Who injects, the cycle, rules, rights, holds, stops and missing signals."""
    text = run("status", "dc27", "--ledger", made.path).stdout
    for part in (
        "injector: ",
        "cycle: 2027-02-08T10:00:00Z to 2027-02-08T10:15:00Z, planned",
        "3 live, 1 complete",
        "as sim (VO def)",
        "4 Gb/s",
        "~150 GB",
        "pool-dry",
        "free=0",
        "me@here",
        "trouble: rucio does not work, since 2027-02-08T10:00:00Z: the password was refused",
        "403 Forbidden",
    ):
        assert part in text, part


@pytest.mark.parametrize(("late", "rate"), [(5, 6e9), (0, 4e9), (20, 4e9)])
def test_a_first_cycle_that_was_begun_late_shows_the_rate_that_was_asked_for(
    tmp_path: Path, late: int, rate: float
) -> None:
    """Its due is that of the rest, and a note says so; 450 GB in 10 of 15 minutes are 6 Gb/s."""
    begun = CYCLE.start + timedelta(minutes=late)
    path = make(tmp_path / "dc27.sqlite", {FNAL: 1}, begun=begun).path
    told = json.loads(run("status", path, "--format", "json").stdout)
    assert told["rows"][0]["target"] == rate / 8
    assert told["rows"][0]["due"] == 450 * GB
    assert told["cycle"]["joined"] == ("2027-02-08T10:05:00Z" if late == 5 else None)
    note = "planned; begun late: due counts from 2027-02-08T10:05:00Z on"
    assert (note in run("status", path).stdout) == (late == 5)


@pytest.mark.parametrize(("end", "seconds"), [("10:02", 120), ("10:20", 900)])
def test_where_a_menu_ends_within_the_cycle_the_target_is_its_rate(tmp_path: Path, end: str, seconds: int) -> None:
    made = make(tmp_path / "dc27.sqlite", {FNAL: 1})
    menu = f"menu: 1\ncampaign: dc27\ntimezone: UTC\nstart: 2027-02-08 10:00\nend: 2027-02-08 {end}\n"
    with Ledger.open(made.path) as ledger:
        ledger.put_in_force([("short.yaml", "digest", menu)], START)
    told = json.loads(run("status", made.path, "--format", "json").stdout)
    assert told["rows"][0]["target"] == 450 * GB / seconds


def test_readers_of_a_run_that_has_ended_are_as_last_seen_and_use_no_credentials(tmp_path: Path) -> None:
    """Most readers end with their injector; what a service carries out goes on."""
    made = make(tmp_path / "dc27.sqlite", {FNAL: 2})
    before = run("status", made.path).stdout
    with Ledger.open(made.path) as ledger:
        ledger.bind("dc27", CYCLE.length, [ME, replace(ME, service="reads")], START)
    text = run("status", made.path).stdout
    assert ("seen at 02-08 10:00Z" in text, "2 live when" in text) == (True, True)
    assert "last seen" not in before
    (line,) = [line for line in text.splitlines() if line.startswith("reads: ")]
    assert ("credentials" in line, "credentials" in before) == (False, True)


def test_the_holder_of_the_ledger_is_named(made: Made) -> None:
    """While somebody injects, status says who, and since when."""
    with Ledger.open(made.path) as ledger, ledger.hold("me@here"):
        told = json.loads(run("status", "dc27", "--ledger", made.path, "--format", "json").stdout)
        assert "me@here" in told["injector"]["who"]
        assert told["injector"]["since"].endswith("Z")


def test_what_is_not_known_to_be_there_is_told_as_that(made: Made, wording) -> None:
    """What is only planned is no rule; a call without an answer is in doubt when nobody waits for one any more."""
    some = [injection(FNAL, number) for number in (7, 8)]

    def rules() -> str:
        text = run("status", "dc27", "--ledger", made.path).stdout
        return text.split("rules and jobs: ")[1].splitlines()[0]

    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.add_injections(some, START)
        ledger.call([some[0].key], START)
        assert rules() == "1 planned, 1 in doubt, 3 live, 1 complete"
        with ledger.hold("me@here"):
            wording(rules())


def test_status_works_while_the_ledger_is_being_written(made: Made) -> None:
    """Inside somebody's transaction it tells the state before it."""
    writer = sqlite3.connect(made.path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("UPDATE account SET due = 0")
    told = json.loads(run("status", made.path, "--summary", "--format", "json").stdout)
    writer.execute("ROLLBACK")
    writer.close()
    assert told["total"]["due"] == 1350 * GB


def test_csv_has_plain_numbers_and_every_key(made: Made) -> None:
    """The heads are the keys of the JSON rows, also for a campaign without any."""
    for option in ((), ("--summary",)):
        text = run("status", made.path, *option, "--format", "csv").stdout
        rows = list(csv.DictReader(io.StringIO(text)))
        told = json.loads(run("status", made.path, *option, "--format", "json").stdout)
        wanted = told["links" if option else "rows"]
        assert len(rows) == 3
        assert set(rows[0]) == set(wanted[0])
        assert [int(row["due"]) for row in rows] == [row["due"] for row in wanted]


def test_a_campaign_without_a_ledger_is_told_which_have_one(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3, and the campaigns that are known in the default folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "state" / "dc_inject"
    folder.mkdir(parents=True)
    (folder / "dc28.sqlite").write_bytes(made.path.read_bytes())
    error = run("status", "dc29").exception
    assert isinstance(error, LedgerError)
    assert error.exit_code == 3
    assert "dc29" in error.message
    assert "dc28" in (error.hint or "")


def test_who_names_no_campaign_is_told_which_have_a_ledger(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording
) -> None:
    """A usage error, exit code 2, with the same list as for a wrong name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "state" / "dc_inject"
    folder.mkdir(parents=True)
    for name in ("dc28", "dc29"):
        (folder / f"{name}.sqlite").write_bytes(made.path.read_bytes())
    for command in ("status", "stop", "end"):
        error = run(command).exception
        assert isinstance(error, UsageError)
        wording(error.message)
        assert (error.hint or "").endswith(f"{folder}: dc28, dc29")


def test_the_default_place_is_found_by_name(made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without --ledger the campaign's name is enough."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    make(tmp_path / "state" / "dc_inject" / "dc27.sqlite", {FNAL: 1})
    told = json.loads(run("status", "dc27", "--summary", "--format", "json").stdout)
    assert told["total"]["rules"] == 1


def test_the_wrong_ledger_for_a_campaign_is_refused(made: Made) -> None:
    """A name and a file that do not belong together are an error, not a guess."""
    error = run("status", "dc28", "--ledger", made.path).exception
    assert isinstance(error, LedgerError)
    assert "dc27" in error.message


def test_what_is_no_ledger_is_said(tmp_path: Path) -> None:
    """A text file in place of a ledger: exit code 3, no traceback."""
    (tmp_path / "x.sqlite").write_text("hello " * 1000)
    assert isinstance(run("status", tmp_path / "x.sqlite").exception, LedgerError)


WINDOW = {"in_flight": 800 * GB, "window": 900 * GB, "arrives": 440 * GB}


def decided(cycle: Cycle, *, mode: Mode = Mode.ADVISE, hold: Hold | None = Hold.BACKLOG) -> ControlDecision:
    """What control decided of a link."""
    return ControlDecision(cycle, KIT, mode.value, hold, 5e8, WINDOW)


def keys(value: Any) -> Any:
    """The keys of a JSON value, recursively; of a list, those of its first member."""
    if isinstance(value, dict):
        return {name: keys(part) for name, part in value.items() if name not in {"numbers", "held", "harmless"}}
    if isinstance(value, list):
        return [keys(value[0])] if value else []
    return None


@pytest.mark.parametrize("kind", ["status", "summary"])
def test_the_json_is_as_documented(made: Made, kind: str) -> None:
    """The keys in docs/reference/status.md are the keys that come out, in every part: a public interface."""
    (example,) = re.findall(rf"```json {kind}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    options = ["--summary"] if kind == "summary" else []
    with Ledger.open(made.path) as ledger, ledger.hold("me@here"):
        if kind == "status":
            ledger.open_cycle(CYCLE.next, dict.fromkeys((FNAL, KIT), (600 * GB, None)), CYCLE.end)
            ledger.record_decisions([decided(CYCLE.next)])
        told = json.loads(run("status", made.path, *options, "--format", "json").stdout)
    documented = json.loads(example)
    if kind == "status":  # this ledger has no menu, and so no day
        assert documented.pop("day").keys() == Days(CYCLE.start).day(1).keys()
        assert told.pop("day") is None
        assert len(documented.pop("tape")) == 1  # and no link from tape
        assert told.pop("tape") == []
    assert keys(told) == keys(documented)
    if kind == "status":
        assert told["control"][0]["numbers"].keys() == json.loads(example)["control"][0]["numbers"].keys()


def test_what_control_advises_is_shown(made: Made) -> None:
    """The hold that it would have put on the link, and on what that rests."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.record_decisions([decided(CYCLE)])
    shown = run("status", made.path, "--decisions", "1").stdout
    (line,) = [line for line in shown.splitlines() if "  advise  " in line]
    assert "backlog" in line
    assert "800 GB in flight on the link, window 900 GB" in line


def test_what_control_decided_is_shown_cycle_by_cycle(made: Made) -> None:
    """With the numbers of the window, and of the hold of the row where that is another; keys are as documented."""
    failing = {"failed": 0.61, "probe": 45 * GB}
    made_here = [decided(CYCLE), decided(CYCLE.next, mode=Mode.ACT, hold=None)]
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        rows = {FNAL: (450 * GB, None), KIT: (450 * GB, Held(Hold.FAILING, failing))}
        ledger.open_cycle(CYCLE.next, rows, CYCLE.end)
        ledger.record_decisions(made_here)
        held = [replace(made_here[0], held=WINDOW), replace(made_here[1], hold=Hold.FAILING, held=failing)]
        assert list(ledger.decisions()) == held
    told = json.loads(run("status", made.path, "--decisions", "2", "--format", "json").stdout)
    assert [(one["cycle"], one["mode"], one["hold"]) for one in told] == [
        (CYCLE.name, "advise", "backlog"),
        (CYCLE.next.name, "act", "failing"),
    ]
    (example,) = re.findall(r"```json decisions\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (documented,) = json.loads(example)
    assert told[1].keys() == documented.keys()
    assert told[1]["numbers"].keys() == documented["numbers"].keys()
    shown = run("status", made.path, "--decisions", "1").stdout
    assert "failing" in shown
    assert "failed=0.61 probe=45 GB; 800 GB in flight on the link, window 900 GB; 440 GB" in " ".join(
        shown.split()
    )
    refused = run("status", made.path, "--decisions", "1", "--summary")
    assert isinstance(refused.exception, UsageError)


def test_decisions_are_shown_when_the_last_cycles_had_none(made: Made) -> None:
    """As in cycles that only drain, or after the end of the menus."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.record_decisions([decided(CYCLE)])
        ledger.open_cycle(CYCLE.next, {}, CYCLE.end)
        ledger.open_cycle(CYCLE.next.next, {}, CYCLE.next.end)
    (told,) = json.loads(run("status", made.path, "--decisions", "1", "--format", "json").stdout)
    assert told["cycle"] == CYCLE.name


def test_what_was_held_in_the_cycle_before_is_shown_in_the_next(made: Made) -> None:
    """Trouble in the middle of a cycle is in its row only when that is over: nobody would see it."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.open_cycle(CYCLE.next, {FNAL: (450 * GB, None), KIT: (450 * GB, None)}, CYCLE.end)
    told = json.loads(run("status", made.path, "--format", "json").stdout)
    assert [(row["destination"], row["held"]) for row in told["held_before"]] == [("T1_DE_KIT_Disk", "pool-dry")]
    assert {row["held"] for row in told["rows"]} == {None}


def test_goals_are_told_with_what_is_reached_of_them(tmp_path: Path) -> None:
    """In the closing table and in the rows, for people and for programs."""
    made = make(tmp_path / "dc27.sqlite", {FNAL: 3, MESH: 1}, dry=(KIT,))
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.observe([Observation(made.entries[0].injection.key, Status.COMPLETE, files_done=10)], START)
        ledger.open_cycle(CYCLE.next, {FNAL: (0, None)}, START, goals={FNAL: Volume(TB), MESH: Keep(150 * GB)})
    table = run("status", "dc27", "--summary", "--ledger", made.path).stdout
    assert "volume 1 TB, 10.0 % moved" in table
    assert "keep 150 GB, 100 GB" in table
    told = json.loads(run("status", "dc27", "--ledger", made.path, "--format", "json").stdout)
    assert [row["goal"] for row in told["rows"]] == [{"volume": TB, "moved": 100 * GB}]
    links = json.loads(run("status", "dc27", "--summary", "--ledger", made.path, "--format", "json").stdout)[
        "links"
    ]
    assert sorted(len(link["goal"]) for link in links) == [0, 2, 2]


def test_the_summary_of_a_link_has_no_line_about_what_other_links_lost(tmp_path: Path) -> None:
    made = make(tmp_path / "dc27.sqlite", {FNAL: 1, KIT: 1})
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.ended([entry.injection.key for entry in made.entries if entry.injection.flow == KIT], START)
    of_all, of_one = (
        run("status", "--summary", made.path, *more).stdout for more in ((), ("--link", str(FNAL.link)))
    )
    assert "had not moved" in of_all
    assert "had not moved" not in of_one


@pytest.mark.parametrize("command", [["status", "--summary"], ["report"], ["explain"]])
def test_the_only_campaign_need_not_be_named_to_read_it(
    made: Made, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the one of --ledger; among several one has to be named, and always for what changes something."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    copy = tmp_path / "dc_inject" / "dc27.sqlite"
    copy.parent.mkdir()
    copy.write_bytes(made.path.read_bytes())
    named = run(*command, "dc27")
    assert run(*command).stdout == named.stdout
    monkeypatch.setenv(f"DC_INJECT_{command[0].upper()}_LEDGER", str(made.path))
    copy.rename(copy.with_name("dc28.sqlite"))
    assert run(*command).exit_code == 0
    copy.with_name("dc28.sqlite").rename(copy)
    monkeypatch.delenv(f"DC_INJECT_{command[0].upper()}_LEDGER")
    assert isinstance(run("stop").exception, UsageError)
    copy.with_name("other.sqlite").write_bytes(made.path.read_bytes())
    error = run(*command).exception
    assert isinstance(error, UsageError)
    assert "dc27, other" in (error.hint or "")
    assert run(*command, "--ledger", copy).exit_code == named.exit_code == 0
