"""Inventories: what is told of sources and of entries of a selection, and one that takes long."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dc_inject.model import Hold, events
from dc_inject.model.errors import Permanent, Temporary
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


@pytest.mark.parametrize("sources", ["AX", "X"])
def test_a_source_that_does_not_answer_holds_its_own_links_only(tmp_path, sources, caplog):
    """It is asked again at once, in case its answer was lost, and then once a cycle if others can be planned."""
    flows = [flow(source, "B", 1.0) for source in sources]
    one = world(tmp_path, campaign(flows), {source: items(source, 200, 10 * GB) for source in sources})
    planned: list[datetime] = []

    def fault(method, subject):
        if (method, subject) == ("inventory", "X"):
            raise Temporary("no answer", hold="source-unavailable")

    one.backend.fault = fault
    one.heard.at[events.Planned] = lambda: planned.append(one.clock.now())
    one.run(cycles=2)
    assert any("the inventory of X" in record.getMessage() for record in caplog.records)
    rows = {(row.cycle.start, row.key.link.source): row for row in one.ledger.rows()}
    assert {row.held.hold for (_, source), row in rows.items() if source == "X"} == {
        Hold.SOURCE_UNAVAILABLE if "A" in sources else Hold.API_ERRORS
    }
    if "A" in sources:
        first, second = planned
        assert (first - START < timedelta(seconds=5), second) == (True, START + CYCLE)
    else:
        assert not planned


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
