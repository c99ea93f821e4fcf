"""People are told of jobs where there are only jobs, and of rules where there are rules."""

from __future__ import annotations

import pytest

from dc_inject.cli.shared import common
from dc_inject.cli.status import _right


@pytest.mark.parametrize(
    ("right", "said"),
    [(True, "may end jobs early"), (False, "may NOT end jobs early"), (None, "perhaps may end jobs early")],
)
def test_the_right_to_end_is_told_in_that_word(right: bool | None, said: str) -> None:
    assert common.may_end("fts", right) == said


@pytest.mark.parametrize(
    ("left", "broken", "said"),
    [
        (3600.0, False, "credentials good for 1 h"),
        (3600.0, True, "when it last worked, credentials were good for 1 h from now"),
        (-1.0, True, "credentials EXPIRED"),
        (None, True, "end of credentials unknown"),
    ],
)
def test_credentials_of_a_service_that_refuses_us_are_not_called_good(left, broken: bool, said: str) -> None:
    """What is known of them is from before: the file may hold others now."""
    right = {"service": "fts", "version": "3", "address": "a", "account": "me", "vo": "x", "may_end": True}
    assert _right({**right, "credentials_left": left}, broken=broken).endswith(said)
