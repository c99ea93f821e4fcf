"""Writing one file to a storage, and making sure of it: what is there already is not written again."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dc_inject.model import deletion, urls
from dc_inject.model.content import Content
from dc_inject.model.errors import Temporary
from dc_inject.storage.types import FileStatus, NotFound, Writable

TRIES = 3
PAUSE = 2.0  # seconds before the second try; then twice that
Moved = Callable[[int], None]  # hears how many bytes went; fewer than none where they have to go again


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is at its storage: its URL, its adler32, and whether the storage reported the same."""

    url: str
    bytes: int
    adler32: str
    compared: bool


def upload(
    storage: Writable,
    file: deletion.StoredFile,
    content: Content,
    *,
    below: str,
    moved: Moved,
    sleep: Callable[[float], None],
) -> Written:
    """Write a file unless it is there; folders above it are made as far as `below`, which has to exist.

    Size and adler32 that the storage reports afterwards must be those of what was written. What may pass is
    tried up to `TRIES` times; raises ServiceError.
    """
    for left in reversed(range(TRIES)):
        try:
            return _once(storage, file, content, below, moved)
        except Temporary:
            if not left:
                raise
            sleep(PAUSE * 2 ** (TRIES - 1 - left))
    raise AssertionError("one of the tries returns or raises")


def _once(storage: Writable, file: deletion.StoredFile, content: Content, below: str, moved: Moved) -> Written:
    url = deletion.address(file)
    there = storage.stat(url, checksum=True)
    if there.exists and there.bytes == content.size:
        adler32 = content.adler32()
        if there.adler32 in {adler32, ""}:
            moved(content.size)
            return Written(url, content.size, adler32, bool(there.adler32))
    if there.exists:  # cut off, or damaged; not every storage lets a file be written over
        storage.delete(file)
    sent = _Sent(content, moved)
    try:
        _put(storage, url, sent, below)
        return _compared(url, storage.stat(url, checksum=True), sent)
    except BaseException:
        sent.take_back()
        raise


def _put(storage: Writable, url: str, sent: _Sent, below: str) -> None:
    try:
        storage.put(url, sent)
    except NotFound:
        storage.make_folders(urls.parent(url), below)
        storage.put(url, sent)


def _compared(url: str, status: FileStatus, sent: _Sent) -> Written:
    """Return what was written if the storage reports the same; its size must be reported, its adler32 need not."""
    if not status.exists or status.bytes != len(sent):
        has = f"has {status.bytes} bytes" if status.exists else "is not there"
        raise Temporary(f"{url} {has} after {len(sent)} bytes were written")
    if status.adler32 not in {sent.adler32, ""}:
        raise Temporary(
            f"{url}: adler32 {sent.adler32} was written, but the storage reports {status.adler32}",
            "the storage may have a faulty disk",
        )
    return Written(url, len(sent), sent.adler32, bool(status.adler32))


class _Sent:
    """A content on its way: its adler32 is made while it goes, and `moved` hears of each piece."""

    def __init__(self, content: Content, moved: Moved) -> None:
        self._content = content
        self._moved = moved
        self._bytes = 0
        self._checksum = 1

    def __len__(self) -> int:
        return len(self._content)

    def __iter__(self) -> Iterator[bytes]:
        self.take_back()
        for piece in self._content:
            self._checksum = zlib.adler32(piece, self._checksum)
            self._bytes += len(piece)
            yield piece
            self._moved(len(piece))

    @property
    def adler32(self) -> str:
        return f"{self._checksum:08x}"

    def take_back(self) -> None:
        """Begin anew: what went before does not count."""
        if self._bytes:
            self._moved(-self._bytes)
        self._bytes, self._checksum = 0, 1
