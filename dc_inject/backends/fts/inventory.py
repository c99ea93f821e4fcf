"""The inventory of a source: files of a list, of a folder, or replicas that Rucio knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from dc_inject.backends.fts.sites import GIVE_UP_AFTER, StorageBreaker
from dc_inject.model import DatasetFilter, File, FileFilter, naming, units, urls
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.items import LARGEST_FILE
from dc_inject.planning import pool
from dc_inject.storage import AccessDenied, DirEntry, NotFound, OnTape, StorageAt
from dc_inject.system.executor import Workers

log = logging.getLogger(__name__)

_AT_ONCE = 500

_UNAVAILABLE = "source-unavailable"
_STAGE = "have the files staged, take a source on disk, or recall them: describe the site's `tape` in the menu"

Replicas = Callable[[str, DatasetFilter], Iterator[File]]


class SourceRefused(Permanent):
    """A source does not let us look; other sources may."""

    hold = _UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Inventory:
    """Reads what may be injected from a source; costly, so it is asked rarely."""

    at: StorageAt
    workers: Workers
    replicas: Replicas | None = None

    def read(self, source: str, files: FileFilter) -> Iterator[File]:
        """Stream the files below a source's prefix that pass the filter.

        Missing sizes are asked of the storage; a file whose size cannot be found out is left out.
        """
        if files.listing is not None:
            listed: Iterator[File] = _listed(source, files.listing.files)
        elif files.folder is not None:
            listed = self._folder(source, files.folder, recalls=files.recalls)
        elif files.datasets is not None:
            listed = self._datasets(source, files.datasets)
        else:
            raise Permanent(f"the menu does not select any files of {source}")
        for item in self._sized(source, listed):
            if pool.passes(item, source, files):
                yield item

    def _folder(self, source: str, folder: str, *, recalls: bool) -> Iterator[File]:
        """List a folder; copies of ours are no source: they go away. Files on tape are one for recalls only."""
        where = urls.join(source, folder) if folder else source
        ours = f"{source}/{naming.TOP}"
        given, on_tape = False, list[str]()
        try:
            for entry in self._walk(where, ours):
                if entry.folder or urls.is_below(ours, entry.url):
                    continue
                if entry.nearline and not recalls:
                    on_tape.append(entry.url)
                    continue
                given = True
                yield File(entry.url, entry.bytes or 0, f"adler32:{entry.adler32}" if entry.adler32 else "")
        except ServiceError as error:
            raise _of_source(error) from error.__cause__
        if on_tape and not given:
            raise OnTape(f"all {units.counted(len(on_tape), 'files')} of {where} are on tape", _STAGE)
        if on_tape:
            count = units.counted(len(on_tape), "files")
            log.warning("left out of %s: %s on tape (nearline), such as %s", source, count, on_tape[0])

    def _walk(self, where: str, ours: str) -> Iterator[DirEntry]:
        """List a folder with all below it, without going into the one that is ours, which may be large."""
        if urls.parent(ours) != where:
            yield from self.at(where).list(where)
            return
        for entry in self.at(where).list(where, depth=1):
            if not entry.folder:
                yield entry
            elif entry.url != ours:
                with suppress(NotFound):  # gone meanwhile
                    yield from self.at(entry.url).list(entry.url)

    def _datasets(self, source: str, datasets: DatasetFilter) -> Iterator[File]:
        if self.replicas is None:
            raise Permanent("replicas of datasets are looked up in Rucio, which is not set up here")
        return self.replicas(source, datasets)

    def _sized(self, source: str, items: Iterable[File]) -> Iterator[File]:
        unknown: list[str] = []
        trouble, none = StorageBreaker(GIVE_UP_AFTER), True
        left = iter(items)
        while batch := list(islice(left, _AT_ONCE)):
            names = [item.name for item in batch if not item.bytes]
            sizes = dict(zip(names, self.workers.map(lambda url: self._size(url, trouble), names), strict=True))
            for item in batch:
                size = item.bytes or sizes[item.name]
                if 0 < size <= LARGEST_FILE:
                    none = False
                    yield replace(item, bytes=size)
                else:
                    unknown.append(item.name)
        if unknown and none and trouble.last is not None:
            raise _of_source(trouble.last)
        if unknown:
            log.warning(
                "left out of %s: %s that are empty, have no known size, or one above 10 TB, such as %s",
                source,
                units.counted(len(unknown), "files"),
                unknown[0],
            )

    def _size(self, url: str, trouble: StorageBreaker) -> int:
        """Ask for a size, 0 if there is none; raises when the storage gives no answers at all."""
        if hopeless := trouble.open:
            raise _of_source(hopeless)
        error: ServiceError | None = None
        try:
            return self.at(url).stat(url).bytes or 0
        except ServiceError as met:
            error = met
            if isinstance(met, NeedsOperator) and not isinstance(met, AccessDenied):
                raise
            log.debug("no size of %s: %s", url, met.message)
            return 0
        finally:
            trouble.note(error)


def _of_source(error: ServiceError) -> ServiceError:
    """Return an error of a storage as one of this source (hold `source-unavailable`).

    It shows nothing about FTS, or about other storages.
    """
    match error:
        case AccessDenied():
            return SourceRefused(error.message, error.hint)
        case Temporary():
            return Temporary(error.message, error.hint, hold=_UNAVAILABLE)
        case _:
            return error


def _listed(source: str, files: Iterable[File]) -> Iterator[File]:
    """Give the files of a list that are below a source; a name is a URL in its one form, or a path below it."""
    below = f"{source}/"
    for file in files:
        url = file.name if urls.is_url(file.name) else urls.join(source, file.name)
        if url.startswith(below):
            yield File(url, file.bytes, file.checksum)
