"""What the tool itself does at a storage: list, stat, delete, make folders, and ask what is allowed.

`AnyStorage` is a `Storage` for every scheme that `dc_inject.model.urls` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock

from dc_inject.model import deletion, urls
from dc_inject.storage.http_transport import canonical, trust
from dc_inject.storage.types import (
    MOST_ENTRIES,
    VERBS,
    Access,
    AccessDenied,
    Body,
    DirEntry,
    FileStatus,
    Later,
    NotFound,
    OnTape,
    Reach,
    Storage,
    Writable,
)
from dc_inject.storage.webdav import WebDav
from dc_inject.storage.xrootd import Xrootd

__all__ = [
    "MOST_ENTRIES",
    "VERBS",
    "Access",
    "AccessDenied",
    "AnyStorage",
    "Body",
    "DirEntry",
    "FileStatus",
    "Later",
    "NotFound",
    "OnTape",
    "Reach",
    "Storage",
    "WebDav",
    "Writable",
    "Xrootd",
    "trust",
]


class AnyStorage:
    """Gives each URL to whoever speaks its scheme; root:// only where the XRootD library is installed."""

    def __init__(
        self,
        webdav: WebDav,
        make_xrootd: Callable[[], Xrootd] = Xrootd,
        may_open: Callable[[str], None] = lambda _url: None,
    ) -> None:
        """Take the one for HTTP, and how to make the other one when the first root:// comes.

        `may_open` is asked before each call, and raises a ServiceError where credentials must not be seen.
        """
        self._may_open = may_open
        self._webdav = webdav
        self._make_xrootd = make_xrootd
        self._xrootd: Xrootd | None = None
        self._lock = Lock()

    def close(self) -> None:
        """Close all connections."""
        self._webdav.close()

    def list(self, url: str, depth: int | None = None, limit: int = MOST_ENTRIES) -> Iterator[DirEntry]:
        """See `Storage`."""
        return self._of(url).list(url, depth, limit)

    def stat(self, url: str, *, checksum: bool = False) -> FileStatus:
        """See `Storage`."""
        return self._of(url).stat(url, checksum=checksum)

    def delete(self, file: deletion.StoredFile) -> bool:
        """See `Storage`."""
        return self._of(deletion.address(file)).delete(file)

    def delete_folder_if_empty(self, folder: deletion.StoredFolder) -> bool:
        """See `Storage`."""
        return self._of(deletion.address(folder)).delete_folder_if_empty(folder)

    def make_folders(self, url: str, below: str) -> None:
        """See `Storage`."""
        self._of(url).make_folders(url, below)

    def reachable(self, url: str) -> Reach:
        """See `Storage`."""
        return self._of(url).reachable(url)

    def verbs(self, url: str) -> Mapping[str, bool | None]:
        """See `Storage`."""
        return self._of(url).verbs(url)

    def _of(self, url: str) -> Storage:
        scheme = canonical(url).scheme
        self._may_open(url)
        if scheme not in urls.XROOTD:
            return self._webdav
        with self._lock:
            self._xrootd = self._xrootd or self._make_xrootd()
            return self._xrootd
