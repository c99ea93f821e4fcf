"""What a perfect injector could move, where arithmetic gives the answer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.twin.bounds_stored import STORED, in_words, stored_bounds

pytest.importorskip("scipy")  # a part of `dev`

from tests.apps.twin.bounds import Held, Program

FAST, SLOW = ("A", "FAST"), ("A", "SLOW")
STEP, STEPS = 100.0, 10


def links(**due):
    """Return a program in which two links are due so many bytes in each step."""
    return Program(STEP, {FAST: [due["fast"]] * STEPS, SLOW: [due["slow"]] * STEPS})


def share(program, name, room, **each):
    """Let both links use so much of something for each byte; `room` of it is there in a second."""
    program.shares[name] = {FAST: each["fast"], SLOW: each["slow"]}
    program.rooms[name] = np.full(STEPS, room * STEP)


def test_all_is_moved_where_nothing_is_short():
    program = links(fast=1000, slow=500)
    share(program, "cable", 15.0, fast=1, slow=1)
    assert program.solve() == (pytest.approx(1.0), ())


def test_slots_go_to_the_link_that_moves_most_with_them():
    program = links(fast=1000, slow=1000)
    share(program, "transfers", 20.0, fast=1, slow=10)
    # The fast one takes 10 of 20; the rest is 1 byte/s of the slow one.
    assert program.solve() == (pytest.approx((1000 + 100) / 2000), ("transfers",))


def test_nothing_moves_before_it_is_due_and_an_outage_is_made_up_afterwards():
    program = links(fast=1000, slow=0)
    share(program, "cable", 12.0, fast=1, slow=1)
    program.rooms["cable"][2:4] = 0  # 2000 are missing, of which the six steps after it make up 200 each
    assert program.solve().moved == pytest.approx(0.92)


def test_a_space_is_filled_again_when_bytes_have_stayed_for_their_time():
    program = links(fast=1000, slow=0)
    program.held.append(Held("space", (FAST,), 1500.0, 5 * STEP))
    assert program.solve() == (pytest.approx(0.3), ("space",))


def test_deletions_that_are_slow_leave_no_more_room_than_they_make():
    program = links(fast=1000, slow=0)
    program.held.append(Held("space", (FAST,), 2000.0, 0.0, (3.0,) * STEPS))
    assert program.solve().moved == pytest.approx((2000 + 3.0 * STEP * STEPS) / 10_000)


def test_each_scenario_has_a_bound():
    assert {path.parent.name for path in STORED.parent.glob("*/grid.yaml")} <= set(stored_bounds())


def test_a_table_has_bounds_in_words():
    assert in_words({"bound": 60.98, "constant": 57.0}) == ("61.0 %", "57.0 %")
    assert in_words({"bound": 60.98, "constant": None}) == ("61.0 %", "none")
    assert in_words({"bound": 60.98}) == ("61.0 %", "not searched")
