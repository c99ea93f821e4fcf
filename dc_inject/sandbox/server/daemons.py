"""All of Rucio's daemons, round-robin in one process and one thread, so that a grid fits on a laptop.

Run in the server's environment with the sandbox's folder as the only argument. Ends on SIGTERM, at the latest
after the daemon that is at work. While a file `pause` stands in the folder it calls none of them; `slow.json`
has the seconds between two calls of single daemons (`{"abacus-rse": 20}`); `passes` counts what it has done, so
that others can wait for a whole pass without asking a clock. It also makes the database, and builds what is
ordered for the catalogue (orders.py), paused or not: a process of its own would have to load all of Rucio.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
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
from rucio.db.sqla.constants import DatabaseOperationType
from rucio.db.sqla.session import db_session
from sqlalchemy.exc import OperationalError

from . import due
from .build import build, ensure_database
from .network import Network
from .orders import Orders
from .rest import LONGEST, QUIET, Rest
from .transfertool import LinkTransfertool, at_host

log = logging.getLogger("sandbox")


class NoWait(threading.Event):
    """Stands in for a daemon's stop event: one worker need not wait for the heartbeats of others."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 (the signature is threading's)
        """Return at once."""
        return self.is_set()


def alone() -> None:
    """Make the daemons believe that they are the only workers, which they are, and not wait for others."""
    heartbeat.sanity_check = lambda *_, **__: None
    heartbeat.live = lambda *_, **__: {"assign_thread": 0, "nr_threads": 1}
    heartbeat.die = lambda *_, **__: None
    heartbeat.list_payload_counts = lambda *_, **__: {}
    for module in (evaluator, injector, repairer, cleaner, collection_replica):
        module.graceful_stop = NoWait()


def refresh_storage_usage() -> None:
    """Set `storage` usage to the bytes in Rucio's catalogue; the sum of used and free, the space, stays."""
    with db_session(DatabaseOperationType.WRITE) as session:
        for rse_id, used, free, in_catalogue in session.execute(due.STORAGE_USAGE).all():
            rse.set_rse_usage(rse_id, "storage", in_catalogue, max(0, used + free - in_catalogue), session=session)


def delete_replicas() -> None:
    """Call the reaper for the RSEs that have something to delete; it would ask every RSE."""
    with db_session(DatabaseOperationType.READ) as session:
        names = [rse.get_rse_name(rse_id, session=session) for rse_id in due.find("reaper")]
    reaper.reaper(rses=names, include_rses=None, exclude_rses=None, once=True, greedy=True, chunk_size=1000)


def poll(transfertool: str) -> None:
    """Call the poller for the transfers of one transfertool; it cannot handle several."""
    only = {"transfertool": transfertool, "filter_transfertool": transfertool}
    poller.poller(once=True, partition_wait_time=0, older_than=0, db_bulk=2000, **only)


def poll_links() -> bool:
    """Call the poller if anything has happened on the links; returns whether it has."""
    if news := LinkTransfertool.has_news_of(due.find("conveyor-poller")):
        poll("mock")
    return news


# Each is called if its query in due.py finds anything: called in vain, most cost 5 to 10 ms of CPU.
DAEMONS: dict[str, Callable[[], object]] = {
    "judge-evaluator": lambda: evaluator.re_evaluator(once=True, did_limit=1000),
    "abacus-collection-replica": lambda: collection_replica.collection_replica_update(once=True, limit=2000),
    "judge-injector": lambda: injector.rule_injector(once=True),
    "conveyor-submitter": lambda: submitter.submitter(once=True, partition_wait_time=0, bulk=500),
    "conveyor-poller": poll_links,
    "conveyor-finisher": lambda: finisher.finisher(once=True, partition_wait_time=0, bulk=500),
    "judge-repairer": lambda: repairer.rule_repairer(once=True),
    "judge-cleaner": lambda: cleaner.rule_cleaner(once=True),
    "undertaker": lambda: undertaker.undertaker(once=True, chunk_size=100),
    "reaper": delete_replicas,
    "abacus-rse": lambda: abacus_rse.rse_update(once=True),
    "abacus-account": lambda: account.account_update(once=True),
    "storage-usage": refresh_storage_usage,
}

