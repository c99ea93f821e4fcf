"""Once only: the datasets and files that went out in scenarios which give each of them once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dc_inject.ledger.store import Store
from dc_inject.model import Entry, Injection, State
from dc_inject.model.items import units_of

_DROPPED = frozenset({State.REFUSED, State.WITHDRAWN})
_OVER = frozenset({State.COMPLETE, State.ENDED, State.GONE})


class OnceOnlyReader(Store):
    """What can be read of it."""

    def once_only(self) -> set[tuple[str, str]]:
        """Return every (dataset or file, scenario) that is on its way or has arrived, and goes out once."""
        rows = self._db.rows(
            "SELECT once_only.item, scenario FROM once_only JOIN injection USING (key) "
            "JOIN account ON account.id = account"
        )
        return {(row["item"], row["scenario"]) for row in rows}


class OnceOnly(OnceOnlyReader):
    """What is written of it, inside the transactions of what happens to injections."""

    def _keep_once_only(self, injections: Iterable[Injection]) -> None:
        self._db.run_many(
            "INSERT OR IGNORE INTO once_only VALUES (?, ?)",
            ((one.key, name) for one in injections if one.once for name in units_of(one.item)),
        )

    def _let_out_again(self, before: Entry, after: Entry, undone: Collection[str] = ()) -> None:
        """Let go out again what did not arrive, now that an injection is over or was dropped.

        `undone` names the files of it that did not arrive; where nobody told, none of them counts as arrived.
        """
        key, item = before.injection.key, after.injection.item
        dropped = after.state in _DROPPED
        over = before.state not in _OVER and after.state in _OVER
        if dropped or (over and after.moved + after.present < item.bytes and not undone):
            self._db.run("DELETE FROM once_only WHERE key = ?", key)
        elif over:
            self._db.run_many("DELETE FROM once_only WHERE key = ? AND item = ?", ((key, name) for name in undone))
