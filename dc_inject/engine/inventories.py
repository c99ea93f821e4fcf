"""Inventories: what sources hold, read rarely and beside everything else, and kept in the ledger."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

from dc_inject import units
from dc_inject.engine.desk import Desk
from dc_inject.errors import ServiceError, Temporary
from dc_inject.model import Item, PoolKey
from dc_inject.ports import Backend

log = logging.getLogger(__name__)


class Inventories:
    """Reads pools that are too old; a long read is taken up whenever it comes, and is not asked for twice."""

    def __init__(self, desk: Desk) -> None:
        """Take what the engine's parts share."""
        self._desk = desk
        self._reading: set[PoolKey] = set()
        self._failed: dict[PoolKey, ServiceError] = {}

    def refresh(
        self, wanted: Mapping[PoolKey, str], deadline: datetime
    ) -> tuple[dict[PoolKey, list[Item]], dict[PoolKey, ServiceError]]:
        """Return what each pool (of a service) holds, and why others are not known yet.

        An old inventory is better than none: only pools that were never read are waited for, until the deadline.
        """
        ledger, calls, now = self._desk.ledger, self._desk.calls, self._desk.clock.now()
        for pool, service in wanted.items():
            read_at = ledger.inventory_read_at(service, pool)
            if pool not in self._reading and (read_at is None or read_at + self._age(pool) <= now):
                self._reading.add(pool)
                self._failed.pop(pool, None)
                calls.start(partial(_read, self._desk.backends[service], pool), partial(self._take, service, pool))
        unread = {pool for pool, service in wanted.items() if ledger.inventory_read_at(service, pool) is None}
        while unread & self._reading and self._desk.clock.now() < deadline and not calls.stopping:
            calls.wait(deadline)
        unread = {pool for pool in unread if ledger.inventory_read_at(wanted[pool], pool) is None}
        pools = {pool: ledger.inventory(service, pool) for pool, service in wanted.items() if pool not in unread}
        return pools, {pool: self._failed.get(pool) or _still(wanted[pool], pool) for pool in unread}

    def _take(self, service: str, pool: PoolKey, items: list[Item] | None, error: ServiceError | None) -> None:
        """Keep what a source told, whenever it did."""
        self._reading.discard(pool)
        if error is not None or items is None:
            self._failed[pool] = error or Temporary("the service told nothing")
            return
        self._desk.ledger.store_inventory(service, pool, items, self._desk.clock.now())
        if items:
            log.info("inventory of %s: %s", pool.source, units.counted(len(items), "items"))
        else:
            log.warning("inventory of %s: nothing there fits the menu's patterns and bounds of sizes", pool.source)

    def _age(self, pool: PoolKey) -> timedelta:
        """Return when to read again: staggered by up to a fifth, so that sources do not fall due together."""
        digest = hashlib.blake2b(repr(pool).encode(), digest_size=4).digest()
        return self._desk.settings.inventory_age * (1 - 0.2 * int.from_bytes(digest) / 2**32)


def _still(service: str, pool: PoolKey) -> Temporary:
    return Temporary(f"no answer from {service} yet: the inventory of {pool.source} is still being read")


def _read(backend: Backend, pool: PoolKey) -> list[Item]:
    return list(backend.inventory(pool.source, pool.datasets))
