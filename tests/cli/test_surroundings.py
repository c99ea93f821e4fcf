"""Odd surroundings are no bug of ours: no name for the account, no standard streams, a full disk behind a pipe."""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dc_inject.backends.fts.connection import Me
from dc_inject.cli.root import _name_account
from dc_inject.cli.shared import exits
from dc_inject.ledger.lock import holder, lock_file
from dc_inject.system import account
from tests.ledger.test_lock import holding
from tests.ledger.world import opened

ROOT = Path(__file__).parents[2]
MENU = ROOT / "menus" / "uk-brunel.yaml"


def _tool(*arguments: str, shell: str = "", **more):
    """Run the tool as a shell does, with what the shell is to do to its streams."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "dc_inject", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=ROOT, **more)


def _nameless(monkeypatch) -> None:
    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(variable, raising=False)


def test_an_account_without_a_name_goes_by_its_number(monkeypatch):
    _nameless(monkeypatch)
    assert account.who() == f"{os.getuid()}@{os.uname().nodename}"
    monkeypatch.setenv("LOGNAME", "")  # so that both are put back afterwards
    monkeypatch.setenv("HOME", "")
    monkeypatch.delenv("HOME")
    _name_account()
    assert (os.environ["LOGNAME"], os.environ["HOME"]) == (str(os.getuid()), "/")


NAMELESS = """
import os, sys
import dc_inject.cli.actions, dc_inject.cli.shared.exits  # while it may still read them
from dc_inject.ledger import schema
schema._fresh(schema.VERSION)
from dc_inject.__main__ import main
os.setuid(int(sys.argv.pop(1)))
os.environ.clear()
main()
"""


@pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="only root may become somebody else")
def test_a_process_of_an_account_without_a_name_works():
    """As in OpenShift, which gives a container a number and no entry in passwd."""
    with tempfile.TemporaryDirectory(prefix="dc_inject-nameless-") as name:
        folder = Path(name)
        with opened(folder) as ledger:
            path = ledger.path
        for one in (folder, *folder.iterdir()):
            os.chown(one, 54321, 54321)
        command = [sys.executable, "-c", NAMELESS, "54321", "stop", str(path), "--why", "trying"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=folder)
        assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr
        with sqlite3.connect(path) as reading:
            said = "\n".join(reading.iterdump())
        reading.close()
        assert f"54321@{os.uname().nodename}" in said


def test_an_output_that_cannot_be_written_is_said():
    done = _tool("menu", "expand", str(MENU), shell="> /dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2].endswith(": No space left on device")
    assert "bug" not in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_a_menu_is_written_in_utf_8_whatever_the_terminal_is(tmp_path, encoding):
    """And tables of it are written, too, with escapes for letters that the terminal lacks."""
    menu = tmp_path / "uni\udcff.yaml"
    description = "\u00dcbung f\u00fcr Z\u00fcrich \u2013 10 \u2192 20"
    menu.write_text(
        re.sub("^description: .*", f"description: {description}", MENU.read_text(), flags=re.MULTILINE)
    )
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    for words in (("menu", "expand"), ("check",))[: 1 if encoding == "utf-8" else 2]:
        command = [sys.executable, "-m", "dc_inject", *words, str(menu)]
        done = subprocess.run(command, check=False, capture_output=True, timeout=120, cwd=ROOT, env=environment)
        assert done.returncode == 0, done.stderr
        assert words != ("menu", "expand") or f"description: {description}".encode() in done.stdout


@pytest.mark.parametrize("words", [("sandbox", "up"), ("demo",)])
def test_a_home_that_cannot_be_used_is_named(tmp_path, words):
    home = tmp_path / "home"
    home.touch()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    done = _tool(*words, env=environment | {"HOME": str(home)})
    assert done.returncode == 2
    assert str(home) in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_place_that_cannot_be_used_is_no_bug(number, capsys):
    assert exits.explain(OSError(number, os.strerror(number), "/x/y")) == 2
    assert "/x/y" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.EMFILE, "x"), "ulimit -n"),
        (OSError(errno.EMFILE, "x", "/x/y"), "ulimit -n"),
        (OSError(errno.ENOMEM, "x"), "memory"),
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_what_this_machine_lacks_is_no_bug(error, hint, capsys):
    assert exits.explain(error) == 1
    written = capsys.readouterr().err
    assert hint in written
    assert "bug" not in written


@pytest.mark.parametrize("shell", ["2>&-", "<&- 2>&-"])
def test_a_stream_that_is_closed_is_no_bug(shell):
    done = _tool("check", str(MENU), shell=shell)
    assert "bug" not in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("words", [("menu", "expand", str(MENU)), ("status", "-h"), ("--version",)])
def test_an_output_that_is_closed_is_one_that_cannot_be_written(words):
    """As of other tools: whoever wants what is printed would take nothing for an answer."""
    done = _tool(*words, shell=">&-")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2].endswith(": Bad file descriptor")
    assert "bug" not in done.stderr


def test_an_output_that_is_closed_with_the_errors_is_the_same():
    assert _tool("--version", shell=">&- 2>&-").returncode == 1


def test_an_output_that_is_closed_is_no_matter_where_nothing_is_printed(tmp_path):
    with opened(tmp_path) as ledger:
        path = ledger.path
    done = _tool("note", str(path), "trying", shell=">&-")
    assert (done.returncode, "noted" in done.stderr) == (0, True), done.stderr


def test_a_question_without_an_input_ends_as_with_an_empty_one():
    closed, empty = _tool("menu", "new", shell="<&-"), _tool("menu", "new", shell="< /dev/null")
    assert (closed.returncode, closed.stderr) == (empty.returncode, empty.stderr)
    assert "bug" not in closed.stderr


def test_escape_sequences_of_others_do_not_get_in(tmp_path):
    me = Me.of({"user_dn": "/CN=\x1b[31mx\x07", "vos": ["\x1b]0;vo\x07"]})
    assert me.account.isprintable()
    assert me.vo.isprintable()
    with opened(tmp_path) as ledger, holding(ledger.path):
        odd = {"who": "a\x1b[2J", "pid": "\x07", "host": "b"}
        lock_file(ledger.path).write_text(json.dumps(odd))
        assert (said := holder(ledger.path)) is not None
        assert said.isprintable()
