"""Which of Rucio's daemons have anything to do, by one query for all; never no where they would find some."""

from __future__ import annotations

from datetime import UTC, datetime

from rucio.db.sqla import models
from rucio.db.sqla.constants import DatabaseOperationType, ReplicaState, RequestState, RuleState
from rucio.db.sqla.session import db_session, get_engine
from sqlalchemy import DateTime, Select, and_, bindparam, or_, select
from sqlalchemy.orm import aliased

_STORAGE, _RUCIO = aliased(models.RSEUsage), aliased(models.RSEUsage)

# Where the usage of a storage differs from the bytes that Rucio knows: RSE, used and free bytes, Rucio's bytes.
STORAGE_USAGE = select(_STORAGE.rse_id, _STORAGE.used, _STORAGE.free, _RUCIO.used).where(
    _STORAGE.rse_id == _RUCIO.rse_id,
    _STORAGE.source == "storage",
    _RUCIO.source == "rucio",
    _STORAGE.used != _RUCIO.used,
)


_NOW = bindparam("now", type_=DateTime)  # each query is made once: to make it costs more than to ask it


def _now() -> datetime:
    return datetime.now(tz=UTC).replace(tzinfo=None)


_RULE, _REQUEST, _FILE = models.ReplicationRule, models.Request, models.RSEFileAssociation
_GOES = and_(_FILE.tombstone < _NOW, _FILE.lock_cnt == 0)
_SUBMITTED = select(_REQUEST.id).where(_REQUEST.state == RequestState.SUBMITTED)

# What each daemon has to do; and `requests`, what is on its way or waits for it.
QUERIES: dict[str, Select] = {
    "judge-evaluator": select(models.UpdatedDID.id),
    "abacus-collection-replica": select(models.UpdatedCollectionReplica.id),
    "judge-injector": select(_RULE.id).where(_RULE.state == RuleState.INJECT),
    "conveyor-submitter": select(_REQUEST.id).where(_REQUEST.state == RequestState.QUEUED),
    "conveyor-poller": _SUBMITTED.where(_REQUEST.transfertool == "mock"),
    "conveyor-poller-fts": _SUBMITTED.where(_REQUEST.transfertool == "fts3"),
    # what is neither to be submitted nor on its way
    "conveyor-finisher": select(_REQUEST.id).where(
        _REQUEST.state.not_in([RequestState.QUEUED, RequestState.SUBMITTED])
    ),
    "judge-repairer": select(_RULE.id).where(_RULE.state == RuleState.STUCK),
    "judge-cleaner": select(_RULE.id).where(_RULE.expires_at < _NOW),
    "undertaker": select(models.DataIdentifier.name).where(models.DataIdentifier.expired_at < _NOW),
    # RSEs at which files may go, or whose deletion has begun
    "reaper": select(_FILE.rse_id).where(or_(_GOES, _FILE.state == ReplicaState.BEING_DELETED)).distinct(),
    "abacus-rse": select(models.UpdatedRSECounter.id),
    "abacus-account": select(models.UpdatedAccountCounter.id),
    "storage-usage": STORAGE_USAGE,
    "requests": select(_REQUEST.id),
}
_ALL = select(*(query.exists() for query in QUERIES.values()))


def ask() -> set[str]:
    """Return the names of the queries that find anything now."""
    with get_engine().connect() as connection:
        found = connection.execute(_ALL, {"now": _now()}).one()
    return {name for name, some in zip(QUERIES, found, strict=True) if some}


def find(name: str) -> set[str]:
    """Return the ids that a query finds now."""
    with db_session(DatabaseOperationType.READ) as session:
        return set(session.execute(QUERIES[name], {"now": _now()}).scalars())
