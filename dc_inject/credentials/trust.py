"""Whom a person trusts with credentials while a command goes on: by its call, by a ledger, or when asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

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
from dc_inject.model import Campaign, Link
from dc_inject.model.errors import MenuError, Problem, ServiceError
from dc_inject.model.events import Observer
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Clock
from dc_inject.system.clock import SystemClock

HERE = "command line"
ANSWERED = "answered for this campaign"
WHAT = "your token (or a proxy delegated from yours)"
PURPOSES: tuple[Purpose, ...] = ("source", "destination")
End = tuple[Purpose, str]


class Trust:
    """The hosts that a person has named, and those that they allow when they are asked."""

    def __init__(
        self,
        environ: Mapping[str, str],
        sandbox: Callable[[], Collection[str]] = frozenset,
        agree: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Take what the environment names, and what returns the addresses of this user's own sandbox.

        `agree` asks the person a question, and returns False where nobody can answer.
        """
        self._environ = environ
        self._sandbox = sandbox
        self._agree = agree
        self._named: dict[str, str] = {}

    def name(self, *hosts: str, by: str = HERE) -> None:
        """Trust hosts, or those of URLs, that were named on the command line or in a ledger."""
        for host in filter(None, hosts):
            self._named.setdefault(host, by)

    def destinations(self) -> Destinations:
        """Return the hosts that were named, in this call and in the environment, and the sandbox of this user."""
        return Destinations.of(self._environ, self._named, self._sandbox)

    def ask(self, opened: Iterable[End], endpoint: str, *, whose: str = "This menu") -> tuple[str, ...]:
        """Ask once whether credentials may go to hosts that nobody has named.

        Returns the hosts that were allowed, which count from then on, to be kept in the campaign's ledger. Where
        nobody can be asked, or at a no, they are refused later, as a host is that is not a plain name. An address
        with plain http is refused, too: it has to be named.
        """
        trusted = self.destinations()

        def unnamed(addresses: Iterable[str]) -> set[str]:
            return {host_of(url) for url in addresses if not (is_unencrypted(url) or trusted.allow(url))}

        fts = unnamed({endpoint} - {""})
        storages = unnamed(self._with_token(opened)) - fts
        new = [*filter(is_plain, sorted(fts)), *filter(is_plain, sorted(storages))]
        listed = ", ".join(f"{host} (FTS)" if host in fts else host for host in new)
        if not new or not self._agree(f"{whose} sends {WHAT} to: {listed}. Allow it for this campaign?"):
            return ()
        self.name(*new, by=ANSWERED)
        return tuple(new)

    def require(self, opened: Iterable[End]) -> None:
        """Raise UsageError for the first storage that would get a token, and that nobody has named."""
        trusted = self.destinations()
        for url in sorted(self._with_token(opened)):
            trusted.require(url, "your token")

    def listed(self, opened: Iterable[End], endpoint: str) -> dict[str, dict[str, str]]:
        """Return where credentials would go: by what is sent, each host once, with what names it (or nothing)."""
        trusted = self.destinations()
        kinds = {
            f"{WHAT} goes to FTS": {endpoint} - {""},
            "your token goes to storages": self._with_token(opened, none=True),
        }
        return {
            label: {place_of(url): trusted.why(url) for url in sorted(urls, key=place_of)}
            for label, urls in kinds.items()
            if urls
        }

    def admit(self, campaign: Campaign) -> None:
        """Raise MenuError for storages that would get a token, and that nobody but a menu has named."""
        trusted = self.destinations()
        opened = ends(flow.link for flow in campaign.flows)
        urls = {url for url in self._with_token(opened) if not trusted.allow(url)}
        uses = ((flow, url) for flow in campaign.flows for url in flow.link[:2] if url in urls)
        if problems := {
            Problem(flow.menu, flow.line, refusal(url, "your token"), hint(url)) for flow, url in uses
        }:
            raise MenuError(sorted(problems))

    def _with_token(self, opened: Iterable[End], *, none: bool = False) -> set[str]:
        """Return the storages that are opened with a token; or with `none`, too, that have no credentials yet."""
        credentials, kinds = Credentials(self._environ, SystemClock()), dict[Purpose, str]()
        for purpose in PURPOSES:
            try:
                kinds[purpose] = credentials.access(purpose).kind
            except ServiceError:  # whoever uses them raises it; until then there are none
                kinds[purpose] = "nothing"
        wanted = {"token", "nothing"} if none else {"token"}
        return {url for purpose, url in opened if kinds[purpose] in wanted}


@dataclass(frozen=True, slots=True)
class Wanted:
    """For what a back end is needed.

    `timeout` is in seconds; `endpoint` is that of FTS, where a menu or a ledger names it. `origin` goes into what
    is made. `trusted` are the hosts that credentials may go to, and `warn` takes what a person should mend.
    """

    campaign: str
    clock: Clock
    observer: Observer
    timeout: float
    endpoint: str
    origin: Origin | None
    trusted: Destinations
    warn: Callable[[Iterable[str]], None]


def ends(links: Iterable[Link], *purposes: Purpose) -> set[End]:
    """Return the ends of links through FTS, with what they are opened for; without purposes both ends."""
    wanted = purposes or PURPOSES
    return {
        (purpose, getattr(link, purpose))
        for link in links
        if link.service.ends_are_urls
        for purpose in wanted
        if purpose == "source" or not link.service.reads
    }


def hosts(urls_named: Iterable[str]) -> list[str]:
    """Return the hosts of URLs that were named, as a ledger keeps them, each once."""
    return sorted({place_of(url) for url in urls_named if url})
