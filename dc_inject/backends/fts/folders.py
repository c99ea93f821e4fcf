"""Folders of ours at a destination: deleted when they are empty and nobody can want them any more.

FTS makes the folders above a file one by one. Between two of those steps, and before the file comes, they are
empty, and most servers delete a folder with what has come into it since it was listed: so those that jobs share
stay as long as the campaign has a job, and the one that campaigns share stays for good.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from dc_inject.backends.fts.storage_breaker import Trouble
from dc_inject.model import Injection, deletion, naming, urls
from dc_inject.model.errors import Permanent, ServiceError
from dc_inject.storage import NotFound, Storage
from dc_inject.system.executor import Workers

log = logging.getLogger(__name__)


class Folders:
    """Deletes empty folders; a storage that lets nobody delete folders keeps them, as they hold no bytes."""

    def __init__(self, storage: Storage, workers: Workers) -> None:
        """Take the storage (as destination), and the workers that bound its requests."""
        self._storage = storage
        self._workers = workers
        self._stay: set[str] = set()  # prefixes of which it was said

    def of_job(self, injection: Injection) -> ServiceError | None:
        """Delete the folder of a job that is over."""
        return self._delete(deletion.folder(injection))

    def of_file(self, url: str, prefix: str, campaign: str) -> None:
        """Delete the folder of a file whose job is over: a job has a folder of its own."""
        self._delete(deletion.CopyFolder(prefix, urls.parent(url), campaign))

    def of_campaign(self, prefix: str, campaign: str) -> ServiceError | None:
        """Delete all of a campaign's folders below a prefix that are empty.

        No job of the campaign may be left. Folders that are not named as ours are, stay.
        """
        where = urls.normal(prefix)
        top = f"{where}/{naming.TOP}/{campaign}"
        try:
            folders = [entry.url for entry in self._storage.list(top) if entry.folder]
        except NotFound:
            folders = []
        except ServiceError as error:
            return error
        storage, levels = Trouble(), defaultdict[int, list[str]](list)
        for url in folders:
            if naming.is_folder(where, url):
                levels[url.count("/")].append(url)
        for depth in sorted(levels, reverse=True):
            batch = [deletion.CopyFolder(where, url, campaign) for url in levels[depth]]
            for stood in self._workers.map(lambda folder: self._ask(folder, storage), batch):
                if stood is not None:
                    return stood  # those above it are not empty then
        return self._delete(deletion.CopyFolder(where, top, campaign))

    def _ask(self, folder: deletion.CopyFolder, storage: Trouble) -> ServiceError | None:
        error = storage.hopeless or self._delete(folder)
        storage.note(error)
        return error

    def _delete(self, folder: deletion.CopyFolder) -> ServiceError | None:
        """Delete a folder if it is empty; return the error if it may pass."""
        try:
            self._storage.delete_folder_if_empty(folder)
        except NotFound:
            pass
        except Permanent as error:  # of each job's folder again: said once
            if folder.prefix not in self._stay:
                log.info("empty folders stay at %s: %s", folder.prefix, error.message)
            self._stay.add(folder.prefix)
        except ServiceError as error:
            return error
        return None
