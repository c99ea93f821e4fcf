"""Ledgers of other versions are refused and left alone; an empty file is made a ledger by who writes."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger, LedgerView, schema
from tests.ledger.test_files import refused
from tests.ledger.world import opened


def of_another_version(folder: Path, number: int = schema.VERSION + 1) -> Path:
    """A ledger that says that it is of another version."""
    with opened(folder) as ledger:
        pass
    with contextlib.closing(sqlite3.connect(ledger.path)) as other:
        other.execute(f"PRAGMA user_version = {number}")
    return ledger.path


@pytest.mark.parametrize("number", [schema.VERSION + 1, 6])
def test_a_ledger_of_another_version_is_refused_and_left_alone(tmp_path, number, wording):
    path = of_another_version(tmp_path, number)
    before = path.read_bytes()
    for opener in (Ledger.open, LedgerView.open):
        wording(refused(opener, path))
    assert path.read_bytes() == before


def test_an_empty_file_is_no_ledger_to_read_and_becomes_one_when_it_is_written(tmp_path, monkeypatch, wording):
    monkeypatch.setattr("dc_inject.ledger.database.MAKING_PAUSE", 0)
    path = tmp_path / "dc27.sqlite"
    path.touch(0o600)
    wording(refused(LedgerView.open, path))
    assert path.stat().st_size == 0
    Ledger.open(path).close()
    LedgerView.open(path).close()
