"""How files stand with tape systems: a signal for each injection that has to do with tape, as JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from dc_inject.ledger.database import FLOW, Database, Store, flow_of, read_json, stored
from dc_inject.model import FlowKey, State, TapeFiles

_MOVING = frozenset({State.CALLED.value, State.LIVE.value})


def record(database: Database, files: Mapping[str, TapeFiles], now: datetime) -> None:
    """Write how the files of injections stand, by their keys: three counts, and the waits."""
    database.run_many(
        "INSERT OR REPLACE INTO signal VALUES ('tape', ?, ?, ?, '')",
        [(key, json.dumps([*counts, *waits]), stored(now)) for key, (*counts, waits) in files.items()],
    )


class TapeReader(Store):
    """Reads what was recorded."""

    def tape_files(self) -> dict[FlowKey, TapeFiles]:
        """Return how the files of flows stand with tape systems; files of what has ended wait for none."""
        counts, waits = dict[FlowKey, TapeFiles](), defaultdict[FlowKey, list[int]](list)
        for state, value, *flow in self._db.rows(
            f"SELECT state, value, {FLOW} FROM signal JOIN injection ON key = subject "  # noqa: S608  our own words
            "JOIN account ON account.id = account WHERE name = 'tape' ORDER BY scenario, source, destination, key"
        ):
            staging, archiving, archived, *waited = map(int, read_json(value, kind=list))
            key, waits_on = flow_of(*flow), state in _MOVING
            before = counts.get(key, TapeFiles())
            counts[key] = TapeFiles(
                before.staging + staging * waits_on,
                before.archiving + archiving * waits_on,
                before.archived + archived,
            )
            waits[key] += waited
        return {key: files._replace(waits=tuple(waits[key])) for key, files in counts.items()}
