"""Whether Rucio's daemons have anything to do, by one cheap query each; never no where they would find some."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from rucio.db.sqla import models
from rucio.db.sqla.constants import DatabaseOperationType, ReplicaState, RequestState, RuleState
from rucio.db.sqla.session import db_session
from sqlalchemy import ColumnElement, DateTime, Select, and_, bindparam, or_, select
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


def some(statement: Select) -> bool:
    """Whether a query finds anything now."""
    with db_session(DatabaseOperationType.READ) as session:
        return session.execute(statement, {"now": _now()}).first() is not None


def rows(column: ColumnElement, *conditions: ColumnElement) -> Callable[[], bool]:
    """Make the question whether there is a row of a column's table that fulfils the conditions."""
    return partial(some, select(column).where(*conditions).limit(1))


dids = rows(models.UpdatedDID.id)
collections = rows(models.UpdatedCollectionReplica.id)
rse_counters = rows(models.UpdatedRSECounter.id)
account_counters = rows(models.UpdatedAccountCounter.id)
injected_rules = rows(models.ReplicationRule.id, models.ReplicationRule.state == RuleState.INJECT)
stuck_rules = rows(models.ReplicationRule.id, models.ReplicationRule.state == RuleState.STUCK)
requests = rows(models.Request.id)
queued = rows(models.Request.id, models.Request.state == RequestState.QUEUED)
# waiting for the finisher is what is neither to be submitted nor on its way
ended = rows(models.Request.id, models.Request.state.not_in([RequestState.QUEUED, RequestState.SUBMITTED]))
# the time of a rule, or of a dataset or file, is over
expired_rules = rows(models.ReplicationRule.id, models.ReplicationRule.expires_at < _NOW)
expired_dids = rows(models.DataIdentifier.name, models.DataIdentifier.expired_at < _NOW)


def submitted(transfertool: str) -> set[str]:
    """Return the ids of the requests that were submitted to a transfertool and have not ended for Rucio."""
    theirs = models.Request.transfertool == transfertool
    with db_session(DatabaseOperationType.READ) as session:
        query = select(models.Request.id).where(models.Request.state == RequestState.SUBMITTED, theirs)
        return set(session.execute(query).scalars())


_FILE = models.RSEFileAssociation
_GOES = and_(_FILE.tombstone < _NOW, _FILE.lock_cnt == 0)
_REPLICAS_TO_DELETE = select(_FILE.rse_id).where(or_(_GOES, _FILE.state == ReplicaState.BEING_DELETED)).distinct()


def rses_to_clear() -> list[str]:
    """Return the ids of the RSEs at which files may go, or whose deletion has begun."""
    with db_session(DatabaseOperationType.READ) as session:
        return list(session.execute(_REPLICAS_TO_DELETE, {"now": _now()}).scalars())
