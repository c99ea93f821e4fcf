"""Checking a ledger: what is whole is left in peace, and each contradiction is found and named."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger, LedgerView, lock
from dc_inject.ledger.check import Contradictions, check
from dc_inject.model import Bundle, File, FlowKey, Held, Hold, JobOptions, Link
from dc_inject.model.errors import LedgerError
from dc_inject.model.ports import Outcome, Status
from tests.ledger.test_versions import of_another_version
from tests.ledger.world import (
    AB,
    CYCLE,
    DB,
    GB,
    MINUTE,
    START,
    accepted,
    dues,
    injection,
    opened,
    plan,
    seen,
    started,
)

FILES = FlowKey("files", Link("davs://a/x", "davs://b/y", "fts"))


def bundle(number: int, cycle=CYCLE):
    members = tuple(File(f"davs://a/x/{number}-{n}", GB) for n in range(3))
    return injection(
        f"3 files {number}", FILES, cycle, item=Bundle(f"3 files {number}", 3 * GB, 3, members), job=JobOptions()
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of two cycles with an injection in every state, one link that was held, and files through FTS."""
    folder = tmp_path_factory.mktemp("made")
    cms = [injection(f"cms:/{name}#1") for name in ("live", "complete", "ended", "gone", "called", "refused")]
    with opened(folder) as ledger:
        started(ledger, *cms, bundle(1), bundle(2), injection("cms:/n#1", DB))
        live, complete, ended, gone, _, refused = (one.key for one in cms)
        accepted(ledger, *cms[:4], bundle(1))
        ledger.call([cms[4].key, refused], START + MINUTE)
        error = LedgerError("no")
        ledger.answer([Outcome(refused, error=_permanent(error))], START + MINUTE, {})
        later = START + 5 * MINUTE
        ledger.observe([seen(live, Status.MOVING, moved=10 * GB, files_done=5)], later)
        ledger.observe([seen(key, Status.COMPLETE, present=GB) for key in (complete, ended, gone)], later)
        ledger.ended([ended, gone], later + MINUTE)
        ledger.gone([gone], later + 2 * MINUTE)
        hold = Held(Hold.POOL_DRY, {"free": 0})
        ledger.forgive(CYCLE, {AB: 7 * GB})
        ledger.close_cycle(CYCLE, CYCLE.end, dict.fromkeys((AB, DB), hold))
        ledger.open_cycle(CYCLE.next, dues(), CYCLE.end)
        ledger.record_plan(plan([bundle(3, CYCLE.next)], CYCLE.next, held=hold), CYCLE.end)
        ledger.withdraw([bundle(2).key], "too late", CYCLE.end)
    return folder / "dc27.sqlite"


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to do to it what one likes."""
    return Path(shutil.copy(made, tmp_path))


def _permanent(error: LedgerError):
    from dc_inject.model.errors import Permanent  # noqa: PLC0415  one use

    return Permanent(error.message)


def damage(path: Path, *statements: str) -> None:
    """Do to a ledger what it does not let anybody do: its triggers and checks are put aside meanwhile."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
        for _, sql in triggers:
            connection.execute(sql)


def codes(path: Path) -> list[str]:
    return [one.code for one in check(path)]


def test_a_whole_ledger_gives_nothing(path):
    assert check(path) == []