# Seconds between two calls of a daemon that finds again what it has just done: a stuck rule stays so for long.
RHYTHMS = {"judge-repairer": 6.0}


class Slow:
    """Calls single daemons less often than in every pass, as in production, where each has its own rhythm."""

    def __init__(self, file: Path) -> None:
        """Take the file with the seconds; without it all daemons are called in every pass."""
        self._file = file
        self._called: dict[str, float] = {}
        self.seconds = RHYTHMS

    def read(self) -> None:
        """Read the file again."""
        self.seconds = RHYTHMS | (json.loads(self._file.read_text()) if self._file.exists() else {})

    def skips(self, name: str) -> bool:
        """Whether a daemon's time has not come; otherwise it counts as called now."""
        now = time.monotonic()
        if now - self._called.get(name, -math.inf) < self.seconds.get(name, 0):
            return True
        self._called[name] = now
        return False


def run_daemons(stopped: Callable[[], bool], skips: Callable[[str], bool]) -> bool:
    """Call every daemon that has something to do, but those to be skipped; returns whether any did anything.

    Trouble of one stops no other.
    """
    worked, todo = False, None
    for name, daemon in DAEMONS.items():
        if stopped():
            break
        try:
            todo = due.ask() if todo is None else todo
            if name in todo and not skips(name):
                todo = None  # it may leave work for others
                worked |= daemon() is not False
        except Exception:
            log.exception("%s failed in this pass", name)
    return worked


def write_progress(passes: Path, done: int, slow: Slow, *, paused: bool) -> bool:
    """Write what has been done, and what is still to do; a database that is away does not end us either.

    Returns whether files are on their way, as far as known.
    """
    try:
        todo = due.ask()
    except Exception:
        log.exception("it is unknown what there is to do now")
        return False
    waiting = len(todo & {"judge-evaluator", "abacus-collection-replica"})  # until added datasets are candidates
    state = {"passes": done, "paused": paused, "waiting": waiting, "slow": slow.seconds, "daemons": [*DAEMONS]}
    passes.write_text(json.dumps(state))
    return "requests" in todo


def await_database(stop: threading.Event) -> None:
    """Make the database unless it is there; while it is away try again, until `stop` is set."""
    while not stop.is_set():
        try:
            ensure_database()
        except OperationalError as error:
            log.warning("the database does not answer yet: %s", error)
            stop.wait(1.0)
        else:
            return


def main(folder: Path) -> None:
    """Run passes until SIGTERM."""
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    settings: dict[str, Any] = json.loads((folder / "daemons.json").read_text())
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    await_database(stop)
    alone()
    LinkTransfertool.network = Network(folder / "links.json")
    transfer.TRANSFERTOOL_CLASSES_BY_NAME["mock"] = LinkTransfertool
    transfer.FTS3Transfertool = at_host  # Rucio cancels through FTS whatever the transfertool is
    if "fts3" in config_get_list("conveyor", "transfertool"):
        DAEMONS["conveyor-poller-fts"] = lambda: poll("fts3")
    pause, passes = folder / "pause", folder / "passes"
    orders, slow = Orders(folder / "orders", build), Slow(folder / "slow.json")
    done, paused = 0, False

    def is_awaited() -> bool:
        return (folder / "hurry").exists() or pause.exists() != paused or bool(orders.waiting())

    rest = Rest(settings["interval"], is_awaited)
    while not stop.is_set():
        orders.fulfil()
        paused = pause.exists()
        slow.read()
        busy = not paused and run_daemons(stop.is_set, slow.skips)
        done += not paused
        moving = write_progress(passes, done, slow, paused=paused)
        rest.wait(stop, idle=not busy, longest=LONGEST if moving else QUIET)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
