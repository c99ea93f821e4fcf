"""Whether clocks agree, which leap is believed, and whose clock is said to be wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.planning import clocks

MINUTES = {"agreed": 0.5, "far": 20.0, "back": -20.0, "day": 1440.0}


def ahead(**minutes: float) -> dict[str, timedelta]:
    return {service: timedelta(minutes=far) for service, far in minutes.items()}


@pytest.mark.parametrize(
    ("of", "differ", "distance"),
    [
        (ahead(), False, 0),
        (ahead(rucio=0.5), False, 0.5),
        (ahead(rucio=20), True, 20),
        (ahead(rucio=-20), True, 20),
        (ahead(rucio=20, fts=0.5), True, 0.5),
        (ahead(rucio=20, fts=-3), True, 3),
    ],
)
def test_clocks_agree_up_to_a_minute(of: dict[str, timedelta], differ: bool, distance: float) -> None:
    assert clocks.differ(of) is differ
    assert clocks.distance(of) == timedelta(minutes=distance)


@pytest.mark.parametrize(
    ("leap", "of", "confirmed"),
    [
        (1440, ahead(rucio=0), True),
        (1440, ahead(rucio=1440), False),
        (1440, ahead(), False),
        (-120, ahead(rucio=-120), False),
        (-120, ahead(rucio=0), True),
        (60, ahead(rucio=20), True),  # it was 20 minutes ahead before, which was accepted
        (60, ahead(rucio=80), False),
        (60, ahead(rucio=60, fts=0), False),  # one for each: unknown
    ],
)
def test_a_leap_is_confirmed_that_brings_the_clock_nearer_to_a_service(
    leap: float, of: dict[str, timedelta], confirmed: bool
) -> None:
    assert clocks.is_confirmed(timedelta(minutes=leap), of) is confirmed


@pytest.mark.parametrize(
    ("of", "blame"),
    [
        (ahead(rucio=20), ""),
        (ahead(rucio=20, fts=20.5), ""),
        (ahead(rucio=20, fts=0), "agrees with that of fts"),
        (ahead(rucio=20, fts=-180), "unknown"),
    ],
)
def test_whose_clock_is_wrong_is_said_only_where_two_agree(of: dict[str, timedelta], blame: str) -> None:
    words = clocks.sentence(of)
    assert "20 min ahead of rucio" in words
    assert [word for word in ("agrees with that of fts", "unknown") if word in words] == ([blame] if blame else [])
