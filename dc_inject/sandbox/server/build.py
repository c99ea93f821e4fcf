"""Makes a grid in Rucio's catalogue: database, accounts, RSEs, distances, quotas, datasets, their pins.

Uses Rucio's core, as root, never REST.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from dogpile.cache import make_region
from rucio.common.types import InternalAccount, InternalScope
from rucio.core import (
    account,
    account_limit,
    config,
    did,
    identity,
    replica,
    rse,
    rse_expression_parser,
    rule,
    scope,
)
from rucio.db.sqla import models
from rucio.db.sqla.constants import (
    AccountType,
    DatabaseOperationType,
    DIDType,
    IdentityType,
    ReplicaState,
    RSEType,
)
from rucio.db.sqla.session import db_session, get_engine
from rucio.db.sqla.util import build_database, create_base_vo, create_root_account
from sqlalchemy import ColumnElement, delete, insert, inspect, text, tuple_, update
from sqlalchemy.orm import Session

ROOT = InternalAccount("root")
PIN = InternalAccount("production")
EMAIL = "sandbox@example.org"
PLENTY = 10**18  # bytes; what those get who only set things up
MOST_FILES = 500  # Rucio asks for all files of a call in one condition, and SQLite takes a depth of 1,000


@contextmanager
def remembering() -> Iterator[None]:
    """Let Rucio remember RSEs and settings inside the block; it asks for them for every single file."""
    before = {module: module.REGION for module in (config, rse, rse_expression_parser, rule)}
    for module in before:
        module.REGION = make_region().configure("dogpile.cache.memory")
    try:
        yield
    finally:
        for module, region in before.items():
            module.REGION = region


def ensure_database() -> None:
    """Make the tables, the VO and root unless they are there.

    SQLite gets WAL mode, without which its readers and writers block each other.
    """
    if inspect(get_engine()).has_table(models.Account.__tablename__):
        return
    if get_engine().dialect.name == "sqlite":
        with get_engine().connect() as connection:
            connection.execute(text("PRAGMA journal_mode=WAL"))
    build_database()
    create_base_vo()
    create_root_account()


def add_accounts(accounts: Iterable[dict[str, Any]], session: Session) -> None:
    """Add accounts; one with a password gets a userpass identity of the same name."""
    for wanted in accounts:
        name = InternalAccount(wanted["name"])
        account.add_account(name, AccountType[wanted["type"]], EMAIL, session=session)
        if wanted.get("password"):
            login = wanted["name"], IdentityType.USERPASS
            identity.add_identity(*login, EMAIL, wanted["password"], session=session)
            identity.add_account_identity(*login, name, EMAIL, default=True, session=session)
        scope.add_scope(InternalScope(f"user.{wanted['name']}"), name, session=session)


def add_rses(rses: Iterable[dict[str, Any]], quotas: dict[str, int], session: Session) -> None:
    """Add RSEs with attributes, protocol, space and quotas, at distance 1 from all others."""
    there = {row["rse"]: row["id"] for row in rse.list_rses(session=session)}
    distances: list[dict[str, Any]] = []
    for wanted in rses:
        rse_id = rse.add_rse(
            wanted["name"],
            rse_type=RSEType[wanted["type"]],
            availability_read=True,
            availability_write=True,
            availability_delete=True,
            session=session,
        )
        for key, value in wanted["attributes"].items():
            rse.add_rse_attribute(rse_id, key, value, session=session)
        rse.add_protocol(rse_id, _protocol(wanted["name"], wanted.get("address")), session=session)
        if wanted["space"] is not None:
            rse.set_rse_usage(rse_id, "storage", 0, wanted["space"], session=session)
        limits = {"root": PLENTY, "production": PLENTY} | quotas | wanted.get("quotas", {})
        set_quotas({wanted["name"]: limits}, session)
        pairs = [pair for other in there.values() for pair in ((rse_id, other), (other, rse_id))]
        distances += [{"src_rse_id": a, "dest_rse_id": b, "distance": 1} for a, b in pairs]
        there[wanted["name"]] = rse_id
    if distances:  # all at once: there may be hundreds
        session.execute(insert(models.Distance), distances)


def set_quotas(quotas: dict[str, dict[str, int]], session: Session) -> None:
    """Set the quotas, in bytes, of accounts at RSEs that are there; -1 is no limit."""
    for name, limits in quotas.items():
        rse_id = rse.get_rse_id(name, session=session)
        for owner, limit in limits.items():
            account_limit.set_local_account_limit(InternalAccount(owner), rse_id, limit, session=session)


def add_datasets(source: str, datasets: list[dict[str, Any]], session: Session) -> None:
    """Add closed datasets with their files at `source`, pinned there by bulk rules without lifetime."""
    files = 0
    batch: list[dict[str, Any]] = []
    for dataset in datasets:
        files += len(dataset["files"])
        if batch and files > MOST_FILES:
            _add_some(source, batch, session)
            files, batch = len(dataset["files"]), []
        batch.append(dataset)
    if batch:
        _add_some(source, batch, session)


def _add_some(source: str, datasets: list[dict[str, Any]], session: Session) -> None:
    """Add a large dataset, or small ones with so few files that Rucio's queries fit SQLite's limits."""
    rse_id = rse.get_rse_id(source, session=session)
    files, attachments, owned, sums = [], [], [], []
    for dataset in datasets:
        where = InternalScope(dataset["scope"])
        members = [{"adler32": "0cc737eb", **file, "scope": where} for file in dataset["files"]]
        files += members
        owned.append({"scope": where, "name": dataset["name"], "type": DIDType.DATASET})
        size = sum(file["bytes"] for file in members)
        sums.append({"scope": where, "name": dataset["name"], "bytes": size, "length": len(members)})
        attachments += [{"scope": where, "name": dataset["name"], "dids": part} for part in _parts(members)]
    did.add_dids(owned, ROOT, session=session)
    for part in _parts(files):
        replica.add_replicas(rse_id, part, ROOT, session=session)
    did.attach_dids_to_dids(attachments, ROOT, session=session)
    _close(sums, session)
    rule.add_rule(
        [{"scope": row["scope"], "name": row["name"]} for row in owned],
        PIN, 1, source, "DATASET", None, None, False, None,
        comment="pinned at its source by the sandbox",
        session=session,
    )  # fmt: skip
    _sum_up(sums, rse_id, session)


def _close(datasets: list[dict[str, Any]], session: Session) -> None:
    """Close new datasets, and give them their bytes and lengths.

    Rucio does so one by one, and judge-evaluator later would look at every file of every rule.
    """
    closed = {"is_open": False, "closed_at": datetime.now(tz=UTC).replace(tzinfo=None), "events": 0}
    session.execute(update(models.DataIdentifier), [row | closed for row in datasets])
    association = models.DataIdentifierAssociation
    session.execute(update(association).where(_of(association, datasets)).values(rule_evaluation=None))
    session.execute(delete(models.UpdatedDID).where(_of(models.UpdatedDID, datasets)))


def _sum_up(datasets: list[dict[str, Any]], rse_id: str, session: Session) -> None:
    """Enter that all of new datasets is at the RSE, which abacus-collection-replica would find out one by one."""
    session.flush()  # what a rule leaves to do
    complete = {"rse_id": rse_id, "state": ReplicaState.AVAILABLE}
    sums = [
        {**row, **complete, "available_bytes": row["bytes"], "available_replicas_cnt": row["length"]}
        for row in datasets
    ]
    session.execute(update(models.CollectionReplica), sums)
    to_do = models.UpdatedCollectionReplica
    session.execute(delete(to_do).where(_of(to_do, datasets)))


def _of(table: Any, datasets: list[dict[str, Any]]) -> ColumnElement[bool]:  # noqa: ANN401 (any of Rucio's)
    """Make the condition that a row is of one of the datasets; other scopes may have their names too."""
    return tuple_(table.scope, table.name).in_([(row["scope"], row["name"]) for row in datasets])


def _parts(files: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [files[at : at + MOST_FILES] for at in range(0, len(files), MOST_FILES)]


def _protocol(name: str, address: dict[str, Any] | None) -> dict[str, Any]:
    everything = dict.fromkeys(("read", "write", "delete"), 1)
    mock = {
        "scheme": "mock",
        "hostname": name.lower().replace("_", "-") + ".example.org",
        "port": 0,
        "prefix": "/store",
        "impl": "rucio.rse.protocols.mock.Default",
    }
    real = {"scheme": "http", "impl": "sandbox_server.webdav.Loopback", **(address or {})}
    return {
        **(real if address else mock),
        "domains": {
            "lan": everything,
            "wan": everything | {"third_party_copy_read": 1, "third_party_copy_write": 1},
        },
    }


def build(wanted: Mapping[str, Any], report: Callable[[str], None]) -> None:
    """Build what is wanted, and report each step."""
    accounts, rses = wanted.get("accounts", []), wanted.get("rses", [])
    with remembering():
        with db_session(DatabaseOperationType.WRITE) as session:
            add_accounts(accounts, session)
            for name in wanted.get("scopes", []):
                scope.add_scope(InternalScope(name), ROOT, session=session)
            add_rses(rses, wanted.get("quotas", {}), session)
            set_quotas(wanted.get("new_quotas", {}), session)
        if accounts or rses:
            report(f"{len(accounts)} accounts, {len(rses)} RSEs")
        for source, datasets in wanted.get("datasets", {}).items():
            with db_session(DatabaseOperationType.WRITE) as session:
                add_datasets(source, datasets, session)
            report(f"{source}: {len(datasets)} datasets")
