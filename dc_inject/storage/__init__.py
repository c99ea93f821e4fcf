"""What the tool itself does at a storage: list, stat, delete, make folders, and ask what is allowed.

`Storages` gives a `Storage` for every scheme that `dc_inject.model.urls` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from dc_inject.model import urls
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

StorageAt = Callable[[str], Storage]  # gives the storage of a URL


class Storages:
    """Gives the storage that speaks the scheme of a URL; root:// only where the XRootD library is installed."""

    def __init__(
        self,
        webdav: WebDav,
        make_xrootd: Callable[[], Xrootd] = Xrootd,
        may_open: Callable[[str], None] = lambda _url: None,
    ) -> None:
        """Take the one for HTTP, and how to make the other one when the first root:// comes.

        `may_open` is asked each time, and raises a ServiceError where credentials must not be seen.
        """
        self._may_open = may_open
        self._webdav = webdav
        self._make_xrootd = make_xrootd
        self._xrootd: Xrootd | None = None
        self._lock = Lock()

    def __call__(self, url: str) -> Storage:
        """Return the storage of a URL, for one call; raises Permanent for a URL that cannot be one."""
        scheme = canonical(url).scheme
        self._may_open(url)
        if scheme not in urls.XROOTD:
            return self._webdav
        with self._lock:
            self._xrootd = self._xrootd or self._make_xrootd()
            return self._xrootd
