"""What messages and hints tell a person to type exists: commands, and their options."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

import dc_inject.cli.run as run_command
from dc_inject.apps.link import hints
from dc_inject.cli.root import root
from dc_inject.ledger.lock import InUse
from dc_inject.model.errors import LedgerBroken, LedgerError, MenuError, Temporary, UsageError
from dc_inject.summary import left

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for path in sorted((ROOT / "dc_inject").rglob("*.py"))
    if "server" not in path.relative_to(ROOT / "dc_inject").parts  # the grid's services: nobody reads them
]
OF_OTHERS = {"--no-build-isolation"}  # of pip
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!-)")
STYLE_VARIABLE = re.compile(r"--[a-z]+(?=:)|var\(--[a-z]+\)")  # of a page's style sheet


@cache
def texts(path: Path) -> list[tuple[int, str]]:
    """Every text in a module, with its line; the parts of an f-string are one, with X for what is put in."""
    found, inside = [], set()
    for node in ast.walk(ast.parse(path.read_text())):  # what is inside comes later
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if not isinstance(part, ast.JoinedStr)}
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
            found.append((node.lineno, text))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            found.append((node.lineno, node.value))
    return found


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
        found = command.get_command(click.Context(command, resilient_parsing=True), word.strip(".:"))
        if found is None:
            return "" if not re.fullmatch(r"[a-z]+", word) else f"no command {word!r} in {words!r}"
        command = found
    missing = set(OPTION.findall(words)) - options_of(command)
    if command is root or isinstance(command, click.Group):
        return ""
    return f"{sorted(missing)} is no option of {words!r}" if missing else lacking(command, words)


def lacking(command: click.Command, words: str) -> str:
    """Say what is missing in `dc-inject WORDS`: pasted, it would be refused; texts stand for values."""
    rest = shlex.split(words)
    while rest and (rest[0].startswith("-") or rest[0] != command.name):
        rest.pop(0)
    try:
        command.make_context(command.name, rest[1:]).close()
    except click.exceptions.Exit:  # of --help
        return ""
    except click.BadParameter as error:  # a placeholder is no number, and no file that exists
        return f"{words!r}: {error.format_message()}" if isinstance(error, click.MissingParameter) else ""
    except (click.UsageError, UsageError) as error:
        return f"{words!r}: {error}"
    return ""


def named_wrongly(text: str) -> Iterator[str]:
    for match in re.finditer(r"`dc-inject ([^`]+)`", text):
        if why := wrong(match[1]):
            yield why
    if " " in text:  # else it is no sentence, but an argument for another program
        named = set(OPTION.findall(STYLE_VARIABLE.sub("", text)))
        yield from (f"there is no option {option}" for option in named - KNOWN)


def commands(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from commands(command) if isinstance(command, click.Group) else (command,)


def options_by_module() -> dict[str, set[str]]:
    """The options that a person can give to the commands of each module."""
    of_root = {name for one in root.params for name in one.opts}
    found: dict[str, set[str]] = {}
    for command in commands(root):
        module = inspect.unwrap(command.callback).__module__ if command.callback else ""
        found.setdefault(module, of_root.copy()).update(options_of(command))
    return found


OF_MODULE = options_by_module()
NAMED_WITH_COMMAND = re.compile(
    r"`dc-inject [^`]+`|dc-inject [a-z]+.*|`(?:[a-z]+ )?[a-z]+ --[a-z-]+`|X --dataset-.*"
)
NO_KEYS = {"key", "host", "storages"}  # what stands for any key; those of grid files


def test_commands_and_options_that_texts_name_exist() -> None:
    found = [
        f"{path.name}:{line}: {why}"
        for path in SOURCES
        for line, text in texts(path)
        if line > 1  # no docstring of a module
        for why in named_wrongly(text)
    ]
    assert found == []


def test_a_command_names_only_its_own_options_where_it_names_no_command() -> None:
    """An option of another command is named with that command."""
    found = []
    for path in SOURCES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module.startswith("dc_inject.apps.link."):
            module = "dc_inject.apps.link.command"
        own = OF_MODULE.get(module)
        for line, text in texts(path) if own else ():
            sentence = NAMED_WITH_COMMAND.sub("", STYLE_VARIABLE.sub("", text))
            others = set(OPTION.findall(sentence)) - (own or set()) if " " in text and line > 1 else set()
            found += [f"{path.name}:{line}: {option}" for option in others & KNOWN]
    assert found == []


def test_the_keys_that_texts_name_stand_in_menus() -> None:
    keys = set(re.findall(r"^    (\w+?)_?: ", (ROOT / "dc_inject/menu/schema.py").read_text(), re.MULTILINE))
    found = {key for path in SOURCES for _, text in texts(path) for key in re.findall(r"`([a-z_]+): ", text)}
    assert {"tape_agreed", "fts", "accept"} <= found
    assert found - keys == NO_KEYS


def test_the_test_sees_what_is_wrong(tmp_path: Path) -> None:
    """A command and an option that do not exist."""
    assert wrong("stauts dc27")
    assert wrong("status dc27 --sumary")
    assert not wrong("status dc27 --summary")
    assert wrong("status --summary"), "the campaign is missing"
    assert wrong("ledger rebuild --adopt")
    assert not wrong("menu new -o X")
    file = tmp_path / "one.py"
    file.write_text('hint = f"try `dc-inject status {name} --sumary`" " or --no-such-thing"\n')
    ((_, text),) = texts(file)
    assert text == "try `dc-inject status X --sumary` or --no-such-thing"
    assert len(list(named_wrongly(text))) == 3


def test_a_refused_menu_keeps_what_is_said_of_going_on():
    error = MenuError([])
    error.hint = "continue"
    with pytest.raises(MenuError) as found, hints.translated():
        raise error
    assert found.value.hint == "continue"


def test_an_error_that_no_disk_raised_keeps_its_own_hint(tmp_path: Path):
    start = SimpleNamespace(path=tmp_path / "dc27.sqlite", campaign="dc27")
    error = LedgerError("another injector", "end that one")
    with pytest.raises(LedgerError) as found, run_command._showing_what_is_left(start):
        raise error
    assert found.value.hint == "end that one"
    with pytest.raises(LedgerError) as found, run_command._showing_what_is_left(start):
        raise LedgerBroken("the disk is full", "free some space")
    assert f"`dc-inject end {tmp_path}/dc27.sqlite --cancel`" in found.value.hint


def test_a_test_of_a_link_adds_no_way_to_go_on_to_an_error_of_another_injector():
    assert left.hint_suffices(InUse(Path("dc27.sqlite"), "in use", injects=True))
    assert not left.hint_suffices(LedgerBroken("the disk is full", "free some space"))
    assert not left.hint_suffices(Temporary("FTS did not answer"))


def test_the_hint_names_a_ledger_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    hint = InUse(Path("dc27"), "in use", injects=True).hint
    assert shlex.split(hint.split("`")[1])[-1] == str(tmp_path / "dc27")
