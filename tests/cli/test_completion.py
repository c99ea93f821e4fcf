"""A shell completes commands, options, and the names that ledgers and menus have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dc_inject.cli.root import COMPLETE, root
from dc_inject.ledger import Ledger
from dc_inject.model import FlowKey, Link
from tests.cli.ledgers import CYCLE, FNAL, ME, MESH, START, make, run
from tests.menu.texts import text


@pytest.fixture(autouse=True)
def campaigns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two campaigns with a ledger, and a file that is none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    make(tmp_path / "dc_inject" / "dc27.sqlite", {FNAL: 1, MESH: 1})
    with Ledger.open(tmp_path / "dc_inject" / "dress.sqlite") as ledger:
        ledger.bind("dress", CYCLE.length, [ME], START)
        ledger.open_cycle(CYCLE, {FlowKey("uk", Link("T1_UK_RAL_Disk", "T2_UK_London_IC")): (1, None)}, START)
    (tmp_path / "dc_inject" / "junk.sqlite").write_text("no database")


def offered(*words: str) -> list[str]:
    """What a shell gets for the last word."""
    line = " ".join(["dc-inject", *words[:-1], repr(words[-1]) if words[-1] else ""])
    environment = {COMPLETE: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    done = CliRunner().invoke(root, [], prog_name="dc-inject", env=environment, complete_var=COMPLETE)
    assert (done.exit_code, done.stderr) == (0, "")
    return [item.removeprefix("plain,") for item in done.stdout.split()]


def test_commands_and_campaigns() -> None:
    assert offered("sta") == ["status"]
    assert offered("status", "") == ["dc27", "dress", "junk"]
    assert offered("status", "d") == ["dc27", "dress"]
    assert "--format" in offered("status", "--f")


def test_what_a_subject_may_be() -> None:
    assert offered("pause", "dr") == ["dress"]
    assert offered("pause", "t0") == ["t0-export"]
    assert offered("pause", "dress", "") == ["T1_UK_RAL_Disk", "uk"]
    assert offered("pause", "dress", "T1_UK_RAL_Disk", "") == ["T2_UK_London_IC"]
    assert offered("set", "T2_CH_CERN", "T") == ["T1_US_FNAL_Disk"]


def test_ends_of_campaigns_and_links_of_menus(tmp_path: Path) -> None:
    assert offered("link", "T2_U") == ["T2_UK_London_IC", "T2_US_MIT", "T2_US_Nebraska"]
    menu = tmp_path / "day.yaml"
    menu.write_text(text())
    assert offered("run", str(menu), "--link", "") == ["A:B"]
    assert offered("plan", "--scale", "2", str(menu), "--link", "A:") == ["A:B"]
    assert offered("run", str(tmp_path / "nowhere.yaml"), "--link", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == 0
    assert f"_DC_INJECT_COMPLETE={shell}_complete" in done.stdout


def test_the_script_works_in_a_real_bash(tmp_path: Path) -> None:
    """Also for a link, whose colon is a word's end to bash by default."""
    program = tmp_path / "bin" / "dc-inject"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dc_inject "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(dc-inject completion bash)"\n'
        'echo "$COMP_WORDBREAKS" | grep -c :\n'
        "COMP_WORDS=(dc-inject status dc27 --sum) COMP_CWORD=3\n"
        "_dc_inject_completion dc-inject\n"
        'echo "${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == ["0", "--summary"]
