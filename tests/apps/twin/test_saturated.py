"""`link --until-saturated` in the twin: FTS's optimizer, and daemons that pass about once a minute."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.apps.link.judging.verdict import StepOutcome
from tests.apps.twin.saturated import GBPS, Case, search


def test_searches_find_capacities_within_five_percent_in_a_third_of_the_time_of_steps(tmp_path):
    took = before = timedelta(0)
    for number in (10, 119):  # of the last one FTS runs more and more transfers
        folder = tmp_path / str(number)
        folder.mkdir()
        found = search(Case.numbered(number), folder)
        assert found.told.outcome is StepOutcome.REACHED
        assert found.error == pytest.approx(0, abs=0.05)
        low, high = found.told.interval
        assert low <= found.case.capacity * GBPS <= high
        took, before = took + found.took, before + found.before
    assert 3 * took <= before


def test_a_storage_that_fails_under_many_transfers_is_found_by_letting_what_waits_arrive_first(tmp_path):
    """With 24 connections, of which the link takes 16; without pauses trials of any rate fail.

    Retries hide most failures, and FTS takes transfers away: what moves then is less than the link carries."""
    found = search(Case.numbered(3, 1.5), tmp_path)
    assert found.told.outcome is StepOutcome.REACHED
    assert found.error == pytest.approx(0, abs=0.2)
    assert "transfers fail" in found.told.reason
