"""What menus would inject from a moment on: the engine runs in simulated time, and changes nothing outside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dc_inject.apps.preview.dry import DryBackend
from dc_inject.backends.sim import InlineExecutor, SimBackend, SimClock
from dc_inject.engine import admission
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, Row, ledger_files
from dc_inject.menu import MenuDraft
from dc_inject.model import Campaign, Cycle, Entry, Item
from dc_inject.model.errors import DcInjectError, ServiceError, UsageError
from dc_inject.model.ports import Backend
from dc_inject.model.shards import Shard
from dc_inject.summary import active_overrides

OFFLINE = (
    "without one, --inventory plans with a CSV of datasets; `dc-inject footprint MENUS` shows what menus require"
)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The rows of the cycles that were planned, the injections of these, and the campaign at their end."""

    rows: Sequence[Row]
    entries: Sequence[Entry]
    campaign: Campaign


def foresee(
    menus: Sequence[Path],
    drafts: Sequence[MenuDraft],
    at: datetime,
    cycles: int,
    *,
    file: Path,
    inventory: Mapping[str, Sequence[Item]] | None,
    connect: Callable[[], Mapping[str, Backend]],
    admits: Callable[[Campaign], None],
    links: Sequence[str],
    scale: float,
    shard: Shard | None,
    allow_admin: bool,
    note: Callable[[str], None],
) -> Foreseen:
    """Plan cycles from a moment on, beginning with a copy of the campaign's ledger (`file`), if it has one.

    `drafts` are the `menus` as they were read. The sources have what an `inventory` has; without one the services
    that `connect` returns are read. `admits` raises MenuError for storages that would get a token and may
    not. `note` gets sentences about what is stopped and set. Raises UsageError and ServiceError that name a way to
    plan without services.
    """
    clock = SimClock(at)
    backends: dict[str, Backend] = {}
    if inventory is None:
        with _hint_at_inventories(ServiceError, UsageError):
            backends |= {name: DryBackend(backend, clock) for name, backend in connect().items()}
    else:
        services = {service for draft in drafts for service in draft.services}
        backends |= {name: SimBackend(clock, inventory, name=name) for name in services}
    with (
        _hint_at_inventories(ServiceError),
        ledger_files.copy_of(file) as path,
        Ledger.open(path) as ledger,
    ):
        for line in active_overrides.standing(ledger):
            note(line)
        identities = admission.identities(backends, allow_admin=allow_admin)
        source = Menus(
            menus,
            ledger=ledger,
            backends=backends,
            clock=clock,
            links=links,
            scale=scale,
            shard=shard,
            admits=admits,
        )
        first = Cycle.at(at, source().cycle)
        _stand_at(ledger, first, clock.now())
        ledger.begin(first.start)  # a new campaign is shown from the start of the cycle, not from within it
        engine = Engine(
            menus=source,
            ledger=ledger,
            backends=backends,
            identities=identities,
            clock=clock,
            executor=InlineExecutor(clock),
            settings=Settings(poll=first.length, drain=False),
        )
        engine.run(until=first.start + cycles * first.length)
        entries = [entry for entry in ledger.entries() if entry.injection.cycle >= first]
        return Foreseen(list(ledger.rows(since=first.start)), entries, source())


@contextlib.contextmanager
def _hint_at_inventories(*errors: type[DcInjectError]) -> Iterator[None]:
    """Add to errors what can be planned without a service, where one cannot be asked."""
    try:
        yield
    except errors as error:
        error.hint = f"{error.hint}; {OFFLINE}" if error.hint else OFFLINE
        raise


def _stand_at(ledger: Ledger, first: Cycle, now: datetime) -> None:
    """Take the cycles between the ledger's last one and the first that is planned as if all went well."""
    before = Cycle(first.start - first.length, first.length)
    last = ledger.last_cycle()
    if last is not None and last < before:
        ledger.open_cycle(before, {}, now)
        ledger.close_cycle(before, now)
