"""One copy: HTTP third-party copy, pulled by the destination, checked at both ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from yarl import URL

from .failures import DESTINATION, EXISTS, SOURCE, TRANSFER, CopyFailed, of_status
from .storages import Found, Storages, address

log = logging.getLogger("fts")
Mark = Callable[[float | None], None]
Size = Callable[[int], None]
_LATE = 5.0  # seconds after which a storage no longer begins with a copy that was given up
_PAUSE = 0.1  # seconds between two looks for it


@dataclass(frozen=True)
class Transfer:
    """What has to be copied, and how."""

    source: str
    destination: str
    source_token: str | None = field(repr=False)
    destination_token: str | None = field(repr=False)
    checksum: str  # ADLER32 or ADLER32:0a1b2c3d
    checksum_method: str  # n(one), s(ource), t(arget), b(oth)
    overwrite: bool
    strict: bool  # nothing but the copy itself
    cleanup: bool
    asked: float | None  # since when bytes of an earlier attempt may be at the destination
    timeout: float  # seconds for all of it

    @classmethod
    def of(cls, row: sqlite3.Row, timeout: float) -> Transfer:
        """Take it from a file's row; a job without a timeout of its own has `timeout`."""
        return cls(
            row["source_surl"], row["dest_surl"], row["source_token"], row["destination_token"],
            row["checksum"], row["checksum_method"], bool(row["overwrite"]),
            bool(row["strict_copy"]), bool(row["cleanup"]), row["asked"], row["timeout"] or timeout,
        )  # fmt: skip

    @property
    def algorithm(self) -> str:
        """Name the checksum's algorithm as HTTP does."""
        return self.checksum.partition(":")[0].lower()

    @property
    def declared(self) -> str | None:
        """The checksum that the user gave, in hexadecimal."""
        value = self.checksum.partition(":")[2].lower()
        if not value:
            return None
        return value.rjust(8, "0") if self.algorithm == "adler32" else value


async def copy(storages: Storages, transfer: Transfer, mark: Mark, size: Size) -> int:
    """Copy a file and return its size in bytes; raises CopyFailed.

    `size` is called with the bytes that the source has, whatever the user gave: FTS3 does not compare that.
    `mark` is called with the time just before bytes of ours may come to be at the destination, and with None when
    they are certainly gone; when the copy fails or is cancelled they are deleted.
    """
    try:
        source = address(SOURCE, transfer.source)
        destination = address(DESTINATION, transfer.destination)
        async with asyncio.timeout(transfer.timeout):
            return await _copy(storages, transfer, source, destination, mark, size)
    except TimeoutError:
        text = f"Transfer timed out after {transfer.timeout:g} s"
        raise CopyFailed(TRANSFER, errno.ETIMEDOUT, text) from None


async def _copy(
    storages: Storages, transfer: Transfer, source: URL, destination: URL, mark: Mark, size: Size
) -> int:
    if transfer.asked:
        await clean(storages, transfer, transfer.asked)
        mark(None)
    there = await _check_source(storages, transfer, source)
    size(there.size)
    if not transfer.strict:
        await storages.make_parent(destination, transfer.destination_token)
    asked, opened = time.time(), asyncio.Event()
    mark(asked)
    try:
        await _pull(storages, transfer, source, destination, opened)
        return await _check_destination(storages, transfer, destination, there)
    except BaseException as error:
        if isinstance(error, CopyFailed) and error.number == errno.EEXIST:
            mark(None)  # it belongs to another writer
        elif transfer.cleanup:
            await _try_to_clean(storages, transfer, mark, None if opened.is_set() else asked)
        raise


async def clean(storages: Storages, transfer: Transfer, asked: float, late: float = 0) -> None:
    """Delete what a storage that did not answer may have begun since it was asked; raises CopyFailed.

    An older file belongs to another writer. A missing file is looked for during `late` seconds, since the storage
    may come to the copy only now.
    """
    url, token = address(DESTINATION, transfer.destination), transfer.destination_token
    deadline = time.monotonic() + late
    while (modified := await storages.modified(url, token)) is None and time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE)
    if modified is not None and modified >= int(asked):  # storages give whole seconds
        await storages.delete(url, token)


