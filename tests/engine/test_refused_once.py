"""One refusal of credentials costs no cycle: the service is asked again at once, and rarely only if it insists."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from dc_inject.model.errors import NeedsOperator, Temporary
from tests.engine.world import GB, START, campaign, flow, items, world

SHORT = timedelta(seconds=15)
GBPS = 4.0
DUE = round(GBPS * 1e9 / 8 * SHORT.total_seconds())


def _world(tmp_path):
    made = campaign([flow("A", "B", GBPS, end=START + 40 * SHORT)], cycle=SHORT)
    return world(tmp_path, made, {"A": items("A", 400, GB // 2)})


def _refusing(one, times):
    """Refuse the first so many calls from the second cycle on; returns how often each method was called then."""
    calls: Counter[str] = Counter()

    def fault(method, _subject):
        if one.clock.now() >= START + SHORT:
            calls[method] += 1
            if calls.total() <= times:
                raise NeedsOperator("the token is refused", hold="credentials")

    one.backend.fault = fault
    return calls


def test_a_single_refusal_costs_no_cycle_nor_does_one_in_each(tmp_path):
    one = _world(tmp_path)
    engine = one.engine()
    refused = set()

    def fault(_method, _subject):
        cycle = (one.clock.now() - START) // SHORT
        if cycle >= 1 and cycle not in refused:
            refused.add(cycle)
            raise NeedsOperator("the token is refused", hold="credentials")

    one.backend.fault = fault
    engine.run(until=START + 5 * SHORT)
    assert [row.injected > 0.8 * DUE for row in one.ledger.rows()] == [True] * 5
    assert "rucio" not in engine._context.broken


def test_credentials_that_stay_refused_are_not_asked_for_all_the_time(tmp_path):
    one = _world(tmp_path)
    engine = one.engine()
    calls = _refusing(one, 10**9)
    engine.run(until=START + 21 * SHORT)  # five minutes
    assert 5 <= calls["check"] <= 30


def test_a_check_that_fails_for_another_reason_is_repeated_soon(tmp_path):
    """Whoever is refused once, and whose next questions are lost, works again within seconds."""
    one = _world(tmp_path)
    engine = one.engine()
    lost = iter([NeedsOperator("refused", hold="credentials"), *[NeedsOperator("504"), Temporary("504")] * 4])

    def fault(_method, _subject):
        if one.clock.now() >= START + SHORT and (error := next(lost, None)):
            raise error

    one.backend.fault = fault
    engine.run(until=START + 4 * SHORT)
    assert sum(row.injected for row in one.ledger.rows()) > 3.8 * DUE
    assert next(lost, None) is None


def test_a_plan_that_fails_again_and_again_is_made_in_its_cycle(tmp_path):
    """The wait between two tries does not outgrow the cycle."""
    one = _world(tmp_path)
    engine = one.engine()

    def fault(method, _subject):
        late = (one.clock.now() - START) % SHORT
        if method == "sites" and late < 0.75 * SHORT:
            raise Temporary("504")

    one.backend.fault = fault
    engine.run(until=START + 4 * SHORT)
    assert all(row.injected > 0 for row in one.ledger.rows())
