"""People are told of jobs where there are only jobs, and of rules where there are rules."""

from __future__ import annotations

import pytest

from dc_inject.cli import common


@pytest.mark.parametrize(
    ("services", "noun"),
    [({"rucio"}, "rules"), ({"fts"}, "jobs"), ({"fts", "rucio"}, "rules and jobs"), (set(), "rules and jobs")],
)
def test_what_services_make_has_their_word(services: set[str], noun: str) -> None:
    assert common.noun(services) == noun


@pytest.mark.parametrize(
    ("right", "said"),
    [(True, "may end jobs early"), (False, "may NOT end jobs early"), (None, "perhaps may end jobs early")],
)
def test_the_right_to_end_is_told_in_that_word(right: bool | None, said: str) -> None:
    assert common.may_end("fts", right) == said
