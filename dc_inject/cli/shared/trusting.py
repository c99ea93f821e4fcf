"""Which hosts a person has named, so that they may get credentials: in this call, before, or when asked."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from dc_inject.credentials import Credentials, Purpose
from dc_inject.credentials.destinations import (
    Destinations,
    hint,
    host_of,
    is_plain,
    is_unencrypted,
    place_of,
    refusal,
)
from dc_inject.ledger import LedgerView, files
from dc_inject.ledger.reading import Reader
from dc_inject.model import Campaign, Link
from dc_inject.model.errors import LedgerError, MenuError, Problem, ServiceError
from dc_inject.system.clock import SystemClock

TRUSTED = "dc_inject.trusted"  # in the meta of click's context: hosts and URLs that were named, and by what
OPTION = "--trust-host"
CONFIG = "configuration file"
HERE = "command line"
ANSWERED = "answered for this campaign"
LEDGER = "ledger"
WHAT = "your token (or a proxy delegated from yours)"

PURPOSES: tuple[Purpose, ...] = ("source", "destination")
End = tuple[Purpose, str]
log = logging.getLogger(__name__)


def name(*hosts: str, by: str = HERE) -> None:
    """Trust hosts, or those of URLs, that were named on the command line or in a ledger."""
    context = click.get_current_context(silent=True)
    if context is not None:
        named = context.meta.setdefault(TRUSTED, {})
        for host in filter(None, hosts):
            named.setdefault(host, by)


def destinations() -> Destinations:
    """Return the hosts that were named, in this call and in the environment, and the sandbox of this user."""
    context = click.get_current_context(silent=True)
    return Destinations.of(os.environ, {} if context is None else context.meta.get(TRUSTED, {}), _own_sandbox)


def _own_sandbox() -> frozenset[str]:
    """Return the addresses that this user's sandboxes serve: the usual one, and those whose files are in use."""
    from dc_inject.sandbox import default_folder, own_addresses  # noqa: PLC0415  few menus name this machine

    used = [Path(os.environ.get(name, "")).absolute() for name in ("RUCIO_CONFIG", "BEARER_TOKEN_FILE")]
    folders = {default_folder(), *(parent for path in used for parent in path.parents[:2])}
    return frozenset().union(*map(own_addresses, folders))


def hosts(urls_named: Iterable[str]) -> list[str]:
    """Return the hosts of URLs that were named, as a ledger keeps them, each once."""
    return sorted({place_of(url) for url in urls_named if url})


def recall(view: Reader, campaign: str) -> None:
    """Trust hosts that were answered for a campaign; a ledger of another one tells nothing."""
    if view.campaign == campaign:
        name(*view.trusted(), by=ANSWERED)


def recall_from(path: Path, campaign: str) -> None:
    """Trust hosts that were answered for a campaign, where it has a ledger."""
    if not files(path):
        return
    try:
        with LedgerView.open(path) as view:
            recall(view, campaign)
    except LedgerError as error:
        log.warning("cannot read where credentials may go: %s", error.message)


def ends(links: Iterable[Link], *purposes: Purpose) -> set[End]:
    """Return the ends of links through FTS, with what they are opened for; without purposes both ends."""
    wanted = purposes or PURPOSES
    return {
        (purpose, getattr(link, purpose)) for link in links if link.service.ends_are_urls for purpose in wanted
    }


def ask(opened: Iterable[End], endpoint: str, *, whose: str = "This menu") -> tuple[str, ...]:
    """Ask once, on a terminal, whether credentials may go to hosts that nobody has named.

    Returns the hosts that were allowed, which count from then on, to be kept in the campaign's ledger. Where
    nobody can be asked, or at a no, they are refused later, as a host is that is not a plain name. An address with
    plain http is refused, too: it has to be named.
    """
    trusted = destinations()

    def unnamed(addresses: Iterable[str]) -> set[str]:
        return {host_of(url) for url in addresses if not (is_unencrypted(url) or trusted.allow(url))}

    fts = unnamed({endpoint} - {""})
    storages = unnamed(_with_token(opened)) - fts
    new = [*filter(is_plain, sorted(fts)), *filter(is_plain, sorted(storages))]
    if not new or not _terminal():
        return ()
    from dc_inject.cli.shared.end_files import agreed  # noqa: PLC0415  costs the engine, for few who are asked

    listed = ", ".join(f"{host} (FTS)" if host in fts else host for host in new)
    if not agreed(f"{whose} sends {WHAT} to: {listed}. Allow it for this campaign?"):
        return ()
    name(*new, by=ANSWERED)
    return tuple(new)


def require(opened: Iterable[End]) -> None:
    """Raise UsageError for the first storage that would get a token, and that nobody has named."""
    trusted = destinations()
    for url in sorted(_with_token(opened)):
        trusted.require(url, "your token")


def listed(opened: Iterable[End], endpoint: str) -> dict[str, dict[str, str]]:
    """Return where credentials would go: by what is sent, each host once, with what names it (or nothing)."""
    trusted = destinations()
    kinds = {
        f"{WHAT} goes to FTS": {endpoint} - {""},
        "your token goes to storages": _with_token(opened, none=True),
    }
    return {
        label: {place_of(url): trusted.why(url) for url in sorted(urls, key=place_of)}
        for label, urls in kinds.items()
        if urls
    }


def admit(campaign: Campaign) -> None:
    """Raise MenuError for storages that would get a token, and that nobody but a menu has named."""
    trusted = destinations()
    urls = {url for url in _with_token(ends(flow.link for flow in campaign.flows)) if not trusted.allow(url)}
    uses = ((flow, url) for flow in campaign.flows for url in flow.link[:2] if url in urls)
    if problems := {Problem(flow.menu, flow.line, refusal(url, "your token"), hint(url)) for flow, url in uses}:
        raise MenuError(sorted(problems))


def _with_token(opened: Iterable[End], *, none: bool = False) -> set[str]:
    """Return the storages that are opened with a token; or with `none`, too, that have no credentials yet."""
    credentials, kinds = Credentials(os.environ, SystemClock()), dict[Purpose, str]()
    for purpose in PURPOSES:
        try:
            kinds[purpose] = credentials.access(purpose).kind
        except ServiceError:  # told by whoever uses them; until then there are none
            kinds[purpose] = "nothing"
    wanted = {"token", "nothing"} if none else {"token"}
    return {url for purpose, url in opened if kinds[purpose] in wanted}


def _terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()
