"""Every command says what it does, with an example, and can be asked without any service or file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from dc_inject.cli.root import root
from dc_inject.registry import COMMANDS
from tests.cli.ledgers import run


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all commands, those of groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = list(commands(root))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_with_an_example_and_explains_its_options(path: tuple[str, ...]) -> None:
    """The example stands on a line of its own, as it can be typed; an option without a word is a riddle."""
    done = run(*path, "--help")
    assert done.exit_code == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert any("dc-inject " + " ".join(path) in line for line in lines if not line.startswith("Usage")), (
        done.stdout
    )
    assert "\\b" not in done.stdout
    command: click.Command = root
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts


@pytest.mark.parametrize("command", ["link", "run", "smoke"])
def test_many_options_are_in_groups(command: str) -> None:
    """All of them, each once; what a group names is an option of some command."""
    text = run(command, "--help").stdout
    what, careful, output = (text.index(f"\n{group}:\n") for group in ("What", "How careful", "Output"))
    assert what < careful < text.index("\n  --allow-admin ") < output < text.index("--help ")
    found = root.get_command(click.Context(root), command)
    assert found is not None
    for option in (one.opts[-1] for one in found.params if isinstance(one, click.Option)):
        assert len(re.findall(rf"^  (?:-\w, )?{option}\b", text, re.MULTILINE)) == 1, option


def test_the_overview_lists_every_command_in_one_line() -> None:
    """`dc-inject --help` names all commands without importing them."""
    text = run("--help").stdout
    for name, (_, line) in COMMANDS.items():
        assert any(row.split() == [name, *line.split()] for row in text.splitlines()), name


def imported_by(*arguments: str) -> set[str]:
    """Call the command in a process of its own; return the modules that it has imported."""
    script = (
        "import json, sys\n"
        "from dc_inject.cli.root import root\n"
        "root.main(sys.argv[1:], standalone_mode=False)\n"
        "print(json.dumps(list(sys.modules)))"
    )
    words = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_click_and_nothing_else_of_ours() -> None:
    """What people try first is quick; `make bench` measures how quick."""
    imported = {name for name in imported_by("--help") if name.startswith(("dc_inject", "rich", "requests"))}
    assert imported == {"dc_inject", "dc_inject.cli", "dc_inject.cli.root", "dc_inject.registry"}


@pytest.mark.parametrize("command", ["status", "watch", "set", "stop", "end"])
def test_a_command_without_menus_imports_no_schema_of_menus(command: str) -> None:
    """The schema takes half of the time of such a command; and only `end` of these needs the whole engine."""
    imported = imported_by(command, "--help")
    assert "dc_inject.ledger" in imported
    assert not imported & {"pydantic", "dc_inject.menu.schema", "requests", "numpy"}
    assert ("dc_inject.engine.engine" in imported) is (command == "end")


def test_an_unknown_command_is_refused_with_the_nearest_one():
    done = run("statsu")
    assert done.exit_code == 2
    assert "'status'" in done.stderr
