"""Whether Rucio's daemons have anything to do, by one cheap query each; never no where they would find some."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from rucio.db.sqla import models
from rucio.db.sqla.constants import DatabaseOperationType, ReplicaState, RequestState, RuleState
from rucio.db.sqla.session import db_session
from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import aliased

_STORAGE, _RUCIO = aliased(models.RSEUsage), aliased(models.RSEUsage)

# Where a storage is said to hold something else than Rucio knows of: RSE, used and free bytes, Rucio's bytes.
STORAGE_USAGE = select(_STORAGE.rse_id, _STORAGE.used, _STORAGE.free, _RUCIO.used).where(
    _STORAGE.rse_id == _RUCIO.rse_id,
    _STORAGE.source == "storage",
    _RUCIO.source == "rucio",
    _STORAGE.used != _RUCIO.used,
)


def some(statement: Select) -> bool:
    """Whether a query finds anything."""
    with db_session(DatabaseOperationType.READ) as session:
        return session.execute(statement.limit(1)).first() is not None


def rows(column: ColumnElement, *conditions: ColumnElement) -> bool:
    """Whether there is a row of a column's table that fulfils the conditions."""
    return some(select(column).where(*conditions))


def _now() -> datetime:
    return datetime.now(tz=UTC).replace(tzinfo=None)


dids = partial(rows, models.UpdatedDID.id)
collections = partial(rows, models.UpdatedCollectionReplica.id)
rse_counters = partial(rows, models.UpdatedRSECounter.id)
account_counters = partial(rows, models.UpdatedAccountCounter.id)
injected_rules = partial(rows, models.ReplicationRule.id, models.ReplicationRule.state == RuleState.INJECT)
stuck_rules = partial(rows, models.ReplicationRule.id, models.ReplicationRule.state == RuleState.STUCK)
queued = partial(rows, models.Request.id, models.Request.state == RequestState.QUEUED)
# waiting for the finisher is what is neither to be submitted nor on its way
ended = partial(
    rows, models.Request.id, models.Request.state.not_in([RequestState.QUEUED, RequestState.SUBMITTED])
)


def expired_rules() -> bool:
    """Whether the time of a rule is over."""
    return rows(models.ReplicationRule.id, models.ReplicationRule.expires_at < _now())


def expired_dids() -> bool:
    """Whether the time of a dataset or file is over."""
    return rows(models.DataIdentifier.name, models.DataIdentifier.expired_at < _now())


def submitted(transfertool: str) -> set[str]:
    """Return the ids of the requests that were submitted to a transfertool and have not ended for Rucio."""
    theirs = models.Request.transfertool == transfertool
    with db_session(DatabaseOperationType.READ) as session:
        query = select(models.Request.id).where(models.Request.state == RequestState.SUBMITTED, theirs)
        return set(session.execute(query).scalars())


def replicas_to_delete() -> Select:
    """Make the query for the RSEs at which files may go, or whose deletion has begun."""
    file = models.RSEFileAssociation
    goes = and_(file.tombstone < _now(), file.lock_cnt == 0)
    return select(file.rse_id).where(or_(goes, file.state == ReplicaState.BEING_DELETED)).distinct()
