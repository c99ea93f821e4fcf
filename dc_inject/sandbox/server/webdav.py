"""Rucio's WebDAV protocol for storages on this machine: plain http, no certificate, nothing asked beforehand."""

from __future__ import annotations

from typing import Any

import requests
from rucio.common import exception
from rucio.rse.protocols import webdav


class Loopback(webdav.Default):  # type: ignore[misc]  # Rucio's server is not installed where mypy runs
    """Rucio's own wants https, an X509 proxy, an answer before each bunch of deletions, and 204 after each."""

    def connect(self, credentials: dict[str, Any] | None = None) -> None:  # noqa: ARG002 (the signature is Rucio's)
        """Make a session; a storage that is away is found out by the first request."""
        self.session = requests.Session()
        self.session.trust_env = False
        self.cert, self.timeout = None, 30

    def path2pfn(self, path: str) -> str:
        """Return the address of a path; an address stays what it is."""
        return path if path.startswith("http://") else super().path2pfn(path)

    def delete(self, pfn: str) -> None:
        """Delete a file; XRootD answers 200."""
        try:
            answer = self.session.delete(self.path2pfn(pfn), timeout=self.timeout)
        except requests.RequestException as error:
            raise exception.ServiceUnavailable(error) from error
        if answer.status_code == requests.codes.not_found:
            raise exception.SourceNotFound
        if not answer.ok:
            raise exception.ServiceUnavailable(f"{answer.status_code} {answer.text}")
