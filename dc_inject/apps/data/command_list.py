"""`dc-inject data list`: the sets of test files that a storage or Rucio has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dc_inject.apps.data import places
from dc_inject.cli.shared import common, log_output, tables
from dc_inject.model import units, urls
from dc_inject.storage import Storage
from dc_inject.storage.sets import find_sets

COLUMNS = (
    tables.Column("set", "set", name=True),
    tables.Column("at", "at", name=True),
    tables.Column("scope", "scope", spare=2),
    tables.Column("files", "files", right=True),
    tables.Column("of", "of", right=True, spare=1),
    tables.Column("file_bytes", "each", units.format_size, right=True, spare=3),
    tables.Column("bytes", "bytes", units.format_size, right=True),
    tables.Column("datasets", "datasets", right=True, spare=4),
    tables.Column("rules_elsewhere", "rules elsewhere", right=True),
    tables.Column("until", "until (UTC)"),
)


@click.command("list")
@click.argument("source", required=False)
@places.SCOPE
@places.BEFORE
@common.TIMEOUT
@common.FORMAT
def list_(source: str | None, scope: str | None, before: str, timeout: float, fmt: str) -> None:
    r"""List the sets of test files at SOURCE (an RSE or a storage's URL prefix), or all sets in the scope.

    \b
    Example: dc-inject data list
    Example: dc-inject data list davs://se.example.org:443/dc27 --format json
    """
    log_output.talk(quiet=True)
    at = places.place(source, scope=scope, name_prefix=before) if source else ""
    if urls.is_url(at):
        with places.storage(timeout) as storage:
            rows = _at_storage(storage, at)
        empty = {"scope", "datasets", "rules_elsewhere", "until"} if fmt == "table" else set()
        _say_if_none(rows, at)
        tables.emit(fmt, [column for column in COLUMNS if column.key not in empty], rows)
    else:
        rows = _in_rucio(at, scope, before, timeout)
        _say_if_none(rows, at or "Rucio")
        tables.emit(fmt, COLUMNS, rows)


def _say_if_none(rows: list[Mapping[str, Any]], at: str) -> None:
    if not rows:
        click.echo(f"no sets of test files at {at}", err=True)


def _at_storage(storage: Storage, prefix: str) -> list[Mapping[str, Any]]:
    return [
        {
            **dict.fromkeys(column.key for column in COLUMNS),
            "set": file_set.set.name,
            "at": prefix,
            "files": file_set.files,
            "of": file_set.set.files,
            "file_bytes": file_set.set.bytes,
            "bytes": file_set.bytes,
        }
        for file_set in find_sets(storage, prefix)
    ]


def _in_rucio(rse: str, scope: str | None, before: str, timeout: float) -> list[Mapping[str, Any]]:
    from dc_inject.backends.rucio import found_sets as rucio  # noqa: PLC0415  costs half a second
    from dc_inject.backends.rucio.connection import understood  # noqa: PLC0415  as said

    with understood():
        connection = places.rucio(timeout)
        sets = rucio.find_sets(connection, places.own_scope(connection, scope), before)
    return [
        {
            "set": rucio_set.set.name,
            "at": rucio_set.rse or None,
            "scope": rucio_set.scope,
            "files": rucio_set.files,
            "of": rucio_set.set.files,
            "file_bytes": rucio_set.set.bytes,
            "bytes": rucio_set.bytes,
            "datasets": len(rucio_set.datasets),
            "rules_elsewhere": sum(rucio_set.elsewhere.values()),
            "until": tables.moment(rucio_set.until),
        }
        for rucio_set in sets
        if not rse or rucio_set.rse == rse
    ]
