"""Reading what services answer: a number, name or time that cannot be stored never gets into our types.

All raise TypeError or ValueError, which the back ends take for an answer that cannot be understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from dc_inject.model.errors import Temporary
from dc_inject.model.redaction import scrub

LARGEST = 2**63 - 1  # that the ledger can keep
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@contextmanager
def understood(service: str, server: str, *, lost: bool = False) -> Iterator[None]:
    """Let an answer of an unforeseen form be a ServiceError, as any other trouble; `server` may answer."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        message = f"{service}'s answer cannot be understood ({type(error).__name__}: {scrub(str(error))})"
        raise Temporary(message, f"is it {server} or newer?", lost=lost) from error


def count(value: object) -> int:
    """Return a count, or a size in bytes; 0 if there is none."""
    if value is None:
        return 0
    if type(value) is not int:
        raise TypeError("a number is wanted")
    if not 0 <= value <= LARGEST:
        raise ValueError("a number is too large, or negative")
    return value


def name(value: object) -> str:
    """Return a name or an id: a text of printable characters."""
    if not isinstance(value, str):
        raise TypeError("a name is wanted")
    if not value or not value.isprintable():
        raise ValueError("a name is empty, or has characters that no name has")
    return value


def is_identifier(value: object) -> bool:
    """Return whether it may be the id of a rule or job: services have UUIDs, with hyphens or without."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def identifier(value: object) -> str:
    """Return the id of a rule or job."""
    if not is_identifier(value):
        raise ValueError("an id is empty, too long, or has characters that no id has")
    return str(value)


def utc(moment: object) -> datetime | None:
    """Give a time its zone, UTC, which services leave out; None if there is none."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise TypeError("a time is wanted")
    return moment.replace(tzinfo=UTC)
