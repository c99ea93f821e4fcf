"""All of Rucio's daemons, round-robin in one process and one thread, so that a grid fits on a laptop.

Run in the server's environment with the sandbox's folder as the only argument. Ends on SIGTERM, at the latest
after the daemon that is at work. While a file `pause` stands in the folder it does nothing; `passes` counts
what it has done, so that others can wait for a whole pass without asking a clock.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rucio.common.config import config_get_list
from rucio.core import heartbeat, rse, transfer
from rucio.daemons.abacus import account, collection_replica
from rucio.daemons.abacus import rse as abacus_rse
from rucio.daemons.conveyor import finisher, poller, submitter
from rucio.daemons.judge import cleaner, evaluator, injector, repairer
from rucio.daemons.reaper import reaper
from rucio.daemons.undertaker import undertaker
from rucio.db.sqla import models
from rucio.db.sqla.constants import DatabaseOperationType, ReplicaState
from rucio.db.sqla.session import db_session
from sqlalchemy import and_, or_, select

from .network import Network
from .rest import Rest, under_way
from .transfertool import LinkTransfertool, at_host

log = logging.getLogger("sandbox")


class NoWait(threading.Event):
    """Stands in for a daemon's stop event: one worker need not wait for the heartbeats of others."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 (the signature is threading's)
        """Return at once."""
        return self.is_set()


def alone() -> None:
    """Make the daemons believe that they are the only workers, which they are, and not wait for others."""
    me = {"assign_thread": 0, "nr_threads": 1}
    heartbeat.sanity_check = lambda *_, **__: None
    heartbeat.live = lambda *_, **__: me
    heartbeat.die = lambda *_, **__: None
    heartbeat.list_payload_counts = lambda *_, **__: {}
    for module in (evaluator, injector, repairer, cleaner, collection_replica):
        module.graceful_stop = NoWait()


def refresh_storage_usage() -> None:
    """Keep `storage` usage at what Rucio thinks is there; the sum of used and free, the space, stays."""
    with db_session(DatabaseOperationType.WRITE) as session:
        for row in rse.list_rses(session=session):
            usage = {entry["source"]: entry for entry in rse.get_rse_usage(row["id"], session=session)}
            storage, known = usage.get("storage"), usage.get("rucio")
            if storage and known and storage["used"] != known["used"]:
                free = max(0, storage["used"] + storage["free"] - known["used"])
                rse.set_rse_usage(row["id"], "storage", known["used"], free, session=session)


def delete_replicas() -> None:
    """Call the reaper for the RSEs that have something to delete; asking every RSE is half of an idle pass."""
    due = and_(
        models.RSEFileAssociation.tombstone < datetime.now(tz=UTC).replace(tzinfo=None),
        models.RSEFileAssociation.lock_cnt == 0,
    )
    begun = models.RSEFileAssociation.state == ReplicaState.BEING_DELETED
    with db_session(DatabaseOperationType.READ) as session:
        rses = session.execute(
            select(models.RSEFileAssociation.rse_id).where(or_(due, begun)).distinct()
        ).scalars()
        names = [rse.get_rse_name(rse_id, session=session) for rse_id in rses]
    if names:
        reaper.reaper(rses=names, include_rses=None, exclude_rses=None, once=True, greedy=True, chunk_size=1000)


def poll(transfertool: str) -> None:
    """Call the poller for the transfers of one transfertool; it cannot tell several apart."""
    poller.poller(
        once=True,
        partition_wait_time=0,
        older_than=0,
        db_bulk=2000,
        transfertool=transfertool,
        filter_transfertool=transfertool,
    )


DAEMONS: dict[str, Callable[[], object]] = {
    "judge-evaluator": lambda: evaluator.re_evaluator(once=True, did_limit=1000),
    "abacus-collection-replica": lambda: collection_replica.collection_replica_update(once=True, limit=2000),
    "judge-injector": lambda: injector.rule_injector(once=True),
    "conveyor-submitter": lambda: submitter.submitter(once=True, partition_wait_time=0, bulk=500),
    "conveyor-poller": lambda: poll("mock"),
    "conveyor-finisher": lambda: finisher.finisher(once=True, partition_wait_time=0, bulk=500),
    "judge-repairer": lambda: repairer.rule_repairer(once=True),
    "judge-cleaner": lambda: cleaner.rule_cleaner(once=True),
    "undertaker": lambda: undertaker.undertaker(once=True, chunk_size=100),
    "reaper": delete_replicas,
    "abacus-rse": lambda: abacus_rse.rse_update(once=True),
    "abacus-account": lambda: account.account_update(once=True),
    "storage-usage": refresh_storage_usage,
}


def one_pass(stopped: Callable[[], bool]) -> None:
    """Call every daemon once; trouble of one is logged and does not stop the others."""
    for name, daemon in DAEMONS.items():
        if stopped():
            return
        try:
            if not name.startswith("conveyor-") or under_way():  # else they are half of what a pass costs
                daemon()
        except Exception:
            log.exception("%s failed in this pass", name)


def unsettled() -> int:
    """Count what the daemons still have to do before the datasets added are candidates."""
    with db_session(DatabaseOperationType.READ) as session:
        return sum(session.query(table).count() for table in (models.UpdatedDID, models.UpdatedCollectionReplica))


def tell(passes: Path, done: int, *, paused: bool) -> None:
    """Write what has been done, and what is still to do; a database that is away does not end us either."""
    try:
        waiting = unsettled()
    except Exception:
        log.exception("what waits cannot be counted now")
    else:
        passes.write_text(json.dumps({"passes": done, "paused": paused, "waiting": waiting}))


def main(folder: Path) -> None:
    """Run passes until SIGTERM."""
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    settings: dict[str, Any] = json.loads((folder / "daemons.json").read_text())
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    alone()
    LinkTransfertool.network = Network(folder / "links.json")
    transfer.TRANSFERTOOL_CLASSES_BY_NAME["mock"] = LinkTransfertool
    transfer.FTS3Transfertool = at_host  # Rucio cancels through FTS whatever the transfertool is
    if "fts3" in config_get_list("conveyor", "transfertool"):
        DAEMONS["conveyor-poller-fts"] = lambda: poll("fts3")
    pause, passes = folder / "pause", folder / "passes"
    rest = Rest(settings["interval"], folder / "hurry")
    done = 0
    while not stop.is_set():
        paused = pause.exists()
        if not paused:
            one_pass(stop.is_set)
            done += 1
        tell(passes, done, paused=paused)
        rest.wait(stop)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
