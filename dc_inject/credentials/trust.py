"""Which hosts credentials may be sent to: those that a person has named, by a call, in a ledger, or when asked.

A menu, or what it includes, names none.

Tokens are sent to FTS and to storages, and a proxy is delegated to FTS; either can be used by whoever gets it. A
certificate alone proves who we are and gives nothing away, so storages opened with one need no naming.

This machine is a host like any other: another user may listen on its ports. Over plain http, which is possible
only here, a person has to name the very address, host and port. The one exception is a running sandbox of theirs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from dc_inject.credentials import Credentials, Purpose
from dc_inject.model import Campaign, Link, urls
from dc_inject.model.errors import MenuError, Problem, ServiceError, UsageError
from dc_inject.model.events import Observer
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Clock
from dc_inject.system.clock import SystemClock

HERE = "command line"
ANSWERED = "answered for this campaign"
WHAT = "your token (or a proxy delegated from yours)"
PURPOSES: tuple[Purpose, ...] = ("source", "destination")
End = tuple[Purpose, str]
TRUST = "DC_INJECT_TRUST"
ENDPOINT = "DC_INJECT_FTS_ENDPOINT"


class Trust:
    """The hosts that a person has named, and those that they allow when they are asked."""

    def __init__(
        self,
        environ: Mapping[str, str],
        sandbox: Callable[[], Collection[str]] = frozenset,
        agree: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Take what the environment names, and what returns the addresses of this user's own sandbox.

        `agree` asks the person a question, and returns False where no user can answer.
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
        """Ask once whether credentials may go to hosts that the user has not named.

        Returns the hosts that were allowed, which count from then on, to be kept in the campaign's ledger. Where
        no user can be asked, or at a no, they are refused later, as a host is that is not a plain name. An address
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
        """Raise UsageError for the first storage that would get a token, and that the user has not named."""
        trusted = self.destinations()
        for url in sorted(self._with_token(opened)):
            trusted.require(url, "your token")

    def listed(self, opened: Iterable[End], endpoint: str) -> dict[str, dict[str, str]]:
        """Return where credentials would go: by what is sent, each host once, with what names it (or nothing)."""
        trusted = self.destinations()
        kinds = {
            f"{WHAT} would go to FTS": {endpoint} - {""},
            "a token of yours would go to storages": self._with_token(opened, none=True),
        }
        return {
            label: {place_of(url): trusted.why(url) for url in sorted(urls, key=place_of)}
            for label, urls in kinds.items()
            if urls
        }

    def admit(self, campaign: Campaign) -> None:
        """Raise MenuError for storages that would get a token, and that only a menu has named."""
        trusted = self.destinations()
        opened = ends(flow.link for flow in campaign.flows)
        urls = {url for url in self._with_token(opened) if not trusted.allow(url)}
        uses = ((flow, url) for flow in campaign.flows for url in flow.link.ends if url in urls)
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
    `workers` is the address of those that read; empty for workers on this machine.
    """

    campaign: str
    clock: Clock
    observer: Observer
    timeout: float
    endpoint: str
    origin: Origin | None
    trusted: Destinations
    warn: Callable[[Iterable[str]], None]
    workers: str = ""


def ends(links: Iterable[Link], *purposes: Purpose) -> set[End]:
    """Return the ends of links that are URLs, with what they are opened for; without purposes both ends."""
    return {
        (purpose, end)
        for link in links
        for purpose in purposes or PURPOSES
        if urls.is_url(end := getattr(link, purpose))
    }


def hosts(urls_named: Iterable[str]) -> list[str]:
    """Return the hosts of URLs that were named, as a ledger keeps them, each once."""
    return sorted({place_of(url) for url in urls_named if url})


class Destinations:
    """The hosts that a person has named: by name, by URL, as `*.example.org`, or as `127.0.0.1:PORT`."""

    def __init__(
        self, named: Iterable[str] | Mapping[str, str], sandbox: Callable[[], Collection[str]] = frozenset
    ) -> None:
        """Take the names, perhaps with what named each; raises UsageError for one that would be everybody.

        `sandbox` returns the addresses (`host:port`) that processes of this user's own sandbox serve.
        """
        by = _by(named)
        self._named = {key: by[name] for name in reversed([*by]) if (key := _key(name))}  # the first one counts
        self._sandbox = functools.cache(sandbox)
        for name in self._named:
            if "*" in name and (not name.startswith("*.") or "*" in name[1:] or name.count(".") < 2):
                raise UsageError(f"{name!r} cannot be trusted as a whole", "name hosts, or *.example.org")

    @property
    def named(self) -> Mapping[str, str]:
        """Hosts and addresses that were named, with what named each."""
        return self._named

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str],
        named: Iterable[str] | Mapping[str, str] = (),
        sandbox: Callable[[], Collection[str]] = frozenset,
    ) -> Destinations:
        """Return those of the environment, and those named besides."""
        listed = environ.get(TRUST, "").replace(",", " ").split()
        names = {**_by(named), **dict.fromkeys(listed, TRUST), environ.get(ENDPOINT, ""): ENDPOINT}
        return cls(names, sandbox)

    def why(self, url: str) -> str:
        """Return what names the host of a URL, for people; nothing if credentials must not go there."""
        host, address = host_of(url), _address(url)
        for name, by in self._named.items():
            if name == address or (not is_unencrypted(url) and fnmatchcase(host, name)):
                return by
        return "your sandbox" if urls.is_loopback(host) and address in self._sandbox() else ""

    def allow(self, url: str) -> bool:
        """Return whether credentials may go to the host of a URL."""
        return bool(self.why(url))

    def require(self, url: str, what: str) -> None:
        """Raise UsageError where credentials must not go to the host of a URL; `what` would be sent."""
        if not self.allow(url):
            raise UsageError(refusal(url, what), hint(url))


def place_of(url: str) -> str:
    """Return what a person has to name for a URL: its host, or `host:port` where the connection is plain http."""
    return _address(url) if is_unencrypted(url) else host_of(url)


def is_unencrypted(url: str) -> bool:
    """Return whether a URL is plain http, over which everybody who listens reads what is sent."""
    return url.strip().partition("://")[0].lower() in urls.LOOPBACK_ONLY


def refusal(url: str, what: str, by: str = "the menu") -> str:
    """Return a sentence: what is not sent, to which host, and what alone names that host."""
    plain = " over plain http" if is_unencrypted(url) else ""
    return f"{what} would go to {place_of(url)}{plain}, which only {by} names"


def hint(url: str) -> str:
    """Return how a person names the host."""
    place = place_of(url)
    return f"if you trust it: `dc-inject --trust-host {place} ...`, or {TRUST}={place}"


def is_plain(host: str) -> bool:
    """Return whether a host is one name or address: what a person is asked about has to be what is meant."""
    return re.fullmatch(r"[a-z0-9_.:-]+", host) is not None


def _by(named: Iterable[str] | Mapping[str, str]) -> Mapping[str, str]:
    return named if isinstance(named, Mapping) else dict.fromkeys(named, "named")


def host_of(name: str) -> str:
    """Return the host of a URL, or of `host` or `host:port`, in small letters."""
    return _parts(name)[1]


def _key(name: str) -> str:
    """Return what a name counts for: a host with TLS at any port, or one port of this machine."""
    scheme, host, port = _parts(name)
    one_port = urls.is_loopback(host) and port and scheme in {"", *urls.LOOPBACK_ONLY}
    return _address(name) if one_port else host


def _address(name: str) -> str:
    """Return `host:port` of a URL or a name; without a port it is that of the scheme."""
    _, host, port = _parts(name)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parts(name: str) -> tuple[str, str, int]:
    """Return scheme (or nothing), host and port (or 0) of a URL, of `host`, or of `host:port`."""
    text = name.strip()
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        port = parts.port or urls.PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", "", 0
    return parts.scheme, (parts.hostname or "").rstrip(".").lower(), port
