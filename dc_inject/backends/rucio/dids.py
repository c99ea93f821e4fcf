"""Data identifiers: names of datasets, and reading about many of them in a few calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rucio.common.exception import InvalidObject, RucioException

from dc_inject.backends import answers
from dc_inject.backends.rucio.connection import METADATA_PLUGIN, Connection, Row
from dc_inject.model.errors import Permanent
from dc_inject.model.items import ItemId, SliceId

AT_ONCE = 200  # DIDs in one bulk read; Rucio's schemas allow 1,000
SUSPECTS = 3  # single names that fail before the server is blamed, if none was answered for


class Did(NamedTuple):
    """A data identifier."""

    scope: str
    name: str

    @classmethod
    def read(cls, text: str) -> Did:
        """Split `scope:name`; raises Permanent when there is no scope."""
        scope, colon, name = text.partition(":")
        if not (scope and colon and name):
            raise Permanent(f"{text!r} is no DID", "write scope:name")
        return cls(scope, name)

    @classmethod
    def of_item(cls, item: ItemId) -> Did:
        """Return the DID of a dataset, of a slice that of its own one; raises Permanent when it has none."""
        return cls.read(item.did if isinstance(item, SliceId) else item)

    @classmethod
    def of(cls, row: Row) -> Did:
        """Return the DID that a row of Rucio speaks of."""
        return cls(answers.name(row["scope"]), answers.name(row["name"]))

    def row(self, **more: str) -> dict[str, str]:
        """Return it as Rucio's calls want it."""
        return {"scope": self.scope, "name": self.name, **more}

    def __str__(self) -> str:
        return f"{self.scope}:{self.name}"


def metadata(connection: Connection, dids: Iterable[Did]) -> Iterator[Row]:
    """Give Rucio's own metadata of DIDs; one that does not exist has no row."""
    return bulk(connection, "get_metadata_bulk", dids, plugin=METADATA_PLUGIN)


def bulk(connection: Connection, method: str, dids: Iterable[Did], **more: Any) -> Iterator[Row]:
    """Give the rows that a call of Rucio has for DIDs, a few calls for all of them.

    A name that Rucio's schema refuses would spoil the whole call: then each half is asked for itself, until the
    bad one is alone and left out. What is no word of the schema may be the server's own fault: where not one
    name is answered for, that error is raised, so that a server that fails is not taken for one that has nothing.
    """
    return split_into_batches(sorted(set(dids)), lambda batch: rows_of(connection, method, batch, **more))


def rows_of(connection: Connection, method: str, dids: Iterable[Did], **more: Any) -> list[Row]:
    """Return the rows that one call has for DIDs."""
    rows: list[Row] = connection.call(method, [did.row() for did in dids], **more)
    return rows


def split_into_batches(
    dids: Iterable[Did],
    read: Callable[[Sequence[Did]], list[Row]],
    is_too_large: Callable[[Sequence[Did]], bool] = lambda _batch: False,
) -> Iterator[Row]:
    """Give the same for DIDs in this order; a call has several of them only while they are not too large."""
    batch: list[Did] = []
    for did in dids:
        if batch and (len(batch) == AT_ONCE or is_too_large([*batch, did])):
            yield from _halved(batch, read)
            batch = []
        batch.append(did)
    if batch:
        yield from _halved(batch, read)


def _halved(dids: Sequence[Did], read: Callable[[Sequence[Did]], list[Row]]) -> list[Row]:
    rows: list[Row] = []
    answered = False
    suspects: list[Permanent] = []  # errors of single names that may be the server's
    parts = [dids]
    while parts:
        batch = parts.pop()
        try:
            rows += read(batch)
            answered = True
        except Permanent as error:
            # About what was asked, or refused for its size, which counts too since a half is smaller.
            cause = error.__cause__
            if not (isinstance(cause, InvalidObject) or type(cause) is RucioException):
                raise
            if len(batch) > 1:
                middle = len(batch) // 2
                parts += [batch[middle:], batch[:middle]]
            elif not isinstance(cause, InvalidObject):
                suspects.append(error)
        if suspects and not answered and (not parts or len(suspects) == SUSPECTS):
            raise suspects[0]
    return rows
