"""The back ends of real services, as they are needed; each client is imported only when it is needed."""

# ruff: noqa: PLC0415  each client costs half a second

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from dc_inject.credentials import Credentials
from dc_inject.credentials.trust import ENDPOINT, Wanted
from dc_inject.model.errors import UsageError
from dc_inject.model.events import Silent
from dc_inject.model.services import DEFAULT, FTS, RUCIO

if TYPE_CHECKING:
    from dc_inject.backends.fts import FtsBackend
    from dc_inject.backends.rucio import RucioBackend


def rucio(wanted: Wanted) -> RucioBackend:
    """Return the back end of the Rucio that this environment configures."""
    from dc_inject.backends.fts.connection import Connection
    from dc_inject.backends.fts.limits import NamedServices
    from dc_inject.backends.rucio import RucioBackend

    def connect(address: str) -> Connection:
        # Their calls are not counted: they mean nothing for the campaign's own services.
        keys = Credentials(os.environ, wanted.clock)
        return Connection(address, timeout=wanted.timeout, clock=wanted.clock, observer=Silent(), credentials=keys)

    backend = RucioBackend(
        campaign=wanted.campaign,
        timeout=wanted.timeout,
        observer=wanted.observer,
        clock=wanted.clock,
        fts=NamedServices(wanted.clock, wanted.trusted.allow, connect),
        origin=wanted.origin,
    )
    wanted.warn(backend.warnings())
    return backend


def fts(wanted: Wanted) -> FtsBackend:
    """Return the back end of FTS; raises UsageError where nothing names its address, or no user trusts it."""
    from dc_inject.backends.fts import FtsBackend

    credentials = Credentials(os.environ, wanted.clock)
    wanted.warn(credentials.warnings())
    address = wanted.endpoint or os.environ.get(ENDPOINT, "")
    if not address:
        hint = f"write `fts: {{endpoint: https://fts.example.org:8446}}` into the menu, or set {ENDPOINT}"
        raise UsageError("no FTS endpoint is configured", hint)
    wanted.trusted.require(address, "your token or proxy")
    known = cache(lambda: rucio(wanted))  # one, so that its breaker sees all of its calls
    return FtsBackend(
        address,
        campaign=wanted.campaign,
        timeout=wanted.timeout,
        observer=wanted.observer,
        clock=wanted.clock,
        credentials=credentials,
        trusted=wanted.trusted.allow,
        replicas=lambda source, datasets: known().replicas(source, datasets),
        origin=wanted.origin,
    )


def configured() -> set[str]:
    """Return the services that this environment configures; the default one if it configures none."""
    from dc_inject.backends.rucio.connection import configuration

    if not os.environ.get(ENDPOINT):
        return {DEFAULT.name}
    return {FTS.name} if configuration() is None else {FTS.name, RUCIO.name}
