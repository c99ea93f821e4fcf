"""A Rucio in memory, with the rules of the game of the real one, behind the calls that the back end uses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rucio.common import exception as rucio

from dc_inject.backends.rucio.errors import RucioCallRecord
from tests.backends.fake_client import FakeClient
from tests.backends.moments import BORN, naive

Row = dict[str, Any]
GB = 10**9
_ASKED = ("source_replica_expression", "activity", "priority", "purge_replicas")


class FakeClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2027, 2, 8, 10, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


@dataclass
class FakeRse:
    space: int = 10**15
    write: bool = True
    read: bool = True
    delete: bool = True
    kind: str = "DISK"
    quota: float | None = 10**15
    reported: datetime = BORN
    expired: int | None = 0
    reads: tuple[str, ...] = ("davs", "root")  # third-party copies, over the WAN
    writes: tuple[str, ...] = ("davs", "root")


@dataclass
class FakeRule:
    id: str
    row: Row
    files: dict[str, str]  # file -> state of its lock
    born_ok: int


@dataclass
class FakeRucio:
    """The server's side. `faults[method]` are raised, one a call, before it is carried out; `losses` after it."""

    clock: FakeClock = field(default_factory=FakeClock)
    account: str = "dcops"
    rses: dict[str, FakeRse] = field(default_factory=dict)
    datasets: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)  # DID -> file -> bytes
    opened: set[tuple[str, str]] = field(default_factory=set)
    containers: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    pinned: dict[tuple[str, str, str], str] = field(default_factory=dict)  # scope, name, RSE -> rule
    replicas: dict[str, set[str]] = field(default_factory=dict)  # RSE -> files available
    ghosts: set[tuple[str, str, str]] = field(default_factory=set)  # scope, name, RSE
    rules: dict[str, FakeRule] = field(default_factory=dict)
    attributes: list[Row] = field(default_factory=list)
    limits: list[Row] = field(default_factory=list)  # global ones
    fts: dict[str, str] = field(default_factory=dict)  # RSE -> its attribute
    unlinked: set[tuple[str, str]] = field(default_factory=set)  # pairs of RSEs without a distance
    may_end: bool = True
    owned: set[str] = field(default_factory=lambda: {"user.dcops"})  # scopes in which the account makes datasets
    expiries: dict[tuple[str, str], datetime] = field(default_factory=dict)  # of DIDs
    faults: dict[str, list[Exception]] = field(default_factory=dict)
    losses: dict[str, list[Exception]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)  # rules without locks
    requests: list[tuple[str, str, str, int]] = field(default_factory=list)  # rule, file, RSE, bytes
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def add(
        self, did: str, rse: str, files: int = 3, size: int = 2 * GB, *, expires: datetime | None = None
    ) -> None:
        """Put a dataset on an RSE, held there by somebody's rule."""
        scope, name = did.split(":")
        self.rses.setdefault(rse, FakeRse())
        self.datasets[scope, name] = {f"{name}/{number}": size for number in range(files)}
        self.replicas.setdefault(rse, set()).update(self.datasets[scope, name])
        rule = self._rule(scope, name, rse, "production", {"expires_at": naive(expires), "comments": None})
        self.pinned[scope, name, rse] = rule.id

    def complete(self) -> None:
        """Let everything arrive."""
        for rule in self.rules.values():
            rule.files = dict.fromkeys(rule.files, "OK")
            self.replicas.setdefault(rule.row["rse_expression"], set()).update(rule.files)

    def clean(self) -> None:
        """Do what judge-cleaner and reaper do: rules that have expired go, and what nobody locks with them."""
        now = naive(self.clock.now())
        for rule in list(self.rules.values()):
            expiry = rule.row["expires_at"]
            if expiry is not None and expiry <= now:
                del self.rules[rule.id]
                rse = rule.row["rse_expression"]
                locked = {f for r in self.rules.values() if r.row["rse_expression"] == rse for f in r.files}
                self.replicas.get(rse, set()).difference_update(set(rule.files) - locked)

    def client(self, record: RucioCallRecord, timeout: float) -> FakeClient:
        """Make a client, as `QuietClient` does."""
        del timeout
        return FakeClient(self, record)

    # ------------------------------------------------------------------ what the calls do

    def called(self, name: str) -> int:
        """How often a method was called."""
        return sum(call == name for call, _, _ in self.calls)

    def make_rules(self, dids: list[Row], **asked: Any) -> list[str]:
        """Make all rules or none, as the server does."""
        destination = self.rses.get(asked["rse_expression"])
        if destination is None:
            raise rucio.InvalidRSEExpression("RSE Expression resulted in an empty set.")
        if not destination.write:
            raise rucio.RSEWriteBlocked("not available for writing")
        if asked["source_replica_expression"] not in self.rses:
            raise rucio.InvalidSourceReplicaExpression("no such source")
        if asked["activity"] not in {"Data Challenge", "Debug"}:
            raise rucio.InvalidObject("'Nonsense' is not one of [...] On instance['activity']")
        made: list[FakeRule] = []
        try:
            for did in dids:
                made.append(self._make(did["scope"], did["name"], **asked))  # noqa: PERF401  needed when one fails
        except rucio.RucioException:
            for rule in made:
                del self.rules[rule.id]
            raise
        return [rule.id for rule in made]

    def _make(self, scope: str, name: str, **asked: Any) -> FakeRule:
        rse = asked["rse_expression"]
        if (scope, name) not in self.datasets:
            raise rucio.DataIdentifierNotFound(f"Data identifier {scope}:{name} is not valid.")
        for rule in self.rules.values():
            key = (rule.row["scope"], rule.row["name"], rule.row["account"], rule.row["rse_expression"])
            if key == (scope, name, self.account, rse):
                raise rucio.DuplicateRule("UNIQUE constraint failed: rules.scope, rules.name, rules.account")
        left = self.rses[rse].quota
        used = sum(
            sum(self.datasets[r.row["scope"], r.row["name"]].values())
            for r in self.rules.values()
            if r.row["rse_expression"] == rse and r.row["account"] == self.account
        )
        if left is None or left - used <= sum(self.datasets[scope, name].values()):
            raise rucio.InsufficientAccountLimit("There is insufficient quota on any of the target RSE's")
        expires = naive(self.clock.now() + timedelta(seconds=asked["lifetime"]))
        kept = {**{key: asked[key] for key in _ASKED}, "meta": json.dumps(asked["meta"])}
        return self._rule(
            scope, name, rse, self.account, {**kept, "comments": asked["comment"], "expires_at": expires}
        )

    def _rule(self, scope: str, name: str, rse: str, account: str, more: Row) -> FakeRule:
        there, content = self.replicas.get(rse, set()), self.datasets[scope, name]
        files = {file: "OK" if file in there else "REPLICATING" for file in content}
        states = self.states(content, rse)
        missing = [file for file in files if states.get(file, "UNAVAILABLE") == "UNAVAILABLE"]
        row = {
            "id": uuid.uuid4().hex,
            "scope": scope,
            "name": name,
            "account": account,
            "rse_expression": rse,
            "source_replica_expression": None,
            "created_at": naive(self.clock.now()),
            "error": None,
            "purge_replicas": False,
            **more,
        }
        rule = FakeRule(row["id"], row, files, sum(state == "OK" for state in files.values()))
        self.rules[rule.id] = rule
        self.requests += [(rule.id, file, rse, content[file]) for file in missing]
        return rule

    def states(self, files: Iterable[str], rse: str) -> dict[str, str]:
        """Return the states of files' replicas at an RSE, of those that have one."""
        there = self.replicas.get(rse, set())
        locks = [rule.files for rule in self.rules.values() if rule.row["rse_expression"] == rse]
        states = {}
        for file in files:
            if file in there:
                states[file] = "AVAILABLE"
            elif found := {lock[file] for lock in locks if file in lock}:
                states[file] = "COPYING" if "REPLICATING" in found else "UNAVAILABLE"
        return states

    def told(self, rule: FakeRule) -> Row:
        """Return a rule's row as the server would."""
        states = list(rule.files.values())
        counts = {state: states.count(state) for state in ("OK", "REPLICATING", "STUCK")}
        state = "STUCK" if counts["STUCK"] else "REPLICATING" if counts["REPLICATING"] else "OK"
        return {
            "state": state,
            **rule.row,
            "locks_ok_cnt": counts["OK"],
            "locks_replicating_cnt": counts["REPLICATING"],
            "locks_stuck_cnt": counts["STUCK"],
        }

    def locks(self, rule: FakeRule) -> Row:
        """Return the dataset lock of a rule."""
        row, files = rule.row, self.datasets[rule.row["scope"], rule.row["name"]]
        return {
            "scope": row["scope"],
            "name": row["name"],
            "rse": row["rse_expression"],
            "rule_id": rule.id,
            "account": row["account"],
            "state": self.told(rule)["state"],
            "length": len(files),
            "bytes": sum(files.values()),
        }

    def replica(self, scope: str, name: str, rse: str) -> Row | None:
        """Return the row of a dataset's replica; a ghost has one without files."""
        files = self.datasets[scope, name]
        there = set(files) & self.replicas.get(rse, set())
        if not there and (scope, name, rse) not in self.ghosts:
            return None
        return {
            "scope": scope,
            "name": name,
            "rse": rse,
            "bytes": sum(files.values()),
            "length": len(files),
            "available_bytes": sum(files[file] for file in there),
            "available_length": len(there),
            "state": "AVAILABLE" if there == set(files) else "UNAVAILABLE",
        }
