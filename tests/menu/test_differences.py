"""What changes between menus: for links, scenarios, sites and in total, and in words what else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject import menu
from dc_inject.menu import differences
from dc_inject.model import Campaign
from tests.menu.texts import draft, scenarios, text

SITES = "sites: {KIT: {rses: {T1_DE_KIT_Disk: {}, T1_DE_KIT_Test: {}}}}"
BEFORE = text(
    sites=SITES,
    scenarios="scenarios:\n  one: {from: A, to: {T1_DE_KIT_Disk: 3, T1_DE_KIT_Test: 1}, rate: 40 Gb/s}\n"
    "  two: {from: T1_DE_KIT_Disk, to: T1_DE_KIT_Test, rate: 1 Gb/s}",
)


def campaign(*menus: str) -> Campaign:
    return menu.campaign([draft(one, name=f"{n}.yaml").preview for n, one in enumerate(menus)])


def found(before: Campaign, after: Campaign) -> dict[str, tuple[float, float]]:
    """Rates in Gb/s by what they are of."""
    return {
        " ".join(filter(None, (one.kind, one.scenario, one.name, one.direction))): (
            round(one.before * 8e-9, 6),
            round(one.after * 8e-9, 6),
        )
        for one in differences.changes(before, after)
    }


def test_what_changes_is_told_for_all_that_it_touches() -> None:
    """A site's RSEs together, traffic inside of it nowhere; what stays is not told."""
    after = BEFORE.replace("T1_DE_KIT_Test: 1}", "B: 1}")
    assert found(campaign(BEFORE), campaign(after)) == {
        "link one A:B": (0, 10),
        "link one A:T1_DE_KIT_Test": (10, 0),
        "site B ingress": (0, 10),
        "site KIT ingress": (40, 30),
    }
    assert list(differences.others(campaign(BEFORE), campaign(after))) == []


def test_a_shorter_window_is_less_volume_at_the_same_rate() -> None:
    """So it is a change."""
    after = BEFORE.replace("end: 2027-02-09 10:00", "end: 2027-02-08 16:00")
    changes = differences.changes(campaign(BEFORE), campaign(after))
    assert {one.before == one.after and one.volume_before == 4 * one.volume_after for one in changes} == {True}
    (other,) = differences.others(campaign(BEFORE), campaign(after))
    assert other.startswith("3 ")


def test_of_a_volume_what_is_to_arrive_changes_on_each_of_its_hops() -> None:
    """Not what its rate would bring in the whole window."""
    body = "scenarios:\n  one: {from: A, to: B, volume: 1 TB, rate: 8 Gb/s, then: {to: C}}"
    before, after = (campaign(text(scenarios=body.replace("1 TB", size))) for size in ("1 TB", "250 GB"))
    changes = {one.name: one for one in differences.changes(before, after) if one.kind in {"link", "total"}}
    assert {name: (one.volume_before, one.volume_after) for name, one in changes.items()} == {
        "A:B": (1e12, 0.25e12),
        "B:C": (1e12, 0.25e12),
        "total": (2e12, 0.5e12),
    }


def test_days_of_a_campaign_count_together() -> None:
    """Rates by the highest at any one time, volumes by their sum."""
    second = BEFORE.replace("2027-02-09", "2027-02-10").replace("2027-02-08", "2027-02-09")
    changes = {
        (one.kind, one.name): one for one in differences.changes(campaign(BEFORE), campaign(BEFORE, second))
    }
    total = changes["total", "total"]
    assert (total.before, total.volume_after) == (total.after, 2 * total.volume_before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rate: 1 Gb/s", "rate: 1 Gb/s, priority: 4"),
        ("rate: 1 Gb/s", "rate: 1 Gb/s, shape: {ramp: 1 h}"),
        ("total: 1 Tb/s", "total: 2 Tb/s"),
        (
            "scenarios:",
            "exclude: [{rse: A, from: 2027-02-08 11:00, to: 2027-02-08 12:00, reason: x}]\nscenarios:",
        ),
        ("2027-02-08 10:00\nend: 2027-02-09 10", "2027-02-08 11:00\nend: 2027-02-09 11"),
    ],
)  # fmt: skip
def test_what_else_differs_is_said_in_words(old: str, new: str, wording) -> None:
    """So that nobody takes menus of equal rates for equal menus."""
    after = BEFORE.replace(old, new)
    assert after != BEFORE
    (other,) = differences.others(campaign(BEFORE), campaign(after))
    wording(other)


def test_shapes_that_differ_by_rounding_are_the_same() -> None:
    """12.5 % is an eighth."""
    one = scenarios("one: {from: A, to: B, rate: 30 Gb/s, shape: {steps: [10 Gb/s, 30 Gb/s], hold: 1 h}}")
    other = one.replace("10 Gb/s, 30", "0.333333333333, 30")
    assert differences.changes(campaign(one), campaign(other)) == ()
    assert list(differences.others(campaign(one), campaign(other))) == []


RATES = st.lists(st.integers(1, 1000), min_size=2, max_size=5)


@settings(max_examples=30)
@given(RATES, RATES)
def test_a_difference_turned_round_is_its_negative(first: list[int], second: list[int]) -> None:
    """And a menu does not differ from itself; the total is what its links sum to."""
    one, other = (
        campaign(
            scenarios("one:\n  links:\n" + "\n".join(f"  - {{from: A, to: B{i}, rate: {r} Mb/s}}"
                                                      for i, r in enumerate(some)))
        )
        for some in (first, second)
    )  # fmt: skip
    there, back = differences.changes(one, other), differences.changes(other, one)
    assert [(c.before, c.after, c.volume_before) for c in there] == [
        (c.after, c.before, c.volume_after) for c in back
    ]
    assert differences.changes(one, one) == ()
    links = sum(c.after - c.before for c in there if c.kind == "link")
    total = sum(c.after - c.before for c in there if c.kind == "total")
    assert links == pytest.approx(total, abs=1e-3)
    assert all(c.volume_after == pytest.approx(c.after * timedelta(days=1).total_seconds()) for c in there)
