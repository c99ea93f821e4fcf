"""`dc-inject menu`: work with menu files; each command but the smallest has a module of its own."""

from __future__ import annotations

import click

from dc_inject.apps.menutools.command_change import expand, scale
from dc_inject.apps.menutools.command_diff import diff
from dc_inject.apps.menutools.command_import import import_
from dc_inject.apps.menutools.command_new import new
from dc_inject.cli.shared import tables
from dc_inject.menu.schema import json_schema


@click.group()
def menu() -> None:
    """Make, convert and compare menu files.

    Example: dc-inject menu import dc24.csv -o dc24.yaml
    """


@menu.command(short_help="Print the JSON Schema of menus.")
def schema() -> None:
    """Print the JSON Schema of a menu, with which editors complete and check one while it is written.

    Example: dc-inject menu schema > menu.schema.json
    """
    tables.emit_json(json_schema())


for command in (new, import_, expand, diff, scale):
    menu.add_command(command)
