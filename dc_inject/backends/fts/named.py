"""FTS services that RSEs name, where Rucio moves the bytes: asked for their queues, and for nothing else.

To ask an FTS is to show it credentials. An attribute of an RSE must not decide who gets them, so an FTS is asked
only if the person has named its host, as for FTS services in menus; else it is told how to name it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dc_inject.backends.fts.connection import Connection, CredentialSource, Make, checked, real_client, understood
from dc_inject.backends.fts.limits import Pair, queues
from dc_inject.credentials.destinations import hint
from dc_inject.model.errors import Permanent, ServiceError, UsageError
from dc_inject.model.events import Observer
from dc_inject.model.ports import Clock, LinkQueue

REST = timedelta(minutes=5)  # for an FTS that does not answer, or refuses to


@dataclass(slots=True)
class NamedServices:
    """Asks each FTS by a connection of its own; `trusted` says whether the person has named the host of a URL."""

    clock: Clock
    observer: Observer
    credentials: CredentialSource
    trusted: Callable[[str], bool]
    timeout: float
    make: Make = real_client
    _connections: dict[str, Connection] = field(default_factory=dict)
    _resting: dict[str, tuple[datetime, str]] = field(default_factory=dict)  # until when, and why
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refusal(self, endpoint: str) -> str:
        """Say why an FTS is not asked, and how a person allows it; nothing where it may be."""
        try:
            address = checked(endpoint)
        except UsageError as error:
            return error.message
        if not self.trusted(address):
            return f"it is asked only if you name it: {hint(address)}"
        until, why = self._resting.get(endpoint, (None, ""))
        return why if until is not None and self.clock.now() < until else ""

    def queues(self, endpoint: str, pairs: Sequence[Pair]) -> Mapping[Pair, LinkQueue]:
        """Return the queues of links between storages that an FTS knows. Raises ServiceError.

        One that failed is left alone for a while: a campaign may have a thousand links to ask about.
        """
        if why := self.refusal(endpoint):
            raise Permanent(why)
        try:
            with understood():
                queues_by_pair = queues(self._connection(checked(endpoint)), pairs)
        except ServiceError as error:
            self._resting[endpoint] = self.clock.now() + REST, error.message
            raise
        return {pair: replace(queue, by=endpoint) for pair, queue in queues_by_pair.items()}

    def _connection(self, address: str) -> Connection:
        with self._lock:
            if address not in self._connections:
                self._connections[address] = Connection(
                    address,
                    timeout=self.timeout,
                    clock=self.clock,
                    observer=self.observer,
                    credentials=self.credentials,
                    make=self.make,
                )
            return self._connections[address]
