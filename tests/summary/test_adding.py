"""The adder of rows: sums by step, name and kind of cycle."""

from __future__ import annotations

from datetime import timedelta

from dc_inject.ledger.series import CycleKind, Span, Sums
from dc_inject.model import EPOCH, FlowKey, Link
from dc_inject.summary.adding import Added, add_up, together

HOUR = timedelta(hours=1)
KEYS = [FlowKey("export", Link("T0", "T1")), FlowKey("export", Link("T0", "T2"))]


def span(hour: int, key: FlowKey, due: int, moved: int, kind: CycleKind = CycleKind.COUNTED) -> Span:
    return Span(EPOCH + hour * HOUR, kind, key, Sums(due=due, moved=moved))


SPANS = [
    span(0, KEYS[0], 5, 3),
    span(0, KEYS[1], 7, 0),
    span(1, KEYS[0], 2, 4),
    span(1, KEYS[0], 9, 1, CycleKind.OPEN),
]


def test_rows_are_added_up_by_name_step_and_kind_of_cycle():
    sums = add_up(SPANS, lambda key: key.link.destination, 2, lambda start: (start - EPOCH) // HOUR)
    assert sums["T1"].total() == Sums(due=16, moved=8)
    assert sums["T1"].total(CycleKind.COUNTED) == Sums(due=7, moved=7)
    assert sums["T1"].total(CycleKind.COUNTED, span=range(1, 2)) == Sums(due=2, moved=4)
    assert (sums["T1"].series("due"), sums["T1"].series("due", CycleKind.OPEN)) == ([5, 11], [0, 9])
    assert sums["T2"].series("rules") == [0, 0]
    assert (sums["T1"].has(CycleKind.OPEN), sums["T2"].has(CycleKind.OPEN)) == (True, False)


def test_sums_of_several_leave_those_of_each_as_they_are():
    sums = add_up(SPANS, lambda key: key)
    whole = together(sums.values())
    assert whole.total(CycleKind.COUNTED) == Sums(due=14, moved=7)
    assert sums[KEYS[1]].total() == Sums(due=7)


def test_nothing_adds_up_to_nothing():
    assert together([]).total() == Sums()
    assert Added(0).series("moved") == []


def test_a_row_without_bytes_is_a_row_too():
    added = Added()
    added.add(CycleKind.COUNTED, 0, Sums())
    assert together([added]).has(CycleKind.COUNTED)
