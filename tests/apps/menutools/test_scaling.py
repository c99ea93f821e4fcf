"""Scaled menus: the rates that are meant change, linearly; every other character stays."""

from __future__ import annotations

import difflib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.apps.menutools import scaling
from dc_inject.menu import writing
from dc_inject.model import units
from dc_inject.model.errors import UsageError
from tests.menu.texts import draft, rates, scenarios, text

MENU = (
    """\
# Überschrift 🎉: 10 Gb/s
"""
    + text(
        target="target: 60.9 Gb/s   # 10 Gb/s",
        shared='x-rate: &rate "10 Gb/s"\nx-like: &like {rate: *rate, shape: {ramp: 1 h, from: 2 Gb/s}}',
        scenarios="",
    )
    + """\
scenarios:
  one: {<<: *like, from: A, to: B}   # of an anchor
  mesh:
    mesh: [A, B, C]
    # agreed on Monday
    rate: 15Gbps
    priority: 4
  list:
    links:
    - {from: A, to: B, rate: *rate}
    - from: A
      to: C
      rate: 20.50 Gb/s  # twenty
      shape: {steps: [5 Gb/s, 50 %, "20.50 Gb/s"], hold: 2 h}
    - {from: D, to: C, rate: '19.5 Gb/s', shape: {daily: {"08:00": 1 Gb/s, "12:00": 30 %}}}
"""
)


def scaled(menu: str, factor: str, **only: str) -> tuple[str, dict[str, float]]:
    """Scale a menu; return its text and rates, after what the command does to be sure."""
    made, wanted = scaling.scaled(draft(menu), Fraction(factor), **only)
    found = draft(made)
    scaling.compare(wanted, found.preview.flows)
    return made, rates(found.preview)


def changes(before: str, after: str) -> list[str]:
    """The lines that were changed, as they are now."""
    return [line[2:] for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line.startswith("+ ")]


def test_all_rates_change_and_nothing_else() -> None:
    """Also in anchors and in shapes; comments, quotes, blanks and other numbers stay."""
    made, _ = scaled(MENU, "0.5")
    assert changes(MENU, made) == [
        "target: 30.45 Gb/s   # 10 Gb/s",
        'x-rate: &rate "5 Gb/s"',
        "x-like: &like {rate: *rate, shape: {ramp: 1 h, from: 1 Gb/s}}",
        "    rate: 7.5Gbps",
        "      rate: 10.25 Gb/s  # twenty",
        '      shape: {steps: [2.5 Gb/s, 50 %, "10.25 Gb/s"], hold: 2 h}',
        """    - {from: D, to: C, rate: '9.75 Gb/s', shape: {daily: {"08:00": 0.5 Gb/s, "12:00": 30 %}}}""",
    ]


@pytest.mark.parametrize(
    ("only", "wanted"),
    [
        ({"scenario": "mesh"}, ["target: 90.865 Gb/s   # 10 Gb/s", "    rate: 45Gbps"]),
        ({"link": "D:C"}, ["target: 71.595 Gb/s   # 10 Gb/s",
         """    - {from: D, to: C, rate: '58.5 Gb/s', shape: {daily: {"08:00": 3 Gb/s, "12:00": 30 %}}}"""]),
    ],
)  # fmt: skip
def test_a_scenario_or_a_link_alone(only: dict[str, str], wanted: list[str]) -> None:
    """The target follows; links elsewhere of the same name only where both are named."""
    assert changes(MENU, scaled(MENU, "3", **only)[0]) == wanted


@pytest.mark.parametrize(
    "only",
    [
        {"scenario": "one"},
        {"link": "B:A"},
        {"scenario": "two"},
        {"link": "A:X"},
        {"scenario": "one", "link": "A:C"},
    ],
)
def test_what_has_no_rate_of_its_own(only: dict[str, str], wording) -> None:
    """Is refused with the way to give it one; nothing else is changed silently."""
    with pytest.raises(UsageError) as caught:
        scaled(MENU, "2", **only)
    wording(caught.value)
    assert caught.value.hint


