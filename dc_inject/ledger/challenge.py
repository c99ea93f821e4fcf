"""What is stored of a mini-challenge: its parameters and its readings, from which the verdict follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from dc_inject.ledger.database import moment, stored
from dc_inject.ledger.store import Store, read_object


class ChallengeRecord(NamedTuple):
    """One thing that is kept of a mini-challenge: `asked`, a `reading`, or `stopped` with a last reading."""

    at: datetime
    kind: str
    values: Mapping[str, Any]


class ChallengeReader(Store):
    """Reads the records of a mini-challenge."""

    def challenge(self) -> tuple[ChallengeRecord, ...]:
        """Return all that is kept, in the order in which it was written; nothing for other campaigns."""
        rows = self._db.rows("SELECT * FROM challenge ORDER BY id")
        return tuple(ChallengeRecord(moment(row["at"]), row["kind"], read_object(row["text"])) for row in rows)


class Challenge(ChallengeReader):
    """What is written of it."""

    def keep_challenge(self, kind: str, values: Mapping[str, Any], now: datetime) -> None:
        """Keep one thing more."""
        with self._db.write():
            self._db.run(
                "INSERT INTO challenge (at, kind, text) VALUES (?, ?, ?)",
                stored(now),
                kind,
                json.dumps(dict(values)),
            )
