"""Ledgers of other versions: an older one is migrated and kept as it was, a newer one is refused."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger, LedgerView, database, lock, schema
from dc_inject.ledger.database import stored
from dc_inject.model.errors import LedgerError
from dc_inject.model.ports import Status
from tests.ledger.test_files import mode, refused
from tests.ledger.world import AB, GB, LENGTH, START, injection, opened, seen, started


def test_a_newer_ledger_is_refused_and_left_alone(tmp_path):
    ledger = opened(tmp_path)
    ledger.close()
    newer = sqlite3.connect(ledger.path)
    newer.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    newer.close()
    before = ledger.path.read_bytes()
    refused("newer dc_inject", Ledger.open, ledger.path)
    refused("newer dc_inject", LedgerView.open, ledger.path)
    assert ledger.path.read_bytes() == before


def of_version_1(folder: Path) -> Path:
    """A ledger as the first version made it, with an injection of it, made by that version's own statements."""
    path = folder / "dc27.sqlite"
    path.touch(0o600)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute("PRAGMA journal_mode = WAL")
        for statement in schema.MIGRATIONS[0]:
            old.execute(statement)
        old.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version = 1")
        one, now = injection(), stored(START)
        old.execute("UPDATE campaign SET name = 'dc27', cycle_length = ?, bound_at = ?", (stored(LENGTH), now))
        old.execute("INSERT INTO cycle VALUES (?, ?, ?, ?, NULL)", (now, stored(LENGTH), now, now))
        old.execute(
            "INSERT INTO account (scenario, source, destination, through) VALUES ('day', 'A', 'B', 'rucio')"
        )
        old.execute("INSERT INTO cycle_row (cycle, account, due) VALUES (?, 1, ?)", (now, 450 * GB))
        old.execute(
            "INSERT INTO injection (key, account, cycle, campaign, item, bytes, files, release, lifetime, "
            "activity, service_priority, contact, state, external_id, attempt, intended_at, called_at, "
            "accepted_at, expires_at, error) VALUES (?, 1, ?, 'dc27', ?, ?, 50, ?, ?, 'Data Challenge', 3, "
            "'me@example.org', 'live', 'rule-1', 1, ?, ?, ?, ?, '')",
            (one.key, now, one.item.name, one.item.bytes, stored(one.release), stored(one.lifetime), *[now] * 4),
        )
    return path


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.v1-backup-*Z"))


def test_a_ledger_of_the_first_version_is_migrated_and_kept_beside_it_as_it_was(tmp_path):
    path = of_version_1(tmp_path)
    with Ledger.open(path, synchronous="OFF") as ledger:
        (entry,) = ledger.entries()
        assert (entry.injection, entry.external_id, entry.failed) == (injection(), "rule-1", 0)
        assert ledger.accounts() == ledger.totals_from_rows()
        ledger.observe([seen(entry.injection.key, Status.COMPLETE, failed=10 * GB)], START)
        assert ledger.accounts() == ledger.totals_from_rows()
        assert (ledger.accounts()[AB].injected, ledger.accounts()[AB].failed) == (90 * GB, 10 * GB)
        assert ledger.accounts()[AB].accepted == 100 * GB
    (kept,) = backups(path)
    assert mode(kept) == 0o600
    with contextlib.closing(sqlite3.connect(kept)) as old:
        assert schema.version(old) == 1
        assert old.execute("SELECT state, external_id FROM injection").fetchall() == [("live", "rule-1")]
        assert "failed" not in {column[1] for column in old.execute("PRAGMA table_info(injection)")}
    Ledger.open(path).close()
    assert backups(path) == [kept]  # once is enough


def test_who_only_reads_migrates_nothing_and_says_who_does(tmp_path):
    path = of_version_1(tmp_path)
    before = path.read_bytes()
    refused("not \\(yet\\) a ledger of this version \\(1 instead of 6\\)", LedgerView.open, path)
    with pytest.raises(LedgerError) as error:
        LedgerView.open(path)
    assert (
        "the next `dc-inject run` of this campaign (or `stop`, `end`) migrates it, and keeps a copy"
        in error.value.hint
    )
    assert path.read_bytes() == before
    assert not backups(path)


def test_an_older_ledger_is_left_alone_while_somebody_injects_with_it(tmp_path):
    path = of_version_1(tmp_path)
    before = path.read_bytes()
    with lock.held(path, "the old version", timedelta(0)):
        refused("version 1, and the old version, process .* injects with it", Ledger.open, path)
    assert path.read_bytes() == before
    assert not backups(path)
    Ledger.open(path).close()


def test_an_older_ledger_that_cannot_be_kept_is_not_migrated(tmp_path, monkeypatch):
    path = of_version_1(tmp_path)

    def full(*_):
        raise LedgerError("the disk is full", "make room")

    monkeypatch.setattr(database, "_copy", full)
    refused("the disk is full", Ledger.open, path)
    with contextlib.closing(sqlite3.connect(path)) as old:
        assert schema.version(old) == 1


def test_a_later_version_is_made_in_one_step(tmp_path, monkeypatch):
    with opened(tmp_path) as ledger:
        started(ledger, injection())
        entries = ledger.entries()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE later (a)",)))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    refused("not \\(yet\\) a ledger of this version", LedgerView.open, ledger.path)
    with opened(tmp_path) as ledger:
        assert ledger.entries() == entries
    with LedgerView.open(ledger.path) as view:
        assert view.entries() == entries


def test_a_ledger_of_version_2_keeps_what_it_has_and_learns_of_goals(tmp_path):
    """And what goes out once is remembered from then on."""
    path = of_version_1(tmp_path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in schema.MIGRATIONS[1]:
            old.execute(statement)
        old.execute("UPDATE injection SET failed = ?", (10 * GB,))
        old.execute("PRAGMA user_version = 2")
    with Ledger.open(path, synchronous="OFF") as ledger:
        (entry,) = ledger.entries()
        assert (entry.injection, entry.external_id) == (injection(), "rule-1")
        assert (ledger.accounts()[AB].injected, ledger.accounts()[AB].failed) == (90 * GB, 10 * GB)
        assert (ledger.goals(), ledger.given()) == ({}, set())
        ledger.observe([seen(entry.injection.key, Status.COMPLETE)], START)
        assert ledger.accounts() == ledger.totals_from_rows()
    assert len(sorted(path.parent.glob(f"{path.name}.v2-backup-*Z"))) == 1
