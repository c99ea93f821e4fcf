"""A file that is not ours is refused before anything of it is changed: its rights, its content, its neighbours."""

from __future__ import annotations

import os
import sqlite3
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.check import check
from dc_inject.ledger.lock import lock_file
from dc_inject.model.errors import LedgerError
from tests.ledger.world import opened


def _state(path: Path) -> tuple[int, bytes]:
    return stat.S_IMODE(path.stat().st_mode), path.read_bytes()


@pytest.mark.parametrize("kind", ["text", "database"])
def test_rights_and_content_of_a_foreign_file_stay(tmp_path, kind):
    file = tmp_path / "file"
    if kind == "text":
        file.write_text("something of somebody's")
    else:
        with sqlite3.connect(file) as other:
            other.execute("PRAGMA application_id = 7")
            other.execute("CREATE TABLE a (b)")
        other.close()
    file.chmod(0o664)
    before = _state(file)
    with pytest.raises(LedgerError) as error:
        Ledger.open(file)
    assert error.value.hint
    assert _state(file) == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("look", [Ledger.open, LedgerView.open])
def test_a_pipe_and_a_device_are_refused_and_nobody_waits(tmp_path, look, wording):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o664)
    for odd in (pipe, Path("/dev/null"), Path("/dev/zero")):
        rights = odd.stat().st_mode
        with pytest.raises(LedgerError) as refused:
            look(odd)
        wording(refused.value)
        assert odd.stat().st_mode == rights


@pytest.mark.parametrize("look", [Ledger.open, LedgerView.open, check])
def test_a_link_that_leads_to_itself_is_no_ledger(tmp_path, look):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(LedgerError):
        look(tmp_path / "loop")


def test_the_ledger_of_another_person_is_left_alone(tmp_path, monkeypatch, wording):
    with opened(tmp_path) as ledger:
        path = ledger.path
    path.chmod(0o664)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(LedgerError) as refused:
        Ledger.open(path)
    wording(refused.value)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_what_another_person_left_by_reading_is_named(tmp_path, monkeypatch, end, wording):
    """It could not be written, and SQLite says only that the ledger cannot."""
    with opened(tmp_path) as ledger:
        path = ledger.path
    left = path.with_name(path.name + end)
    left.touch()
    ours, theirs = path.lstat(), left.lstat()
    other = os.stat_result((*theirs[:4], ours.st_uid + 1, *theirs[5:]))
    monkeypatch.setattr(Path, "lstat", lambda file: other if file == left else ours)
    with pytest.raises(LedgerError) as error:
        Ledger.open(path)
    wording(error.value)
    assert "chown" in error.value.hint


@pytest.mark.parametrize("kind", ["link", "dangling", "second name", "content", "pipe"])
def test_a_lock_that_is_another_file_is_refused_and_left_as_it_is(tmp_path, kind):
    """It was followed, and truncated."""
    with opened(tmp_path) as ledger:
        victim, lock = tmp_path / "victim", lock_file(ledger.path)
        if kind != "dangling":
            victim.write_text("" if kind == "second name" else "precious")
        if kind in {"link", "dangling"}:
            lock.symlink_to(victim)
        elif kind == "second name":
            lock.hardlink_to(victim)
        elif kind == "content":
            victim.rename(lock)
            victim = lock
        else:
            os.mkfifo(lock)
        with pytest.raises(LedgerError) as error:
            ledger.hold("me", timedelta(0)).__enter__()
        assert error.value.hint
        assert victim.exists() == (kind != "dangling")
        if kind not in {"second name", "dangling"}:
            assert victim.read_text() == "precious"
        if kind != "content":
            lock.unlink()


def test_a_lock_whose_holder_lost_power_is_a_lock(tmp_path):
    with opened(tmp_path) as ledger:
        for left in (b"", b"\0" * 60, b'{"wh', b'{"who": "a", "pid": 1'):
            lock_file(ledger.path).write_bytes(left)
            with ledger.hold("me"):
                assert ledger.path.exists()
