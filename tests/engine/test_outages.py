"""Cycles in which no injector ran, and those in which one ran and nothing was to be injected."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.engine.context import Settings
from dc_inject.model import Cycle, Hold, Limits
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import RseFacts
from dc_inject.planning import plan
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world

LINK = flow("A", "B", 1.0)  # 112.5 GB a cycle
DUE = 112_500_000_000


def test_an_outage_is_one_line_in_the_log(tmp_path, caplog, wording):
    """Whatever its length: who starts after it looks for what is wrong now."""
    caplog.set_level("INFO", "dc_inject")
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 10 * GB)})
    one.run(cycles=1)
    one.clock.advance(START + 42 * CYCLE)
    caplog.clear()
    one.run(cycles=1)
    (line, last) = [line for line in caplog.messages if "not-running" in line]
    assert last.startswith("cycle 2027-02-08T20:30:00Z: 1 link"), "the one that makes it up"
    wording(line)
    assert "2027-02-08T10:15:00Z to 2027-02-08T20:15:00Z: due 4.61 TB" in line


def test_what_is_forgiven_after_an_outage_is_blamed_on_it(tmp_path, monkeypatch):
    """Not on the limit that slows down making it up: neither while it lasts, nor in the first cycle after it.

    From the next one on planning is told that the outage is made up already.
    """
    made_up, decide = {}, plan.plan

    def planned(situation):
        made_up[situation.cycle.start] = [demand.made_up for demand in situation.demands]
        return decide(situation)

    monkeypatch.setattr(plan, "plan", planned)
    rate = 1.25 * LINK.rate
    limits = Limits(total=rate, per_site=rate, rules_per_hour=10**6, files_in_flight=10**9)
    one = world(tmp_path, campaign([LINK], limits=limits), {"A": items("A", 200, 10 * GB)})

    def away(method: str, _subject: object) -> None:
        if method == "submit" and 3 <= (one.clock.now() - START) / CYCLE < 6:
            raise Temporary("no connection")

    one.backend.fault = away
    one.run(cycles=5)
    one.run(cycles=2)
    rows = one.ledger.rows()
    assert [row.forgiven > 0 for row in rows[3:]] == [False, False, True, True]
    assert [row.held and row.held.hold for row in rows[3:]] == [Hold.API_ERRORS] * 4
    one.run(cycles=1)
    assert made_up[START + 3 * CYCLE] == [False]
    assert made_up[START + 7 * CYCLE] == [True]


def test_while_it_drains_past_its_end_nothing_is_due_and_nobody_is_missing(tmp_path):
    """Nothing of ours is live any more, and its bytes are still waited for; a later start finds no gap either."""
    settings = Settings(poll=CYCLE / 5, wait_deleted_cycles=8)
    link = replace(LINK, lifetime_min=CYCLE, lifetime_max=CYCLE)
    stock = {"A": items("A", 200, 10 * GB)}
    one = world(tmp_path, campaign([link]), stock, settings=settings, deletion_lag=timedelta(days=3))
    one.run(cycles=2)
    over = Cycle.at(one.clock.now(), CYCLE)
    assert over.start >= START + 8 * CYCLE
    one.run(cycles=1)
    rows = one.ledger.rows()
    assert not [row for row in rows if row.held and row.held.hold is Hold.NOT_RUNNING and row.cycle < over]
    assert sum(row.due for row in rows if row.cycle < over) == 2 * DUE
    assert sum(row.forgiven for row in rows) == 0


@pytest.mark.parametrize("closed", ["A", "B"])
def test_only_what_is_read_can_be_closed_for_reading(tmp_path, monkeypatch, closed):
    """A destination's folder need not exist."""
    one = world(tmp_path, campaign([LINK]), {"A": items("A", 200, 10 * GB)})
    facts = {name: RseFacts(name, readable=name != closed, writable=True) for name in ("A", "B")}
    monkeypatch.setattr(one.backend, "sites", lambda rses: {name: facts[name] for name in rses})
    one.run(cycles=1)
    signals = [(signal.subject, signal.value) for signal in one.ledger.signals() if signal.name == "readable"]
    assert [subject for subject, value in signals if value == 0] == (["A"] if closed == "A" else [])
