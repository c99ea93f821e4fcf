"""Accounts: the running totals of each flow key, which triggers keep as things happen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import itemgetter

from dc_inject.ledger.database import FLOW, Database, Kept, Store, flow_key, flow_of
from dc_inject.ledger.types import Totals
from dc_inject.model import Entry, FlowKey, Hold, State
from dc_inject.model.groups import summed

_TOTALS = tuple(field.name for field in fields(Totals))


class AccountReader(Store):
    """What is known of accounts without reading a single injection."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        ids = f"SELECT id, {FLOW} FROM account"  # noqa: S608  our own words
        self._ids = Kept(database, lambda: {flow_of(*flow): number for number, *flow in database.rows(ids)})

    def accounts(self) -> Mapping[FlowKey, Totals]:
        """Return the totals of every flow key that the campaign ever had, in the order of the keys."""
        rows = self._db.rows(f"SELECT {FLOW}, {', '.join(_TOTALS)} FROM account")  # noqa: S608  our own words
        return dict(sorted(((flow_of(*row[:4]), Totals(*row[4:])) for row in rows), key=itemgetter(0)))

    def extras(self) -> Mapping[FlowKey, int]:
        """Return the bytes that overheads added to the dues of every flow key so far."""
        rows = self._db.rows(f"SELECT {FLOW}, extra FROM account")  # noqa: S608  our own words
        return {flow_of(*flow): extra for *flow, extra in rows}

    def resident(self) -> Mapping[str, int]:
        """Return, for each destination, our bytes that are there or may come there, intents included."""
        return self._by_destination("resident")

    def on_its_way(self) -> Mapping[str, int]:
        """Return, for each destination, bytes that were asked for and have not arrived yet."""
        return self._by_destination("coming")

    def files_in_flight(self) -> int:
        """Return how many files were asked for and have not arrived yet."""
        return int(self._db.row("SELECT coalesce(sum(files_in_flight), 0) FROM account")[0])

    def hold_counts(self) -> Mapping[FlowKey, Mapping[Hold, int]]:
        """Return in how many cycles each hold led, for each flow key; holds of open cycles count as they stand."""
        rows = self._db.rows(
            "SELECT scenario, source, destination, through, hold, sum(n) AS times FROM ("
            "SELECT account, hold, cycles AS n FROM account_hold UNION ALL SELECT account, hold, 1 FROM cycle_row "
            "WHERE hold IS NOT NULL AND cycle IN (SELECT start FROM cycle WHERE closed_at IS NULL)"
            ") JOIN account ON id = account GROUP BY account, hold ORDER BY times DESC, hold"
        )
        counts: dict[FlowKey, dict[Hold, int]] = defaultdict(dict)
        for row in rows:
            counts[flow_key(row)][Hold(row["hold"])] = row["times"]
        return counts

    def failures(self) -> Mapping[FlowKey, Mapping[str, int]]:
        """Return how many files failed for each flow key, by the class of the reason."""
        rows = self._db.rows("SELECT * FROM failure JOIN account ON id = account ORDER BY files DESC, reason")
        counts: dict[FlowKey, dict[str, int]] = defaultdict(dict)
        for row in rows:
            counts[flow_key(row)][row["reason"]] = row["files"]
        return counts

    def cycle_counts(self) -> Mapping[FlowKey, int]:
        """Return in how many cycles each flow key was due anything."""
        return {flow_key(row): row["cycles"] for row in self._db.rows("SELECT * FROM account")}

    def goals(self) -> Mapping[FlowKey, tuple[str, int]]:
        """Return what flow keys are to reach besides their rate: the kind of their goal, and its bytes."""
        rows = self._db.rows(f"SELECT {FLOW}, goal, goal_bytes FROM account WHERE goal IS NOT NULL")  # noqa: S608  our own words
        return {flow_of(*row[:4]): (row["goal"], row["goal_bytes"]) for row in rows}

    def state_counts(self) -> Mapping[State, tuple[int, int]]:
        """Return how many injections are in each state, and their bytes; states of none are left out."""
        rows = self._db.rows("SELECT * FROM state_count WHERE entries > 0")
        return {State(row["state"]): (row["entries"], row["bytes"]) for row in rows}

    def _by_destination(self, expression: str) -> Mapping[str, int]:
        sums = summed(self._db.rows(f"SELECT destination, {expression} FROM account"))  # noqa: S608  our own words
        return {destination: size for destination, size in sums.items() if size}

    def _open_accounts(self, keys: Iterable[FlowKey] = ()) -> Mapping[FlowKey, int]:
        """Return the numbers of all accounts, opening those of `keys` that there are not yet."""
        ids = self._ids()
        for key in sorted(set(keys) - ids.keys()):
            self._db.insert("account", scenario=key.scenario, **key.link._asdict())
            ids[key] = self._db.row("SELECT last_insert_rowid()")[0]
        return ids


def recomputed(dues: Mapping[FlowKey, tuple[int, int]], entries: Iterable[Entry]) -> dict[FlowKey, Totals]:
    """Return totals from scratch: due and forgiven by flow key, and what each entry adds; to check others by."""
    totals = {key: Totals(due=due, forgiven=forgiven) for key, (due, forgiven) in dues.items()}
    for entry in entries:
        flow = entry.injection.flow
        totals[flow] = totals.get(flow, Totals()) + _share(entry)
    return dict(sorted(totals.items()))


def _share(entry: Entry) -> Totals:
    item, state = entry.injection.item, entry.state
    under_way = state in {State.CALLED, State.LIVE}
    return Totals(
        injected=entry.injected,
        in_doubt=item.bytes if state is State.CALLED else 0,
        moved=entry.moved,
        estimated=0 if entry.moved_exact else entry.moved,
        resident=item.bytes - entry.present - entry.failed if state.resident else 0,
        coming=item.bytes - entry.present - entry.failed - entry.moved if under_way else 0,
        files_in_flight=item.files - entry.files_done if under_way else 0,
        rules=0 if entry.accepted_at is None else 1,
        failed=entry.failed,
    )
