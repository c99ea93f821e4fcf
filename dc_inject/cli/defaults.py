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
from collections.abc import Iterable, Mapping
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
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None:
            option.envvar = "_".join((PREFIX, *path, name_of(option))).upper().replace("-", "_")
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        from_environment(part, *path, name)


def read(group: click.Group, ctx: click.Context, name: str, config: Path | None) -> dict[str, Any]:
    """Return click's default map for the command that is called: of one file, or of the system's and the user's.

    Only the tables of that command are checked, so that the others need not be imported. Raises UsageError.
    """
    values: dict[str, Any] = {}
    for path in _files(config):
        tables = {key: value for key, value in _tables(path).items() if key != TRUST}
        _known(path, "command", tables, group.list_commands(ctx))
        command = group.get_command(ctx, name)
        if command is not None and name in tables:
            values = _merged(values, _options(path, command, tables[name], name))
    return {name: values}


def trusted(config: Path | None) -> list[str]:
    """Return the hosts that the files name to get credentials; raises UsageError."""
    hosts: list[str] = []
    for path in _files(config):
        named = _tables(path).get(TRUST, [])
        if not (isinstance(named, list) and all(isinstance(host, str) for host in named)):
            raise UsageError(f"{path}: {TRUST} is a list of hosts", f'{TRUST} = ["fts.example.org"]')
        hosts += named
    return hosts


def _files(config: Path | None) -> list[Path]:
    return [config] if config else [path for path in (SYSTEM, user_file(os.environ)) if path.is_file()]


def _tables(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  only where there is a file, which most runs do not have

    from dc_inject.system import files  # noqa: PLC0415  as above: `--help` is quick

    try:
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


def _options(path: Path, command: click.Command, table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the values of a command's table by the names that click has for its options."""
    parts = command.commands if isinstance(command, click.Group) else {}
    options = {name_of(option): option for option in command.params if isinstance(option, click.Option)}
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


def _value(path: Path, key: str, value: Any, option: click.Option) -> Any:  # noqa: ANN401  whatever TOML can say
    """Return a value as it would be typed, so that an option reads it as it reads the command line."""
    if isinstance(value, dict) or (isinstance(value, list) and not option.multiple):
        raise UsageError(f"{path}: {key} takes one value", "write it as on the command line, as a string")
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{path}: {key} must be true or false, not {value!r}")
        return value
    texts = [_text(item) for item in (value if isinstance(value, list) else [value])]
    return texts if option.multiple else texts[0]


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _merged(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return both maps as one; the other one counts where both say something."""
    merged = dict(base)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _known(path: Path, noun: str, names: Iterable[str], valid: Iterable[str]) -> None:
    """Raise UsageError for a name that nobody knows, with the nearest one."""
    valid = sorted(valid)
    for name in names:
        if name not in valid:
            raise UsageError(f"{path}: there is no {noun} {name!r}", units.did_you_mean(name, valid))
