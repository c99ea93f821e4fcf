"""`ledger`: a check tells what is wrong, a backup is whole or is none, and a lost ledger is made anew."""

from __future__ import annotations

import csv
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.apps.rebuild import new_ledger
from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.cli.shared import common
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.check import check
from dc_inject.model import Dataset, State
from dc_inject.model.errors import LedgerError, MenuError, ServiceError, Temporary, UsageError
from dc_inject.model.ports import FoundInjection, Status
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, MESH, START, Made, injection, make, run
from tests.ledger.test_check import CRASH, damage
from tests.ledger.test_versions import of_another_version
from tests.sim import SimBackend
from tests.wording import lines

WRONG = "UPDATE account SET injected = injected + 1 WHERE id = 1"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "dc27.sqlite", {FNAL: 2, MESH: 1})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --------------------------------------------------------------------------- check


def test_a_whole_ledger_is_said_to_be_whole(made: Made) -> None:
    """Exit code 0; nothing but an empty list goes to stdout."""
    done = run("ledger", "check", made.path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"{made.path}: no contradiction\n"
    assert run("ledger", "check", "dc27", "--ledger", made.path, "--format", "json").stdout == "[]\n"
    assert run("ledger", "check", made.path, "--format", "csv").stdout == "code,severity,subject,message\n"


def test_each_contradiction_is_a_line_with_its_code_and_the_exit_code_is_3(made: Made) -> None:
    damage(made.path, WRONG)
    row = {"code": "totals", "severity": "error", "subject": str(FNAL)}
    row["message"] = check(made.path)[0].message
    assert all(str(number) in row["message"] for number in (200 * GB + 1, 200 * GB))
    done = run("ledger", "check", made.path)
    assert done.exit_code == 3
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["code", "severity"], ["totals", "error"]]
    assert f"{made.path}: 1 contradiction\n" in done.stderr
    assert "docs/reference/ledger.md" in done.stderr
    done = run("ledger", "check", made.path, "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)) == (3, [row])
    done = run("ledger", "check", made.path, "--format", "csv")
    assert (done.exit_code, list(csv.DictReader(done.stdout.splitlines()))) == (3, [row])


def test_a_note_is_told_and_is_no_contradiction(made: Made) -> None:
    damage(made.path, "UPDATE injection SET accepted_at = called_at - 1 WHERE account = 1")
    done = run("ledger", "check", made.path)
    assert done.exit_code == 0
    assert "order-of-times" in done.stdout
    assert "no contradiction, 2 notes" in done.stderr


def test_a_ledger_that_there_is_not_is_said_with_those_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    make(tmp_path / "dc_inject" / "dc26.sqlite", {FNAL: 1})
    for arguments in (["check", "dc27"], ["backup", "dc27", tmp_path / "copy"]):
        error = run("ledger", *arguments).exception
        assert isinstance(error, LedgerError)
        assert "dc26" in (error.hint or "")
    assert run("ledger", "check", "dc26").exit_code == 0


def test_a_ledger_of_another_version_says_what_to_do(tmp_path: Path, wording) -> None:
    path = of_another_version(tmp_path)
    done = run("ledger", "check", path)
    assert done.exit_code == 3
    wording(done.stdout)
    for arguments in (["status", path], ["stop", path], ["ledger", "backup", path, tmp_path / "copy"]):
        error = run(*arguments).exception
        assert isinstance(error, LedgerError)
        assert error.hint
        assert error.hint in done.stdout
    assert not (tmp_path / "copy").exists()


# --------------------------------------------------------------------------- backup


def test_a_backup_is_a_whole_private_ledger_and_its_path_goes_to_stdout(
    made: Made, tmp_path: Path, wording
) -> None:
    copy = tmp_path / "backups.sqlite"
    done = run("ledger", "backup", made.path, copy)
    assert (done.exit_code, done.stdout) == (0, f"{copy}\n")
    wording(done.stderr)
    assert mode(copy) == 0o600
    with LedgerView.open(copy) as view:
        assert view.entries() == made.entries
    assert check(copy) == []
    assert {file.name for file in tmp_path.iterdir()} <= {
        name + end for name in (made.path.name, copy.name) for end in ("", "-wal", "-shm")
    }


WRITER = """
import sys
from pathlib import Path
from dc_inject.ledger import Ledger
from tests.ledger.world import START
with Ledger.open(Path(sys.argv[1]), synchronous="OFF") as ledger, ledger.hold("me"):
    print("begun", flush=True)
    for number in range(100000):
        with ledger.together():
            ledger.note(f"{number}a", START)
            ledger.note(f"{number}b", START)
"""


def test_a_backup_is_taken_while_an_injector_writes_and_is_of_one_moment(made: Made, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, made.path], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout
            assert writer.stdout.readline() == "begun\n"
            for number in range(3):
                done = run("ledger", "backup", made.path, tmp_path / f"{number}.sqlite")
                assert done.exit_code == 0, done.exception
                assert run("ledger", "check", made.path).exit_code == 0
            assert writer.poll() is None
        finally:
            writer.kill()
    for number in range(3):
        with LedgerView.open(tmp_path / f"{number}.sqlite") as view:
            words = [text for _, text in view.notes(10**6)]
            assert len(words) % 2 == 0
            assert all(word.endswith("b") for word in words[:1])
            assert view.entries() == made.entries


def test_what_is_there_is_replaced_only_when_that_is_said(made: Made, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    copy.write_text("precious")
    error = run("ledger", "backup", made.path, copy).exception
    assert isinstance(error, UsageError)
    assert "--force" in (error.hint or "")
    assert copy.read_text() == "precious"
    assert run("ledger", "backup", made.path, copy, "--force").exit_code == 0
    with LedgerView.open(copy) as view:
        assert view.entries() == made.entries
    error = run("ledger", "backup", made.path, made.path, "--force").exception
    assert isinstance(error, UsageError)
    with Ledger.open(copy) as other, other.hold("somebody"):
        error = run("ledger", "backup", made.path, copy, "--force").exception
    assert isinstance(error, LedgerError)
    assert "somebody" in error.message


def test_the_log_that_another_ledger_has_left_is_not_played_into_the_copy(made: Made, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.sqlite", make(tmp_path / "other.sqlite", {KIT: 3}).path
    subprocess.run([sys.executable, "-c", CRASH, str(other)], check=False, timeout=60)
    for end in ("", "-wal"):
        shutil.copy(f"{other}{end}", f"{copy}{end}")
    assert run("ledger", "backup", made.path, copy, "--force").exit_code == 0
    with LedgerView.open(copy) as view:
        assert view.entries() == made.entries
        assert view.notes() == ()
    assert check(copy) == []


def test_a_ledger_that_contradicts_itself_does_not_replace_a_good_backup(made: Made, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    assert run("ledger", "backup", made.path, copy).exit_code == 0
    before = copy.read_bytes()
    damage(made.path, WRONG)
    error = run("ledger", "backup", made.path, copy, "--force").exception
    assert isinstance(error, LedgerError)
    assert "[totals]" in error.message
    assert copy.read_bytes() == before
    assert not list(tmp_path.glob(".dc_inject-*"))


@pytest.mark.parametrize("place", ["/proc/copy.sqlite", "/nowhere/at/all/copy.sqlite"])
def test_a_place_that_cannot_be_written_is_said(made: Made, place: str, wording) -> None:
    error = run("ledger", "backup", made.path, place).exception
    assert isinstance(error, LedgerError)
    wording(error.message)
    assert error.hint


# --------------------------------------------------------------------------- rebuild

MENU = """\
menu: 1
campaign: dc27
contact: dc@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 20:00
limits: {total: 400 Gb/s, per_site: 400 Gb/s}
defaults: {cycle: 15 min, datasets: {did: ["cms:*"], files: 1..1000, mean_file: 1..20 GB}}
scenarios:
  t0-export:
    from: T2_CH_CERN
    to: {T1_US_FNAL_Disk: 1, T1_DE_KIT_Disk: 1}
    rate: 8 Gb/s
"""


class Searchable(SimBackend):
    """A simulated service whose rules can be found."""

    since: datetime | None = None

    def ours(self, campaign: str, *, since: datetime | None = None) -> Iterator[FoundInjection]:
        self.since = since
        self._call("ours", campaign)
        for key, rule in self.rules.items():
            one = rule.injection
            if one.campaign == campaign:
                yield FoundInjection(
                    key=key, external_id=f"sim-{key}", campaign=campaign, scenario=one.scenario,
                    cycle=one.cycle.start, link=one.link, item=one.item.id, bytes=one.item.bytes,
                    status=Status.MOVING, done=0, moving=one.item.files, stuck=0, created_at=rule.created,
                    expires_at=rule.expires,
                )  # fmt: skip


@dataclass
class Lost:
    """A campaign with four rules in the service whose ledger is lost."""

    folder: Path
    clock: SimClock
    service: Searchable

    @property
    def path(self) -> Path:
        return self.folder / "dc_inject" / "dc27.sqlite"

    def rebuild(self, *options: str | Path, text: str | None = None, campaign: str = "dc27") -> Any:
        return run("ledger", "rebuild", campaign, self.folder / "menu.yaml", *options, text=text)


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lost:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "menu.yaml").write_text(MENU)
    clock = SimClock(START)
    items = {
        place: [Dataset(f"cms:/x#{n}", 100 * GB, 10) for n in range(9)] for place in ("T2_CH_CERN", "T2_US_MIT")
    }
    service = Searchable(clock, items, speed=lambda _link: 1e9)
    service.submit([injection(FNAL, 0), injection(FNAL, 1), injection(KIT, 0), injection(MESH, 0)])
    other = injection(KIT, 7)
    service.submit([replace(other, key="other", campaign="another")])
    clock.advance(CYCLE.end + timedelta(minutes=5))
    monkeypatch.setattr(new_ledger, "SystemClock", lambda: clock)
    monkeypatch.setattr(common, "backends", lambda services, **_: {"rucio": service})

    class Inline(InlineExecutor):
        def __init__(self, clock: SimClock, _threads: int) -> None:
            super().__init__(clock)

        def close(self) -> None:
            pass

    monkeypatch.setattr(new_ledger, "ThreadExecutor", Inline)
    return Lost(tmp_path, clock, service)


def files(lost: Lost) -> set[str]:
    """What is in the ledgers' folder, apart from locks, that only ever hold a name."""
    folder = lost.folder / "dc_inject"
    return {file.name for file in folder.iterdir() if file.suffix != ".lock"} if folder.exists() else set()


def test_a_lost_ledger_is_made_anew_from_what_the_service_has(lost: Lost, wording) -> None:
    done = lost.rebuild("--yes")
    assert done.exit_code == 0, done.exception
    assert done.stdout == f"{lost.path}\n"
    wording(done.stderr)
    assert mode(lost.path) == 0o600
    assert files(lost) == {"dc27.sqlite"}
    assert check(lost.path) == []
    with LedgerView.open(lost.path) as view:
        entries = {entry.injection.key: entry for entry in view.entries()}
        assert entries.keys() == lost.service.rules.keys() - {"other"}
        assert {entry.state for entry in entries.values()} == {State.COMPLETE}
        assert view.accounts()[FNAL].injected == view.accounts()[FNAL].due == 200 * GB
        assert [menu.name for menu in view.menus_in_force()] == [str(lost.folder / "menu.yaml")]
        assert "4 injections found" in view.changes()[0].what
    assert run("status", "dc27").exit_code == 0
    assert run("ledger", "check", "dc27").exit_code == 0


def test_it_says_in_plain_words_what_nobody_can_know_and_the_ledger_keeps_that(lost: Lost) -> None:
    done = lost.rebuild("--yes")
    with LedgerView.open(lost.path) as view:
        note = view.notes()[0][1]
    for words in ("was due", "forgiven", "has expired or was ended", "stops, and what was set", "set aside"):
        assert words in done.stderr
        assert words in note


def test_it_asks_first_and_silence_is_a_no(lost: Lost) -> None:
    for text in ("", "n\n"):
        error = lost.rebuild(text=text).exception
        assert isinstance(error, UsageError)
        assert "--yes" in (error.hint or "")
        assert files(lost) == set()
    assert lost.rebuild(text="y\n").exit_code == 0
    assert files(lost) == {"dc27.sqlite"}


def test_a_ledger_that_is_there_is_never_replaced(lost: Lost) -> None:
    make(lost.path, {FNAL: 1})
    before = lost.path.read_bytes()
    error = lost.rebuild("--yes").exception
    assert isinstance(error, LedgerError)
    assert "move dc27.sqlite* away" in (error.hint or "")
    assert lost.path.read_bytes() == before
    assert lost.service.calls.get("ours") is None
    elsewhere = lost.folder / "elsewhere.sqlite"
    assert lost.rebuild("--yes", "--ledger", elsewhere).stdout == f"{elsewhere}\n"


def test_the_log_of_a_lost_ledger_is_not_taken_for_that_of_the_new_one(lost: Lost, wording) -> None:
    """It may have what is wanted, and SQLite would play it into the new ledger."""
    lost.path.parent.mkdir()
    log = lost.path.with_name("dc27.sqlite-wal")
    log.write_text("the last transactions")
    error = lost.rebuild("--yes").exception
    assert isinstance(error, LedgerError)
    wording(error.message)
    log.write_text("")
    assert lost.rebuild("--yes").exit_code == 0


def test_it_is_refused_while_an_injector_still_has_the_ledger_that_was_removed(lost: Lost) -> None:
    with Ledger.open(lost.path) as ledger, ledger.hold("me@vobox"):
        for file in lost.path.parent.glob("dc27.sqlite*"):
            if file.suffix != ".lock":
                file.unlink()
        error = lost.rebuild("--yes").exception
        assert isinstance(error, LedgerError)
        assert "me@vobox" in error.message


def test_menus_of_another_campaign_are_refused_and_bad_ones_too(lost: Lost) -> None:
    error = lost.rebuild("--yes", campaign="dc28").exception
    assert isinstance(error, UsageError)
    (lost.folder / "menu.yaml").write_text(MENU.replace("t0-export", "t0 export"))
    assert isinstance(lost.rebuild("--yes").exception, MenuError)
    assert files(lost) == set()


@pytest.mark.parametrize("method", ["check", "sites", "ours", "observe"])
def test_a_service_that_does_not_answer_leaves_nothing_behind(lost: Lost, method: str) -> None:
    def fault(called: str, _subject: object) -> None:
        if called == method:
            raise Temporary("503")

    lost.service.fault = fault
    assert isinstance(lost.rebuild("--yes").exception, ServiceError)
    assert files(lost) == set()


def test_an_administrator_is_refused_unless_it_is_meant(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = replace(lost.service.check(), admin=True)
    monkeypatch.setattr(lost.service, "check", lambda: admin)
    assert isinstance(lost.rebuild("--yes").exception, UsageError)
    assert lost.rebuild("--yes", "--allow-admin").exit_code == 0


def test_how_far_back_it_looks_can_be_bounded(lost: Lost) -> None:
    assert lost.rebuild("--yes", "--since", "2027-02-08T09:00Z").exit_code == 0
    assert lost.service.since == START - timedelta(hours=1)


def test_a_backup_is_brought_to_the_present(lost: Lost, wording) -> None:
    """What it has stays, what only the service has is added, and the backup itself does not change."""
    backup = lost.folder / "backup.sqlite"
    make(backup, {FNAL: 1})
    before = backup.read_bytes()
    done = lost.rebuild("--backup", backup, "--yes")
    assert done.exit_code == 0, done.exception
    wording(lines(done.stderr, "found") + lines(done.stderr, "backup"))
    assert backup.read_bytes() == before
    assert files(lost) == {"dc27.sqlite"}
    assert check(lost.path) == []
    with LedgerView.open(lost.path) as view:
        assert {entry.injection.key for entry in view.entries()} == lost.service.rules.keys() - {"other"}
        assert "backup" in view.notes()[0][1]


def test_a_ledger_in_its_place_adopts_what_others_made(lost: Lost) -> None:
    make(lost.path, {FNAL: 1})
    assert isinstance(lost.rebuild("--adopt", text="n\n").exception, UsageError)
    done = lost.rebuild("--adopt", "--yes")
    assert done.exit_code == 0, done.exception
    assert files(lost) == {"dc27.sqlite"}
    assert check(lost.path) == []
    with LedgerView.open(lost.path) as view:
        assert {entry.injection.key for entry in view.entries()} == lost.service.rules.keys() - {"other"}
    assert lost.rebuild("--adopt", "--yes").exit_code == 0, "twice is once"
    assert isinstance(lost.rebuild("--adopt", "--backup", lost.path).exception, UsageError)


def test_what_is_written_to_the_ledger_during_its_adoption_is_not_lost(lost: Lost) -> None:
    make(lost.path, {FNAL: 1})

    def fault(method: str, _subject: object) -> None:
        if method == "ours":
            with Ledger.open(lost.path) as ledger:
                ledger.pause("*", "me@vobox", "", START)

    lost.service.fault = fault
    assert isinstance(lost.rebuild("--adopt", "--yes").exception, LedgerError)
    with LedgerView.open(lost.path) as view:
        assert [pause.who for pause in view.pauses()] == ["me@vobox"]


def test_a_backup_of_another_campaign_or_account_is_refused(lost: Lost) -> None:
    backup = lost.folder / "backup.sqlite"
    with Ledger.open(backup) as ledger:
        ledger.bind("dc28", CYCLE.length, (lost.service.check(),), START)
    error = lost.rebuild("--backup", backup, "--yes").exception
    assert isinstance(error, LedgerError)
    assert "dc28" in error.message
    assert files(lost) == set()
