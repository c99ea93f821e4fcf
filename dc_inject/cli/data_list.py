"""`dc-inject data list`: the sets of test files that a storage or Rucio has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dc_inject.cli import common, data_places, tables
from dc_inject.model import units
from dc_inject.storage import Storage
from dc_inject.storage.sets import stocks

COLUMNS = (
    tables.Column("set", "set"),
    tables.Column("at", "at"),
    tables.Column("scope", "scope"),
    tables.Column("files", "files", right=True),
    tables.Column("of", "of", right=True),
    tables.Column("file_bytes", "each", units.format_size, right=True),
    tables.Column("bytes", "bytes", units.format_size, right=True),
    tables.Column("datasets", "datasets", right=True),
    tables.Column("rules_elsewhere", "rules elsewhere", right=True),
    tables.Column("until", "until (UTC)"),
)


@click.command("list")
@click.argument("source", required=False)
@data_places.SCOPE
@data_places.BEFORE
@common.TIMEOUT
@common.FORMAT
def list_(source: str | None, scope: str | None, before: str, timeout: float, fmt: str) -> None:
    r"""List the sets of test files at SOURCE (an RSE or a storage's URL prefix), or all sets in the scope.

    \b
    Example: dc-inject data list
    Example: dc-inject data list davs://se.example.org:443/dc27 --format json
    """
    common.talk(quiet=True)
    at = data_places.place(source, scope=scope, name_prefix=before) if source else ""
    if "://" in at:
        with data_places.storage(timeout) as storage:
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
            "set": stock.set.name,
            "at": prefix,
            "files": stock.files,
            "of": stock.set.files,
            "file_bytes": stock.set.bytes,
            "bytes": stock.bytes,
        }
        for stock in stocks(storage, prefix)
    ]


def _in_rucio(rse: str, scope: str | None, before: str, timeout: float) -> list[Mapping[str, Any]]:
    from dc_inject.backends.rucio import stocks as rucio  # noqa: PLC0415  costs half a second
    from dc_inject.backends.rucio.connection import understood  # noqa: PLC0415  as said

    with understood():
        connection = data_places.rucio(timeout)
        found = rucio.stocks(connection, data_places.own_scope(connection, scope), before)
    return [
        {
            "set": stock.set.name,
            "at": stock.rse or None,
            "scope": stock.scope,
            "files": stock.files,
            "of": stock.set.files,
            "file_bytes": stock.set.bytes,
            "bytes": stock.bytes,
            "datasets": len(stock.datasets),
            "rules_elsewhere": sum(stock.elsewhere.values()),
            "until": tables.moment(stock.until),
        }
        for stock in found
        if not rse or stock.rse == rse
    ]
