"""`dc-inject data`: files to make traffic with, where there are none; each command has a module of its own."""

from __future__ import annotations

import click

from dc_inject.apps.data.command_drop import drop
from dc_inject.apps.data.command_list import list_
from dc_inject.apps.data.command_make import make


@click.group()
def data() -> None:
    """Make, list or delete test data at a source.

    A source is an RSE, or a URL prefix of a storage for menus through FTS.

    Example: dc-inject data make T2_XX_SCRATCHDISK rehearsal --files 100 --size 1GB
    """


for command in (make, list_, drop):
    data.add_command(command)
