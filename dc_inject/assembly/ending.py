"""The end by hand is put together: a ledger without menus, and the services of what it has made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dc_inject.assembly.starting import Connect
from dc_inject.credentials import trust as trusting
from dc_inject.credentials.trust import Trust
from dc_inject.ledger import Ledger, LedgerView, Reader, files, ledger_files
from dc_inject.ledger.lock import ENDS, InUse
from dc_inject.model import FlowKey
from dc_inject.model.errors import LedgerError, Permanent
from dc_inject.model.events import Silent
from dc_inject.model.ports import Backend, Clock
from dc_inject.model.services import DEFAULT, FTS, SERVICES
from dc_inject.system.account import who


def find_shards_to_end(
    campaign: str, path: Path | None, covers: Callable[[FlowKey], bool], accept: Callable[[Reader], None]
) -> list[Path]:
    """Return the ledgers of those shards of a campaign that have flows to end; none where it is not in shards.

    `accept` raises if the campaign never had what is to end. Raises LedgerError while any shard has an injector.
    """
    whole = ledger_files.file_of(path or ledger_files.named(campaign), campaign)
    shards = files(whole)
    if shards in ([], [whole]):
        return []
    with LedgerView.open(whole) as view:
        accept(view)
        if holder := view.holder():
            raise LedgerError(f"{whole.stem} has an injector: {holder}", "end all of them first (Ctrl-C, SIGTERM)")

    def has_some(shard: Path) -> bool:
        with LedgerView.open(shard) as view:
            return any(covers(flow) for flow in view.accounts())

    return [shard for shard in shards if has_some(shard)] or shards


def prepare_end(
    stack: contextlib.ExitStack,
    campaign: str,
    path: Path | None,
    *,
    clock: Clock,
    connect: Connect,
    trust: Trust,
    timeout: float,
    sweeping: bool = False,
    accept: Callable[[Ledger], None] = lambda _: None,
) -> tuple[str, Ledger, Mapping[str, Backend]]:
    """Return a campaign's name, its ledger, held until the stack is closed, and the services of what it has made.

    `sweeping` needs FTS, too. `accept` raises if the campaign never had what is to end. Raises LedgerError with a
    way out if there is no ledger, and ServiceError for an account that is not the ledger's, or may not end rules.
    """
    try:
        file = ledger_files.existing(campaign, path)
    except LedgerError as error:
        name = "CAMPAIGN" if ledger_files.named(campaign) else campaign
        error.hint = f"if it is lost, `dc-inject ledger rebuild {name} MENUS` makes a new one; {error.hint}"
        raise
    ledger = stack.enter_context(Ledger.open(file))
    ledger_files.require_real(ledger)
    name = ledger_files.campaign_in(ledger, campaign, file)
    try:
        stack.enter_context(ledger.hold(who(), does=ENDS))
    except InUse as error:
        if error.injects:
            error.hint = (
                "an injector ends complete rules itself; to use `end`, end the injector first (Ctrl-C, SIGTERM)"
            )
        raise
    accept(ledger)
    # The address of FTS was named when the ledger was bound.
    named = (one.address for one in ledger.identities() if SERVICES[one.service].named_by_menus)
    endpoint = next(named, "")
    trust.name(endpoint, by="ledger")
    if ledger.campaign == name:
        trust.name(*ledger.trusted(), by=trusting.ANSWERED)
    places = trusting.ends((flow.link for flow in ledger.accounts()), "destination")  # sources are not opened
    ledger.trust(trust.ask(places, "", whose="Ending this campaign"), who(), clock.now())
    trust.require(places)
    services = {flow.link.through for flow in ledger.accounts()} | ({FTS.name} if sweeping else set())
    backends = connect(
        services or {DEFAULT.name},
        campaign=name,
        clock=clock,
        observer=Silent(),
        timeout=timeout,
        endpoint=endpoint,
        origin=None,
    )
    admit_to_end(backends.values(), ledger, clock)
    return name, ledger, backends


def admit_to_end(backends: Iterable[Backend], ledger: Ledger | None, clock: Clock) -> None:
    """Refuse another account than the ledger's, and one that may not end rules."""
    for backend in backends:
        identity = backend.check()
        if ledger is not None:
            ledger.identify(identity, clock.now())
        if identity.may_end is False:
            raise Permanent(
                f"{identity.account} may not end rules at {identity.service} ({identity.address})",
                "its rules end with their lifetime; an administrator of the service can end them earlier",
            )
