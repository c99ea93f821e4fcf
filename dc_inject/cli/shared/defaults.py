"""Defaults of options: from configuration files, and from the environment.

What counts, in this order: the command line, `DC_INJECT_<COMMAND>_<OPTION>`, the user's file, the system's file,
the option's own default. A file has a table for each command, with the names of its options as they are typed.
Before the tables it may name hosts that credentials may go to:

    trust-host = ["fts.example.org"]

    [run]
    quiet = true
    metrics-address = "9465"

    [menu.new]
    contact = "dc-ops@example.org"
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click

from dc_inject.model import units
from dc_inject.model.errors import UsageError

PREFIX = "DC_INJECT"
SYSTEM = Path("/etc/dc_inject/dc_inject.toml")
TRUST = "trust-host"  # the one key that stands in no table
LARGEST = 1_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Setting:
    """A default that a user has set: of which command and option, its value as typed, and where it was set."""

    command: str
    option: str
    value: str
    origin: str


def user_file(environ: Mapping[str, str]) -> Path:
    """Return where a user's file is: `dc_inject/dc_inject.toml` in $XDG_CONFIG_HOME, or else in ~/.config."""
    folder = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():
        folder = Path(environ.get("HOME", "/")) / ".config"
    return folder / "dc_inject" / "dc_inject.toml"


def name_of(option: click.Option) -> str:
    """Return an option's name as it is typed, without its dashes: `metrics-address`."""
    return max(option.opts, key=len).lstrip("-")


def from_environment(command: click.Command, *path: str) -> None:
    """Let each option of a command, and of those below it, be named in the environment."""
    for option in _options_of(command):
        if option.envvar is None:
            option.envvar = "_".join((PREFIX, *path, name_of(option))).upper().replace("-", "_")
    for name, part in _parts_of(command).items():
        from_environment(part, *path, name)


def read(group: click.Group, ctx: click.Context, name: str, config: Path | None) -> dict[str, Any]:
    """Return click's default map for the command that is called: of one file, or of the system's and the user's.

    Only the tables of that command are checked, so that the others need not be imported. Raises UsageError.
    """
    values: dict[str, Any] = {}
    for path in sources(config):
        tables = {key: value for key, value in _tables(path).items() if key != TRUST}
        _known(path, "command", tables, group.list_commands(ctx))
        command = group.get_command(ctx, name)
        if command is not None and name in tables:
            values = _merged(values, _options(path, command, tables[name], name))
    return {name: values}


def trusted(config: Path | None) -> list[str]:
    """Return the hosts that the files name to get credentials; raises UsageError."""
    hosts: list[str] = []
    for path in sources(config):
        named = _tables(path).get(TRUST, [])
        if not (isinstance(named, list) and all(isinstance(host, str) for host in named)):
            raise UsageError(f"{path}: {TRUST} is a list of hosts", f'{TRUST} = ["fts.example.org"]')
        hosts += named
    return hosts


def sources(config: Path | None) -> list[Path]:
    """Return the files that are read: the named one alone, or those of the system and the user that there are."""
    return [config] if config else [path for path in (SYSTEM, user_file(os.environ)) if path.is_file()]


def settings(group: click.Group, ctx: click.Context, config: Path | None) -> list[Setting]:
    """Return the defaults in force that are not the options' own, by command.

    Raises UsageError for a bad file, and for a value that its option does not take.
    """
    in_force: list[Setting] = []
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None  # it was listed
        of_command = [
            s
            for path in sources(config)
            for s in _in_file(command, name, read(group, ctx, name, path)[name], str(path))
        ]
        of_command += _in_environment(command, name)
        in_force += {(s.command, s.option): s for s in of_command}.values()  # the last one counts
    return in_force


def unread(group: click.Group, ctx: click.Context, others: Iterable[str]) -> dict[str, str]:
    """Return the variables that look like ours and that neither an option reads nor one of `others` is; hints."""
    commands = [group, *filter(None, (group.get_command(ctx, name) for name in group.list_commands(ctx)))]
    read_ones = {*others, *(variable for command in commands for variable in _variables_of(command))}
    ours = sorted(name for name in os.environ if name.startswith(f"{PREFIX}_"))
    return {name: units.did_you_mean(name, read_ones) for name in ours if name not in read_ones}


