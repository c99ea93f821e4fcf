"""Data identifiers: names of datasets, and reading about many of them in a few calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rucio.common.exception import InvalidObject, RucioException

from dc_inject.backends import answers
from dc_inject.backends.rucio.connection import Row
from dc_inject.errors import Permanent

AT_ONCE = 200  # DIDs in one bulk read; Rucio's schemas allow 1,000


class Did(NamedTuple):
    """A data identifier."""

    scope: str
    name: str

    @classmethod
    def read(cls, text: str) -> Did:
        """Split `scope:name`, of a slice that of its own dataset; raises Permanent when there is no scope."""
        scope, colon, name = text.partition(" ")[0].partition(":")
        if not (scope and colon and name):
            raise Permanent(f"{text!r} is no DID", "write scope:name")
        return cls(scope, name)

    @classmethod
    def of(cls, row: Row) -> Did:
        """Return the DID that a row of Rucio speaks of."""
        return cls(answers.name(row["scope"]), answers.name(row["name"]))

    def row(self, **more: str) -> dict[str, str]:
        """Return it as Rucio's calls want it."""
        return {"scope": self.scope, "name": self.name, **more}

    def __str__(self) -> str:
        return f"{self.scope}:{self.name}"


def bulk(dids: Iterable[Did], read: Callable[[Sequence[Did]], list[Row]]) -> Iterator[Row]:
    """Give the rows that `read` has for DIDs, a few calls for all of them.

    A name that Rucio's schema refuses would spoil the whole call: then each half is asked for itself, until the
    bad one is alone and left out.
    """
    wanted = sorted(set(dids))
    for start in range(0, len(wanted), AT_ONCE):
        yield from _halved(wanted[start : start + AT_ONCE], read)


def _halved(dids: Sequence[Did], read: Callable[[Sequence[Did]], list[Row]]) -> list[Row]:
    try:
        return read(dids)
    except Permanent as error:
        if not _refuses_a_name(error):
            raise
        if len(dids) == 1:
            return []
    middle = len(dids) // 2
    return _halved(dids[:middle], read) + _halved(dids[middle:], read)


def _refuses_a_name(error: Permanent) -> bool:
    """Whether it is about what was asked; refused for its size counts too, since a half is smaller."""
    cause = error.__cause__
    return isinstance(cause, InvalidObject) or type(cause) is RucioException
