"""A ledger whose file or folder may not be written: said with what to do, exit code 3, and nothing is lost."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.ledgers import FNAL, MESH, make
from tests.e2e.nursery import HERE

# Rights mean nothing to root, as whom tests may run: without this capability they do (prctl PR_CAPBSET_DROP,
# CAP_DAC_OVERRIDE). Where it may not be dropped, nobody has it.
BARE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "dc_inject", *sys.argv[1:]])
"""
MENU = """
menu: 1
campaign: dc27
contact: dc-ops@example.org
start: 2027-02-08 10:00
end: 2027-02-09 10:00
scenarios:
  one: {from: A, to: B, rate: 1 Gb/s, datasets: {did: "cms:*"}}
"""


def _bare(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BARE, *map(str, arguments)]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("part", ["folder", "file"])
def test_a_ledger_that_may_not_be_written_is_said_before_anything_is_asked_of_a_service(
    tmp_path: Path, part: str
) -> None:
    """It is as it was, and the same command works as soon as it may be written again."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    ledger, menu = folder / "dc27.sqlite", tmp_path / "menu.yaml"
    make(ledger, {FNAL: 1, MESH: 1})
    menu.write_text(MENU)
    before, place = ledger.read_bytes(), {"folder": folder, "file": ledger}[part]
    place.chmod({"folder": 0o500, "file": 0o400}[part])
    try:
        for command in (("run", menu), ("stop", "dc27")):
            done = _bare(*command, "--ledger", ledger)
            assert done.returncode == 3, done.stderr
            assert str(ledger) in done.stderr
            assert "hint: " in done.stderr
            assert "Traceback" not in done.stderr
    finally:
        place.chmod({"folder": 0o700, "file": 0o600}[part])
    assert ledger.read_bytes() == before
    assert _bare("stop", "dc27", "--ledger", ledger).returncode == 0


def test_who_reads_a_ledger_while_it_may_not_be_written_hinders_no_writer_later(tmp_path: Path) -> None:
    """SQLite gives the log that it makes for a reader the rights of the ledger, and leaves it there."""
    ledger = tmp_path / "dc27.sqlite"
    make(ledger, {FNAL: 1, MESH: 1})
    ledger.chmod(0o400)
    assert _bare("status", "dc27", "--ledger", ledger).returncode == 0
    left = [ledger.with_name(f"{ledger.name}{end}") for end in ("-wal", "-shm")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in left] == [0o400, 0o400]
    ledger.chmod(0o600)
    done = _bare("stop", "dc27", "--ledger", ledger)
    assert done.returncode == 0, done.stderr
