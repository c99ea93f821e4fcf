"""Which hosts credentials may be sent to: those that a person has named. A menu, or what it includes, names none.

Tokens are sent to FTS and to storages, and a proxy is delegated to FTS; either can be used by whoever gets it.
A certificate alone proves who we are and gives nothing away, so storages opened with one need no naming.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from dc_inject.model import urls
from dc_inject.model.errors import UsageError

TRUST = "DC_INJECT_TRUST"
ENDPOINT = "DC_INJECT_FTS_ENDPOINT"


class Destinations:
    """The hosts that a person has named: by name, by URL, or as `*.example.org`; this machine needs none."""

    def __init__(self, named: Iterable[str] | Mapping[str, str]) -> None:
        """Take the names, perhaps with what named each; raises UsageError for one that would be everybody."""
        by = _by(named)
        self._named = {
            host: by[name] for name in reversed([*by]) if (host := host_of(name))
        }  # the first one counts
        for name in self._named:
            if "*" in name and (not name.startswith("*.") or "*" in name[1:] or name.count(".") < 2):
                raise UsageError(f"{name!r} cannot be trusted as a whole", "name hosts, or *.example.org")

    @property
    def named(self) -> Mapping[str, str]:
        """Hosts that were named, with what named each."""
        return self._named

    @classmethod
    def of(cls, environ: Mapping[str, str], named: Iterable[str] | Mapping[str, str] = ()) -> Destinations:
        """Return those of the environment, and those named besides."""
        listed = environ.get(TRUST, "").replace(",", " ").split()
        return cls({**_by(named), **dict.fromkeys(listed, TRUST), environ.get(ENDPOINT, ""): ENDPOINT})

    def why(self, url: str) -> str:
        """Return what names the host of a URL, for people; nothing if credentials must not go there."""
        return "this machine" if urls.is_loopback(host_of(url)) else self._by(url)

    def allow(self, url: str) -> bool:
        """Return whether credentials may go to the host of a URL."""
        return bool(self.why(url))

    def is_named(self, url: str) -> bool:
        """Return whether a person has named the host of a URL: also of one on this machine."""
        return bool(self._by(url))

    def require(self, url: str, what: str) -> None:
        """Raise UsageError where credentials must not go to the host of a URL; `what` would be sent."""
        if not self.allow(url):
            raise UsageError(refusal(url, what), hint(url))

    def _by(self, url: str) -> str:
        host = host_of(url)
        return next((by for name, by in self._named.items() if fnmatchcase(host, name)), "")


def refusal(url: str, what: str) -> str:
    """Say what is not sent, and to whom."""
    return f"{what} would go to {host_of(url)}, which only the menu names"


def hint(url: str) -> str:
    """Say how a person names the host."""
    host = host_of(url)
    return f"if you trust it: `dc-inject --trust-host {host} ...`, or {TRUST}={host}"


def is_plain(host: str) -> bool:
    """Return whether a host is one name or address: what a person is asked about has to be what is meant."""
    return re.fullmatch(r"[a-z0-9_.:-]+", host) is not None


def _by(named: Iterable[str] | Mapping[str, str]) -> Mapping[str, str]:
    return named if isinstance(named, Mapping) else dict.fromkeys(named, "named")


def host_of(name: str) -> str:
    """Return the host of a URL, or of `host` or `host:port`, in small letters."""
    text = name.strip()
    try:
        return (urlsplit(text if "://" in text else f"//{text}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""