async def _try_to_clean(storages: Storages, transfer: Transfer, mark: Mark, asked: float | None) -> None:
    """Delete what is left of a copy: of one that was begun for certain (`asked` is None) without a look."""
    try:
        if asked is None:
            await storages.delete(address(DESTINATION, transfer.destination), transfer.destination_token)
        else:
            await clean(storages, transfer, asked, _LATE)
        mark(None)
    except CopyFailed as failure:  # the next attempt begins with it
        log.warning("what is left of a copy could not be deleted: %s", failure.reason)


async def _check_source(storages: Storages, transfer: Transfer, source: URL) -> Found:
    wanted = transfer.algorithm if transfer.checksum_method != "n" and not transfer.strict else None
    file = await storages.look(SOURCE, source, transfer.source_token, wanted)
    if file is None:
        raise of_status(SOURCE, 404)
    if transfer.checksum_method in ("s", "b"):
        _compare(SOURCE, "User-defined and source", transfer, transfer.declared, file.checksum)
    return file


async def _check_destination(storages: Storages, transfer: Transfer, destination: URL, source: Found) -> int:
    wanted = transfer.algorithm if transfer.checksum_method in ("t", "b") and not transfer.strict else None
    file = await storages.look(DESTINATION, destination, transfer.destination_token, wanted)
    if file is None:
        raise of_status(DESTINATION, 404)
    if file.size != source.size:
        text = f"Source and destination file size mismatch ({source.size} != {file.size})"
        raise CopyFailed(DESTINATION, errno.EINVAL, text)
    if wanted:
        expected = transfer.declared if transfer.declared and transfer.checksum_method == "t" else source.checksum
        _compare(DESTINATION, "Source and destination", transfer, expected, file.checksum)
    return file.size


def _compare(end: str, what: str, transfer: Transfer, expected: str | None, actual: str | None) -> None:
    if actual is None:
        text = f"Failed to get the {transfer.algorithm.upper()} checksum: the storage does not give it"
        raise CopyFailed(end, errno.EIO, text)
    if expected is not None and expected != actual:
        text = f"{what} {transfer.algorithm.upper()} checksum do not match ({expected} != {actual})"
        raise CopyFailed(end, errno.EIO, text)


async def _pull(
    storages: Storages, transfer: Transfer, source: URL, destination: URL, opened: asyncio.Event
) -> None:
    """Ask the destination to fetch the file, and listen to its markers until their last line."""
    headers = {
        "Source": str(source),
        "Overwrite": "T" if transfer.overwrite else "F",
        "RequireChecksumVerification": "false",  # both ends are looked at here
        "Credential": "none",
    }
    if transfer.destination_token:
        headers["Authorization"] = f"Bearer {transfer.destination_token}"
    if transfer.source_token:
        headers["TransferHeaderAuthorization"] = f"Bearer {transfer.source_token}"
    async with storages.request(DESTINATION, "COPY", destination, headers) as answer:
        if answer.status == 412:
            raise CopyFailed(DESTINATION, errno.EEXIST, EXISTS)
        if answer.status not in (200, 201, 202, 204):
            storages.forget_parent(destination)
            raise of_status(DESTINATION, answer.status)
        opened.set()
        last = ""
        async for line in answer.content:
            last = line.decode(errors="replace").strip() or last
    if last.lower().startswith("success") or (not last and answer.status in (201, 204)):
        return
    storages.forget_parent(destination)
    raise _of_last_line(last)


def _of_last_line(line: str) -> CopyFailed:
    if "status code 404" in line:
        return of_status(SOURCE, 404)
    if "status code 403" in line or "status code 401" in line:
        return of_status(SOURCE, 403)
    text = f"ERROR: Copy failed (3rd pull). Last attempt: Transfer {line or 'ended without a word'}"
    return CopyFailed(TRANSFER, errno.EIO, text)
