"""Errors of a fitted grid: which links it does not predict, whatever single figures of it say."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from dc_inject.apps.twin.grid import grid_text
from dc_inject.apps.twin.grid.replay import (
    LinkError,
    Past,
    Prediction,
    Replay,
    compute_held_out_errors,
    inconclusive,
    summary,
)

TB = 10**12
LINK, OTHER = ("A", "B"), ("A", "C")
PAST = Past("p", 900.0, 3, 180.0, [], {LINK: np.array([2.0, 2.0, 2.0]) * TB})


def reasons(
    held_out: Prediction | None = None,
    forecast: Prediction | None = None,
    past: Past = PAST,
    at_times=MappingProxyType({}),
) -> str:
    errors = [] if held_out is None else [LinkError(LINK, held_out, None)]
    forecasts = {} if forecast is None else {LINK: forecast}
    return inconclusive(past, errors, forecasts, at_times).get(LINK, "")


FULL = {LINK: [grid_text.FULL]}
GOOD, BAD = Prediction(2 * TB, 2.19 * TB), Prediction(2 * TB, 2.21 * TB)


@pytest.mark.parametrize(
    ("held_out", "forecast"),
    [
        (GOOD, GOOD),
        (GOOD, None),
        (None, GOOD),
        (BAD, GOOD),
        (GOOD, BAD),
        (Prediction(2 * TB, TB), GOOD),
        (None, None),
    ],
)
def test_a_link_is_inconclusive_if_a_prediction_is_off_by_more_than_10_percent_or_if_there_is_none(
    held_out, forecast, wording
):
    wording(reasons(held_out, forecast) or "-")


def test_a_link_that_is_idle_in_the_cycles_held_out_is_told_so_and_not_that_there_were_none():
    """Cycles are held out of every campaign, and an idle link has no error of the fit all the same."""
    moved = {LINK: np.array([2.0, 0.0, 0.0]), OTHER: np.array([1.0, 2.0, 2.0])}
    past = replace(PAST, moved=moved)
    errors = compute_held_out_errors(past, Replay(moved, []), 1)
    assert [error.link for error in errors] == [OTHER]
    assert list(inconclusive(past, errors, {}, {})) == [LINK]
    assert inconclusive(past, errors, {}, {})[LINK] == reasons()  # whose past has moved, and no error
    assert inconclusive(past, errors, {LINK: Prediction(2, 2)}, {}) == {}


def test_all_reasons_of_a_link_are_told(wording):
    told = reasons(BAD, Prediction(6 * TB, 12 * TB), at_times=FULL).split("; ")
    assert len(told) == 3
    wording(told)


def test_that_deletions_were_behind_at_times_is_told_as_a_reason_of_a_forecast_that_is_off(wording):
    behind = {LINK: [grid_text.BEHIND]}
    assert grid_text.BEHIND in reasons(GOOD, BAD, at_times=behind)
    wording(reasons(GOOD, BAD, at_times=behind))
    assert reasons(GOOD, GOOD, at_times=behind) == ""


def test_that_a_link_was_full_at_times_counts_unless_a_forecast_shows_that_it_hardly_matters():
    assert reasons(GOOD, GOOD, at_times=FULL) == ""
    assert reasons(GOOD, None, at_times=FULL).startswith(f"{FULL[LINK][0]}, ")


def test_what_a_grid_moves_where_nothing_moved_is_missed_though_it_is_no_part_of_it():
    """A link that is down moves nothing, and everything in a grid that does not know why."""
    assert reasons(Prediction(0, TB), GOOD).endswith(" 1 TB instead of 0 B")
    assert reasons(Prediction(0, 0.5 * TB), GOOD) == ""  # the end of what moved before: less than a tenth of all
    dead = replace(PAST, moved={LINK: np.zeros(3)})
    assert reasons(None, Prediction(0, 1), dead).endswith(" 1 B instead of 0 B")


def test_errors_are_of_links_with_anything_that_moved_or_was_predicted_and_their_summary_of_what_moved():
    moved = {LINK: np.array([1.0, 0.0, 4.0]), OTHER: np.zeros(3), ("A", "D"): np.zeros(3)}
    replayed = {LINK: np.array([9.0, 2.0, 3.0]), OTHER: np.array([0.0, 0.0, 7.0]), ("A", "D"): np.zeros(3)}
    errors = compute_held_out_errors(replace(PAST, moved=moved), Replay(replayed, []), 1)
    assert [(error.link, error.prediction, error.by_cycle) for error in errors] == [
        (LINK, (4.0, 5.0), 0.75),
        (OTHER, (0.0, 7.0), None),
    ]
    assert summary(errors) == (1, 0.25, 0.25, LINK)
    assert summary(errors[1:]) is None
