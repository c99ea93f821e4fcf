"""What messages and hints tell a person to type exists: commands, and their options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dc_inject.cli.root import root

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for path in sorted((ROOT / "dc_inject").rglob("*.py"))
    if "server" not in path.relative_to(ROOT / "dc_inject").parts  # the grid's services: nobody reads them
]
OF_OTHERS = {"--no-build-isolation", "--footprint"}  # of pip; what `plan` still takes for the command of this name
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!-)")
STYLE_VARIABLE = re.compile(r"--[a-z]+(?=:)|var\(--[a-z]+\)")  # of a page's style sheet


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in a module, with its line; the parts of an f-string are one, with X for what is put in."""
    tree = ast.parse(path.read_text())
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    } - {id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def options_of(command: click.Command) -> set[str]:
    own = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "--version"}
    parts = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(options_of, parts))


def everything() -> set[str]:
    context = click.Context(root)
    found = {name for one in root.params for name in one.opts} | {"--help"}
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        found |= options_of(command)
    return found


KNOWN = everything() | OF_OTHERS


def wrong(words: str) -> str:
    """Say what does not exist in `dc-inject WORDS`; nothing where all does."""
    command: click.Command = root
    for word in words.split():
        if not isinstance(command, click.Group):
            break
        if word.startswith("-"):
            continue
        found = command.get_command(click.Context(command), word.strip(".:"))
        if found is None:
            return "" if not re.fullmatch(r"[a-z]+", word) else f"no command {word!r} in {words!r}"
        command = found
    missing = set(OPTION.findall(words)) - options_of(command)
    return f"{sorted(missing)} is no option of {words!r}" if missing and command is not root else ""


def named_wrongly(text: str) -> Iterator[str]:
    for match in re.finditer(r"`dc-inject ([^`]+)`", text):
        if why := wrong(match[1]):
            yield why
    if " " in text:  # else it is no sentence, but an argument for another program
        named = set(OPTION.findall(STYLE_VARIABLE.sub("", text)))
        yield from (f"there is no option {option}" for option in named - KNOWN)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "dc_inject")))
def test_commands_and_options_that_texts_name_exist(path: Path) -> None:
    found = [f"{path.name}:{line}: {why}" for line, text in texts(path) for why in named_wrongly(text)]
    assert found == []


def test_the_test_sees_what_is_wrong(tmp_path: Path) -> None:
    """A command and an option that do not exist."""
    assert wrong("stauts dc27")
    assert wrong("status dc27 --sumary")
    assert not wrong("status dc27 --summary")
    assert not wrong("menu new -o X")
    file = tmp_path / "one.py"
    file.write_text('hint = f"try `dc-inject status {name} --sumary`" " or --no-such-thing"\n')
    ((_, text),) = texts(file)
    assert text == "try `dc-inject status X --sumary` or --no-such-thing"
    assert len(list(named_wrongly(text))) == 3
