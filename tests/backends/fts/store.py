"""A storage in memory: files by URL, their folders, and what a test wants to go wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from dc_inject.model import deletion, urls
from dc_inject.storage import MOST_ENTRIES, DirEntry, FileStatus, NotFound, Reach


@dataclass
class Store:
    """Implements `dc_inject.storage.Storage`; `fault(verb, url)` may raise before anything is done."""

    files: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # of what a listing shows without a size
    folders: set[str] = field(default_factory=set)
    tapes: set[str] = field(default_factory=set)  # files that are on tape only
    fault: Callable[[str, str], None] = lambda _verb, _url: None
    asked: list[tuple[str, str]] = field(default_factory=list)
    free: int | None = None
    allowed: dict[str, bool | None] = field(
        default_factory=lambda: {"PROPFIND": True, "DELETE": True, "MKCOL": None, "COPY": True}
    )
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, url: str, size: int) -> None:
        """Write a file, and the folders above it."""
        self.files[url] = size
        while (url := urls.parent(url)) not in self.folders and urls.parse(url).path:
            self.folders.add(url)

    def copy(self, source: str, destination: str) -> int:
        """Copy a file, as a transfer does."""
        size = self.files.get(source, 1)
        self.put(destination, size)
        return size

    def below(self, prefix: str) -> list[str]:
        """The files and folders below a prefix."""
        return sorted(url for url in {*self.files, *self.folders} if urls.is_below(prefix, url))

    def _ask(self, verb: str, url: str) -> None:
        with self.lock:
            self.asked.append((verb, url))
        self.fault(verb, url)

    def list(self, url: str, depth: int | None = None, limit: int = MOST_ENTRIES) -> Iterator[DirEntry]:
        self._ask("list", url)
        if url not in self.folders:
            raise NotFound(f"PROPFIND {url}: there is no such file or folder")
        for one in self.below(url):
            if depth == 1 and urls.parent(one) != url:
                continue
            yield DirEntry(one, one in self.folders, self.files.get(one) or None, nearline=self._nearline(one))

    def stat(self, url: str, *, checksum: bool = False) -> FileStatus:
        self._ask("stat", url)
        return FileStatus(url in self.files, self.sizes.get(url) or self.files.get(url))

    def delete(self, file: deletion.StoredFile) -> bool:
        url = deletion.address(file)
        self._ask("delete", url)
        return self.files.pop(url, None) is not None

    def delete_folder_if_empty(self, folder: deletion.StoredFolder) -> bool:
        url = deletion.address(folder)
        self._ask("delete-folder", url)
        if self.below(url):
            return False
        self.folders.discard(url)
        return True

    def make_folders(self, url: str, below: str) -> None:
        raise NotImplementedError

    def reachable(self, url: str) -> Reach:
        self._ask("reachable", url)
        return Reach(url in self.folders, True, self.free, self._nearline(url))

    def _nearline(self, url: str) -> bool | None:
        return url in self.tapes if url in self.files else None

    def verbs(self, url: str) -> Mapping[str, bool | None]:
        self._ask("verbs", url)
        return self.allowed
