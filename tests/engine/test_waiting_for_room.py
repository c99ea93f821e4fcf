"""Where a disk is nearly full and control acts, a plan counts on deletions, and releases wait for them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.model import Control, Hold, Mode
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world

ACT = Control(Mode.ACT)


def on_disk(one) -> int:
    """Bytes that have arrived and were not deleted yet."""
    return sum(rule.moved for rule in one.backend.rules.values() if rule.deleted is None)


def nearly_full(tmp_path):
    """Rules of an hour, deleted a quarter of an hour later: 1.2 TB at 2 Gb/s, on a disk of 1.35 TB."""
    link = flow("A", "B", 2.0, control=ACT, lifetime_min=4 * CYCLE, lifetime_max=4 * CYCLE)
    return world(
        tmp_path, campaign([link]), {"A": items("A", 600, 15 * GB)}, deletion_lag=CYCLE, space={"B": 1350 * GB},
        may_end=False,
    )  # fmt: skip


def test_a_space_that_is_just_enough_is_used_by_counting_on_what_is_deleted(tmp_path):
    one, most = nearly_full(tmp_path), 0
    for _ in range(20):
        one.run(cycles=1)
        most = max(most, on_disk(one))
    rows = one.ledger.rows()[8:]
    assert sum(row.injected for row in rows) >= 0.98 * sum(row.due for row in rows)
    assert most <= 0.98 * 1350 * GB


def test_what_counts_on_deletions_that_do_not_come_waits_for_room_and_is_withdrawn(tmp_path):
    one = nearly_full(tmp_path)
    one.run(cycles=12)
    one.backend.deletion_lag = timedelta(days=2)
    for _ in range(3):
        one.run(cycles=1)
        assert on_disk(one) <= 0.98 * 1350 * GB
    held = [row.held for row in one.ledger.rows()[12:] if row.held]
    assert {reason.hold for reason in held} == {Hold.DESTINATION_FULL}
    assert any("withdrawn" in reason.numbers for reason in held)
    assert one.ledger.rows()[-1].injected == 0


def test_an_old_word_of_free_space_counts_with_what_had_arrived_then(tmp_path):
    """Told an hour long, from a cycle later on, with its time: what went and came since changes no space."""
    one = nearly_full(tmp_path)
    look, told = one.backend.sites, {}

    def sites(rses):
        facts, now = look(rses), one.clock.now()
        told.setdefault((now - START) // timedelta(hours=1), (facts["B"].free, now))
        free, at = told[max((now - CYCLE - START) // timedelta(hours=1), 0)]
        return facts | {"B": replace(facts["B"], free=free, free_at=at)}

    one.backend.sites = sites
    for _ in range(14):
        one.run(cycles=1)
        (kept,) = [json.loads(signal.value) for signal in one.ledger.signals() if signal.name == "spaces"]
        assert min(kept["seen"].values()) == pytest.approx(1350 * GB, rel=0.05)
    assert on_disk(one) <= 0.98 * 1350 * GB
