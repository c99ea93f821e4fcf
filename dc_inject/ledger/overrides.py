"""Overrides as they are kept: what a person set over the menus, since when, until when, by whom and why."""

from __future__ import annotations

from datetime import datetime

from dc_inject.ledger.database import Database, Kept, moment, stored
from dc_inject.ledger.records import RecordReader, Records
from dc_inject.model.overrides import EVERYTHING, Kind, Override, describe, shown


class OverrideReader(RecordReader):
    """What can be read of them."""

    def overrides(self, at: datetime | None = None) -> tuple[Override, ...]:
        """Return what is set now, or was set at a moment, by subject and kind."""
        rows = self._db.rows("SELECT * FROM override WHERE until IS NULL ORDER BY subject, kind")
        if at is not None:
            sql = "SELECT * FROM override WHERE since <= ? AND (until IS NULL OR until > ?) ORDER BY subject, kind"
            rows = self._db.rows(sql, stored(at), stored(at))
        return tuple(
            Override(row["subject"], Kind(row["kind"]), row["value"], row["who"], row["why"], moment(row["since"]))
            for row in rows
        )


class Overrides(Records, OverrideReader):
    """What is written of them; each is a change of a person, and kept as one."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._overrides = Kept(database, super().overrides)  # asked for at each step of the engine

    def overrides(self, at: datetime | None = None) -> tuple[Override, ...]:
        """Return what is set now, or was set at a moment, by subject and kind."""
        return self._overrides() if at is None else super().overrides(at)

    def override(self, subject: str, kind: Kind, value: float, who: str, why: str, now: datetime) -> bool:
        """Set a rate (bytes per second) or a scale for a subject, in place of the one before.

        Returns False, and writes nothing, when it is so already.
        """
        with self._db.write():
            if any((o.subject, o.kind, o.value) == (subject, kind, value) for o in self.overrides()):
                return False
            self._lift(subject, kind, now)
            self._db.run(
                "INSERT INTO override (subject, kind, value, who, why, since) VALUES (?, ?, ?, ?, ?, ?)",
                subject,
                str(kind),
                float(value),
                who,
                why,
                stored(now),
            )
            self._overrides.forget()
            self.change(who, f"set {shown(subject, EVERYTHING)} {describe(kind, value)}", why, now)
        return True

    def unset(self, subject: str, kind: Kind | None, who: str, why: str, now: datetime) -> tuple[Override, ...]:
        """Take back what is set for a subject (of one kind, or all), and return it."""
        with self._db.write():
            ours = tuple(o for o in self.overrides() if o.subject == subject and kind in {None, o.kind})
            for override in ours:
                self._lift(subject, override.kind, now)
                self.change(who, f"unset {shown(subject, EVERYTHING)} {override.words}", why, now)
        return ours

    def _lift(self, subject: str, kind: Kind, now: datetime) -> None:
        self._db.run(
            "UPDATE override SET until = ? WHERE subject = ? AND kind = ? AND until IS NULL",
            stored(now),
            subject,
            str(kind),
        )
        self._overrides.forget()
