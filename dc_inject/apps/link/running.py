"""A mini-challenge while it runs: its menu is written, its link injects, and each cycle is shown in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from dc_inject.apps.link import mini_challenge, verdicts
from dc_inject.apps.link.climbing import Climbing
from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.apps.link.reachability import Reachability
from dc_inject.credentials import trust
from dc_inject.engine.assembly import WrapMenus
from dc_inject.ledger import Ledger, ledger_files
from dc_inject.ledger.paths import make_folder
from dc_inject.model import Campaign, units
from dc_inject.model.errors import LedgerError
from dc_inject.model.holds import format_numbers
from dc_inject.model.ports import Clock
from dc_inject.summary import standing
from dc_inject.system import account, files

log = logging.getLogger(__name__)

# A step is judged by at least one cycle: who stops for longer than two of these can cost it what it may lack.
LOOKS = 10  # in a cycle, whether storages accept connections
OFTEN = timedelta(seconds=1)  # between two of them, at least


def write_menu(challenge: MiniChallenge, *, force: bool) -> Path:
    """Write the menu into the state folder."""
    path = verdicts.menu_file(challenge.campaign)
    try:
        make_folder(path.parent)
    except OSError as error:
        raise LedgerError(
            f"{path.parent} cannot be created: {error.strerror or error}", "check XDG_STATE_HOME"
        ) from None
    # One without a ledger is left from a start that failed.
    files.write_whole(path, challenge.text(), force=force or path.exists())
    return path


def carry_out(
    challenge: MiniChallenge,
    progress: Progress,
    storages: Reachability,
    inject: Callable[[WrapMenus], bool],
) -> bool:
    """Inject, and judge the step that was cut short; `inject` gets what changes the menus.

    Returns what `inject` returns: False if it was stopped.
    """
    climbs: list[Climbing] = []
    named = [*challenge.link[:2], challenge.options.endpoint or ""] if challenge.link.service.ends_are_urls else []

    def wrap_menus(menus: Callable[[], Campaign], ledger: Ledger, clock: Clock) -> Callable[[], Campaign]:
        ledger.keep_challenge("asked", challenge.for_ledger(), clock.now())
        ledger.trust(trust.hosts(named), account.who(), clock.now())  # for `end`, if it has to be called for it
        climbs.append(
            Climbing(
                menus,
                ledger=ledger,
                clock=clock,
                progress=progress,
                who=f"dc-inject link of {account.who()}",
                on_cycle=lambda: _show(ledger, challenge),
                patience=mini_challenge.PATIENCE,
                classify=classify,
                down=storages.down,
            )
        )
        return climbs[0]

    with storages.watched(max(challenge.cycle / LOOKS, OFTEN)):
        finished = inject(wrap_menus)
    with Ledger.open(ledger_files.file_of(None, challenge.campaign)) as ledger:
        climbs[0].finish(ledger, challenge.key)
    return finished


def classify(reason: str) -> str:
    """Return the class of what Rucio says of files that failed: it quotes FTS."""
    from dc_inject.backends.fts import failed_files  # noqa: PLC0415  only when something has failed

    where = re.search(r"\b(?:SOURCE|DESTINATION|TRANSFER)\b", reason[:1000])
    return failed_files.classify("FAILED", reason[where.start() : 1000] if where else reason[:1000])


def _show(ledger: Ledger, challenge: MiniChallenge) -> None:
    """Log what the line about a cycle does not say: the numbers of a hold, and how much of ours is there."""
    if rows := standing.rows(ledger):
        cycle = ledger.last_cycle()
        if cycle is not None and (since := standing.joined(ledger, cycle)):
            log.info("%s", standing.late_start(units.format_time(since)))
        for row in rows:
            if row["numbers"]:
                log.info("held by %s: %s", row["held"], format_numbers(row["numbers"]))
        ours = verdicts.resident(ledger)
        here, most = units.format_size(ours), units.format_size(challenge.space)
        values = {"destination": challenge.link.destination, "bytes": ours, "most": challenge.space}
        log.info(
            "our data at or on the way to %s: %s of %s",
            challenge.link.destination, here, most,
            extra={"event": "resident", "fields": values},
        )  # fmt: skip
