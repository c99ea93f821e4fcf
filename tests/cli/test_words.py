"""Credentials of services, as `status` shows them."""

from __future__ import annotations

import pytest

from dc_inject.cli.status import _right


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