def test_a_ledger_of_which_nothing_has_begun_gives_nothing(tmp_path):
    opened(tmp_path).close()
    assert check(tmp_path / "dc27.sqlite") == []


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
KEY = "(SELECT key FROM injection WHERE item = 'cms:/{}#1')"
ONE = "UPDATE injection SET {} WHERE item = 'cms:/{}#1'"
TOTALS = ("due", "extra", "forgiven", "cycles", "injected", "in_doubt", "moved", "estimated", "resident", "coming")
TOTALS += ("files_in_flight", "rules")
FIRST = "UPDATE account SET {} WHERE scenario = 'day' AND destination = 'B'"


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        *(([FIRST.format(f"{name} = {name} + 1")], "totals") for name in TOTALS),
        ([FIRST.format("reported_moved = reported_moved + 1")], "reported"),
        (
            ["UPDATE cycle_row SET injected = injected + 1 WHERE cycle = (SELECT min(start) FROM cycle)"],
            "reported",
        ),
        (["DELETE FROM account_hold"], "holds"),
        (["UPDATE state_count SET entries = entries + 1 WHERE state = 'live'"], "state-counts"),
        (["UPDATE state_count SET bytes = bytes + 1 WHERE state = 'gone'"], "state-counts"),
        (["UPDATE campaign SET cycle_length = cycle_length * 2"], "cycle-length"),
        (["UPDATE cycle SET closed_at = NULL", "DELETE FROM account_hold"], "cycle-open"),
        ([ONE.format("ended_at = accepted_at", "live")], "state-times"),
        ([ONE.format("completed_at = NULL", "complete")], "state-times"),
        ([ONE.format("ended_at = NULL", "gone")], "state-times"),
        ([ONE.format("gone_at = ended_at", "ended")], "state-times"),
        ([ONE.format("expires_at = NULL", "live")], "state-times"),
        ([ONE.format("completed_at = called_at", "called")], "state-times"),
        ([ONE.format("dropped_at = NULL", "refused")], "state-times"),
        ([ONE.format("external_id = ''", "live")], "no-id"),
        ([ONE.format("external_id = (SELECT max(external_id) FROM injection)", "live")], "twice"),
        ([ONE.format("campaign = 'other'", "ended")], "campaign"),
        ([ONE.format("item = 'cms:/x#1'", "ended")], "key"),
        (["UPDATE injection SET members = '[]' WHERE state = 'live' AND job IS NOT NULL"], "members-left"),
        (["UPDATE injection SET members = '[]' WHERE state = 'intended' AND job IS NOT NULL"], "members-missing"),
        (["UPDATE injection SET members = 'x' WHERE state = 'intended' AND job IS NOT NULL"], "unreadable"),
        (["DROP TABLE failure"], "schema"),
        (["DROP INDEX injection_cycle"], "schema"),
        (["DROP TABLE failure", f"CREATE VIEW failure AS {ENDLESS}"], "schema"),
        ([f"CREATE VIEW mine AS {ENDLESS}"], "schema"),
        (["ALTER TABLE note ADD COLUMN more AS (zeroblob(9))"], "schema"),
        (["CREATE TRIGGER mine AFTER INSERT ON note BEGIN DELETE FROM note; END"], "schema"),
        (["PRAGMA user_version = 99"], "version"),
        (["PRAGMA application_id = 99"], "no-ledger"),
    ],
    ids=str,
)
def test_each_contradiction_is_found_by_its_code_and_nothing_else_is(path, statements, found):
    damage(path, *statements)
    assert set(codes(path)) == {found}
    assert not any(one.note for one in check(path))
    assert all(one.message and one.subject for one in check(path))
    for look in (LedgerView.open, Ledger.open) if found == "schema" else ():
        with pytest.raises(LedgerError) as error:
            look(path)
        assert error.value.hint


def test_a_hold_that_no_version_has_is_found_and_named(path):
    damage(path, "UPDATE cycle_row SET hold = 'of-tomorrow' WHERE hold IS NOT NULL")
    assert "of-tomorrow" in {one.subject for one in check(path)}
    with LedgerView.open(path) as view, pytest.raises(LedgerError, match="of-tomorrow"):
        view.held_flows()


def test_numbers_of_a_hold_that_are_not_json_are_a_damaged_ledger_and_no_bug(path):
    damage(path, "UPDATE cycle_row SET numbers = '{\"free\": ' WHERE hold IS NOT NULL")
    assert "unreadable" in {one.code for one in check(path)}
    with LedgerView.open(path) as view, pytest.raises(LedgerError) as error:
        view.held_flows()
    assert (error.value.exit_code, "ledger check" in error.value.hint) == (3, True)


def test_what_is_found_says_what_it_is_about_and_both_numbers(path, wording):
    damage(path, FIRST.format("injected = injected + 5"))
    (one,) = check(path)
    assert one.subject == str(AB)
    wording(one.message)


def test_a_complete_one_that_did_not_move_all_is_found(path):
    damage(path, ONE.format("moved = moved - 1", "complete"))
    assert set(codes(path)) == {"moved", "totals"}


def test_a_complete_one_whose_service_told_less_than_all_of_it_is_found(tmp_path, wording):
    """What a service says exactly is written down as it said it, and not rounded up to all of it."""
    short, whole = injection("cms:/short#1"), injection("cms:/whole#1")
    with opened(tmp_path) as ledger:
        started(ledger, short, whole)
        accepted(ledger, short, whole)
        for _ in range(2):
            told = {"moved": 60 * GB, "failed": 30 * GB, "exact": True}
            some = [seen(short.key, Status.COMPLETE, **told), seen(whole.key, Status.COMPLETE)]
            ledger.observe(some, START + 5 * MINUTE)
        assert ledger.entry(short.key).moved == 60 * GB
    (one,) = check(tmp_path / "dc27.sqlite")
    assert (one.code, one.subject) == ("moved", short.key)
    wording(one.message)


def test_an_injection_without_its_account_or_its_cycle_is_found(path, wording):
    damage(path, ONE.format("account = 99", "live"))
    assert {"reference", "totals"} <= set(codes(path))
    damage(path, ONE.format("account = 1", "live"), ONE.format("cycle = 99", "live"))
    (message,) = {one.message for one in check(path) if one.code == "reference"}
    wording(message)