def test_a_link_that_is_not_there() -> None:
    """Is told with the links that are, as they have to be written."""
    with pytest.raises(UsageError) as caught:
        scaled(MENU, "2", link="A->B")
    assert caught.value.hint
    assert caught.value.hint.startswith("links: ")
    assert "A:B" in caught.value.hint


def test_one_direction_of_two_has_no_rate_of_its_own() -> None:
    """`both_ways` gives one rate to two links."""
    menu = scenarios("one: {links: [{from: A, to: B, rate: 1 Gb/s, both_ways: true}]}")
    with pytest.raises(UsageError, match="one B -> A has no rate"):
        scaled(menu, "2", link="B:A")


def test_volumes_and_bytes_to_keep_go_along() -> None:
    """With the rate that they have, or without one."""
    menu = scenarios(
        "one: {from: A, to: [B, C], volume: 1.5 PiB}\n"
        "two: {links: [{from: A, to: B, volume: 1 TB, rate: 2 Gb/s}]}\n"
        "three: {from: A, to: C, keep: 3 TB, rate: 4 Gb/s}"
    )
    made, _ = scaled(menu, "0.5")
    assert changes(menu, made) == [
        "  one: {from: A, to: [B, C], volume: 0.75 PiB}",
        "  two: {links: [{from: A, to: B, volume: 0.5 TB, rate: 1 Gb/s}]}",
        "  three: {from: A, to: C, keep: 1.5 TB, rate: 2 Gb/s}",
    ]


def test_second_hops_go_along() -> None:
    """Those that have a rate of their own, too."""
    menu = scenarios(
        "one: {from: A, to: B, rate: 8 Gb/s, then: {to: D, rate: 4 Gb/s}}\n"
        "two: {from: A, to: C, rate: 8 Gb/s, again: true, then: {to: D}}"
    )
    made, _ = scaled(menu, "0.5")
    assert changes(menu, made) == [
        "  one: {from: A, to: B, rate: 4 Gb/s, then: {to: D, rate: 2 Gb/s}}",
        "  two: {from: A, to: C, rate: 4 Gb/s, again: true, then: {to: D}}",
    ]


def test_rates_in_other_files() -> None:
    """Stand where they stand: the menu is written out first."""
    files = {"l.csv": "from,to,rate\nA,B,1 Gb/s\n"}
    made = draft(scenarios("one: {links: {file: l.csv}}"), files)
    with pytest.raises(UsageError, match=r"is in l\.csv"):
        scaling.scaled(made, Fraction(2))


def test_a_target_in_another_file(wording) -> None:
    """Is not changed from here, and neither is what stands in its line here."""
    made = draft(text(x="include: p.yaml"), {"p.yaml": "\n\ntarget: 10 Gb/s\n"})
    with pytest.raises(UsageError) as refused:
        scaling.scaled(made, Fraction(2))
    wording(refused.value)


def test_a_link_of_a_site() -> None:
    """Is found by the name of its RSE, as `check` shows it."""
    menu = text(
        sites="sites: {KIT: {rses: {T1_DE_KIT_Disk: {}}}}",
        scenarios="scenarios:\n  one:\n    links:\n    - {from: A, to: KIT, rate: 1 Gb/s}\n"
        "    - {from: B, to: KIT, rate: 1 Gb/s}",
    )
    _, found = scaled(menu, "3", link="A:T1_DE_KIT_Disk")
    assert found == {"A:T1_DE_KIT_Disk": 3, "B:T1_DE_KIT_Disk": 1}


def test_limits_stay_and_brake() -> None:
    """A menu that would be above its limits is no menu."""
    menu = text(limits="limits: {total: 15 Gb/s}")
    with pytest.raises(Exception, match=r"above limits\.total"):
        scaled(menu, "2")