def _variables_of(command: click.Command) -> Iterator[str]:
    for option in _options_of(command):
        yield from [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
    for part in _parts_of(command).values():
        yield from _variables_of(part)


def _in_file(command: click.Command, name: str, table: Mapping[str, Any], origin: str) -> Iterator[Setting]:
    for option in _options_of(command):
        if option.name in table:
            _check(option, table[option.name], f"{origin}: {name}.{name_of(option)}")
            yield Setting(name, name_of(option), _typed(table[str(option.name)]), origin)
    for part, below in _parts_of(command).items():
        yield from _in_file(below, f"{name} {part}", table.get(part, {}), origin)


def _in_environment(command: click.Command, name: str) -> Iterator[Setting]:
    for option in _options_of(command):
        variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
        variable = next(filter(os.environ.get, variables), None)
        if variable is not None:
            _check(option, option.value_from_envvar(click.Context(command)), variable)
            yield Setting(name, name_of(option), os.environ[variable], variable)
    for part, below in _parts_of(command).items():
        yield from _in_environment(below, f"{name} {part}")


def _check(option: click.Option, value: Any, place: str) -> None:  # noqa: ANN401  what click makes of a text
    """Raise UsageError for a value that an option does not take, with where it was set."""
    try:
        option.type_cast_value(click.Context(click.Command("")), value)
    except click.BadParameter as error:
        raise UsageError(f"{place}: {error.message.rstrip('.')}") from None


def _options_of(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


def _parts_of(command: click.Command) -> Mapping[str, click.Command]:
    return command.commands if isinstance(command, click.Group) else {}


def _typed(value: object) -> str:
    """Return a value as it would be typed."""
    if isinstance(value, list):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tables(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  only where there is a file, which most runs do not have

    from dc_inject.system import files  # noqa: PLC0415  as above: `--help` is quick

    try:
        _refuse_shared(path)
        tables = tomllib.loads(files.load(str(path), LARGEST).decode())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", "check its path and rights"
        ) from None
    except ValueError as error:
        raise UsageError(
            f"{path} is not TOML: {error}", "docs/reference/configuration.md has an example"
        ) from None
    for name, table in tables.items():
        if not isinstance(table, dict) and name != TRUST:
            hint = f"write options below their command: [run], then {name} = ..."
            raise UsageError(f"{path}: {name} is not in a table", hint)
    return tables


def _refuse_shared(path: Path) -> None:
    """Raise UsageError for a file that another user may have written: it names hosts that get credentials."""
    status, me = path.stat(), os.geteuid()
    if status.st_uid not in {me, 0}:
        raise UsageError(f"{path} belongs to another user (uid {status.st_uid}) and is not read", "copy it")
    writable = stat.S_IWOTH | (0 if status.st_gid == os.getegid() else stat.S_IWGRP)
    if stat.S_ISREG(status.st_mode) and status.st_mode & writable:
        raise UsageError(f"{path} can be written by other users and is not read", f"chmod go-w {path}")


def _options(path: Path, command: click.Command, table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the values of a command's table by the names that click has for its options."""
    parts = _parts_of(command)
    options = {name_of(option): option for option in _options_of(command)}
    _known(path, f"option or command of `{name}`" if parts else f"option of `{name}`", table, [*options, *parts])
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in parts:
            if not isinstance(value, dict):
                raise UsageError(f"{path}: {name}.{key} is a command", f"write a table, [{name}.{key}]")
            values[key] = _options(path, parts[key], value, f"{name} {key}")
        elif options[key].name is not None:
            values[str(options[key].name)] = _value(path, f"{name}.{key}", value, options[key])
    return values


def _value(path: Path, key: str, value: Any, option: click.Option) -> Any:  # noqa: ANN401  any value of TOML
    """Return a value as it would be typed, so that an option reads it as it reads the command line."""
    if isinstance(value, dict) or (isinstance(value, list) and not option.multiple):
        raise UsageError(f"{path}: {key} takes one value", "write it as on the command line, as a string")
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{path}: {key} must be true or false, not {value!r}")
        return value
    values = value if isinstance(value, list) else [value]
    texts = [item.isoformat() if isinstance(item, date) else str(item) for item in values]
    return texts if option.multiple else texts[0]


def _merged(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return both maps as one; the other one counts where both have a value."""
    merged = dict(base)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _known(path: Path, noun: str, names: Iterable[str], valid: Iterable[str]) -> None:
    """Raise UsageError for an unknown name, with the nearest one."""
    valid = sorted(valid)
    for name in names:
        if name not in valid:
            raise UsageError(f"{path}: there is no {noun} {name!r}", units.did_you_mean(name, valid))
