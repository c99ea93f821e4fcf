"""A storage accessed over root:// or roots:// (with TLS), where the extra `xrootd` is installed.

The XRootD library finds its credentials itself (X509_USER_PROXY, BEARER_TOKEN, BEARER_TOKEN_FILE).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dc_inject.model import deletion, urls
from dc_inject.model.causes import Peer
from dc_inject.model.errors import Permanent, ServiceError, blame, make_service_error
from dc_inject.model.faults import Facts, judge
from dc_inject.model.redaction import scrub
from dc_inject.storage import listing
from dc_inject.storage.http_transport import canonical, walk
from dc_inject.storage.types import MOST_ENTRIES, VERBS, AccessDenied, DirEntry, FileStatus, NotFound, Reach

_MISSING, _NOT_AUTHENTICATED = 3011, 3030
# The HTTP status that means the same as a code of XRootD's; of another one the request may be made again.
_STATUSES = dict.fromkeys((3000, 3006, 3008, 3014, 3016, 3017, 3018, 3021, 3025), 400) | {
    3003: 423,
    3009: 507,
    3010: 403,
    _MISSING: 404,
    3013: 501,
    _NOT_AUTHENTICATED: 401,
}
_CLIENT_AUTHENTICATION = 204  # the library's own code


def load() -> tuple[Any, Any]:
    """Return the client and its flags; raises Permanent with a hint where the library is not installed."""
    try:
        client, flags = (importlib.import_module(name) for name in ("XRootD.client", "XRootD.client.flags"))
    except ImportError:
        raise Permanent(
            "root:// needs the XRootD library, which is not installed",
            "pip install 'dc-inject[xrootd]', or use davs:// for the same storage",
        ) from None
    client.EnvPutInt("TimeoutResolution", 1)  # with its 15 seconds, a call may last twice as long as it is given
    return client, flags


class Xrootd:
    """A `Storage` over root://."""

    def __init__(self, *, timeout: int = 60, modules: Callable[[], tuple[Any, Any]] = load) -> None:
        """Take seconds that a call may last; `modules` gives the library."""
        self._client, self._flags = modules()
        self._timeout = timeout

    def close(self) -> None:
        """Do nothing: the library keeps its own connections."""

    def list(self, url: str, depth: int | None = None, limit: int = MOST_ENTRIES) -> Iterator[DirEntry]:
        """Give what lies below a folder, as in `Storage`."""

        def read(where: str, most: int) -> Sequence[DirEntry]:
            entries = self._entries(where)
            if len(entries) > most:
                raise Permanent(f"dirlist {where}: too many entries", "use a folder with fewer entries")
            return self._children(where, entries)

        return walk("dirlist", str(canonical(url)), depth, limit, read)

    def stat(self, url: str, *, checksum: bool = False) -> FileStatus:
        """Ask by stat, and by a query for the checksum."""
        try:
            info = self._ask("stat", url, lambda files, path: files.stat(path, timeout=self._timeout))
        except NotFound:
            return FileStatus(exists=False)
        adler32 = ""
        if checksum:
            code = self._flags.QueryCode.CHECKSUM
            query = self._ask("checksum", url, lambda files, path: files.query(code, path, timeout=self._timeout))
            adler32 = listing.adler32(_text(query).replace("adler32 ", "adler32=", 1))
        return FileStatus(True, int(info.size), adler32)

    def delete(self, file: deletion.StoredFile) -> bool:
        """Delete one file; XRootD refuses it for a folder."""
        try:
            self._ask("rm", deletion.address(file), lambda files, path: files.rm(path, timeout=self._timeout))
        except NotFound:
            return False
        return True

    def delete_folder_if_empty(self, folder: deletion.StoredFolder) -> bool:
        """Delete a folder after its listing showed nothing; XRootD itself refuses one with something in it."""
        url = deletion.address(folder)
        try:
            if self._entries(url):
                return False
            self._ask("rmdir", url, lambda files, path: files.rmdir(path, timeout=self._timeout))
        except NotFound:
            return True
        return True

    def make_folders(self, url: str, below: str) -> None:
        """Make a folder and those above it."""
        where, top = str(canonical(url)), str(canonical(below))
        if not urls.is_below(top, where):
            raise Permanent(f"mkdir {where}: not below {top}")
        if not self.reachable(top).exists:
            raise NotFound(f"mkdir {where}: {top} does not exist")
        flags = self._flags.MkDirFlags.MAKEPATH
        self._ask("mkdir", where, lambda files, path: files.mkdir(path, flags, timeout=self._timeout))

    def reachable(self, url: str) -> Reach:
        """Ask by stat, and for the space that is left."""
        try:
            info = self._ask("stat", url, lambda files, path: files.stat(path, timeout=self._timeout))
        except NotFound:
            return Reach(exists=False)
        code = self._flags.QueryCode.SPACE
        try:
            answer = self._ask("space", url, lambda files, path: files.query(code, path, timeout=self._timeout))
        except Permanent:  # not every storage reports it
            return Reach(True, self._is_folder(info), nearline=self._is_nearline(info))
        space = dict(part.partition("=")[::2] for part in _text(answer).split("&"))
        free = listing.number(space.get("oss.free", ""))
        return Reach(True, self._is_folder(info), free, self._is_nearline(info))

    def verbs(self, url: str) -> Mapping[str, bool | None]:
        """Return None for each verb: root:// has no request for it."""
        canonical(url)
        return dict.fromkeys(VERBS)

    def _entries(self, url: str) -> Sequence[Any]:
        flag = self._flags.DirListFlags.STAT
        entries = self._ask("dirlist", url, lambda files, path: files.dirlist(path, flag, timeout=self._timeout))
        return list(entries)

    def _children(self, url: str, entries: Sequence[Any]) -> Sequence[DirEntry]:
        """Return what a folder holds, without names that no URL can have: root:// has no codes for them."""
        above, children = str(canonical(url)), []
        for entry in entries:
            info = entry.statinfo
            try:
                where = urls.join(above, entry.name)
            except ValueError:
                continue
            if urls.parent(where) != above:
                continue
            if info is None:
                children.append(DirEntry(where, folder=False))
                continue
            folder = self._is_folder(info)
            modified = datetime.fromtimestamp(int(info.modtime), UTC)
            size, nearline = (None, None) if folder else (int(info.size), self._is_nearline(info))
            children.append(DirEntry(where, folder, size, "", modified, nearline))
        return children

    def _is_folder(self, info: Any) -> bool:  # noqa: ANN401  the library has no types
        return bool(info.flags & self._flags.StatInfoFlags.IS_DIR)

    def _is_nearline(self, info: Any) -> bool | None:  # noqa: ANN401  as above
        """Return whether a file is on tape only; None for a folder."""
        return None if self._is_folder(info) else bool(info.flags & self._flags.StatInfoFlags.OFFLINE)

    def _ask(self, request: str, url: str, call: Callable[[Any, str], tuple[Any, Any]]) -> Any:  # noqa: ANN401  as above
        where = canonical(url)
        status, result = call(self._client.FileSystem(f"{where.scheme}://{where.place}"), where.path or "/")
        if not status.ok:
            raise translated(f"{request} {where}", status)
        return result


def translated(request: str, status: Any) -> ServiceError:  # noqa: ANN401  the library has no types
    """Return the error that a status of the library means; `request` is what was asked, with its URL."""
    code, text = int(status.errno or 0), f"{request}: {scrub(str(status.message))}"
    if not code and int(status.code) == _CLIENT_AUTHENTICATION:
        code = _NOT_AUTHENTICATED
    fault = judge(Facts(peer=Peer.STORAGE, status=_STATUSES.get(code, 500), text=text))
    if code == _MISSING:
        return blame(NotFound(f"{request}: there is no such file or folder"), fault)
    if request.startswith("rm ") and fault.cause.hold == "credentials":
        return blame(Permanent(text, "you may not delete there, or not this file: ask the site"), fault)
    if fault.cause.hold == "credentials":
        return blame(AccessDenied(text, fault.hint, hold=fault.cause.hold), fault)
    return make_service_error(fault, text)


def _text(value: Any) -> str:  # noqa: ANN401  bytes, by the library's manners with a zero at the end
    raw = value if isinstance(value, bytes) else str(value).encode()
    return raw.decode("utf-8", "replace").strip("\0\n ")