def test_two_live_rules_for_one_dataset_and_destination_are_found(path):
    damage(path, ONE.format("item = 'cms:/complete#1'", "live"))
    found = check(path)
    assert [one.subject for one in found if one.code == "twice"] == ["cms:/complete#1 to B"]
    assert {one.code for one in found} == {"twice", "key"}


def test_a_cycle_off_the_grid_is_found(path):
    damage(path, "UPDATE cycle SET start = start + 1", "UPDATE cycle_row SET cycle = cycle + 1")
    assert "cycle-grid" in codes(path)


def test_a_row_that_breaks_its_table_s_own_rules_is_damage_and_only_that_is_told(path):
    damage(path, "PRAGMA ignore_check_constraints = ON", ONE.format("state = 'nowhere'", "live"))
    assert set(codes(path)) == {"damaged"}


def test_a_file_with_holes_in_it_is_damaged(path):
    whole = bytearray(path.read_bytes())
    half = len(whole) // 2 // 4096 * 4096
    path.write_bytes(bytes(whole[:half]) + b"\xff" * 8192 + bytes(whole[half + 8192 :]))
    assert set(codes(path)) == {"damaged"}
    path.write_bytes(bytes(whole[:8192]))
    assert set(codes(path)) == {"damaged"}
    path.write_text("menu: 1\n" * 1000)
    assert set(codes(path)) == {"no-ledger"}


def test_a_ledger_of_another_version_says_what_to_do(tmp_path, wording):
    (one,) = check(of_another_version(tmp_path))
    assert one.code == "version"
    wording(one.message)


def test_a_missing_ledger_is_no_finding(tmp_path):
    with pytest.raises(LedgerError, match=r"none\.sqlite"):
        check(tmp_path / "none.sqlite")


def test_files_that_others_can_read_are_found(path):
    path.chmod(0o640)
    lock.lock_file(path).touch(0o604)
    lock.lock_file(path).chmod(0o604)
    found = check(path)
    assert {(one.code, one.subject) for one in found} == {
        ("permissions", path.name),
        ("permissions", f"{path.name}.lock"),
    }
    assert "0640" in found[0].message


# --------------------------------------------------------------------------- notes


def test_hours_without_a_cycle_and_a_clock_that_went_back_are_notes(path):
    damage(path, ONE.format("accepted_at = called_at - 1, expires_at = called_at", "live"))
    with opened(path.parent) as ledger:
        ledger.close_cycle(CYCLE.next, CYCLE.next.end)
        late = replace(CYCLE, start=START + timedelta(hours=9))
        ledger.open_cycle(late, dues(), late.start)
    found = check(path)
    assert [one.code for one in found] == ["cycle-gap", "order-of-times"]
    assert all(one.note for one in found)


CRASH = """
import os, sys
from pathlib import Path
from dc_inject.ledger import Ledger
from tests.ledger.world import START
ledger = Ledger.open(Path(sys.argv[1]))
ledger.note("the last words", START)
os._exit(9)
"""


def test_what_a_crash_left_is_told_counts_and_is_no_error(path):
    subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False, timeout=60)
    (one,) = check(path)
    assert (one.code, one.note) == ("log-left", True)
    with Ledger.open(path) as ledger:
        assert ledger.notes()[0][1] == "the last words"
    assert check(path) == []


def test_an_injector_at_work_is_no_contradiction_and_is_not_kept_waiting(path):
    """All is read from one state, and no log counts as left behind while it is written."""
    with Ledger.open(path, synchronous="OFF", patience=timedelta(0)) as ledger, ledger.hold("me"):
        ledger.note("one", START)
        with ledger.together():
            ledger.withdraw([bundle(3, CYCLE.next).key], "why not", START)
            assert check(path) == []
        assert check(path) == []


def test_what_is_written_between_two_questions_is_not_seen(path, monkeypatch):
    read, written = Contradictions.accounts, []
    with Ledger.open(path, synchronous="OFF") as ledger:

        def accounts(self):
            kept = read(self)
            ledger.observe([seen(injection("cms:/live#1").key, Status.COMPLETE)], START)
            written.append(True)
            return kept

        monkeypatch.setattr(Contradictions, "accounts", accounts)
        assert check(path) == []
        assert written


def test_every_code_is_explained():
    root = Path(__file__).parents[2]
    sources = [root / "dc_inject" / "ledger" / f"{name}.py" for name in ("check", "in_place")]
    code = r"([a-z-]+)"
    said = rf"""(?:Finding\(|yield |return )"{code}"|"(no-ledger|version|damaged)"|SELECT (?:DISTINCT )?'{code}'"""
    codes = {word for path in sources for pair in re.findall(said, path.read_text()) for word in pair if word}
    assert len(codes) >= 20
    page = (root / "docs" / "reference" / "ledger.md").read_text()
    assert {code for code in codes if not re.search(rf"^\|.*`{code}`.*\|.*\|", page, re.MULTILINE)} == set()
