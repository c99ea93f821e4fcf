"""What fuzzing has found: each of these ended in an exception that nobody expected, or showed a secret."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dc_inject.backends import answers
from dc_inject.credentials.expiry import token_until
from dc_inject.model import naming
from dc_inject.model.redaction import scrub
from dc_inject.storage import listing


@pytest.mark.parametrize(
    "stamp",
    [
        "2027-13-45T99:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:45:00Z",
        "٢٠٢٧-02-08T10:00:00Z",
    ],
)
def test_a_comment_with_an_impossible_time_is_not_ours(stamp):
    """Such a rule of somebody else stopped the search for ours, and with it the rebuilding of a ledger."""
    assert naming.read_comment(f"dc_inject/1 a b {stamp}") is None


def test_a_token_that_is_nested_too_deeply_tells_no_end():
    assert token_until("e30." + "W1tb" * 30_000 + ".x") is None


@pytest.mark.parametrize("odd", ["\x1b[31m", "\x00", "\u2028", "\ud800", "\x85"])
def test_what_a_service_says_cannot_move_the_cursor_and_can_be_written(odd):
    said = scrub(f"a{odd}b")
    assert said.isprintable()
    assert said.encode()


@pytest.mark.parametrize("encoding", ["x", "utf-7", "idna", "rot13"])
def test_an_answer_in_an_unknown_encoding_cannot_be_read(encoding):
    body = f'<?xml version="1.0" encoding="{encoding}"?><D:multistatus xmlns:D="DAV:"/>'.encode()
    with pytest.raises(listing.Unreadable):
        list(listing.rows([body]))


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 -2359", "31 Dec 99999 23:59:59", "-", ""])
def test_a_date_that_cannot_be_is_none(date):
    assert listing.DavResponse(values={"getlastmodified": date}).modified is None


@pytest.mark.parametrize("told", [True, 1.5, float("inf"), "7", -1, 2**63, 10**400, [], {}])
def test_what_is_no_number_of_bytes_is_refused(told):
    """A service's odd number reached the ledger, whose refusal ends a run."""
    with pytest.raises((TypeError, ValueError)):
        answers.count(told)


@pytest.mark.parametrize("told", [None, 7, "", "\ud800", "\x1b[31m", "a\nb", {}])
def test_what_is_no_name_is_refused(told):
    with pytest.raises((TypeError, ValueError)):
        answers.name(told)


def test_what_nobody_told_is_nothing():
    assert answers.count(None) == 0
    assert answers.utc(None) is None
    assert answers.utc(datetime(2027, 2, 8)) == datetime(2027, 2, 8, tzinfo=UTC)  # noqa: DTZ001  as Rucio's client gives it
