"""The ledger: the durable record of due, intents, outcomes, holds and changes of one campaign."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from dc_inject.errors import LedgerError
from dc_inject.ledger.database import Database
from dc_inject.ledger.journal import Journal
from dc_inject.ledger.lock import held
from dc_inject.ledger.reading import Row, inventory_filter, micros, moment
from dc_inject.model import Cycle, FlowKey, Held, Injection, Item, PoolKey
from dc_inject.plan import Plan
from dc_inject.ports import Identity


class Ledger(Journal):
    """One campaign's ledger, open for writing; every method is one transaction and may be called again.

    Only the injector that holds it writes injections and cycles; people's commands write pauses from other
    processes meanwhile.
    """

    @classmethod
    def open(cls, path: Path, *, synchronous: str = "FULL") -> Self:
        """Open or make a ledger; raises LedgerError with a hint where that cannot be."""
        return cls(Database(path, synchronous=synchronous))

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self._db.path

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def hold(self, who: str, patience: timedelta = timedelta(0)) -> Iterator[None]:
        """Be the one injector of this ledger; raises LedgerError that says who holds it, after `patience`."""
        with held(self.path, who, patience):
            yield

    # ------------------------------------------------------------------ whom and what it belongs to

    def bind(self, campaign: str, cycle_length: timedelta, identities: Sequence[Identity], now: datetime) -> None:
        """Bind the ledger to a campaign, its cycle, and our account at each service; later, compare.

        Raises LedgerError that says which one differs.
        """
        length = str(cycle_length // timedelta(microseconds=1))
        with self._db.transaction() as db:
            for name, value, what in (
                ("campaign", campaign, "campaign"),
                ("cycle_microseconds", length, "length of a cycle in microseconds"),
            ):
                known = self.fact(name)
                if known is None:
                    db.execute("INSERT INTO facts VALUES (?, ?)", (name, value))
                elif known != value:
                    raise LedgerError(
                        f"{self.path} belongs to another {what}: {known}, not {value}",
                        "a campaign keeps its cycle; another campaign has a ledger of its own",
                    )
            for identity in identities:
                self._bind_service(identity, now)

    def _bind_service(self, identity: Identity, now: datetime) -> None:
        known = {one.service: one for one in self.identities()}.get(identity.service)
        for what in ("address", "vo", "account"):
            if known is not None and getattr(known, what) != getattr(identity, what):
                raise LedgerError(
                    f"{self.path} belongs to another {what} of {identity.service}: "
                    f"{getattr(known, what)}, not {getattr(identity, what)}",
                    "use the campaign's own account, or another ledger",
                )
        with self._db.write() as db:
            db.execute(
                "INSERT INTO identities VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (service) DO UPDATE SET"
                " version = excluded.version, may_end = excluded.may_end,"
                " credentials_until = excluded.credentials_until",
                (
                    identity.service,
                    identity.address,
                    identity.vo,
                    identity.account,
                    identity.version,
                    identity.may_end,
                    None if identity.credentials_until is None else micros(identity.credentials_until),
                    micros(now),
                ),
            )

    def identify(self, identity: Identity, now: datetime) -> None:
        """Write down what a service says of us now: version, rights, end of credentials."""
        with self._db.transaction():
            self._bind_service(identity, now)

    def begin(self, now: datetime) -> datetime:
        """Return when the campaign was first run; the first call writes it."""
        with self._db.transaction() as db:
            db.execute("INSERT OR IGNORE INTO facts VALUES ('since', ?)", (str(micros(now)),))
        return moment(int(self.fact("since") or 0))

    def put_in_force(self, menus: Sequence[tuple[str, str, str]], now: datetime) -> None:
        """Record which menus (name, digest, text) are in force from now on."""
        known = {(name, digest) for name, digest, _ in self.menus_in_force()}
        wanted = {(name, digest) for name, digest, _ in menus}
        if known == wanted:
            return
        with self._db.transaction() as db:
            for name, digest in known - wanted:
                db.execute(
                    "UPDATE menus SET until = ? WHERE name = ? AND digest = ? AND until IS NULL",
                    (micros(now), name, digest),
                )
            for name, digest, text in menus:
                if (name, digest) not in known:
                    db.execute("INSERT INTO menus VALUES (?, ?, ?, ?, NULL)", (name, digest, text, micros(now)))

    def record_resolution(self, service: str, expression: str, names: Sequence[str], now: datetime) -> None:
        """Fix what an RSE expression means for this campaign."""
        with self._db.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO resolutions VALUES (?, ?, ?, ?)",
                (service, expression, json.dumps(list(names)), micros(now)),
            )

    # ------------------------------------------------------------------ what people do

    def pause(self, subject: str, who: str, why: str, now: datetime) -> bool:
        """Stop injecting for `*`, a scenario or a link `SRC:DST`; returns False if it is stopped already."""
        with self._db.transaction() as db:
            done = db.execute(
                "INSERT OR IGNORE INTO pauses VALUES (?, ?, ?, ?)", (subject, who, why, micros(now))
            ).rowcount
            if done:
                self._change(who, f"stop {subject}", why, now)
        return bool(done)

    def resume(self, subject: str, who: str, why: str, now: datetime) -> bool:
        """Lift a stop; returns False if there was none."""
        with self._db.transaction() as db:
            done = db.execute("DELETE FROM pauses WHERE subject = ?", (subject,)).rowcount
            if done:
                self._change(who, f"resume {subject}", why, now)
        return bool(done)

    def change(self, who: str, what: str, why: str, now: datetime) -> None:
        """Write down that a person changed something."""
        with self._db.transaction():
            self._change(who, what, why, now)

    def note(self, text: str, now: datetime) -> None:
        """Write down something worth to be found again."""
        with self._db.transaction() as db:
            db.execute("INSERT INTO notes VALUES (?, ?)", (micros(now), text))

    def quarantine(
        self, item: str, destination: str, why: str, now: datetime, until: datetime | None = None
    ) -> None:
        """Set an item aside for a destination, until a time or for good; a wait never gets shorter."""
        end = None if until is None else micros(until)
        with self._db.transaction() as db:
            db.execute(
                "INSERT INTO quarantine VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT (item, destination) DO UPDATE SET"
                " why = excluded.why, times = times + 1, until = CASE WHEN until IS NULL OR excluded.until IS NULL"
                " THEN NULL ELSE max(until, excluded.until) END",
                (item, destination, why, micros(now), end),
            )

    def signal(self, name: str, subject: str, value: float | str | None, now: datetime, why: str = "") -> None:
        """Keep the latest value of something observed; None, with a reason, where it could not be read."""
        with self._db.transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO signals VALUES (?, ?, ?, ?, ?)", (name, subject, value, why, micros(now))
            )

    # ------------------------------------------------------------------ cycles

    def open_cycle(self, cycle: Cycle, dues: Mapping[FlowKey, tuple[int, Held | None]], now: datetime) -> None:
        """Open a cycle and write what each flow is due in it; a cycle that is open or closed stays as it is."""
        start = micros(cycle.start)
        with self._db.transaction() as db:
            if self._db.one("SELECT 1 FROM cycles WHERE start = ?", start):
                return
            db.execute("INSERT INTO cycles VALUES (?, ?, NULL, NULL)", (start, micros(now)))
            for key, (due, hold) in sorted(dues.items(), key=lambda item: item[0]):
                flow = self._flow(key)
                db.execute(
                    "INSERT INTO rows (cycle, flow, due, hold, numbers) VALUES (?, ?, ?, ?, ?)",
                    (start, flow, due, *_hold(hold)),
                )
                db.execute("UPDATE flows SET due = due + ? WHERE id = ?", (due, flow))

    def record_plan(self, plan: Plan, now: datetime) -> None:
        """Write a cycle's decisions and intents in one transaction; a cycle that is planned stays as it is."""
        start = micros(plan.cycle.start)
        with self._db.transaction() as db:
            if self.is_planned(plan.cycle):
                return
            for decision in plan.decisions:
                flow = self._flow(decision.key)
                db.execute(
                    "UPDATE rows SET want = ?, cap = ?, budget = ?, lifetime = ?, pool_items = ?, pool_bytes = ?,"
                    " hold = coalesce(?, hold), numbers = CASE WHEN ? IS NULL THEN numbers ELSE ? END"
                    " WHERE cycle = ? AND flow = ?",
                    (
                        decision.want,
                        decision.cap,
                        decision.budget,
                        decision.lifetime // timedelta(microseconds=1),
                        decision.pool_items,
                        decision.pool_bytes,
                        _hold(decision.held)[0],
                        *_hold(decision.held),
                        start,
                        flow,
                    ),
                )
                db.execute("UPDATE flows SET forgiven = forgiven + ? WHERE id = ?", (decision.forgiven, flow))
            self._intend(plan.injections)
            db.execute("UPDATE cycles SET planned = ? WHERE start = ?", (micros(now), start))

    def add_injections(self, injections: Iterable[Injection], now: datetime) -> None:
        """Write more intents of a cycle that is planned; a key that is known stays as it is."""
        del now  # an intent's time is that of its cycle; kept for the sameness of all writers
        with self._db.transaction():
            self._intend(injections)

    def close_cycle(self, cycle: Cycle, now: datetime, holds: Mapping[FlowKey, Held]) -> None:
        """Close a cycle's rows for good: account totals less those at the last close.

        So news that comes late is told in the row of the cycle in which it became known, and the rows always
        sum to the account. A row that got less than its due and has no hold yet takes the one from `holds`.
        """
        start = micros(cycle.start)
        with self._db.transaction() as db:
            for row in self.rows(cycle=cycle):
                if not row.closed:
                    self._close_row(start, row, holds.get(row.key))
            db.execute("UPDATE cycles SET closed = coalesce(closed, ?) WHERE start = ?", (micros(now), start))

    def _close_row(self, start: int, row: Row, hold: Held | None) -> None:
        flow = self._flow(row.key)
        why = row.held or (hold if row.injected < row.due else None)
        with self._db.write() as db:
            db.execute(
                "UPDATE rows SET injected = ?, forgiven = ?, moved = ?, estimated = ?, rules = ?, hold = ?,"
                " numbers = ?, closed = 1 WHERE cycle = ? AND flow = ?",
                (row.injected, row.forgiven, row.moved, row.estimated, row.rules, *_hold(why), start, flow),
            )
            db.execute(
                "INSERT OR REPLACE INTO closed_totals SELECT id, injected, forgiven, moved, estimated, rules"
                " FROM flows WHERE id = ?",
                (flow,),
            )

    # ------------------------------------------------------------------ inventories

    def store_inventory(self, service: str, pool: PoolKey, items: Iterable[Item], now: datetime) -> None:
        """Keep what an inventory of a source gave, in place of what was known of it."""
        name = inventory_filter(asdict(pool.datasets))
        with self._db.transaction() as db:
            db.execute(
                "DELETE FROM inventories WHERE service = ? AND source = ? AND filter = ?",
                (service, pool.source, name),
            )
            made = db.execute(
                "INSERT INTO inventories (service, source, filter, read_at) VALUES (?, ?, ?, ?)",
                (service, pool.source, name, micros(now)),
            ).lastrowid
            db.executemany(
                "INSERT OR REPLACE INTO inventory_items VALUES (?, ?, ?, ?)",
                ((made, item.name, item.bytes, item.files) for item in items),
            )

    def inventory(self, service: str, pool: PoolKey) -> list[Item]:
        """Return what is known of a pool, by name; empty if it was never read."""
        sql = """
            SELECT t.name, t.bytes, t.files FROM inventory_items t JOIN inventories i ON i.id = t.inventory
            WHERE i.service = ? AND i.source = ? AND i.filter = ? ORDER BY t.name
        """
        name = inventory_filter(asdict(pool.datasets))
        found = self._db.read(sql, service, pool.source, name)
        return [Item(row["name"], row["bytes"], row["files"]) for row in found]

    def inventory_read_at(self, service: str, pool: PoolKey) -> datetime | None:
        """Return when a pool was last read."""
        sql = "SELECT read_at FROM inventories WHERE service = ? AND source = ? AND filter = ?"
        found = self._db.one(sql, service, pool.source, inventory_filter(asdict(pool.datasets)))
        return None if found is None else moment(found["read_at"])


def _hold(held: Held | None) -> tuple[str | None, str]:
    return (None, "{}") if held is None else (held.hold.value, json.dumps(dict(held.numbers)))
