"""`dc-inject config show`: which defaults of options are in force, and where they were set."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from dc_inject.cli.shared import common, defaults, tables, trusting
from dc_inject.credentials import TOKEN_FILES, trust
from dc_inject.model.redaction import scrub

COLUMNS = (
    tables.Column("command", "command", whole=True),
    tables.Column("option", "option", whole=True),
    tables.Column("value", "value"),
    tables.Column("origin", "from"),
)


@click.group()
def config() -> None:
    """Show which defaults of options are in force.

    Example: dc-inject config show
    """


@config.command()
@common.FORMAT
@click.pass_context
def show(ctx: click.Context, fmt: str) -> None:
    r"""Show every default that a configuration file or the environment sets, and where it is set.

    The command line overrides all of them. Files are checked as a whole, all tables of all commands, and so are
    the variables.

    \b
    Example: dc-inject config show
    Example: dc-inject --config /etc/dc_inject/dc_inject.toml config show --format json
    """
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    named = root.params.get("config")
    rows = [
        {**asdict(setting), "value": scrub(setting.value)}
        for setting in defaults.settings(root.command, root, named)
    ]
    rows += [
        {"command": "dc-inject", "option": defaults.TRUST, "value": host, "origin": by}
        for host, by in trusting.trust().destinations().named.items()
    ]
    if rows or fmt != "table":
        tables.emit(fmt, COLUMNS, rows)
    used = defaults.sources(named)
    click.echo(f"files read: {', '.join(map(str, used)) or 'none'}", err=True)
    if named is None:
        absent = [path for path in (defaults.SYSTEM, defaults.user_file(os.environ)) if path not in used]
        click.echo(f"not there: {', '.join(map(str, absent))}", err=True) if absent else None
    others = {*TOKEN_FILES.values(), trust.TRUST, trust.ENDPOINT}
    for name, hint in defaults.unread(root.command, root, others).items():
        click.echo(f"nothing reads {name}; {hint}", err=True)
