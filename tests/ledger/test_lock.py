"""One injector at a time: the lock says who has it, and frees itself when its holder dies in whatever way."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.ledger import LedgerView, lock
from dc_inject.ledger.lock import lock_file
from dc_inject.model.errors import LedgerError
from tests.ledger.world import START, opened

HOLD = """
import sys
from pathlib import Path
from dc_inject.ledger import Ledger
with Ledger.open(Path(sys.argv[1])) as ledger, ledger.hold("her@there"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(path: Path):
    """Another process that holds the lock until its stdin is closed, or it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)
        process.stdin.close()
        process.stdout.close()


def test_a_second_one_is_refused_with_the_name_of_the_first(tmp_path):
    with opened(tmp_path) as ledger, holding(ledger.path) as process:
        with pytest.raises(
            LedgerError, match=f"her@there, process {process.pid} on {os.uname().nodename}"
        ) as error:
            ledger.hold("me").__enter__()
        assert "since 20" in error.value.message
        assert error.value.hint
        with LedgerView.open(ledger.path) as view:
            assert view.holder() == f"her@there, process {process.pid} on {os.uname().nodename}"


@pytest.mark.parametrize("how", ["kill", "leave"])
def test_the_lock_is_free_when_its_holder_is_gone(tmp_path, how):
    with opened(tmp_path) as ledger:
        with holding(ledger.path) as process:
            if how == "kill":
                process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
            assert ledger.holder() is None
            with ledger.hold("me"):
                assert "me, process" in ledger.holder()
        assert ledger.holder() is None


def test_a_patient_one_gets_the_lock_when_the_one_before_has_left(tmp_path, monkeypatch):
    with opened(tmp_path) as ledger, holding(ledger.path) as process:
        waits = []

        def wait(seconds):
            waits.append(seconds)
            if len(waits) == 50:
                process.communicate(timeout=30)

        monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=wait))
        with ledger.hold("me", patience=timedelta(seconds=60)):
            assert ledger.holder().startswith("me,")
        assert len(waits) == 50


def test_an_impatient_one_waits_as_long_as_it_said(tmp_path, monkeypatch):
    with opened(tmp_path) as ledger, holding(ledger.path):
        waits = []
        monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=waits.append))
        with pytest.raises(LedgerError, match="in use"):
            ledger.hold("me", patience=timedelta(seconds=20)).__enter__()
        assert 19 < sum(waits) <= 20


def test_a_process_holds_the_lock_once(tmp_path):
    with opened(tmp_path) as ledger, ledger.hold("me"):
        with pytest.raises(LedgerError, match="me, process"):
            ledger.hold("again").__enter__()
        assert ledger.holder() is not None


def test_whoever_asks_who_holds_the_lock_refuses_nobody(tmp_path):
    """A scrape at each instant must not make a start fail."""
    with opened(tmp_path) as ledger:
        done = threading.Event()

        def ask():
            while not done.is_set():
                with LedgerView.open(ledger.path) as view:
                    view.holder()

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for _ in range(20):
                with ledger.hold("me"):
                    assert ledger.holder() is not None
        finally:
            done.set()
            asking.join()


def test_an_error_inside_frees_the_lock(tmp_path):
    with opened(tmp_path) as ledger:
        with pytest.raises(KeyboardInterrupt), ledger.hold("me"):
            raise KeyboardInterrupt
        assert ledger.holder() is None
        assert lock_file(ledger.path).read_bytes() == b""


def test_a_ledger_reached_by_two_names_has_one_lock(tmp_path):
    with opened(tmp_path) as ledger:
        link = tmp_path / "link.sqlite"
        link.symlink_to(ledger.path)
        with LedgerView.open(link) as view, ledger.hold("me"):
            assert view.holder() is not None
            assert stat.S_IMODE(lock_file(link).stat().st_mode) == 0o600


def test_another_process_can_stop_a_campaign_whose_lock_is_held(tmp_path):
    with opened(tmp_path) as ledger, holding(ledger.path):
        assert ledger.pause("*", "me", "stop", START)
        with LedgerView.open(ledger.path) as view:
            assert [pause.subject for pause in view.pauses()] == ["*"]


def test_a_lock_that_cannot_be_had_is_said(tmp_path):
    with opened(tmp_path) as ledger:
        lock_file(ledger.path).mkdir()
        with pytest.raises(LedgerError, match="cannot lock") as error:
            ledger.hold("me").__enter__()
        assert error.value.hint


def test_a_lock_with_another_name_is_not_taken(tmp_path, wording):
    """To take it is to write into it, and nobody knows what else the other name is for."""
    with opened(tmp_path) as ledger:
        other = tmp_path / "other"
        other.touch()
        os.link(other, lock_file(ledger.path))
        with pytest.raises(LedgerError) as refused:
            ledger.hold("me").__enter__()
        wording(refused.value)


def test_a_lock_that_cannot_be_read_is_an_error_and_not_nobody(tmp_path, wording):
    with opened(tmp_path) as ledger:
        lock_file(ledger.path).mkdir()
        with pytest.raises(LedgerError) as error:
            ledger.holder()
        wording(error.value)
        assert error.value.hint
