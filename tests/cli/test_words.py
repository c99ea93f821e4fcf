"""Credentials of services, as `status` shows them."""

from __future__ import annotations

import pytest

from dc_inject.cli.status import _right


@pytest.mark.parametrize(
    ("left", "broken"),
    [
        (3600.0, False),
        (3600.0, True),
        (-1.0, True),
        (None, True),
    ],
)
def test_credentials_of_a_service_that_refuses_us_are_not_called_good(left, broken: bool, wording) -> None:
    """What is known of them is from before: the file may hold others now."""
    right = {"service": "fts", "version": "3", "address": "a", "account": "me", "vo": "x", "may_end": True}
    wording(_right({**right, "credentials_left": left}, broken=broken))
