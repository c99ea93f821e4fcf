"""Folders of ours at a destination: deleted when they are empty and nobody can want them any more.

FTS makes the folders above a file one by one. Between two of those steps, and before the file comes, they are
empty: so those that jobs share stay as long as there may be a job.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from dc_inject import naming, urls
from dc_inject.backends.fts.lasting import hours_in_queue
from dc_inject.backends.fts.threads import Threads
from dc_inject.backends.fts.trouble import Trouble
from dc_inject.errors import Permanent, ServiceError
from dc_inject.model import Injection, JobOptions
from dc_inject.storage import Missing, Storage

log = logging.getLogger(__name__)


class Folders:
    """Deletes empty folders; a storage that lets nobody delete folders keeps them, as they hold no bytes."""

    def __init__(self, storage: Storage, threads: Threads) -> None:
        """Take the storage (as destination), and the threads that bound its requests."""
        self._storage = storage
        self._threads = threads

    def of_job(self, injection: Injection, now: datetime) -> ServiceError | None:
        """Delete the folder of a job that is over, and its cycle's when no job of that can be left."""
        folder = naming.folder(injection)
        return self._delete([folder, urls.parent(folder)] if _is_over(injection, now) else [folder])

    def above(self, url: str, prefix: str) -> ServiceError | None:
        """Delete the folder of a file of ours, and those above it, down to all of ours below a prefix."""
        top, folders = f"{prefix}/{naming.TOP}", []
        while (url := urls.parent(url)) == top or urls.is_below(top, url):
            folders.append(url)
        return self._delete(folders)

    def of_campaign(self, prefix: str, campaign: str) -> ServiceError | None:
        """Delete all of a campaign's folders below a prefix that are empty, and ours itself when it is.

        No job of the campaign may be left. Folders that are not named as ours are, stay.
        """
        where = urls.normal(prefix)
        top = f"{where}/{naming.TOP}/{campaign}"
        try:
            found = [one.url for one in self._storage.list(top) if one.folder]
        except Missing:
            found = []
        except ServiceError as error:
            return error
        storage, levels = Trouble(), defaultdict[int, list[str]](list)
        for url in found:
            if naming.is_folder(where, url):
                levels[url.count("/")].append(url)
        for depth in sorted(levels, reverse=True):
            for stood in self._threads.map(lambda url: self._ask(url, storage), levels[depth]):
                if stood is not None:
                    return stood  # those above it are not empty then
        return self._delete([top, urls.parent(top)])

    def _ask(self, folder: str, storage: Trouble) -> ServiceError | None:
        error = storage.hopeless or self._delete([folder])
        storage.note(error)
        return error

    def _delete(self, folders: Iterable[str]) -> ServiceError | None:
        """Delete folders, each inside of the next, up to the first that is not empty; tell what may pass."""
        for folder in folders:
            try:
                if not self._storage.delete_folder_if_empty(folder):
                    return None
            except Missing:
                pass
            except Permanent as error:
                log.info("an empty folder stays: %s", error.message)
                return None
            except ServiceError as error:
                return error
        return None


def _is_over(injection: Injection, now: datetime) -> bool:
    """Return whether no job that was made in the same cycle can be in a queue, or at work, any more."""
    longest = (injection.job or JobOptions()).longest_transfer
    return injection.cycle.end + timedelta(hours=hours_in_queue(injection)) + longest <= now
