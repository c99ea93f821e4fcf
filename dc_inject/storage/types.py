"""What a storage can be asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dc_inject.model.deletion import StoredFile, StoredFolder
from dc_inject.model.errors import NeedsOperator, Permanent, Temporary

VERBS = ("PROPFIND", "DELETE", "MKCOL", "COPY")  # what an injector and third-party copies need
MOST_ENTRIES = 1_000_000  # of one listing


class NotFound(Permanent):
    """The file or folder that was asked about does not exist."""


class OnTape(NotFound):
    """All files that were asked about are on tape only."""


class Later(Temporary):
    """A storage has taken something on, and will do it when it can."""


class AccessDenied(NeedsOperator):
    """A storage does not accept us, or what we ask for: with others the same credentials may work."""


class Access(Protocol):
    """What opens a storage: a bearer token, or a client certificate with its key, or neither.

    `stamp` is another one whenever the files behind it changed.
    """

    @property
    def token(self) -> str:
        """The bearer token; empty if there is none."""

    @property
    def certificate(self) -> str:
        """The path of a proxy or certificate; empty if there is none."""

    @property
    def key(self) -> str:
        """The path of the certificate's key; of a proxy it is the same file."""

    @property
    def stamp(self) -> Hashable:
        """Something that compares unequal when the files have changed."""


def credential(access: Access) -> str:
    """Return the word for what an access shows: a token, a proxy (one file), a certificate, or nothing."""
    if access.token:
        return "token"
    if access.certificate:
        return "proxy" if access.certificate == access.key else "certificate"
    return "nothing"


@dataclass(frozen=True, slots=True)
class DirEntry:
    """One file or folder of a listing; what was not reported is None or empty."""

    url: str
    folder: bool
    bytes: int | None = None
    adler32: str = ""  # eight hexadecimal digits
    modified: datetime | None = None
    nearline: bool | None = None  # on tape only: a copy fails until it is staged


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What a storage answers about one file."""

    exists: bool
    bytes: int | None = None
    adler32: str = ""
    nearline: bool | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """What a storage answers about a path: that it is there, how many bytes may be put there, and tape."""

    exists: bool
    folder: bool | None = None
    free: int | None = None
    nearline: bool | None = None


class Storage(Protocol):
    """What the tool itself does at a storage; from any thread, and every call may be made again.

    URLs are canonical or can be made so (`dc_inject.model.urls`). What goes wrong is a ServiceError: Temporary,
    Permanent (`NotFound` where there is nothing), or NeedsOperator with hold `credentials`: `AccessDenied` when
    the storage refuses them, else our own files are what is wrong. No message shows a secret.
    """

    def list(self, url: str, depth: int | None = None, limit: int = MOST_ENTRIES) -> Iterator[DirEntry]:
        """Give what lies below a folder, `depth` levels deep (None: all), or raise Permanent beyond the limit."""

    def stat(self, url: str, *, checksum: bool = False) -> FileStatus:
        """Return whether a file exists, its size, and its adler32 if asked for (that may take a minute)."""

    def delete(self, file: StoredFile) -> bool:
        """Delete one file; True if it went now, False if it was gone already.

        Raises `deletion.NotOurs`, before anything is sent, for a file that is not proved to be ours.
        """

    def delete_folder_if_empty(self, folder: StoredFolder) -> bool:
        """Delete a folder that is seen to be empty; True if it is gone, False if something is in it.

        Raises `deletion.NotOurs`, before anything is sent, for a folder that is not proved to be ours.
        """

    def make_folders(self, url: str, below: str) -> None:
        """Make a folder and those above it, but nothing at or above `below`, which has to exist."""

    def reachable(self, url: str) -> Reach:
        """Ask one cheap question: does it exist, may we read it, how much space is left."""

    def verbs(self, url: str) -> Mapping[str, bool | None]:
        """Return which of `VERBS` are allowed there; None where the storage does not answer that."""


class Body(Sized, Iterable[bytes], Protocol):
    """A file's content that can be given time and again: a redirect needs it again."""


class Writable(Storage, Protocol):
    """A storage to which files can be written."""

    def put(self, url: str, body: Body) -> None:
        """Write a file; raises `NotFound` where a folder above it is missing and the storage does not make it."""
