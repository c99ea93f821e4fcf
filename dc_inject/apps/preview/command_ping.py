"""`dc-inject ping`: who I am at a service, what I may do there, and for how long; and the storages of FTS."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject import menu, registry
from dc_inject.apps.preview import identities
from dc_inject.cli.shared import common, log_output, params, tables, trusting
from dc_inject.model import units
from dc_inject.model.events import Silent
from dc_inject.model.services import SERVICES
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

PATIENCE = 3.0  # seconds without an answer, after which a message names what is waited for


def _left(seconds: float) -> str:
    return units.format_duration(timedelta(seconds=seconds))


COLUMNS = (
    tables.Column("service", "service"),
    tables.Column("address", "address", name=True),
    tables.Column("version", "version", spare=6),
    tables.Column("vo", "VO", spare=7),
    tables.Column("account", "account"),
    tables.Column("admin", "admin", tables.yes_no, spare=5),
    tables.Column("may_end", "may end", tables.yes_no),
    tables.Column("credentials_from", "credentials", spare=1),
    tables.Column("credentials_until", "until (UTC)"),
    tables.Column("credentials_left", "left", _left, right=True, spare=2),
    tables.Column("delegation_needed", "delegation", lambda needed: "needed" if needed else "not needed", spare=3),
    tables.Column("delegated_until", "delegated until (UTC)", spare=4),
    tables.Column("clock_ahead", "our clock", identities.describe_clock),
    tables.Column("error", "because"),
    tables.Column("storages", "storages", quiet=True),
)
STORAGES = (
    tables.Column("storage", "storage", name=True),
    tables.Column("end", "as"),
    tables.Column("reachable", "reachable", tables.yes_no),
    tables.Column("exists", "exists", tables.yes_no),
    *(tables.Column(key, verb, tables.yes_no, spare=1) for key, verb in identities.VERB_OF.items()),
    tables.Column("free", "free", units.format_size, right=True),
    tables.Column("error", "because"),
)


@click.command()
@common.INCLUDE_FROM
@click.argument("menus", nargs=-1, type=params.MenuFile())
@common.TIMEOUT
@common.FORMAT
def ping(menus: tuple[Path, ...], timeout: float, fmt: str) -> None:
    r"""Ask the services of MENUS, or those configured here, who you are there and what you may do.

    Without menus it asks Rucio if there is a rucio.cfg, and FTS if DC_INJECT_FTS_ENDPOINT is set.

    For links through FTS it also asks their storages whether they answer, and which verbs they allow. A dash in
    the table (null in JSON) means that the answer is not known. This changes nothing, except that your proxy is
    delegated to FTS if it needs one. Exit code 4: a service cannot be reached or refuses your credentials, or no
    storage can be reached; the others are asked all the same.

    \b
    Example: dc-inject ping
    Example: dc-inject ping menus/cms-t0-export.yaml --format json
    """
    log_output.talk(quiet=True)
    drafts = files.read_menus(menus) if menus else []
    services = {service for draft in drafts for service in draft.services} or registry.load(registry.CONFIGURED)()
    campaign = menu.one_campaign(drafts) if drafts else "ping"
    clock = SystemClock()
    trusting.recall(campaign)
    backends = common.backends(
        services,
        campaign=campaign,
        clock=clock,
        observer=Silent(),
        timeout=timeout,
        endpoint=menu.endpoint_of(drafts),
    )
    answers = []
    for service, backend in backends.items():
        with _waiting(f"waiting for an answer from {service}, up to {timeout:g} s for each call (--timeout)"):
            answers.append(identities.ask_service(backend, clock))
    with _waiting("waiting for answers from the storages"):
        storages = identities.ask_storages(drafts, backends)
    _emit(fmt, [_row(answer.values, storages) for answer in answers], storages)
    if warning := identities.warn_of_clocks(answers):
        click.echo(f"dc-inject: warning: {warning}", err=True)
    failed = identities.failures(answers, storages)
    for early in failed[:-1]:
        click.echo(f"dc-inject: {early.message}", err=True)
    if failed:
        raise failed[-1]


@contextlib.contextmanager
def _waiting(message: str) -> Iterator[None]:
    """Print what is waited for when the block takes more than a few seconds: silence looks like a hang."""
    timer = threading.Timer(PATIENCE, click.echo, [f"dc-inject: {message}"], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _row(values: Mapping[str, Any], storages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    times = {name: units.format_time_or_none(values[name]) for name in ("credentials_until", "delegated_until")}
    return {**values, **times, "storages": storages if SERVICES[values["service"]].ends_are_urls else []}


def _emit(fmt: str, rows: Sequence[Mapping[str, Any]], storages: Sequence[Mapping[str, Any]]) -> None:
    if fmt != "table":
        tables.emit(fmt, COLUMNS, rows)
        return
    empty = {
        column.key
        for column in COLUMNS
        if column.key in {"credentials_from", "delegation_needed", "delegated_until", "error"}
        and all(row[column.key] is None for row in rows)
    }
    if not any(identities.differs(row["clock_ahead"] or 0) for row in rows):
        empty.add("clock_ahead")
    tables.emit(fmt, [column for column in COLUMNS if column.key not in empty], rows)
    if storages:
        click.echo()
        tables.emit(fmt, STORAGES, storages)
