"""`dc-inject ping`: who I am at a service, what I may do there, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject import files, units
from dc_inject.cli import common, tables
from dc_inject.clock import SystemClock
from dc_inject.errors import ServiceError
from dc_inject.metrics import Silent
from dc_inject.ports import Identity

COLUMNS = (
    tables.Column("service", "service"),
    tables.Column("address", "address"),
    tables.Column("version", "version"),
    tables.Column("vo", "VO"),
    tables.Column("account", "account"),
    tables.Column("admin", "admin", tables.yes_no),
    tables.Column("may_end", "may end rules", tables.yes_no),
    tables.Column("credentials_until", "credentials until (UTC)"),
    tables.Column(
        "credentials_left", "left", lambda seconds: units.format_duration(timedelta(seconds=seconds)), right=True
    ),
)


@click.command()
@click.argument("menus", nargs=-1, type=click.Path(path_type=Path))
@common.TIMEOUT
@common.FORMAT
def ping(menus: tuple[Path, ...], timeout: float, fmt: str) -> None:
    r"""Ask the services that MENUS name (Rucio, without any) who I am, and what I may do there.

    Nothing is changed anywhere. A dash in the table, null in JSON, means that it could not be found out.
    Exit code 4 when a service cannot be reached or does not let me in.

    \b
    Example: dc-inject ping
    Example: dc-inject ping menus/cms-t0-export.yaml --format json
    """
    common.talk(quiet=True)
    drafts = files.read_menus(menus) if menus else []
    services = {service for draft in drafts for service in draft.services} or {"rucio"}
    campaign = common.one_campaign(drafts) if drafts else "ping"
    clock = SystemClock()
    backends = common.backends(
        services,
        campaign=campaign,
        clock=clock,
        observer=Silent(),
        timeout=timeout,
        endpoint=common.menus_endpoint(drafts),
    )
    rows, failed = [], []
    for backend in backends.values():
        try:
            rows.append(_row(backend.check(), clock.now()))
        except ServiceError as error:  # the others are asked all the same
            failed.append(error)
    if rows:
        tables.emit(fmt, COLUMNS, rows)
    for early in failed[:-1]:
        click.echo(f"dc-inject: {early.message}", err=True)
    if failed:
        raise failed[-1]


def _row(identity: Identity, now: datetime) -> Mapping[str, Any]:
    until = identity.credentials_until
    return {
        "service": identity.service,
        "address": identity.address,
        "version": identity.version,
        "vo": identity.vo,
        "account": identity.account,
        "admin": identity.admin,
        "may_end": identity.may_end,
        "credentials_until": tables.moment(until),
        "credentials_left": None if until is None else round((until - now).total_seconds()),
    }
