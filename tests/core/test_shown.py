"""Links as people read them: two URLs with a colon between would be one unreadable word."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dc_inject.engine import rate_changes
from dc_inject.model import FlowKey, Held, Hold, Link, held, overrides, urls
from dc_inject.model.overrides import Kind, Override

ONE, OTHER = "http://127.0.0.1:1/a", "root://127.0.0.1:2//b"
BOTH = f"{ONE} -> {OTHER}"


def test_a_link_is_shown_with_an_arrow_and_its_key_stays():
    link = Link(ONE, OTHER, "fts")
    assert link.shown == BOTH
    assert str(link) == f"{ONE}:{OTHER}"
    assert str(FlowKey("raw", link)) == f"raw {BOTH}"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (f"{ONE}:{OTHER}", BOTH),
        ("A:B", "A -> B"),
        (f"A:{OTHER}", f"A -> {OTHER}"),
        ("http://[::1]:1/a:http://[::1]:2", "http://[::1]:1/a -> http://[::1]:2"),
        ("root://se.example.org:1094//dc:T2_XX", "root://se.example.org:1094//dc -> T2_XX"),
        ("root://se.example.org:1094//dc", "root://se.example.org:1094//dc"),
        ("raw", "raw"),
        ("", ""),
    ],
)
def test_the_key_of_a_link_can_be_shown(key, shown):
    assert urls.arrow(key) == shown


def test_what_is_set_for_a_link_is_said_with_an_arrow():
    one = Override(f"{ONE}:{OTHER}", Kind.SCALE, 0.5, "me", "", datetime(2027, 2, 8, tzinfo=UTC))
    assert rate_changes.sentence(one, "is set") == f"{BOTH}: scale 0.5 is set (me)"
    assert overrides.shown("*") == "all of it"
    assert overrides.shown("raw") == "raw"


@pytest.mark.parametrize("hold", Hold)
def test_every_hold_has_a_short_text(hold):
    assert hold.short
    assert held.sentence(Held(hold)) == hold.short


def test_a_pool_that_was_used_up_is_not_called_one_that_was_always_empty():
    """Of the first the campaign has copies somewhere; the other is the menu's fault."""
    used, empty = ({"pool_items": 0, "pool_bytes": 0, "resident": resident} for resident in (10**9, 0))
    assert held.sentence(Held(Hold.POOL_DRY, used)) == Hold.POOL_DRY.short
    assert "`datasets`" in held.sentence(Held(Hold.POOL_DRY, empty))
