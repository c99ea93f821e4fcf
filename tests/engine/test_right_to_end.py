"""That a probe of the right to end was lost costs seconds of planning without it, not an hour."""

from __future__ import annotations

import pytest

from dc_inject.model.errors import NeedsOperator
from dc_inject.model.types import LONGEST, SHORTEST
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, url, world
from tests.sim import SimBackend


def _engine(tmp_path, first, later):
    """An engine whose service tells one right at the start, and another one whenever it is asked again."""
    made = campaign([flow("A", "B", 1.0, end=START + 20 * CYCLE)])
    one = world(tmp_path, made, {"A": items("A", 100, 10 * GB)})
    one.backend.may_end = first
    engine = one.engine()
    one.backend.may_end = later
    return one, engine


def test_a_right_that_could_not_be_found_out_is_asked_for_again_at_once(tmp_path):
    one, engine = _engine(tmp_path, None, True)
    engine.run(until=START + 2 * CYCLE)
    assert engine._context.identities["rucio"].may_end is True
    assert one.clock.now() <= START + 2 * CYCLE


def test_a_right_that_is_known_stays_known_when_a_later_probe_is_lost(tmp_path):
    _, engine = _engine(tmp_path, True, None)
    engine.run(until=START + 8 * CYCLE)  # over an hour: it is asked again meanwhile
    assert engine._context.identities["rucio"].may_end is True


def test_a_right_that_was_taken_away_is_heard_of(tmp_path):
    _, engine = _engine(tmp_path, True, False)
    engine.run(until=START + 8 * CYCLE)
    assert engine._context.identities["rucio"].may_end is False


def test_a_check_that_meets_a_broken_call_does_not_stop_a_service_that_works(tmp_path):
    """Only credentials that are refused do: whether it works, its other calls tell."""
    one, engine = _engine(tmp_path, True, True)

    def fault(method, _subject):
        if method == "check":
            raise NeedsOperator(
                "Rucio at http://rucio.example.org: no error information passed (http status code: 504)"
            )

    one.backend.fault = fault
    engine.run(until=START + 8 * CYCLE)
    assert "rucio" not in engine._context.broken
    assert all(row.injected for row in one.ledger.rows() if row.closed)
    one.backend.fault = lambda method, _: _refuse() if method == "check" else None
    engine._checking._check_at = one.clock.now()
    engine.run(until=START + 9 * CYCLE)
    assert "rucio" in engine._context.broken


@pytest.mark.parametrize("right", [True, False])
def test_early_ending_is_planned_with_by_service(tmp_path, right):
    """Where the space holds an hour's worth, what may be ended early gets the longest lifetime, the rest an hour.

    A job may be cancelled by whoever submitted it, whatever Rucio allows its account.
    """
    links = [flow("A", "B", 1.0), file_flow("C", "D", 1.0)]
    one = world(tmp_path, campaign(links), {"A": items("A", 100, 5 * GB)}, may_end=right, space={"B": 500 * GB})
    one.join(SimBackend(one.clock, source_files("C", 100), name="fts", space={url("D"): 500 * GB}))
    one.engine().run(until=START + CYCLE)
    lifetimes = {(e.injection.link.through, e.injection.lifetime) for e in one.ledger.entries()}
    assert lifetimes == {("rucio", LONGEST if right else SHORTEST), ("fts", LONGEST)}


def _refuse():
    raise NeedsOperator("the token has expired", hold="credentials")
