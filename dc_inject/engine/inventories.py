"""Inventories: what sources hold, read rarely and in threads of their own, and kept in the ledger."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from dc_inject.engine.context import EngineContext
from dc_inject.model import DatasetFilter, Item, PoolKey, units
from dc_inject.model.errors import ServiceError, Temporary
from dc_inject.model.ports import Backend
from dc_inject.planning.pool import Coverage, Unmatched, in_order, is_pattern, unmatched

log = logging.getLogger(__name__)

_MOST_NAMED = 5


class Inventories:
    """Reads pools that are too old; a long read is taken up whenever it comes, and is not asked for twice."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._reading: set[PoolKey] = set()
        self.failed: dict[PoolKey, ServiceError] = {}  # the last error of each that cannot be read
        self._known: dict[tuple[str, PoolKey], tuple[datetime | None, list[Item]]] = {}  # as the ledger has them
        self._coverages: dict[tuple[str, PoolKey], Coverage] = {}  # of pools read by this process
        self._reported: dict[tuple[str, DatasetFilter], Unmatched] = {}

    def refresh(
        self, wanted: Mapping[PoolKey, str], deadline: datetime
    ) -> tuple[dict[PoolKey, list[Item]], dict[PoolKey, ServiceError]]:
        """Return what each pool (of a service) holds, and why others are not known yet.

        An old inventory is better than none: only pools that were never read are waited for, until the deadline.
        """
        ledger, calls, now = self._context.ledger, self._context.calls, self._context.clock.now()
        for pool, service in wanted.items():
            read_at = ledger.inventory_read_at(service, pool)
            if pool not in self._reading and (read_at is None or read_at + self._age(pool) <= now):
                self._reading.add(pool)
                self.failed.pop(pool, None)
                coverage = Coverage(pool.datasets) if isinstance(pool.datasets, DatasetFilter) else None
                read = partial(_read, self._context.backends[service], pool, coverage)
                take = partial(self._take, service, pool, coverage)
                calls.start(read, take, f"{service} inventories")  # they take long, and others do not wait
        unread = {pool for pool, service in wanted.items() if ledger.inventory_read_at(service, pool) is None}
        while unread & self._reading and self._context.clock.now() < deadline and not calls.stopping:
            calls.wait(deadline)
        unread = {pool for pool in unread if ledger.inventory_read_at(wanted[pool], pool) is None}
        self._known = {key: inventory for key, inventory in self._known.items() if wanted.get(key[1]) == key[0]}
        self._report_unmatched(wanted)
        pools = {pool: self._items(service, pool) for pool, service in wanted.items() if pool not in unread}
        why = "no answer from {} yet: the inventory of {} is still being read"
        reading = {pool: Temporary(why.format(wanted[pool], pool.source)) for pool in unread}
        return pools, {pool: self.failed.get(pool, still) for pool, still in reading.items()}

    def _items(self, service: str, pool: PoolKey) -> list[Item]:
        """Return the items of a pool in order, taken from the ledger once for each time that they were read."""
        ledger = self._context.ledger
        read_at = ledger.inventory_read_at(service, pool)
        known_at, items = self._known.get((service, pool), (None, []))
        if known_at is None or known_at != read_at:
            items = in_order(ledger.inventory(service, pool))
            self._known[service, pool] = read_at, items
        return items

    def _report_unmatched(self, wanted: Mapping[PoolKey, str]) -> None:
        """Warn once of entries of a filter that match nothing at any of its sources, when all have been read."""
        self._coverages = {key: known for key, known in self._coverages.items() if wanted.get(key[1]) == key[0]}
        pools: dict[tuple[str, DatasetFilter], list[PoolKey]] = {}
        for pool, service in wanted.items():
            if isinstance(pool.datasets, DatasetFilter):
                pools.setdefault((service, pool.datasets), []).append(pool)
        for (service, datasets), keys in pools.items():
            coverages = [self._coverages.get((service, key)) for key in keys]
            read = [coverage for coverage in coverages if coverage is not None]
            if len(read) < len(keys) or not any(coverage.seen for coverage in read):
                continue
            left = unmatched(read)
            if any(coverage.in_containers - set(datasets.dids) for coverage in read):
                # A name may be that of a dataset in a container.
                left = left._replace(datasets=frozenset(filter(is_pattern, left.datasets)))
            if left != self._reported.get((service, datasets), Unmatched(frozenset(), frozenset())):
                _warn(keys, left)
            self._reported[service, datasets] = left

    def _take(
        self,
        service: str,
        pool: PoolKey,
        coverage: Coverage | None,
        items: list[Item] | None,
        error: ServiceError | None,
    ) -> None:
        """Store the answer for a source, whenever it comes."""
        self._reading.discard(pool)
        if error is not None or items is None:
            self.failed[pool] = met = error or Temporary("the service answered nothing")
            hint = f" ({met.hint})" if met.hint else ""
            self._context.warn(pool, f"the inventory of {pool.source} is unknown: {met.message}{hint}")
            return
        self._context.ledger.store_inventory(service, pool, items, self._context.clock.now())
        if coverage is not None:
            self._coverages[service, pool] = coverage
        if items:
            log.info(
                "inventory of %s: %s",
                pool.source, units.counted(len(items), "items"),
                extra={"event": "inventory", "fields": {"source": pool.source, "items": len(items)}},
            )  # fmt: skip
        else:
            seen, named = (coverage.seen, coverage.named) if coverage else (0, 0)
            fields = {"source": pool.source, "items": 0, "seen": seen, "named": named}
            why = _why_empty(seen, named)
            log.warning("inventory of %s: %s", pool.source, why, extra={"event": "inventory", "fields": fields})

    def _age(self, pool: PoolKey) -> timedelta:
        """Return when to read again: staggered by up to a fifth, so that sources do not fall due together."""
        digest = hashlib.blake2b(repr(pool).encode(), digest_size=4).digest()
        return self._context.settings.inventory_age * (1 - 0.2 * int.from_bytes(digest) / 2**32)


def _read(backend: Backend, pool: PoolKey, coverage: Coverage | None) -> list[Item]:
    return list(backend.inventory(pool.source, pool.datasets, coverage.note if coverage else None))


def _why_empty(seen: int, named: int) -> str:
    if not seen:
        return "nothing there matches the menu's patterns and size bounds"
    if not named:
        return f"it has {units.counted(seen, 'datasets')}, none with a name of `datasets`"
    return (
        f"it has {units.counted(named, 'datasets')} of these names, none within `files`, `mean_file` and `exclude`"
    )


def _warn(pools: Sequence[PoolKey], left: Unmatched) -> None:
    """Log which entries match nothing; links that are left out (--link, shards) may have sources where they do."""
    sources = [pool.source for pool in pools]
    for key, entries in left._asdict().items():
        if entries:
            what = "keep nothing out" if key == "exclude" else "match nothing"
            log.warning(
                "%s of `%s` %s at any source read here (%s); `dc-inject check --online MENUS` names the reasons",
                units.some(sorted(entries), _MOST_NAMED), key, what, units.some(sources, _MOST_NAMED),
                extra={
                    "event": "unmatched",
                    "fields": {"key": key, "entries": sorted(entries), "sources": sources},
                },
            )  # fmt: skip
