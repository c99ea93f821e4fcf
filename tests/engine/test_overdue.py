"""What goes out when after a stop or an outage in the middle of a cycle."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

from dc_inject.backends.sim import SimClock
from dc_inject.engine.intents import moment
from dc_inject.engine.submitting import Submitting
from dc_inject.model import Dataset, Entry, Link, State
from tests.backends.support import CYCLE, injection

LINK, MINUTE = Link("A", "B", "rucio"), timedelta(minutes=1)


def test_what_is_overdue_goes_out_evenly_but_recalls_which_go_out_at_the_start_of_a_cycle_at_once():
    now = CYCLE.start + 5 * MINUTE
    submitting = Submitting(SimpleNamespace(clock=SimClock(now)))
    for number, after in enumerate([0, 1, 2, 10]):
        made = injection(Dataset(f"s:{number}", 10**9, 1), LINK, release=CYCLE.start + after * MINUTE)
        submitting._waiting.put(Entry(made, State.INTENDED))
    submitting.spread_overdue()
    moments = {entry.injection.item.name: (moment(entry) - now) / MINUTE for entry in submitting._waiting}
    assert (moments["s:0"], moments["s:3"]) == (-5, 5)
    assert 0 < moments["s:1"] < moments["s:2"] < 10
