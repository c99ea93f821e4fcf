"""Nothing arrives anywhere: what counts as silence."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, Held, Hold
from tests.cli.ledgers import GB, KIT, ME, START

QUARTER = timedelta(minutes=15)


@pytest.mark.parametrize(
    ("length", "cycles", "hold", "is_silent"),
    [
        (QUARTER, 1, None, False),
        (QUARTER, 2, None, True),
        (QUARTER, 4, Hold.DESTINATION_FULL, True),
        (QUARTER, 4, Hold.TOO_COARSE, False),  # it waits for a dataset that fits: nothing should arrive
        (timedelta(minutes=5), 5, None, False),
        (timedelta(minutes=5), 6, None, True),
        (timedelta(hours=1), 1, None, False),
    ],
)
def test_silence_takes_two_cycles_and_half_an_hour_in_which_something_should_arrive(
    tmp_path: Path, length: timedelta, cycles: int, hold: Hold | None, is_silent: bool
):
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
        ledger.bind("dc27", length, [ME], START)
        ledger.begin(START)
        for number in range(cycles):
            cycle = Cycle(START + number * length, length)
            ledger.open_cycle(cycle, {KIT: (GB, None if hold is None else Held(hold))}, cycle.start)
            ledger.close_cycle(cycle, cycle.end)
        assert ledger.silent_since() == (START if is_silent else None)
