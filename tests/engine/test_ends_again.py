"""An end that did not work is asked for again soon; one that was accepted is waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from dc_inject.model import State
from dc_inject.model.errors import Temporary
from dc_inject.model.events import EndRequested
from dc_inject.planning import reconcile
from tests.engine.world import GB, START, campaign, flow, items, opened, world

SHORT = timedelta(seconds=10)  # a cycle, much shorter than the wait for an end that was accepted


def _world(path):
    made = campaign([flow("A", "B", 1.0, end=START + SHORT)], cycle=SHORT)
    one = world(path, made, {"A": items("A", 10, GB)})
    one.settings = replace(one.settings, drain=True, poll=timedelta(seconds=1))
    return one


def test_an_end_that_failed_for_the_moment_is_asked_for_again_within_seconds(tmp_path):
    one = _world(tmp_path)
    failures = [3]

    def fault(method, _subject):
        if method == "end" and failures[0]:
            failures[0] -= 1
            raise Temporary("the database is locked")

    one.backend.fault = fault
    one.run()
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    assert failures == [0]
    assert one.clock.now() < START + SHORT + reconcile.ASK_AGAIN


def test_an_end_that_a_dead_process_wrote_down_and_may_not_have_asked_for_is_asked_for_at_the_next_start(tmp_path):
    one = _world(tmp_path)

    def die():
        raise KeyboardInterrupt

    one.heard.at[EndRequested] = die
    try:
        one.run()
    except KeyboardInterrupt:
        one.heard.at.clear()
    assert any(entry.end_asked_at for entry in one.ledger.entries())
    one.ledger.close()
    one.ledger = opened(one.path)
    one.run()
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    assert one.clock.now() < START + SHORT + reconcile.ASK_AGAIN
