"""Given: the datasets and files that went out in scenarios which give each of them once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dc_inject.ledger.part import Part
from dc_inject.model import Entry, Injection, State
from dc_inject.model.items import units_of

_DROPPED = frozenset({State.REFUSED, State.WITHDRAWN})
_OVER = frozenset({State.COMPLETE, State.ENDED, State.GONE})


class GivenReader(Part):
    """What can be read of it."""

    def given(self) -> set[tuple[str, str]]:
        """Return every (dataset or file, scenario) that is on its way or has arrived, and goes out once."""
        found = self._db.rows(
            "SELECT given.item, scenario FROM given JOIN injection USING (key) "
            "JOIN account ON account.id = account"
        )
        return {(row["item"], row["scenario"]) for row in found}


class Given(GivenReader):
    """What is written of it, inside the transactions of what happens to injections."""

    def _give(self, injections: Iterable[Injection]) -> None:
        self._db.run_many(
            "INSERT OR IGNORE INTO given VALUES (?, ?)",
            ((one.key, name) for one in injections if one.once for name in units_of(one.item)),
        )

    def _take_back(self, before: Entry, after: Entry, undone: Collection[str] = ()) -> None:
        """Let go out again what did not arrive, now that an injection is over or was dropped.

        `undone` names the files of it that did not arrive; where nobody told, none of them counts as arrived.
        """
        key, item = before.injection.key, after.injection.item
        dropped = after.state in _DROPPED
        over = before.state not in _OVER and after.state in _OVER
        if dropped or (over and after.moved + after.present < item.bytes and not undone):
            self._db.run("DELETE FROM given WHERE key = ?", key)
        elif over:
            self._db.run_many("DELETE FROM given WHERE key = ? AND item = ?", ((key, name) for name in undone))
