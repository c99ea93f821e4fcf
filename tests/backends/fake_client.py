"""The client of the Rucio in memory: the calls that the back end makes, with the real client's exceptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rucio.common import exception as rucio

from dc_inject.backends.rucio.errors import RucioCallRecord
from tests.backends.moments import BORN, naive

if TYPE_CHECKING:
    from tests.backends.fake import FakeRucio, FakeRule

Row = dict[str, Any]


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
                expires = {"expired_at": naive(self.server.expiries.get(key))}
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
        self._known(rule).row["expires_at"] = naive(
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
