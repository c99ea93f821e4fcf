"""What really happened: read from Rucio's database, which neither the tool nor its ledger can talk round."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

Others = tuple[list[tuple[object, ...]], list[tuple[object, ...]]]  # rules and replicas, or files

# Rucio keeps what a rule was at its birth and at its end, and most changes between.
_RULES = """
    SELECT {time}, id, scope || ':' || name AS item, rse_expression, source_replica_expression, comments,
           created_at, updated_at, expires_at FROM {table} WHERE comments GLOB ?
"""
_OTHERS = """
    SELECT id, account, scope, name, rse_expression, state, expires_at, locks_ok_cnt, locks_replicating_cnt,
           locks_stuck_cnt, purge_replicas, comments FROM rules
    WHERE name LIKE ? AND (comments IS NULL OR comments NOT LIKE 'dc_inject/1 %') ORDER BY id
"""
_REPLICAS = """
    SELECT DISTINCT r.rse_id, r.scope, r.name, r.bytes, r.adler32, r.state, r.tombstone FROM replicas r
    JOIN locks l ON l.scope = r.scope AND l.name = r.name AND l.rse_id = r.rse_id
    WHERE l.account != ? AND r.name LIKE ? ORDER BY 1, 2, 3
"""


@dataclass
class Rule:
    """A rule of ours as the database remembers it, or a job."""

    id: str
    item: str  # empty where the service does not know it
    destination: str
    source: str
    born: datetime
    expiries: list[datetime] = field(default_factory=list)  # in the order in which they were set
    ended: datetime | None = None  # None while it lives
    bytes: int = 0  # of its dataset, or of files that have not failed
    arrived: int = 0  # bytes of transfers that were made for it and succeeded
    copies: list[str] = field(default_factory=list)  # of a job: the names that its files get


@dataclass
class Truth:
    """Rucio's database, read-only; each method reads one state of it."""

    database: Path
    account: str

    def rules(self, campaign: str) -> dict[str, Rule]:
        """Return every rule that the campaign ever had, by its id as the tool writes it; `*` stands for any."""
        with closing(self._open()) as db:
            found = self._remembered(db, campaign)
            sizes = dict(db.execute("SELECT scope || ':' || name, bytes FROM dids WHERE did_type = 'D'"))
            moved = dict(
                db.execute("SELECT rule_id, sum(bytes) FROM requests_history WHERE state = 'D' GROUP BY rule_id")
            )
        for rule in found.values():
            rule.bytes, rule.arrived = sizes[rule.item], moved.get(rule.id, 0)
        return found

    def _remembered(self, db: sqlite3.Connection, campaign: str) -> dict[str, Rule]:
        found: dict[str, Rule] = {}
        rows = []
        for table in ("rules_hist_recent", "rules_history", "rules"):
            query = _RULES.format(table=table, time="2 AS at" if table == "rules" else "1 AS at")
            rows += db.execute(query, (f"dc_inject/1 {campaign} *",)).fetchall()
        alive = {row["id"] for row in rows if row["at"] == 2}
        last: dict[str, datetime] = {}
        for row in sorted(rows, key=lambda row: (row["at"], row["updated_at"])):
            ends = row["rse_expression"], row["source_replica_expression"]
            rule = found.setdefault(row["id"], Rule(row["id"], row["item"], *ends, _time(row["created_at"])))
            rule.expiries.append(_time(row["expires_at"]))
            last[rule.id] = _time(row["updated_at"])
        for rule in found.values():
            rule.ended = None if rule.id in alive else last[rule.id]
        return found

    def twice(self, rules: Mapping[str, Rule]) -> Iterator[str]:
        """Tell of datasets that were given to a destination while they were there by another rule."""
        lives: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        for rule in rules.values():
            lives[rule.item, rule.destination].append(rule)
        for (item, destination), some in lives.items():
            for first, second in pairwise(sorted(some, key=lambda rule: rule.born)):
                if first.ended is None or second.born < first.ended:
                    yield f"{item} to {destination} by {first.id} and {second.id}"

    def left(self) -> Iterator[str]:
        """Tell what a drained campaign has left behind: Rucio deletes by itself."""
        yield from ()

    def others(self, label: str) -> Others:
        """Return other people's rules and their replicas, with all that we could do to them."""
        with closing(self._open()) as db:
            rules = db.execute(_OTHERS, (f"%{label}%",)).fetchall()
            replicas = db.execute(_REPLICAS, (self.account, f"%{label}%")).fetchall()
        return [tuple(row) for row in rules], [tuple(row) for row in replicas]

    def tokens(self) -> set[str]:
        """Return every token that was ever given out and not cleaned up."""
        with closing(self._open()) as db:
            return {row[0] for row in db.execute("SELECT token FROM tokens")}

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=30)
        db.row_factory = sqlite3.Row
        db.execute("BEGIN")  # what is read from now on is one state, while daemons and others go on
        return db


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
