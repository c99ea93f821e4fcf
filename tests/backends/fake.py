"""A Rucio in memory, with the rules of the game of the real one, behind the calls that the back end uses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rucio.common import exception as rucio

from dc_inject.backends.rucio.errors import RucioCallRecord

Row = dict[str, Any]
GB = 10**9
_ASKED = ("source_replica_expression", "activity", "priority", "purge_replicas")
BORN = datetime(2027, 2, 8, 9, 0)  # noqa: DTZ001  Rucio's client gives times without a zone


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
    metrics: list[Row] = field(default_factory=list)  # of requests
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
        rule = self._rule(scope, name, rse, "production", {"expires_at": _naive(expires), "comments": None})
        self.pinned[scope, name, rse] = rule.id

    def complete(self) -> None:
        """Let everything arrive."""
        for rule in self.rules.values():
            rule.files = dict.fromkeys(rule.files, "OK")
            self.replicas.setdefault(rule.row["rse_expression"], set()).update(rule.files)

    def clean(self) -> None:
        """Do what judge-cleaner and reaper do: rules that have expired go, and what nobody locks with them."""
        now = _naive(self.clock.now())
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
        expires = _naive(self.clock.now() + timedelta(seconds=asked["lifetime"]))
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
            "created_at": _naive(self.clock.now()),
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
            found = {lock[file] for lock in locks if file in lock}
            if file in there:
                states[file] = "AVAILABLE"
            elif found:
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


class FakeClient:
    """The client's side: the methods of rucio.client.Client that the back end calls."""

    def __init__(self, server: FakeRucio, record: RucioCallRecord) -> None:
        self.server = server
        self.record = record
        self.host = "http://rucio.example.org:8080"
        self.vo = "def"
        self.auth_type = "userpass"
        self.creds = {"username": "someone", "password": "hunter2"}
        self.auth_token = "token"
        record.secrets.add("hunter2")

    def __getattribute__(self, name: str) -> Any:
        """Count the call, and let it fail, or lose its answer, if that is what the test wants."""
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not callable(found):
            return found
        server: FakeRucio = object.__getattribute__(self, "server")

        def call(*args: Any, **kwargs: Any) -> Any:
            server.calls.append((name, args, kwargs))
            if server.faults.get(name):
                raise server.faults[name].pop(0)
            answer = found(*args, **kwargs)
            if server.losses.get(name):
                self.record.unanswered = True
                raise server.losses[name].pop(0)
            return answer

        return call

    def ping(self) -> Row:
        return {"version": "41.5.1"}

    def whoami(self) -> Row:
        return {"account": self.server.account, "account_type": "USER"}

    def list_account_attributes(self, account: str) -> Iterator[list[Row]]:
        yield self.server.attributes

    def list_rses(self, expression: str | None = None) -> Iterator[Row]:
        rses = self.server.rses
        meant = list(rses) if expression in {None, "*"} else str(expression).split("|")
        if not set(meant) & set(rses):
            raise rucio.InvalidRSEExpression("RSE Expression resulted in an empty set.")
        for name, rse in rses.items():
            if name in meant:
                yield {
                    "rse": name,
                    "availability_read": rse.read,
                    "availability_write": rse.write,
                    "availability_delete": rse.delete,
                    "rse_type": rse.kind,
                }

    def list_rse_attributes(self, rse: str) -> Row:
        return {rse: True, "site": rse.rpartition("_")[0], "fts": self.server.fts.get(rse)}

    def request_metrics(self, dst_rse: str) -> Iterator[Row]:
        yield from (row for row in self.server.metrics if row["dst_rse"] == dst_rse)

    def get_rse_usage(self, rse: str) -> Iterator[Row]:
        found = self.server.rses[rse]
        yield {"rse": rse, "source": "rucio", "used": 1, "free": None, "updated_at": BORN}
        if found.expired is not None:
            yield {"rse": rse, "source": "expired", "used": found.expired, "free": None, "updated_at": BORN}
        yield {"rse": rse, "source": "storage", "used": 1, "free": found.space, "updated_at": found.reported}

    def get_protocols(self, rse: str) -> list[Row] | Row:
        found = self.server.rses[rse]
        schemes = sorted({*found.reads, *found.writes})
        if not schemes:
            raise rucio.RSEProtocolNotSupported(f"RSE '{rse}' does not support the protocol")
        rows = [
            {
                "scheme": scheme,
                "hostname": f"{rse.lower().replace('_', '-')}.example.org",
                "domains": {
                    "lan": {"read": 1},
                    "wan": {
                        "read": 1,
                        "third_party_copy_read": int(scheme in found.reads),
                        "third_party_copy_write": int(scheme in found.writes) or None,
                    },
                },
            }
            for scheme in schemes
        ]
        return rows[0] if len(rows) == 1 else rows

    def get_distance(self, source: str, destination: str) -> list[Row]:
        if (source, destination) in self.server.unlinked:
            return []
        return [{"src_rse": source, "dest_rse": destination, "distance": 1}]

    def get_local_account_usage(self, account: str) -> Iterator[Row]:
        for name, rse in self.server.rses.items():
            if rse.quota is not None:
                yield {"rse": name, "bytes_remaining": rse.quota}

    def get_global_account_usage(self, account: str) -> Iterator[Row]:
        yield from self.server.limits

    def get_dataset_locks_by_rse(self, rse: str) -> Iterator[Row]:
        if rse not in self.server.rses:
            raise rucio.RSENotFound(f"RSE '{rse}' cannot be found")
        for rule in self.server.rules.values():
            if rule.row["rse_expression"] == rse:
                yield self.server.locks(rule)

    def get_locks_for_dids(self, dids: Iterable[Row]) -> list[Row]:
        wanted = {(did["scope"], did["name"]) for did in dids}
        rules = self.server.rules.values()
        return [
            self.server.locks(rule)
            for rule in rules
            if (rule.row["scope"], rule.row["name"]) in wanted and rule.id not in self.server.hidden
        ]

    def list_dataset_replicas_bulk(self, dids: Iterable[Row]) -> Iterator[Row]:
        for did in dids:
            for rse in self.server.rses:
                if (did["scope"], did["name"]) in self.server.datasets:
                    row = self.server.replica(did["scope"], did["name"], rse)
                    if row is not None:
                        yield row

    def get_metadata_bulk(self, dids: Iterable[Row], plugin: str) -> Iterator[Row]:
        assert plugin == "DID_COLUMN"  # unless told, older clients ask for what has none of the columns
        for did in dids:
            key = did["scope"], did["name"]
            if "!" in did["name"]:
                raise rucio.InvalidObject("Problem with did : does not match '^[A-Za-z0-9]'")
            if key in self.server.containers:
                yield {**did, "did_type": "CONTAINER", "is_open": True, "bytes": None, "length": None}
            if key in self.server.datasets:
                files = self.server.datasets[key]
                is_open = key in self.server.opened
                sums = (None, None) if is_open else (sum(files.values()), len(files))
                expires = {"expired_at": _naive(self.server.expiries.get(key))}
                size = {"bytes": sums[0], "length": sums[1]}
                yield {**did, "did_type": "DATASET", "is_open": is_open, **size, **expires}

    def list_scopes(self) -> Iterator[str]:
        yield from {scope for scope, _ in (*self.server.datasets, *self.server.containers)}

    def list_content(self, scope: str, name: str) -> Iterator[Row]:
        if (scope, name) not in self.server.containers:
            raise rucio.DataIdentifierNotFound(f"Data identifier {scope}:{name} not found")
        for child in self.server.containers[scope, name]:
            kind = "CONTAINER" if child in self.server.containers else "DATASET"
            yield {"scope": child[0], "name": child[1], "type": kind}

    def add_replication_rule(self, dids: list[Row], copies: int, **asked: Any) -> list[str]:
        return self.server.make_rules(dids, **asked)

    def get_replication_rule(self, rule: str) -> Row:
        return self.server.told(self._known(rule))

    def list_replication_rules(self, filters: Row) -> Iterator[Row]:
        exact = {key: value for key, value in filters.items() if key != "created_after"}
        for rule in self.server.rules.values():
            if all(rule.row[key] == value for key, value in exact.items()):
                yield self.server.told(rule)

    def list_replica_locks(self, rule: str) -> Iterator[Row]:
        found = self.server.rules[rule]
        for file, state in found.files.items():
            yield {"scope": found.row["scope"], "name": file, "state": state}

    def list_files(self, scope: str, name: str) -> Iterator[Row]:
        for file, size in self.server.datasets[scope, name].items():
            yield {"scope": scope, "name": file, "bytes": size}

    def add_dataset(self, scope: str, name: str, *, lifetime: int, files: list[Row]) -> bool:
        server = self.server
        if scope not in server.owned:
            raise rucio.AccessDenied(f"Account {server.account} can not add data identifier to scope {scope}")
        if (scope, name) in server.datasets:
            raise rucio.DataIdentifierAlreadyExists("Data Identifier already exists!")
        sizes = {file: size for content in server.datasets.values() for file, size in content.items()}
        server.datasets[scope, name] = {file["name"]: sizes[file["name"]] for file in files}
        server.expiries[scope, name] = server.clock.now() + timedelta(seconds=lifetime)
        return True

    def set_metadata(self, scope: str, name: str, key: str, value: int) -> bool:
        assert key == "lifetime"
        self.server.expiries[scope, name] = self.server.clock.now() + timedelta(seconds=value)
        return True

    def bulk_list_files(self, dids: list[Row]) -> Iterator[Row]:
        for did in dids:
            parent = {"parent_scope": did["scope"], "parent_name": did["name"]}
            for file, size in self.server.datasets.get((did["scope"], did["name"]), {}).items():
                yield {"scope": did["scope"], "name": file, "bytes": size, **parent}

    def list_replicas(
        self, dids: list[Row], rse_expression: str, all_states: bool, resolve_archives: bool
    ) -> Iterator[Row]:
        """Give files that have a replica there; those that were named also without."""
        assert all_states
        assert not resolve_archives
        contents = [self.server.datasets.get((did["scope"], did["name"])) for did in dids]
        asked = [tuple(content or (did["name"],)) for did, content in zip(dids, contents, strict=True)]
        at = {
            rse: self.server.states({f for files in asked for f in files}, rse)
            for rse in rse_expression.split("|")
        }
        for did, content, files in zip(dids, contents, asked, strict=True):
            for file in files:
                states = {rse: states[file] for rse, states in at.items() if file in states}
                if states or content is None:
                    yield {"scope": did["scope"], "name": file, "states": states}

    def list_replication_rule_full_history(self, scope: str, name: str) -> Iterator[Row]:
        for rule in self.server.rules.values():
            if (rule.row["scope"], rule.row["name"]) == (scope, name):
                yield {
                    "rule_id": rule.id,
                    "locks_ok_cnt": rule.born_ok,
                    "locks_replicating_cnt": len(rule.files) - rule.born_ok,
                    "locks_stuck_cnt": 0,
                }

    def update_replication_rule(self, rule: str, options: Row) -> bool:
        self._right()
        self._known(rule).row["expires_at"] = _naive(
            self.server.clock.now() + timedelta(seconds=options["lifetime"])
        )
        return True

    def delete_replication_rule(self, rule: str, purge_replicas: bool | None = None) -> bool:
        self._right()
        if purge_replicas is not None:
            self._known(rule).row["purge_replicas"] = purge_replicas
        return True

    def _known(self, rule: str) -> FakeRule:
        if rule not in self.server.rules:
            raise rucio.RuleNotFound(f"No rule with the id {rule} found")
        return self.server.rules[rule]

    def _right(self) -> None:
        if not self.server.may_end:
            raise rucio.AccessDenied("Account dcops can not update this replication rule.")


def _naive(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)
