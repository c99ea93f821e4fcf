"""Facts of RSEs: the sites' own brakes, space, and what our quota leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from rucio.common import exception as rucio

from dc_inject.backends import answers
from dc_inject.backends.answers import count, utc
from dc_inject.backends.rucio.connection import Connection, Row, account_of, is_admin
from dc_inject.backends.rucio.errors import tolerated
from dc_inject.model import units
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.ports import RseFacts, in_parts
from dc_inject.model.redaction import scrub

_SHORT = timedelta(seconds=5)  # what all RSEs share is read once for the parts of one round of questions
_LONG = timedelta(hours=12)  # attributes of RSEs, which RSEs an expression or a name means
_TOGETHER = 50  # names in one expression, which is a part of a URL
_OLD = timedelta(hours=24)  # of a storage's own report of its space

_EMPTY_LIMIT = "a global limit of the account matches no RSE, so that Rucio refuses all rules of the account"

T = TypeVar("T")


@dataclass(slots=True)
class _Signals:
    """Reads signals; one that cannot be read is missing, with the reason, and stops nothing."""

    missing: dict[str, str] = field(default_factory=dict)

    def read(self, name: str, reader: Callable[[], T]) -> T | None:
        try:
            return reader()
        except NeedsOperator:
            raise
        except ServiceError as error:
            self.missing[name] = error.message
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self.missing[name] = f"the answer cannot be understood ({type(error).__name__})"
        return None


class Facts:
    """Reads what Rucio knows of RSEs: two calls for all of them, two for quotas, one or two for each."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._alone: dict[str, datetime] = {}  # names that mean their RSE alone, and since when that is known

    def sites(self, names: Iterable[str]) -> dict[str, RseFacts]:
        """Return the facts of each RSE; raises a ServiceError when it cannot be read which there are, or meant.

        That list carries availability as it is now; an expression such as availability_write=True would be
        answered from a cache of the server, up to 10 minutes old.
        """
        rses = self._connection.kept(("rses",), _SHORT, self._rses)
        shared = _Signals()
        quota = shared.read("quota_left", lambda: self._connection.kept(("quota",), _SHORT, self._quota))
        wanted = sorted(set(names))
        means = self._meanings([name for name in wanted if name in rses])
        return {
            name: self._facts(name, rses[name], means[name], quota, shared)
            if name in rses
            else RseFacts(name, exists=False, near=scrub("".join(units.nearest(name, rses))))
            for name in wanted
        }

    def _facts(
        self, name: str, rse: Row, means: tuple[str, ...], quota: Callable[[str], float] | None, shared: _Signals
    ) -> RseFacts:
        signals = _Signals(dict(shared.missing))
        free, free_at = signals.read("free", lambda: self._free(name)) or (None, None)
        rse_attributes = signals.read("site", lambda: attributes(self._connection, name)) or {}
        return RseFacts(
            name,
            readable=bool(rse["availability_read"]),
            writable=bool(rse["availability_write"]),
            deletable=rse.get("availability_delete") is not False,
            free=free,
            free_at=free_at,
            quota_left=None if quota is None else _left(quota(name)),
            means=means,
            tape=rse["rse_type"] == "TAPE",
            site=scrub(str(rse_attributes.get("site") or "")),
            missing=signals.missing,
            closed={} if shared.missing.get("quota_left") != _EMPTY_LIMIT else {"quota_left": _EMPTY_LIMIT},
        )

    def _rses(self) -> dict[str, Row]:
        return {row["rse"]: row for row in self._connection.call("list_rses")}

    def _free(self, name: str) -> tuple[int, datetime | None]:
        """Return the free space as the storage itself reports it, and when it did."""
        rows = self._connection.call("get_rse_usage", name)
        usage = next((row for row in rows if row["source"] == "storage" and row["free"] is not None), None)
        if usage is None:
            raise Permanent("no report of the storage's free space")
        updated = utc(usage["updated_at"])
        if updated is not None and self._connection.now() - updated > _OLD:
            raise Permanent(f"the storage's last report of its free space is of {units.format_minute(updated)}")
        return count(usage["free"]), updated

    def _quota(self) -> Callable[[str], float]:
        """Return a function from an RSE to the bytes left there: none where no limit is set, as for Rucio."""
        if is_admin(self._connection):
            return lambda _: math.inf
        account = account_of(self._connection)
        left = {
            row["rse"]: float(row["bytes_remaining"])
            for row in self._connection.call("get_local_account_usage", account)
        }
        for row in self._global_usage(account):
            for name in self._meant(row["rse_expression"]):
                if name in left:
                    left[name] = min(left[name], float(row["bytes_remaining"]))
        return lambda name: left.get(name, 0)

    def _global_usage(self, account: str) -> list[Row]:
        try:
            rows: list[Row] = self._connection.call("get_global_account_usage", account)
        except Permanent as error:
            if isinstance(error.__cause__, rucio.InvalidRSEExpression):
                raise Permanent(_EMPTY_LIMIT) from error.__cause__
            raise
        return rows

    def _meanings(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return what names mean in a rule: their RSEs, where each alone has an attribute of its own name.

        That is asked once, in one call where all is well; whatever else a name means may be put right soon.
        """
        now = self._connection.now()
        unsure = [name for name in names if now - self._alone.get(name, now - _LONG) >= _LONG]
        meanings: dict[str, tuple[str, ...]] = {name: (name,) for name in names}
        for part in in_parts(unsure, _TOGETHER):
            if not self._each_alone(part):
                meanings |= {name: self._meant_by(name) for name in part}
        self._alone |= {name: now for name in unsure if meanings[name] == (name,)}
        return meanings

    def _each_alone(self, names: Sequence[str]) -> bool:
        """Return whether each RSE has the attribute of its own name, and no other RSE has one of them.

        False also where that is not known for all of them together.
        """
        try:
            for name in names:
                of_rse = attributes(self._connection, name)
                if [other for other in names if of_rse.get(other)] != [name]:
                    return False
            return resolve(self._connection, "|".join(names)) == tuple(names)
        except (Permanent, Temporary):
            return False

    def _meant_by(self, name: str) -> tuple[str, ...]:
        """Return what a name means in a rule; nothing where no RSE has an attribute of that name."""
        with tolerated(rucio.InvalidRSEExpression):
            return resolve(self._connection, name)
        return ()

    def _meant(self, expression: str) -> tuple[str, ...]:
        return self._connection.kept(
            ("expression", expression), _LONG, lambda: resolve(self._connection, expression)
        )


def attributes(connection: Connection, rse: str) -> Row:
    """Return the attributes of an RSE, as they were within the last twelve hours."""

    def read() -> Row:
        row: Row = connection.call("list_rse_attributes", rse)
        return row

    return connection.kept(("attributes", rse), _LONG, read)


def resolve(connection: Connection, expression: str) -> tuple[str, ...]:
    """Return the RSEs that an expression means, sorted; raises Permanent for one that is not valid."""
    return tuple(sorted(answers.name(row["rse"]) for row in connection.call("list_rses", expression)))


def _left(remaining: float) -> int | None:
    """Return how large a dataset may be: Rucio wants more left than its size. None: no limit."""
    return None if math.isinf(remaining) else max(int(remaining) - 1, 0)
