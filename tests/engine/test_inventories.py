"""Inventories: what is told of sources and of entries of a selection, and one that takes long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dc_inject.model import Hold, events
from dc_inject.model.errors import Permanent
from tests.engine.world import ALL, CYCLE, GB, START, campaign, flow, items, world

LINK = flow("A", "B", 1.0)
DUE = 112_500_000_000


def test_a_source_of_which_nothing_fits_is_told_of(tmp_path, caplog, wording):
    """As patterns and bounds may be wrong, and a person who waits for traffic should hear of it at once."""
    one = world(tmp_path, campaign([LINK]), {"A": []})
    one.run(cycles=1)
    wording([record.getMessage() for record in caplog.records if record.levelname == "WARNING"])


@pytest.mark.parametrize(
    ("chosen", "named"), [(replace(ALL, dids=("*:/B/*",)), 0), (replace(ALL, mean_file=(1, 10)), 20)]
)
def test_names_and_bounds_of_which_nothing_fits_are_told_apart(tmp_path, caplog, chosen, named):
    one = world(tmp_path, campaign([flow("A", "B", 1.0, datasets=chosen)]), {"A": items("A", 20)})
    one.run(cycles=1)
    found = [record.fields for record in caplog.records if getattr(record, "event", "") == "inventory"]
    assert found == [{"source": "A", "items": 0, "seen": 20, "named": named}]


def _unmatched(caplog):
    return [
        (record.fields["key"], record.fields["entries"], record.fields["sources"])
        for record in caplog.records
        if getattr(record, "event", "") == "unmatched"
    ]


def test_entries_that_match_nothing_at_any_source_are_told_of_once(tmp_path, caplog):
    """A typing error in `exclude` injects what was meant to be kept out."""
    chosen = replace(
        ALL,
        dids=("*:/A/*", "/C/*", "*:/Z/*"),
        exclude=("*:/A/data#001*", "cms:/C/data#0002", "*:/Embrago*", "cms:/C/data"),
    )
    links = [flow("A", "B", 1.0, datasets=chosen), flow("C", "B", 1.0, datasets=chosen)]
    one = world(tmp_path, campaign(links), {"A": items("A", 100, 10 * GB), "C": items("C", 100, 10 * GB)})
    one.run(cycles=3)
    assert _unmatched(caplog) == [
        ("datasets", ["*:/Z/*"], ["A", "C"]),
        ("exclude", ["*:/Embrago*", "cms:/C/data"], ["A", "C"]),
    ]


def test_nothing_is_told_of_entries_while_a_source_is_not_read(tmp_path, caplog):
    chosen = replace(ALL, exclude=("*:/C/*",))
    links = [flow("A", "B", 1.0, datasets=chosen), flow("C", "B", 1.0, datasets=chosen)]
    one = world(tmp_path, campaign(links), {"A": items("A", 100, 10 * GB)})

    def fault(method, subject):
        if (method, subject) == ("inventory", "C"):
            raise Permanent("not this one")

    one.backend.fault = fault
    one.run(cycles=2)
    assert _unmatched(caplog) == []


def test_an_inventory_that_takes_longer_than_planning_waits_is_taken_up_when_it_comes(tmp_path, monkeypatch):
    """And holds up no other link, and is not asked for again meanwhile."""
    one = world(tmp_path, campaign([LINK, flow("X", "C", 1.0)]), {s: items(s, 200, 10 * GB) for s in "AX"})
    engine = one.engine()
    submit, late = engine._executor.submit, []

    def slow(tag, task, lane=""):
        if any(getattr(argument, "source", "") == "X" for argument in getattr(task, "args", ())):
            late.append(lambda: submit(tag, task))
        else:
            submit(tag, task)

    monkeypatch.setattr(engine._executor, "submit", slow)
    one.heard.at[events.CycleClosed] = lambda: late and late.pop()()
    engine.run(until=START + 3 * CYCLE)
    assert one.backend.calls["inventory"] == 2
    rows = {(row.cycle.start, row.key.link.source): row for row in one.ledger.rows()}
    assert abs(rows[START, "A"].injected - DUE) <= 10 * GB
    assert rows[START, "X"].held.hold is Hold.API_ERRORS
    assert rows[START + 2 * CYCLE, "X"].injected > 0
