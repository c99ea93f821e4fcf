"""The back ends of real services, as commands ask for them; each client is imported only when it is needed."""

# ruff: noqa: PLC0415  each client costs half a second

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dc_inject.cli.shared import trusting
from dc_inject.model.errors import UsageError
from dc_inject.model.events import Observer, Silent
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Clock

if TYPE_CHECKING:
    from dc_inject.backends.fts import FtsBackend
    from dc_inject.backends.rucio import RucioBackend

ENDPOINT = "DC_INJECT_FTS_ENDPOINT"
WARNED = "dc_inject.warned"  # in the meta of click's context: warnings that were logged

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """For what a back end is needed.

    `timeout` is in seconds; `endpoint` is that of FTS, where a menu or a ledger names it. `origin` goes into what
    is made.
    """

    campaign: str
    clock: Clock
    observer: Observer
    timeout: float
    endpoint: str
    origin: Origin | None


def rucio(wanted: Wanted) -> RucioBackend:
    """Return the back end of the Rucio that this environment configures."""
    from dc_inject.backends.fts.named import NamedServices
    from dc_inject.backends.rucio import RucioBackend
    from dc_inject.credentials import Credentials

    # Nobody counts their calls: what they do says nothing of the campaign's own services.
    credentials = Credentials(os.environ, wanted.clock)
    named = NamedServices(wanted.clock, Silent(), credentials, trusting.destinations().allow, wanted.timeout)
    backend = RucioBackend(
        campaign=wanted.campaign,
        timeout=wanted.timeout,
        observer=wanted.observer,
        clock=wanted.clock,
        fts=named,
        origin=wanted.origin,
    )
    _warn_once(backend.warnings())
    return backend


def fts(wanted: Wanted) -> FtsBackend:
    """Return the back end of FTS; raises UsageError where nothing names its address, or nobody trusts it."""
    from dc_inject.backends.fts import FtsBackend
    from dc_inject.credentials import Credentials

    credentials = Credentials(os.environ, wanted.clock)
    _warn_once(credentials.warnings())
    address = fts_endpoint(wanted.endpoint)
    trusted = trusting.destinations()
    trusted.require(address, "your token or proxy")
    return FtsBackend(
        address,
        campaign=wanted.campaign,
        timeout=wanted.timeout,
        observer=wanted.observer,
        clock=wanted.clock,
        credentials=credentials,
        trusted=trusted.allow,
        replicas=lambda source, datasets: rucio(wanted).replicas(source, datasets),
        origin=wanted.origin,
    )


def fts_endpoint(named: str) -> str:
    """Return the address of FTS: the one that a menu names, or that of the environment."""
    endpoint = named or os.environ.get(ENDPOINT, "")
    if not endpoint:
        hint = f"write `fts: {{endpoint: https://fts.example.org:8446}}` into the menu, or set {ENDPOINT}"
        raise UsageError("no FTS endpoint is configured", hint)
    return endpoint


def _warn_once(warnings: Iterable[str]) -> None:
    """Log warnings that this command has not logged yet."""
    context = click.get_current_context(silent=True)
    warned = set[str]() if context is None else context.meta.setdefault(WARNED, set())
    for warning in warnings:
        if warning not in warned:
            log.warning("%s", warning)
        warned.add(warning)
