"""Sets of test files at a storage, below one of its prefixes: made, listed and deleted without a catalogue.

`upload` writes one file and makes sure of it; a file that is there already is not written again.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dc_inject.model import deletion, samples, urls
from dc_inject.model.content import Content
from dc_inject.model.deletion import SampleFile, SampleFolder
from dc_inject.model.errors import Permanent, Temporary, UsageError
from dc_inject.model.samples import MARK, FileSet
from dc_inject.storage.types import FileStatus, NotFound, Storage, Writable

TRIES = 3
PAUSE = 2.0  # seconds before the second try; then twice that
Moved = Callable[[int], None]  # hears how many bytes went; fewer than none where they have to go again


@dataclass(frozen=True, slots=True)
class SetStatus:
    """A set as a storage has it: how many of its files, and their bytes."""

    set: FileSet
    files: int
    bytes: int


class StorageSet:
    """A set of test files below a prefix, which is being made; see `filling.SetWriter`."""

    def __init__(
        self, storage: Writable, prefix: str, wanted: FileSet, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Take where it is to be; nothing is asked before the first call."""
        self._storage = storage
        self._prefix = urls.normal(prefix)
        self._set = wanted
        self._sleep = sleep

    def missing(self) -> Sequence[int]:
        """Return the numbers of all files: `write` sees of each whether it is there.

        Raises UsageError when a set of this name has other files, and Permanent when there is no such prefix.
        """
        if not self._storage.reachable(self._prefix).exists:
            raise Permanent(
                f"{self._prefix} does not exist", "create that folder first, or ask the site to create it"
            )
        for found_set in find_sets(self._storage, self._prefix, self._set.name):
            if found_set.set != self._set:
                raise UsageError(
                    f"{self._prefix} has a set {found_set.set} already",
                    f"use another name, or delete it: dc-inject data drop {self._prefix} {self._set.name}",
                )
        return range(1, self._set.files + 1)

    def find_unwritten(self) -> Sequence[int]:
        """Return the numbers of files that a listing does not show whole; raises as `missing` does."""
        wanted = self.missing()
        there = {
            number for number, size in _files(self._storage, self._prefix, self._set) if size == self._set.bytes
        }
        return [number for number in wanted if number not in there]

    def begin(self) -> None:
        """Do nothing: folders are made with their files."""

    def url(self, number: int) -> str:
        """Return where a file has to lie."""
        return self._set.url(self._prefix, number)

    def write(self, number: int, moved: Moved) -> Written:
        """Write a file if it is not there."""
        file, content = SampleFile(self._prefix, self._set, number), self._set.content(number)
        return upload(self._storage, file, content, below=self._prefix, moved=moved, sleep=self._sleep)

    def keep(self, written: Sequence[tuple[int, Written]]) -> None:
        """Do nothing: a file that is there is kept."""

    def finish(self) -> None:
        """Do nothing: a set whose files are there is complete."""


def find_sets(storage: Storage, prefix: str, name: str = "") -> Iterator[SetStatus]:
    """Give the sets below a prefix, or those of one name; one of which only folders are left counts too."""
    if name and not samples.is_name(name):
        return
    top = urls.join(prefix, MARK)
    for upper in _folders(storage, f"{top}/{name}" if name else top):
        for folder in [upper] if name else _folders(storage, upper):
            *_, named, shape = folder.split("/")
            made = samples.from_folder(named, shape)
            if made is not None:
                sizes = [size for _, size in _files(storage, prefix, made)]
                yield SetStatus(made, len(sizes), sum(sizes))


def drop(storage: Storage, prefix: str, made: FileSet) -> Iterator[int]:
    """Delete the files of a set and give the size of each; then the folders of the set that are empty.

    What else lies in them, by whatever name, stays, and so do its folders. The folder above all sets stays too:
    another one may just be made in it.
    """
    where = urls.normal(prefix)
    for number, size in list(_files(storage, where, made)):
        storage.delete(SampleFile(where, made, number))
        yield size
    if storage.delete_folder_if_empty(SampleFolder(where, made)):
        storage.delete_folder_if_empty(SampleFolder(where, made, whole_name=True))


def _folders(storage: Storage, url: str) -> list[str]:
    try:
        return sorted(entry.url for entry in storage.list(url, depth=1) if entry.folder)
    except NotFound:
        return []


def _files(storage: Storage, prefix: str, made: FileSet) -> Iterator[tuple[int, int]]:
    """Give number and size of the files of a set that are there, also of those that were cut off."""
    ours = {made.url(prefix, number): number for number in range(1, made.files + 1)}
    try:
        for entry in storage.list(made.folder(prefix), depth=1):
            if not entry.folder and entry.url in ours:
                yield ours[entry.url], entry.bytes or 0
    except NotFound:
        return


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
        """Begin again: what went before does not count."""
        if self._bytes:
            self._moved(-self._bytes)
        self._bytes, self._checksum = 0, 1
