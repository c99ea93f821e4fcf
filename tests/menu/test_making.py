"""The commands of docs/how-to/make-menus.md are run, and print what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dc_inject.model.errors import DcInjectError
from tests.cli.ledgers import run
from tests.menu.test_docs import FILES, MAKING

CONSOLES = re.findall(r"^```console\n(.*?)^```$", MAKING, re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """The commands of the page, each with what it prints."""
    parts = re.findall(r"^(\$ .*)\n((?:(?!\$ ).*\n)*)", "".join(CONSOLES), re.MULTILINE)
    assert len(parts) > 3
    return parts


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one folder, with the files of the page."""
    monkeypatch.chdir(tmp_path)
    made = {name for command, _ in commands() for name in re.findall(r" -o (\S+)", command)}
    for name, text in FILES.items():
        if name not in made:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text)
    for command, wanted in commands():
        program, *arguments = shlex.split(command.removeprefix("$ "))
        assert program == "dc-inject"
        done = run(*arguments)
        if isinstance(done.exception, DcInjectError):
            printed = f"{done.output}dc-inject: {done.exception.message}"
        else:
            assert done.exit_code == 0, done.output
            printed = done.output
        told = [line.rstrip() for line in printed.splitlines() if not line.startswith(("warning: ", "assumed: "))]
        assert "\n".join(told) + "\n" == wanted, command
    assert {name: Path(name).read_text() for name in made & FILES.keys()} == {
        n: FILES[n] for n in made & FILES.keys()
    }
