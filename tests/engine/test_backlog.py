"""What was on its way and could not be looked at tells nothing of how fast it arrives."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from dc_inject.model import Hold
from dc_inject.model.errors import Temporary
from tests.engine.world import CYCLE, START, campaign, file_flow, source_files, world


def test_what_could_not_be_looked_at_is_no_backlog(tmp_path):
    link = replace(file_flow("A", "B", 0.8), lifetime_max=timedelta(hours=1))
    one = world(tmp_path, campaign([link]), source_files("A", 400), name="fts")

    def fault(method, _subject):
        if method == "observe" and one.clock.now() >= START + 2 * CYCLE:
            raise Temporary("504")

    one.backend.fault = fault
    one.run(cycles=10)
    assert Hold.BACKLOG not in {row.held.hold for row in one.ledger.rows() if row.held}
