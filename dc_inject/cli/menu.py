"""`dc-inject menu`: work with menu files."""

from __future__ import annotations

import click

from dc_inject.cli import tables
from dc_inject.menu import schema as menu_schema


@click.group()
def menu() -> None:
    """Work with menu files.

    Example: dc-inject menu schema
    """


@menu.command()
def schema() -> None:
    """Print the JSON Schema of a menu, with which editors complete and check one while it is written.

    Example: dc-inject menu schema > menu.schema.json
    """
    tables.emit_json(menu_schema())
