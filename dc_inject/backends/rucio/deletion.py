"""The one place from which Rucio is asked to end rules and let datasets go: each is proved to be ours first."""

from __future__ import annotations

from dc_inject.backends.rucio.connection import Connection
from dc_inject.backends.rucio.dids import Did
from dc_inject.model import deletion


def end_rule(connection: Connection, rule: deletion.Rule, *, keep_replicas: bool) -> None:
    """Let a rule of ours expire now; raises NotOurs before anything is asked, or ServiceError.

    `keep_replicas` is for a rule that found files there: ending it with purge would delete another user's cache.
    """
    address = deletion.address(rule)
    if keep_replicas:
        connection.call("delete_replication_rule", address, purge_replicas=False, writes=True)
    connection.call("update_replication_rule", address, {"lifetime": 0}, writes=True)


def let_go(connection: Connection, dataset: deletion.DatasetOfOurs, seconds: int) -> None:
    """Let a dataset of ours live for so many seconds from now; raises NotOurs or ServiceError."""
    did = Did.read(deletion.address(dataset))
    connection.call("set_metadata", did.scope, did.name, "lifetime", seconds, writes=True)
