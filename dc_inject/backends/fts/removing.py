"""Deleting what we copied: FTS does not, so the files of ended jobs are deleted at their storage by us.

Nothing but the exact paths of `naming.copies` is ever deleted, and no folder but those of ours that are empty: see
`dc_inject.model.deletion`.

FTS makes the folders above a file one by one. Between two of those steps, and before the file comes, they are
empty, and most servers delete a folder with what has come into it since it was listed. So folders that jobs share
stay as long as the campaign has a job, and the one that campaigns share stays for good.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from dc_inject.backends.fts.sites import GIVE_UP_AFTER, StorageBreaker
from dc_inject.model import Entry, JobOptions, deletion, naming, urls
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.groups import grouped
from dc_inject.model.ports import Clock, Outcome, Removal, Stray
from dc_inject.planning.lifetime import get_queue_time
from dc_inject.planning.reconcile import backoff
from dc_inject.storage import NotFound, StorageAt
from dc_inject.system.executor import Workers

log = logging.getLogger(__name__)

FIRST_RETRY = timedelta(seconds=15)
LONGEST_RETRY = timedelta(minutes=30)
FOLDERS_ASKED = 4  # times that empty folders are tried to be deleted; they hold no bytes

Cancel = Callable[[Sequence[Entry]], list[Outcome]]


class CopyDeletion:
    """Deletes copies of ours; every call may be made again."""

    def __init__(self, at: StorageAt, cancel: Cancel, workers: Workers, clock: Clock) -> None:
        """Take what gives storages (as destinations), who cancels jobs, what bounds requests, and the clock."""
        self._at = at
        self._cancel = cancel
        self._workers = workers
        self._stay: set[str] = set()  # prefixes at which empty folders stay, as was logged
        self._clock = clock
        self._lock = threading.Lock()
        self._attempts: dict[str, int] = {}  # failed ones, by key

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        """Delete the files of ended jobs and return what is known of them."""
        storages: dict[str, StorageBreaker] = {}
        uncancelled = self._cancel_lost(entries)
        return [
            self._remove(
                entry,
                storages.setdefault(entry.injection.link.destination, StorageBreaker(GIVE_UP_AFTER)),
                uncancelled.get(entry.injection.key),
            )
            for entry in entries
        ]

    def _cancel_lost(self, entries: Sequence[Entry]) -> Mapping[str, ServiceError | None]:
        """Cancel jobs that were not seen to end and may still run; return by key those that could not be."""
        now = self._clock.now()
        lost = [entry for entry in entries if _vanished(entry) and _quiet_at(entry, now) > now]
        if not lost:
            return {}
        try:
            return {outcome.key: outcome.error for outcome in self._cancel(lost)}
        except ServiceError as error:
            return {entry.injection.key: error for entry in lost}

    def _remove(self, entry: Entry, storage: StorageBreaker, uncancelled: ServiceError | None) -> Removal:
        injection, now = entry.injection, self._clock.now()
        files = deletion.copies(injection)
        # A few first: a storage that hangs holds a few threads, and not all that others want.
        parts = (files[:GIVE_UP_AFTER], files[GIVE_UP_AFTER:])
        results = [
            result
            for part in parts
            for result in self._workers.map(lambda file: self._delete(file, storage), part)
        ]
        errors = [error for error in results if error is not None]
        quiet_at = _quiet_at(entry, now)
        if not errors and quiet_at <= now:
            error = self._delete_folder(deletion.folder(injection))
            if error is not None and self._attempts.get(injection.key, 0) < FOLDERS_ASKED:
                errors.append(error)
        if errors:
            whole = _summed(errors[0], len(errors), injection.item.files)
            return Removal(injection.key, gone=False, again_at=now + self._wait(injection.key), error=whole)
        if uncancelled is not None:
            again_at = min(now + self._wait(injection.key), quiet_at)
            return Removal(injection.key, gone=False, again_at=again_at, error=uncancelled)
        with self._lock:
            self._attempts.pop(injection.key, None)
        if quiet_at > now:
            return Removal(injection.key, gone=False, again_at=quiet_at)
        return Removal(injection.key, gone=True)

    def _delete(self, file: deletion.CopiedFile, storage: StorageBreaker) -> ServiceError | None:
        if hopeless := storage.open:
            return hopeless
        error: ServiceError | None = None
        try:
            self._at(deletion.address(file)).delete(file)
        except NotFound:
            pass
        except ServiceError as met:
            error = met
        storage.note(error)
        return error

    def _wait(self, key: str) -> timedelta:
        with self._lock:
            attempt = self._attempts[key] = self._attempts.get(key, 0) + 1
        return backoff(attempt, key, FIRST_RETRY, LONGEST_RETRY)

    def sweep(self, prefix: str, campaign: str) -> Iterator[Stray]:
        """Stream the files below a prefix whose whole path shows that they are of this campaign."""
        where = urls.normal(prefix)
        try:
            for entry in self._at(where).list(f"{where}/{naming.TOP}/{campaign}"):
                copy = None if entry.folder else naming.read_copy(where, entry.url)
                if copy is not None and copy.campaign == campaign:
                    yield Stray(entry.url, copy, entry.bytes or 0, entry.modified)
        except NotFound:
            return

    def delete(self, urls_: Iterable[str], prefix: str, campaign: str) -> list[tuple[str, ServiceError | None]]:
        """Delete files of a campaign below a prefix, and the folders of their jobs if they are empty then.

        No injector may be at work on those jobs. What is not proved to be a file of the campaign there is refused.
        """
        where, storage = urls.normal(prefix), StorageBreaker(GIVE_UP_AFTER)
        files = [deletion.CopiedFile(where, url, campaign) for url in dict.fromkeys(urls_)]
        errors = self._workers.map(lambda file: self._delete(file, storage), files)
        results = [(file.url, error) for file, error in zip(files, errors, strict=True)]
        for url in {urls.parent(url): url for url, error in results if error is None}.values():
            self._delete_folder(deletion.CopyFolder(where, urls.parent(url), campaign))  # a job has one of its own
        return results

    def tidy(self, prefix: str, campaign: str) -> ServiceError | None:
        """Delete what is empty of a campaign's folders below a prefix, when no job of it is left.

        Folders that are not named as ours are, stay.
        """
        where = urls.normal(prefix)
        top = f"{where}/{naming.TOP}/{campaign}"
        try:
            folders = [entry.url for entry in self._at(where).list(top) if entry.folder]
        except NotFound:
            folders = []
        except ServiceError as error:
            return error
        storage = StorageBreaker(GIVE_UP_AFTER)
        levels = grouped((url.count("/"), url) for url in folders if naming.is_folder(where, url))
        for depth in sorted(levels, reverse=True):
            batch = [deletion.CopyFolder(where, url, campaign) for url in levels[depth]]
            for stood in self._workers.map(lambda folder: self._ask_for_folder(folder, storage), batch):
                if stood is not None:
                    return stood  # those above it are not empty then
        return self._delete_folder(deletion.CopyFolder(where, top, campaign))

    def _ask_for_folder(self, folder: deletion.CopyFolder, storage: StorageBreaker) -> ServiceError | None:
        error = storage.open or self._delete_folder(folder)
        storage.note(error)
        return error

    def _delete_folder(self, folder: deletion.CopyFolder) -> ServiceError | None:
        """Delete a folder if it is empty; return the error if it may pass.

        A storage that does not allow deleting folders keeps them, as they hold no bytes.
        """
        try:
            self._at(deletion.address(folder)).delete_folder_if_empty(folder)
        except NotFound:
            pass
        except Permanent as error:  # of each job's folder again: it is logged once
            if folder.prefix not in self._stay:
                log.info("empty folders stay at %s: %s", folder.prefix, error.message)
            self._stay.add(folder.prefix)
        except ServiceError as error:
            return error
        return None


def _quiet_at(entry: Entry, now: datetime) -> datetime:
    """Return from when on nothing can write to the destinations any more.

    What arrived is done. A transfer that failed or was cancelled may go on at its storage for a while; a job that
    vanished may wait in a queue until it is too old for that, and only then begin.
    """
    if entry.files_done >= entry.injection.item.files and not entry.failed:
        return now
    longest = (entry.injection.job or JobOptions()).longest_transfer
    if _vanished(entry):
        return (entry.accepted_at or now) + timedelta(hours=get_queue_time(entry.injection.lifetime)) + longest
    return (entry.ended_at or now) + longest


def _vanished(entry: Entry) -> bool:
    """Return whether FTS forgot a job that was not seen to end.

    We end every job ourselves, so one that ended without being asked to has vanished. Of one that vanished after
    that, all that had not arrived counts as failed, while files that we cancelled do not.
    """
    if entry.completed_at is not None:
        return False
    not_arrived = entry.injection.item.bytes - entry.present - entry.moved
    return entry.end_asked_at is None or 0 < not_arrived <= entry.failed


def _summed(error: ServiceError, count: int, files: int) -> ServiceError:
    """Return an error of the same kind with the number of files that it is about."""
    message = f"{count} of {files} files are not deleted: {error.message}" if files > 1 else error.message
    match error:
        case NeedsOperator():
            return NeedsOperator(message, error.hint, hold=error.hold)
        case Permanent():
            return Permanent(message, error.hint)
        case _:
            return Temporary(message, error.hint)
