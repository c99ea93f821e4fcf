"""A storage accessed over WebDAV: davs:// and https://, and http:// on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from dc_inject.model import deletion, units, urls
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.storage import listing
from dc_inject.storage.http_transport import Answer, HttpTransport, canonical, walk
from dc_inject.storage.listing import DavResponse, Unreadable
from dc_inject.storage.types import MOST_ENTRIES, VERBS, Body, DirEntry, FileStatus, Later, NotFound, Reach

log = logging.getLogger(__name__)

SLOWEST = 100_000  # bytes/s: what is written more slowly is given up
_GONE = frozenset({404, 410})
_XML = {"Content-Type": 'text/xml; charset="utf-8"'}


@dataclass(slots=True)
class _Folder:
    """The answer to one PROPFIND: the thing itself, what is right below it, and how many rows were neither."""

    itself: DavResponse | None
    children: list[DirEntry]
    strangers: int


class WebDav(HttpTransport):
    """A `Storage` over WebDAV; it is made with what `HttpTransport` takes."""

    def list(self, url: str, depth: int | None = None, limit: int = MOST_ENTRIES) -> Iterator[DirEntry]:
        """Give what lies below a folder, as in `Storage`; a folder that goes meanwhile is left out."""

        def read(where: str, most: int) -> Sequence[DirEntry]:
            folder = self._read_folder(where, most)
            if folder.itself is None or not folder.itself.folder:
                raise Permanent(f"PROPFIND {where}: it is not a folder, or the storage does not list it")
            return folder.children

        return walk("PROPFIND", str(canonical(url)), depth, limit, read)

    def stat(self, url: str, *, checksum: bool = False) -> FileStatus:
        """Ask by HEAD, as in `Storage`."""
        headers = {"Want-Digest": "adler32"} if checksum else {}
        with self.ask("HEAD", url, headers) as answer:
            if answer.status in _GONE:
                return FileStatus(exists=False)
            if answer.status != 200:
                raise answer.error()
            size = listing.number(answer.headers.get("Content-Length", ""))
            return FileStatus(True, size, listing.adler32(answer.headers.get("Digest", "")))

    def put(self, url: str, body: Body) -> None:
        """Write a file by PUT, as in `Writable`; it is streamed, and no piece of it is kept."""
        headers = {"Content-Type": "application/octet-stream"}
        with self.ask("PUT", url, headers, body, more=len(body) / SLOWEST) as answer:
            if answer.status not in {200, 201, 204}:
                raise answer.error()

    def delete(self, file: deletion.StoredFile) -> bool:
        """Delete one file, as in `Storage`."""
        return self._delete(file)

    def delete_folder_if_empty(self, folder: deletion.StoredFolder) -> bool:
        """Delete a folder only after its listing showed nothing: some servers delete all that is in it."""
        where = deletion.address(folder)
        try:
            listed = self._read_folder(f"{where}/", MOST_ENTRIES, follow=False)
        except NotFound:
            return True
        if listed.children or listed.strangers:
            return False
        if listed.itself is None or not listed.itself.folder:
            raise Permanent(f"DELETE {where}: not done, as the storage does not show that it is an empty folder")
        self._delete(folder, "/")
        return True

    def make_folders(self, url: str, below: str) -> None:
        """Make a folder with MKCOL, and those above it first where they are missing."""
        where, top = str(canonical(url)), str(canonical(below))
        if not urls.is_below(top, where):
            raise Permanent(f"MKCOL {where}: not below {top}")
        error = self._make_folder(where)
        if isinstance(error, NotFound) and urls.is_below(top, urls.parent(where)):
            self.make_folders(urls.parent(where), top)
            error = self._make_folder(where)
        if error is not None:
            raise error

    def reachable(self, url: str) -> Reach:
        """Ask by PROPFIND of the thing alone, as in `Storage`."""
        with self.ask("PROPFIND", url, {"Depth": "0", **_XML}, listing.SPACE) as answer:
            if answer.status in _GONE:
                return Reach(exists=False)
            first: DavResponse | None = None
            for response in self._rows(answer, url):
                first = first or response
            if first is None or first.status in _GONE:
                return Reach(exists=False)
            return Reach(True, first.folder, first.free, first.nearline)

    def verbs(self, url: str) -> Mapping[str, bool | None]:
        """Ask by OPTIONS, as in `Storage`.

        XRootD allows MKCOL and COPY without listing them: what its list leaves out is not known.
        """
        with self.ask("OPTIONS", url) as answer:
            if answer.status not in {200, 204}:
                raise answer.error()
            allowed = {verb.strip().upper() for verb in answer.headers.get("Allow", "").split(",")} - {""}
            partial = not allowed or answer.headers.get("Server", "").lower().startswith("xrootd")
        return {verb: True if verb in allowed else None if partial else False for verb in VERBS}

    def _make_folder(self, where: str) -> ServiceError | None:
        with self.ask("MKCOL", f"{where}/") as answer:
            if answer.status not in {200, 201, 405}:  # 405: it is there already
                return answer.error()
            return None

    def _delete(self, thing: deletion.StoredFile | deletion.StoredFolder, slash: str = "") -> bool:
        """Delete what is proved to be ours; the only place from which a storage is asked to."""
        where = f"{deletion.address(thing)}{slash}"
        with self.ask("DELETE", where) as answer:
            if answer.status in _GONE:
                return False
            if answer.status == 202:
                raise Later(f"DELETE {where}: the storage will do it later", "look again")
            if answer.status not in {200, 204}:
                raise answer.error()
            return True

    def _read_folder(self, where: str, most: int, *, follow: bool = True) -> _Folder:
        with self.ask("PROPFIND", where, {"Depth": "1", **_XML}, listing.BODY, follow=follow) as answer:
            folder = _Folder(None, [], 0)
            here = _names(answer.path)
            for row in self._rows(answer, where):
                below = _below(row.href, here, {answer.host, canonical(where).host})
                if below == []:
                    folder.itself = row
                elif below is None or len(below) > 1 or (child := _child(where, below[0], row)) is None:
                    folder.strangers += 1
                elif row.status not in _GONE:
                    folder.children.append(child)
                if len(folder.children) + folder.strangers > most:
                    raise Permanent(f"PROPFIND {where}: too many entries", "use a folder with fewer entries")
        if folder.strangers:
            log.warning(
                "ignored, because it is not directly below %s: %s",
                where,
                units.counted(folder.strangers, "entries", "entry"),
            )
        return folder

    def _rows(self, answer: Answer, url: str) -> Iterator[DavResponse]:
        if answer.status != 207:
            raise answer.error()
        try:
            yield from listing.rows(answer.body())
        except Unreadable as error:
            text = f"PROPFIND {canonical(url)}: the answer cannot be read: {error}"
            refusal: ServiceError = Temporary(text) if error.cut else Permanent(text)
            raise refusal from None


def _names(path: str) -> list[bytes]:
    """Return the decoded names that a path is made of."""
    return [urls.unquote(name) for name in path.split("/") if name]


def _below(href: str, here: list[bytes], hosts: set[str]) -> list[bytes] | None:
    """Return the names by which an href is below a folder, or None if it is elsewhere.

    An href may be a path or a whole URL. XRootD writes names without any code, so no # or ? ends a path.
    """
    scheme, separator, rest = href.partition("://")
    if separator and "/" not in scheme:
        place, _, path = rest.partition("/")
        try:
            host = urlsplit(f"//{place}").hostname
        except ValueError:
            return None
        if host not in hosts:
            return None
    elif href.startswith("/"):
        path = href
    else:
        return None
    names = _names(path)
    odd = any(name in {b".", b".."} or b"/" in name for name in names)
    return None if odd or names[: len(here)] != here else names[len(here) :]


def _child(where: str, name: bytes, row: DavResponse) -> DirEntry | None:
    """Return one entry of a folder under its canonical URL; None for a name that no URL can have."""
    try:
        url = urls.normal(f"{where}/{urls.quote(name)}")
    except ValueError:
        return None
    return DirEntry(url, row.folder, row.bytes, row.adler32, row.modified, row.nearline)