@pytest.mark.parametrize("limit", ["limits: {total: &r 12 Gb/s}", "sites: {S: {wan: &r 12 Gb/s, rses: {A: {}}}}"])
@pytest.mark.parametrize("target", ["", "target: *r"])
def test_a_limit_that_shares_an_anchor_is_not_scaled_with_it(limit: str, target: str) -> None:
    """A brake would be released."""
    rate = "12 Gb/s" if target else "*r"
    menu = text(limits=limit, target=target, scenarios=f"scenarios:\n  one: {{from: A, to: B, rate: {rate}}}")
    with pytest.raises(UsageError, match="anchor"):
        scaled(menu, "2")


FACTORS = st.decimals(min_value="0.001", max_value="1000", places=3).map(str)
NUMBERS = st.decimals(min_value="0.001", max_value="9999", places=3).map(str)
UNITS = st.sampled_from(["Mb/s", " MB/s", " MiB/s", " Mbps", " GiB/h"])


@settings(max_examples=20)
@given(st.lists(st.tuples(NUMBERS, UNITS), min_size=1, max_size=4), FACTORS, FACTORS)
def test_scale_is_linear(written: list[tuple[str, str]], first: str, second: str) -> None:
    """Twice is once by the product, back gives what it was, and the sum goes along."""
    lines = "".join(f"\n    - {{from: A, to: B{i}, rate: {n}{unit}}}" for i, (n, unit) in enumerate(written))
    menu = text(limits="limits: {total: 1e9 Gb/s}", scenarios=f"scenarios:\n  one:\n    links:{lines}")
    once = draft(scaling.scaled(draft(menu), Fraction(first) * Fraction(second))[0])
    twice = scaling.scaled(draft(scaling.scaled(draft(menu), Fraction(first))[0]), Fraction(second))[0]
    for one, other, before in zip(
        once.preview.flows, draft(twice).preview.flows, draft(menu).preview.flows, strict=True
    ):
        assert one.rate == pytest.approx(other.rate, rel=1e-14)
        assert one.rate == pytest.approx(before.rate * float(first) * float(second), rel=1e-12)
    back = scaling.scaled(draft(scaling.scaled(draft(menu), Fraction(first))[0]), 1 / Fraction(first))[0]
    for one, other in zip(draft(back).preview.flows, draft(menu).preview.flows, strict=True):
        assert one.rate == pytest.approx(other.rate, rel=1e-12)


@given(st.floats(min_value=1e-3, max_value=1e13))
def test_an_exact_rate_is_read_as_it_was(rate: float) -> None:
    """To the last bit."""
    assert units.parse_rate(units.exact_rate(rate)) == rate


@pytest.mark.parametrize(
    ("before", "place"),
    [
        ("a: 🎉é\nb: &x 'old'  # c\nc: [*x, *x]\n", (2, 4)),
        ("d: &y old\ne: {<<: {f: g}, h: 10:00}\n", (1, 4)),
        ('{"a": [1, {"b": "old"}],  # within\n "d": "x"}\n', (1, 17)),
        ("a: 1   # c\r\nb: [2, old]\r\n", (2, 8)),
        ("---\n# a\n\na:\n  - old\n\n...\n# after\n", (5, 5)),
        ("a: &x # agreed\r\n  old\r\nb: *x\r\n", (1, 4)),
        ("a: |  # agreed\r\n  old\r\n# below\r\nb: 1\r\n", (1, 4)),
    ],
)
def test_a_text_is_replaced_where_it_stands(before: str, place: tuple[int, int]) -> None:
    """All else stays: anchors, aliases, quotes, comments and line ends, whatever the style."""
    assert writing.with_scalars(before, {place: "new"}) == before.replace("old", "new")


def test_a_text_that_needs_quotes_gets_them() -> None:
    assert writing.with_scalars(
        "a: old\nb: 'old'\nc: |\n  old\nd: 1\n", {(1, 4): "x: y", (2, 4): "it's", (3, 4): "z"}
    ) == ("a: \"x: y\"\nb: 'it''s'\nc: |\n  z\nd: 1\n")
