"""The lines for a crontab that the docs have work as they are pasted, and say nothing where all is well."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.ledgers import make
from tests.e2e.tool import PATIENCE, this_cycle

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^(?:\S+ ){5}(?P<command>.*bin/dc-inject .*)$", re.MULTILINE)
HOW_TO = ROOT / "docs" / "how-to"
RUN = LINE.search((HOW_TO / "run-from-cron.md").read_text())
CERN, FNAL = "T2_CH_CERN", "T1_US_FNAL_Disk"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the environment that the docs make."""
    program = tmp_path / "dc-inject" / "bin" / "dc-inject"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dc_inject "$@"\n')
    program.chmod(0o755)
    return tmp_path


def cron(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as cron does: by sh, with hardly any environment, and nothing to read."""
    environ = {"HOME": str(home), "LOGNAME": "somebody", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        ["/bin/sh", "-c", command.replace("\\%", "%")],
        env=environ | {"PYTHONPATH": str(ROOT)},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.sandbox
def test_a_run_does_its_cycle_and_says_nothing(home, tool, sandbox, label):
    assert RUN is not None
    home.joinpath("rucio.cfg").write_text(sandbox.config.read_text())
    menus = home / "menus"
    menus.mkdir()
    start = this_cycle(6).start - timedelta(seconds=60)
    name = f"cron-{label}"
    tool.menu(name, {(CERN, FNAL): "0.1 Gb/s"}, start=start, cycles=1000).rename(menus / "day.yaml")
    done = cron(RUN["command"], home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (home / ".local" / "state" / "dc_inject" / f"{name}.sqlite").exists()


def test_a_backup_is_made_and_says_nothing(home):
    line = LINE.search((HOW_TO / "look-after-the-ledger.md").read_text())
    assert line is not None
    make(home / ".local" / "state" / "dc_inject" / "dc27.sqlite", {})
    done = cron(line["command"], home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in home.glob("dc27-[0-9][0-9].sqlite")]


def test_what_is_wrong_is_said_so_that_cron_mails_it(home):
    assert RUN is not None
    done = cron(RUN["command"], home)
    assert done.returncode == 2
    assert "menus" in done.stderr
