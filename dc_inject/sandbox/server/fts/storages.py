"""The HTTP that a storage is spoken to with, over connections that stay open and are used again."""

from __future__ import annotations

import asyncio
import base64
import errno
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from .failures import DESTINATION, CopyFailed, of_status
from .settings import Json, Knobs

_SCHEMES = {"http": "http", "dav": "http", "https": "https", "davs": "https"}
_KEPT_FOLDERS = 100_000


@dataclass(frozen=True)
class Found:
    """The answer to HEAD of a file: its size in bytes, and its checksum in hexadecimal when it was asked for."""

    size: int
    checksum: str | None


class Storages:
    """All storages. Every wait has a deadline: that of the settings for one silence."""

    def __init__(self, knobs: Knobs, authority: Path) -> None:
        """Take times from the settings; the certificate of the authority is trusted where there is one."""
        trust = ssl.create_default_context(cafile=authority if authority.exists() else None)
        self._knobs = knobs
        self._session = aiohttp.ClientSession(
            # how many at a time is decided before: a copy holds one connection, one request after the other
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15, ssl=trust),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "dc_inject-sandbox-fts"},
        )
        self._looking: WeakValueDictionary[URL, asyncio.Lock] = WeakValueDictionary()
        self._folders: set[URL] = set()
        self._making: dict[str, asyncio.Lock] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def look(self, end: str, url: URL, token: str | None, algorithm: str | None) -> Found | None:
        """Look at a file; None when it is not there. Raises CopyFailed.

        One at a time for the same file, so that a checksum that has to be computed is computed once.
        """
        headers = _bearer(token) | ({"Want-Digest": algorithm} if algorithm else {})
        lock = self._looking.setdefault(url, asyncio.Lock())
        async with lock, self.request(end, "HEAD", url, headers) as answer:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise of_status(end, answer.status)
            return Found(int(answer.headers.get("Content-Length", 0)), _digest(answer, algorithm))

    async def modified(self, url: URL, token: str | None) -> float | None:
        """Return when a file was last changed, in seconds since 1970; None: it is not there. Raises CopyFailed."""
        async with self.request(DESTINATION, "PROPFIND", url, _bearer(token) | {"Depth": "0"}) as answer:
            if answer.status == 404:
                return None
            if answer.status != 207:
                raise of_status(DESTINATION, answer.status)
            match = re.search(r"getlastmodified[^<>]{0,80}>([^<>]{1,80})<", await answer.text())
        if not match:
            raise CopyFailed(DESTINATION, errno.EIO, "The storage does not give the time of the last change")
        return parsedate_to_datetime(match[1]).timestamp()

    async def delete(self, url: URL, token: str | None) -> None:
        """Delete a file; that it is not there is fine. Raises CopyFailed."""
        async with self.request(DESTINATION, "DELETE", url, _bearer(token)) as answer:
            if answer.status not in (200, 202, 204, 404):
                raise of_status(DESTINATION, answer.status)

    async def ask(self, end: str, url: str, token: str | None, body: Json | None = None) -> Json:
        """Ask a tape system, with POST where there is a body. Raises CopyFailed."""
        method = "GET" if body is None else "POST"
        async with self.request(end, method, URL(url, encoded=True), _bearer(token), body) as answer:
            if answer.status >= 400:
                raise of_status(end, answer.status)
            return await answer.json() if answer.content_type == "application/json" else None

    async def make_parent(self, url: URL, token: str | None) -> None:
        """Make the folders above a file, once. Raises CopyFailed."""
        folder = url.parent
        if folder in self._folders or folder.raw_path in ("", "/"):
            return
        async with self._making.setdefault(str(url.origin()), asyncio.Lock()):
            if folder not in self._folders:
                await self._make(folder, token)

    def forget_parent(self, url: URL) -> None:
        """Believe no longer that the folder of a file is there."""
        self._folders.discard(url.parent)

    async def _make(self, folder: URL, token: str | None) -> None:
        for _ in range(2):
            async with self.request(DESTINATION, "MKCOL", folder, _bearer(token)) as answer:
                status = answer.status
            if status in (200, 201, 405):  # 405: it is there already
                if len(self._folders) >= _KEPT_FOLDERS:
                    self._folders.clear()
                self._folders.add(folder)
                return
            if status != 409 or folder.parent.raw_path in ("", "/"):
                break
            await self._make(folder.parent, token)
        raise of_status(DESTINATION, status)

    @asynccontextmanager
    async def request(
        self, end: str, method: str, url: URL, headers: dict[str, str], body: Json | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask a storage; what goes wrong below HTTP becomes CopyFailed of that end."""
        settings = self._knobs.now
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=settings.connect_timeout, sock_read=settings.idle_timeout
        )
        try:
            async with self._session.request(
                method, url, headers=headers, json=body, allow_redirects=True, timeout=timeout
            ) as answer:
                yield answer
        except aiohttp.ClientConnectorError:
            text = "Result (Neon): Could not connect to server after 1 attempts"
            raise CopyFailed(end, errno.EHOSTDOWN, text) from None
        except TimeoutError:
            text = f"Result (Neon): Connection timed out, no answer within {settings.idle_timeout:g} s"
            raise CopyFailed(end, errno.ETIMEDOUT, text) from None
        except aiohttp.ClientError as error:
            text = f"Result (Neon): Connection lost ({type(error).__name__})"
            raise CopyFailed(end, errno.ECONNRESET, text) from None


def address(end: str, surl: str) -> URL:
    """Return the HTTP address of a file; raises CopyFailed for a scheme that is none of HTTP's."""
    scheme, _, rest = surl.partition("://")
    if scheme not in _SCHEMES:
        raise CopyFailed(end, errno.EPROTONOSUPPORT, f"Protocol not supported or path/url invalid: {scheme}")
    return URL(f"{_SCHEMES[scheme]}://{rest}", encoded=True)


def _bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _digest(answer: aiohttp.ClientResponse, algorithm: str | None) -> str | None:
    header: str = answer.headers.get("Digest", "")
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if algorithm and name.lower() == algorithm:
            if algorithm == "adler32":
                return value.strip().lower().rjust(8, "0")
            return base64.b64decode(value).hex() if value.endswith("=") else value.strip().lower()
    return None
