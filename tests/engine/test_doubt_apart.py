"""After a crash much may be in doubt, and each needs a call: what is known is not kept waiting by it."""

from __future__ import annotations

from dataclasses import replace

from dc_inject.engine.reconciler import FIND_AT_ONCE
from dc_inject.model import State
from tests.engine.world import GB, campaign, flow, items, world


def test_what_is_in_doubt_is_looked_for_apart_and_in_small_parts(tmp_path):
    one = world(tmp_path, campaign([flow("A", "B", 8.0)]), {"A": items("A", 400, 10 * GB)})
    one.run(cycles=1)
    engine, looks, observe = one.engine(), [], one.backend.observe

    def watched(entries, *, exact=False):
        looks.append([entry.state for entry in entries])
        return observe(entries, exact=exact)

    one.backend.observe = watched
    entries = one.ledger.entries()
    assert len(entries) > 2 * FIND_AT_ONCE
    doubtful = [replace(entry, state=State.CALLED) for entry in entries[5:]]
    engine._rounds._observe([*entries[:5], *doubtful])
    engine._calls.wait(one.clock.now())
    assert [State.CALLED in states for states in looks] == [False] + [True] * (len(looks) - 1)
    assert len(looks[0]) == 5
    assert max(map(len, looks[1:])) == FIND_AT_ONCE
    assert sum(map(len, looks)) == len(entries)
