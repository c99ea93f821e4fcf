"""Which hosts credentials may be sent to: those that a person has named. A menu, or what it includes, names none.

Tokens are sent to FTS and to storages, and a proxy is delegated to FTS; either can be used by whoever gets it.
A certificate alone proves who we are and gives nothing away, so storages opened with one need no naming.

This machine is a host like any other: another user may listen on its ports. Over plain http, which is possible
only here, a person has to name the very address, host and port. The one exception is a running sandbox of theirs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from dc_inject.model import urls
from dc_inject.model.errors import UsageError

TRUST = "DC_INJECT_TRUST"
ENDPOINT = "DC_INJECT_FTS_ENDPOINT"


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
    """Say how a person names the host."""
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
