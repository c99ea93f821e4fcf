"""The Rucio in memory with what making test data needs: datasets are made, filled, closed and erased."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import md5
from typing import Any
from urllib.parse import urlsplit

from rucio.common import exception as rucio

from dc_inject.backends.rucio.errors import RucioCallRecord
from tests.backends.fake import FakeClient, FakeRucio, Row
from tests.backends.moments import naive


@dataclass
class Catalogue(FakeRucio):
    """RSEs of `doors` have WebDAV at these prefixes; `register` are those where replicas may be registered."""

    doors: dict[str, str] = field(default_factory=dict)
    register: set[str] = field(default_factory=set)
    scopes: set[str] = field(default_factory=lambda: {"user.dcops"})
    expired: dict[tuple[str, str], datetime | None] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    deterministic: bool = True

    def client(self, record: RucioCallRecord, timeout: float) -> FakeClient:
        return CatalogueClient(self, record)

    def place(self, rse: str, scope: str, name: str) -> str:
        """Return where a replica has to lie."""
        digest = md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
        return f"{self.doors[rse]}/{scope.replace('.', '/')}/{digest[:2]}/{digest[2:4]}/{name}"

    def tidy(self) -> list[str]:
        """Do what undertaker, judge-cleaner and reaper do; return the URLs of files that they deleted."""
        now, gone = naive(self.clock.now()), []
        for did, moment in list(self.expired.items()):
            if moment is None or moment > now:
                continue
            for rule in [rule for rule in self.rules.values() if (rule.row["scope"], rule.row["name"]) == did]:
                del self.rules[rule.id]
            files = self.datasets.pop(did)
            del self.expired[did]
            for rse, there in self.replicas.items():
                gone += [self.place(rse, did[0], file) for file in there & set(files)]
                there -= set(files)
        return gone


class CatalogueClient(FakeClient):
    """The calls that making test data takes."""

    server: Catalogue

    def get_rse(self, rse: str) -> Row:
        return {"rse": rse, "deterministic": self.server.deterministic}

    def get_protocols(self, rse: str) -> list[Row]:
        right = {"wan": {"read": 1, "write": 1}}
        door = urlsplit(self.server.doors.get(rse, "mock://nowhere/"))
        where = {"hostname": door.hostname, "port": door.port or 0, "prefix": f"{door.path}/"}
        return [{"scheme": "root", "domains": right}, {"scheme": door.scheme, "domains": right, **where}]

    def lfns2pfns(self, rse: str, lfns: Iterable[str], **asked: Any) -> dict[str, str]:
        assert asked["operation"] == "write"
        return {lfn: self.server.place(rse, *lfn.split(":", 1)) for lfn in lfns}

    def list_scopes_for_account(self, account: str) -> list[str]:
        if not self.server.scopes:
            raise rucio.ScopeNotFound(f"no scopes found for account ID '{account}'")
        return sorted(self.server.scopes)

    def list_dids(self, scope: str, filters: list[Row], did_type: str) -> Iterator[str]:
        start = filters[0]["name"].removesuffix("*")
        assert did_type == "dataset"
        assert "*" not in start
        yield from (name for where, name in self.server.datasets if where == scope and name.startswith(start))

    def add_dataset(self, scope: str, name: str, lifetime: int | None = None) -> bool:
        if scope not in self.server.scopes:
            raise rucio.AccessDenied(f"Account dcops can not add data identifier to scope {scope}.")
        if (scope, name) in self.server.datasets:
            raise rucio.DataIdentifierAlreadyExists("Data Identifier already exists!")
        self.server.datasets[scope, name] = {}
        self.server.opened.add((scope, name))
        self.server.expired[scope, name] = None
        if lifetime is not None:
            self.set_metadata(scope, name, "lifetime", lifetime)
        return True

    def add_replication_rule(self, dids: list[Row], copies: int, **asked: Any) -> list[str]:
        (did,), rse = dids, asked["rse_expression"]
        for rule in self.server.rules.values():
            if (rule.row["scope"], rule.row["name"], rule.row["rse_expression"]) == (*did.values(), rse):
                raise rucio.DuplicateRule("UNIQUE constraint failed")
        if not self.server.rses[rse].quota:
            raise rucio.InsufficientAccountLimit("There is insufficient quota on any of the target RSE's")
        more = {"comments": asked["comment"], "purge_replicas": asked["purge_replicas"]}
        return [self.server._rule(did["scope"], did["name"], rse, self.server.account, more).id]

    def add_replicas(self, rse: str, files: list[Row]) -> bool:
        if rse not in self.server.register:
            raise rucio.AccessDenied(f"Account dcops can not add file replicas on {rse}.")
        for file in files:
            self.server.checksums.setdefault(file["name"], file["adler32"])
            assert self.server.checksums[file["name"]] == file["adler32"]
            self.server.replicas.setdefault(rse, set()).add(file["name"])
        return True

    def attach_dids_to_dids(self, attachments: list[Row], ignore_duplicate: bool = False) -> bool:
        for one in attachments:
            key = one["scope"], one["name"]
            assert key in self.server.opened
            for file in one["dids"]:
                assert ignore_duplicate or file["name"] not in self.server.datasets[key]
                self.server.datasets[key][file["name"]] = 1000
        return True

    def set_status(self, scope: str, name: str, **status: Any) -> bool:
        assert status == {"open": False}
        self.server.opened.remove((scope, name))
        return True

    def set_metadata(self, scope: str, name: str, key: str, value: Any) -> bool:
        assert key == "lifetime"
        if scope not in self.server.scopes:
            raise rucio.AccessDenied(f"Account dcops can not add metadata to data identifier {scope}:{name}")
        if (scope, name) not in self.server.datasets:
            raise rucio.DataIdentifierNotFound(f"Data identifier {scope}:{name} not found")
        self.server.expired[scope, name] = naive(self.server.clock.now() + timedelta(seconds=value))
        return True

    def get_metadata(self, scope: str, name: str) -> Row:
        return {"is_open": (scope, name) in self.server.opened}

    def get_metadata_bulk(self, dids: Iterable[Row], plugin: str) -> Iterator[Row]:
        assert plugin == "DID_COLUMN"  # unless told, older clients ask for what has none of the columns
        for did in dids:
            yield {**did, "expired_at": self.server.expired.get((did["scope"], did["name"]))}

    def list_did_rules(self, scope: str, name: str) -> Iterator[Row]:
        yield from (r.row for r in self.server.rules.values() if (r.row["scope"], r.row["name"]) == (scope, name))

    def list_dataset_replicas(self, scope: str, name: str, deep: bool = False) -> Iterator[Row]:
        assert deep
        yield from (row for rse in self.server.rses if (row := self.server.replica(scope, name, rse)))

    def list_files(self, scope: str, name: str) -> Iterator[Row]:
        if (scope, name) not in self.server.datasets:
            raise rucio.DataIdentifierNotFound(f"Data identifier '{scope}:{name}' not found")
        yield from super().list_files(scope, name)
