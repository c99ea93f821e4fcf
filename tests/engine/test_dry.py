"""A dry run: the real service is read, and what would be done is simulated, second hops included."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.apps.preview.dry import DryBackend
from tests.engine.test_second_hops import FTS, file_hop, hop
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, world


@pytest.mark.parametrize("service", ["rucio", "fts"])
def test_what_lands_in_the_simulation_goes_on_there_and_the_service_hears_nothing(tmp_path, service):
    long = {"lifetime_max": timedelta(hours=6)}
    if service == "fts":
        flows, more = [file_flow("A", "B", 0.8, **long), file_hop("B", "T", 0.8)], FTS
        one = world(tmp_path, campaign(flows), source_files("A", 400), **more)
    else:
        flows = [flow("A", "B", 4, **long), hop("B", "T", 4)]
        one = world(tmp_path, campaign(flows), {"A": items("A", 100, 50 * GB)})
    real = one.backend
    one.backend = DryBackend(real, one.clock)
    one.run(cycles=4)
    assert not real.rules
    assert not {"submit", "end", "remove", "observe"} & real.calls.keys()
    rows = [row for row in one.ledger.rows() if row.key == flows[1].key and row.cycle.start > START + CYCLE]
    assert (
        [row.injected for row in rows] == [row.due for row in rows] == [flows[1].rate * CYCLE.total_seconds()] * 2
    )
    assert not any(row.held for row in rows)


def test_datasets_that_share_files_are_not_on_their_way_together(tmp_path):
    """The real service knows no rule of the simulation, so what these bring is not in its lists."""
    stock = items("A", 3, 90 * GB)
    one = world(tmp_path, campaign([flow("A", "B", 0.8, dwell=timedelta(hours=1))]), {"A": stock})
    one.backend.files = {item.id: frozenset({1}) for item in stock}
    one.backend = DryBackend(one.backend, one.clock)
    one.run(cycles=3)
    assert [row.injected for row in one.ledger.rows()] == [90 * GB, 0, 0]
