"""Parse the answer to PROPFIND as a stream, with bounds, and without the XML features that can be abused.

Properties: RFC 4918 and RFC 4331; checksums as dCache and ownCloud have them. Whether a file is on tape only is
`FileLocality` of SRM's name space (NEARLINE, ONLINE, ONLINE_AND_NEARLINE), as dCache's WebDAV documents it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from xml.parsers import expat

BODY = (
    b'<?xml version="1.0" encoding="utf-8"?>'
    b'<D:propfind xmlns:D="DAV:" xmlns:dc="http://www.dcache.org/2013/webdav" xmlns:oc="http://owncloud.org/ns">'
    b"<D:prop><D:resourcetype/><D:getcontentlength/><D:getlastmodified/><dc:Checksums/><oc:checksums/>"
    b'<srm:FileLocality xmlns:srm="http://srm.lbl.gov/StorageResourceManager"/></D:prop></D:propfind>'
)
SPACE = (
    b'<?xml version="1.0" encoding="utf-8"?>'
    b'<D:propfind xmlns:D="DAV:"><D:prop><D:resourcetype/><D:quota-available-bytes/>'
    b'<srm:FileLocality xmlns:srm="http://srm.lbl.gov/StorageResourceManager"/></D:prop></D:propfind>'
)

# Whatever their name space: storages differ in that of checksums. Other properties are not kept.
_KEPT = frozenset(
    {"getcontentlength", "getlastmodified", "quota-available-bytes", "checksums", "checksum", "filelocality"}
)
_LONGEST_TEXT = 16_384
_DEEPEST = 32
_MOST_NAMES = 1000  # of elements, attributes and name spaces: the parser keeps each as long as the answer lasts
_DAV = "DAV: "
_ADLER32 = re.compile(r"adler32\s*[=:]\s*([0-9a-f]{1,8})\b", re.IGNORECASE)
_STATUS = re.compile(r"HTTP/\S+\s+(\d{3})")


class Unreadable(Exception):
    """The answer is no multistatus that may be believed; the message has the reason."""

    def __init__(self, message: str, *, cut: bool = False) -> None:
        """Take the message, and whether the answer just ended too early."""
        super().__init__(message)
        self.cut = cut


@dataclass(slots=True)
class DavResponse:
    """One `response`: the href as it stands there, and the properties that were found (status 200)."""

    href: str = ""
    status: int = 200
    folder: bool = False
    values: dict[str, str] = field(default_factory=dict)  # property in small letters -> text

    @property
    def bytes(self) -> int | None:
        """The size of a file, if reported."""
        return None if self.folder else number(self.values.get("getcontentlength", ""))

    @property
    def free(self) -> int | None:
        """The bytes that may still be put there (RFC 4331), if reported."""
        return number(self.values.get("quota-available-bytes", ""))

    @property
    def nearline(self) -> bool | None:
        """Whether a file is on tape only, if reported."""
        locality = self.values.get("filelocality", "").strip().upper()
        return None if self.folder or not locality else locality == "NEARLINE"

    @property
    def adler32(self) -> str:
        """The checksum, if reported, in eight hexadecimal digits."""
        return adler32(self.values.get("checksums", "") or self.values.get("checksum", ""))

    @property
    def modified(self) -> datetime | None:
        """When it was last written, if reported."""
        try:
            moment = parsedate_to_datetime(self.values.get("getlastmodified", ""))
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            return None


def number(text: str) -> int | None:
    """Return a count of bytes, or None if the text is not one that can be true."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def adler32(text: str) -> str:
    """Return the adler32 in a text of checksums (`adler32=...` or `ADLER32:...`), or nothing."""
    match = _ADLER32.search(text)
    return match[1].lower().zfill(8) if match else ""


def rows(pieces: Iterable[bytes]) -> Iterator[DavResponse]:
    """Read a multistatus; raises Unreadable for a DOCTYPE, broken XML, or what is no multistatus."""
    reader = _Reader()
    names: dict[str, str] = {}
    parser = expat.ParserCreate(None, " ", names)
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartNamespaceDeclHandler = lambda *_: None  # so that their names are counted
    ended = False
    try:
        for piece in pieces:
            parser.Parse(piece, False)
            if len(names) > _MOST_NAMES:
                raise Unreadable("it has too many different names of properties")
            yield from reader.take()
        ended = True
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise Unreadable(f"it is not XML ({expat.ErrorString(error.code)})", cut=ended) from None
    except (LookupError, ValueError):
        raise Unreadable("its encoding is unknown") from None
    yield from reader.take()


class _Reader:
    """The handlers of the parser; `_inside` are the names of the open elements."""

    def __init__(self) -> None:
        self._inside: list[str] = []
        self._row = DavResponse()
        self._status = 200  # of the open propstat
        self._folder = False
        self._values: dict[str, str] = {}  # of the open propstat
        self._text = ""
        self._ready: list[DavResponse] = []

    def take(self) -> list[DavResponse]:
        ready, self._ready = self._ready, []
        return ready

    def doctype(self, *_: object) -> None:
        raise Unreadable("it has a DOCTYPE")

    def start(self, name: str, _attributes: object) -> None:
        if not self._inside and name != f"{_DAV}multistatus":
            raise Unreadable("it is not a multistatus")
        if len(self._inside) == _DEEPEST:
            raise Unreadable("its elements are nested too deeply")
        self._inside.append(name)
        if name == f"{_DAV}response":
            self._row = DavResponse()
        elif name == f"{_DAV}propstat":
            self._status, self._folder, self._values = 200, False, {}
        elif name == f"{_DAV}collection" and self._inside[-2] == f"{_DAV}resourcetype":
            self._folder = True
        if self._property() is None or self._inside[-2] == f"{_DAV}prop":
            self._text = ""

    def text(self, text: str) -> None:
        self._text += text
        if len(self._text) > _LONGEST_TEXT:
            raise Unreadable("one of its texts is too long")

    def end(self, name: str) -> None:
        above = self._inside[-2] if len(self._inside) > 1 else ""
        if name == f"{_DAV}response":
            self._ready.append(self._row)
        elif name == f"{_DAV}propstat" and 200 <= self._status < 300:
            self._row.folder |= self._folder
            self._row.values |= self._values
        elif name == f"{_DAV}href" and above == f"{_DAV}response":
            self._row.href = self._row.href or self._text.strip()
        elif name == f"{_DAV}status" and above == f"{_DAV}response":
            self._row.status = self._read_status()
        elif name == f"{_DAV}status" and above == f"{_DAV}propstat":
            self._status = self._read_status()
        elif above == f"{_DAV}prop" and (property_name := name.rpartition(" ")[2].lower()) in _KEPT:
            self._values[property_name] = self._text
        self._inside.pop()

    def _property(self) -> str | None:
        """Return the property that we are inside of; the texts of all its elements count as one."""
        prop = f"{_DAV}prop"
        if prop not in self._inside[:-1]:
            return None
        return self._inside[self._inside.index(prop) + 1]

    def _read_status(self) -> int:
        match = _STATUS.match(self._text.strip())
        return int(match[1]) if match else 500
