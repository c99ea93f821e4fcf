"""`dc-inject ping`: who I am at a service, what I may do there, and for how long; and the storages of FTS."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dc_inject import menu
from dc_inject.apps.preview import online
from dc_inject.cli.shared import common, log_output, tables, trusting
from dc_inject.engine import admission
from dc_inject.ledger import ledger_files
from dc_inject.menu import MenuDraft
from dc_inject.model import units
from dc_inject.model.errors import ServiceError, Temporary
from dc_inject.model.events import Silent
from dc_inject.model.ports import Backend
from dc_inject.model.services import SERVICES
from dc_inject.planning import clocks
from dc_inject.storage.types import VERBS
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

if TYPE_CHECKING:
    from dc_inject.backends.fts import StorageEnd

SAY_AFTER = 3.0  # seconds without an answer, after which it is said what is waited for


def _left(seconds: float) -> str:
    return units.format_duration(timedelta(seconds=seconds))


def _clock(seconds: float) -> str:
    """Say how far this machine's clock is from a service's."""
    ahead = timedelta(seconds=seconds)
    agreed = not clocks.differ({"": ahead})
    return "agrees" if agreed else f"{_left(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"


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
    tables.Column("clock_ahead", "our clock", _clock),
    tables.Column("error", "because"),
    tables.Column("storages", "storages", quiet=True),
)
STORAGES = (
    tables.Column("storage", "storage", name=True),
    tables.Column("end", "as"),
    tables.Column("reachable", "reachable", tables.yes_no),
    tables.Column("exists", "exists", tables.yes_no),
    *(tables.Column(verb.lower(), verb, tables.yes_no, spare=1) for verb in VERBS),
    tables.Column("free", "free", units.format_size, right=True),
    tables.Column("error", "because"),
)


@click.command()
@common.INCLUDE_FROM
@click.argument("menus", nargs=-1, type=click.Path(path_type=Path))
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
    services = {service for draft in drafts for service in draft.services} or common.configured_services()
    campaign = menu.one_campaign(drafts) if drafts else "ping"
    clock = SystemClock()
    trusting.recall_from(ledger_files.file_of(None, campaign), campaign)
    backends = common.backends(
        services,
        campaign=campaign,
        clock=clock,
        observer=Silent(),
        timeout=timeout,
        endpoint=menu.endpoint_of(drafts),
    )
    failed: list[ServiceError] = []
    rows = []
    ahead: dict[str, timedelta] = {}
    for service, backend in backends.items():
        with _waiting(f"waiting for an answer from {service}, up to {timeout:g} s for each call (--timeout)"):
            rows.append(_row(backend, clock, failed, ahead))
    with _waiting("waiting for answers from the storages"):
        ends = _storages(drafts, backends)
    if ends and not any(end["reachable"] is not False for end in ends):
        failed.insert(
            0, Temporary("no storage of these menus can be reached", "check the network, and their ports")
        )
    _emit(fmt, rows, ends)
    if clocks.differ(ahead):
        click.echo(f"dc-inject: warning: {clocks.sentence(ahead)} ({clocks.HINT})", err=True)
    for early in failed[:-1]:
        click.echo(f"dc-inject: {early.message}", err=True)
    if failed:
        raise failed[-1]


@contextlib.contextmanager
def _waiting(message: str) -> Iterator[None]:
    """Say what is waited for when the block takes more than a few seconds: silence looks as if we hung."""
    timer = threading.Timer(SAY_AFTER, click.echo, [f"dc-inject: {message}"], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _emit(fmt: str, rows: Sequence[dict[str, Any]], ends: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        row["storages"] = ends if SERVICES[row["service"]].ends_are_urls else []
    if fmt != "table":
        tables.emit(fmt, COLUMNS, rows)
        return
    empty = {
        column.key
        for column in COLUMNS
        if column.key in {"credentials_from", "delegation_needed", "delegated_until", "error"}
        and all(row[column.key] is None for row in rows)
    }
    if not any(clocks.differ({"": timedelta(seconds=row["clock_ahead"] or 0)}) for row in rows):
        empty.add("clock_ahead")
    tables.emit(fmt, [column for column in COLUMNS if column.key not in empty], rows)
    if ends:
        click.echo()
        tables.emit(fmt, STORAGES, ends)


def _row(
    backend: Backend, clock: SystemClock, failed: list[ServiceError], ahead: dict[str, timedelta]
) -> dict[str, Any]:
    """Return what a service says of me; its error when it does not, which is noted in `failed` too.

    How far our clock is ahead of the service's is noted in `ahead`.
    """
    row: dict[str, Any] = {**dict.fromkeys(column.key for column in COLUMNS), "service": backend.name}
    fts = online.fts_of({backend.name: backend})
    try:
        if fts is not None:
            row["credentials_from"] = fts.credentials_from()
        identity = backend.check()
        row |= {
            "address": identity.address,
            "version": identity.version,
            "vo": identity.vo,
            "account": identity.account,
            "admin": identity.admin,
            "may_end": identity.may_end,
            "credentials_until": tables.moment(identity.credentials_until),
            "credentials_left": _seconds_to(identity.credentials_until, clock.now()),
        }
        ahead |= admission.clocks_ahead([identity], clock.now())
        row["clock_ahead"] = round(ahead[backend.name].total_seconds()) if backend.name in ahead else None
        if fts is not None:
            delegation = fts.delegation()
            row |= {"delegation_needed": delegation.needed, "delegated_until": tables.moment(delegation.until)}
    except ServiceError as error:  # the others are asked all the same
        failed.append(error)
        row["error"] = error.message
    return row


def _seconds_to(moment: datetime | None, now: datetime) -> int | None:
    return None if moment is None else round((moment - now).total_seconds())


def _storages(drafts: Iterable[MenuDraft], backends: Mapping[str, Backend]) -> list[Mapping[str, Any]]:
    """Return what the storages of links through FTS say."""
    fts = online.fts_of(backends)
    if fts is None:
        return []
    links = {flow.link for draft in drafts for flow in draft.preview.flows if flow.link.service.ends_are_urls}
    ends = fts.storages({link.source for link in links}, {link.destination for link in links})
    return [_end(end) for end in ends]


def _end(end: StorageEnd) -> Mapping[str, Any]:
    return {
        "storage": end.prefix,
        "end": end.role,
        "reachable": end.reachable,
        "exists": end.reach.exists if end.reach else None,
        **{verb.lower(): end.verbs.get(verb) for verb in VERBS},
        "free": end.reach.free if end.reach else None,
        "nearline": end.reach.nearline if end.reach else None,
        "error": end.error.message
        if end.error
        else "on tape (nearline)"
        if end.reach and end.reach.nearline
        else None,
    }
