"""Menus that run together, and what looks wrong in them."""

from __future__ import annotations

import pytest

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.model import Campaign
from dc_inject.model.errors import MenuError, Problem
from tests.menu.texts import read, scenarios, text

SECOND = {"start": "start: 2027-02-09 10:00", "end": "end: 2027-02-10 10:00"}


def campaign(*contents: str) -> Campaign:
    return menu.campaign(
        [read(content, name=f"{number}.yaml") for number, content in enumerate(contents, start=1)]
    )


def test_days_make_a_campaign() -> None:
    """One after the other, or at the same time with other links."""
    other = scenarios("one: {from: B, to: A, rate: 10 Gb/s}")
    made = campaign(text(), text(**SECOND), other)
    assert (made.name, made.contact, len(made.flows)) == ("rehearsal", "dc-ops@example.org", 3)


@pytest.mark.parametrize(
    "second",
    [
        text(**SECOND, campaign="campaign: other"),
        text(**SECOND, contact="contact: somebody"),
        text(**SECOND, defaults="defaults: {cycle: 5 min, datasets: {did: 'a:*'}}"),
        text(),
        text(**SECOND, x="sites: {Y: {rses: {A: {}}}}"),
        text(limits="limits: {total: 15 Gb/s}", scenarios="scenarios: {one: {from: B, to: A, rate: 6 Gb/s}}"),
    ],
)
def test_menus_that_do_not_fit_together(second: str, wording) -> None:
    """Each misfit is an error in the later menu that names the earlier one."""
    with pytest.raises(MenuError) as caught:
        campaign(text(x="sites: {X: {rses: {A: {}}}}"), second)
    (problem,) = caught.value.problems
    wording(problem)
    assert (problem.file, bool(problem.line), bool(problem.hint)) == ("2.yaml", True, True)


def test_a_copied_day_with_its_old_date_is_one_error() -> None:
    """It names both menus, though all links stand in a file that both include; limits are no second error."""
    part = {"_all.yaml": "scenarios: {one: {mesh: [A, B, C, D], rate: 100 Gb/s}}"}
    days = [
        read(text(scenarios="include: _all.yaml", limits="limits: {total: 150 Gb/s}", **when), part, name=name)
        for name, when in (("1.yaml", {}), ("2.yaml", SECOND), ("3.yaml", SECOND))
    ]
    with pytest.raises(MenuError) as caught:
        menu.campaign(days)
    (problem,) = caught.value.problems
    assert (problem.file, problem.message.split()[0]) == ("3.yaml", "2.yaml")
    assert menu.campaign(days[:2])


def test_no_menu_is_no_campaign(wording) -> None:
    """At least one is needed."""
    with pytest.raises(MenuError) as refused:
        menu.campaign([])
    wording(refused.value)


# --------------------------------------------------------------------------- findings


def findings(*contents: str) -> list[Problem]:
    return list(lint.findings(campaign(*contents), file_speed=1e10))


def links(*gbps: float) -> str:
    lines = [f"    - {{from: S{number}, to: D{number}, rate: {rate} Gb/s}}" for number, rate in enumerate(gbps)]
    return "one:\n  links:\n" + "\n".join(lines)


def test_a_menu_that_is_right_has_no_finding() -> None:
    """Nothing is said of what is usual."""
    assert findings(text(), text(**SECOND)) == []


def test_a_typing_error_among_rates_is_an_outlier() -> None:
    """Five times the median, a 20th, or in small scenarios 100 times that of the menu, if rates are alike."""
    (found,) = findings(scenarios(links(7.8, 7.8, 50, 7.8)))
    assert (found.code, found.needs_accepting, found.line) == ("rate-outlier", True, 14)
    assert "50 Gb/s, 6.4 times the median" in found.message
    assert findings(scenarios(links(7.8, 7.8, 50))) == []
    (low,) = findings(scenarios(links(50, 10, 0.01, 8)))  # 50 is 5.6 times the median, and as it should be
    assert (low.code, low.line) == ("rate-outlier", 14)
    assert findings(scenarios(links(10, 10, 10, 0.5))) == []
    assert findings(scenarios(links(1, 2, 5, 10, 20, 50, 100))) == []
    pair = links(10, 0.01).replace("one:", "two:").replace("S", "T")
    assert [one.line for one in findings(scenarios(f"{links(9, 10, 11, 12)}\n{pair}"))] == [19]
    assert findings(scenarios(links(10, 10, 50, 10))) == []
    assert len(findings(scenarios(links(1, 1, 1, 1, 1, 20, 30)))) == 2
    shared = "one: {from: A, to: {B: 1, C: 1, D: 1, E: 90}, rate: 100 Gb/s}"
    assert findings(scenarios(shared)) == []


def test_smallest_first_is_an_outlier() -> None:
    """By mistake it cost half a day once; one finding for each scenario."""
    order = "datasets: {did: 'a:*', order: smallest-first}"
    (found,) = findings(scenarios(f"one: {{mesh: [A, B, C], rate: 6 Gb/s, {order}}}"))
    assert (found.code, found.needs_accepting) == ("smallest-first", True)


@pytest.mark.parametrize(
    ("default", "own", "lines"),
    [
        ("{catch_up: 6 h}", "", 1),
        ("{catch_up: 6 h, mode: off}", "", 1),
        ("{catch_up: 6 h}", ", control: act", 0),  # of one scenario, for which it is set
        ("{mode: act}", ", control: {catch_up: 6 h}", 0),
        ("act", ", control: {mode: off, catch_up: 6 h}", 1),
        ("{mode: advise, catch_up: 6 h}", "", 0),  # that may become `act`
        ("{catch_up: 3 h}", "", 0),  # the default
    ],
)
def test_a_catch_up_without_control_does_nothing(default: str, own: str, lines: int) -> None:
    content = scenarios(f"one: {{from: A, to: B, rate: 6 Gb/s{own}}}")
    content = content.replace("defaults: {", f"defaults: {{control: {default}, ")
    assert default in content
    assert [found.code for found in findings(content)] == ["unused-catch-up"] * lines


def test_what_a_menu_accepts_is_no_finding() -> None:
    """By its code, and only in the menu that accepts it."""
    content = scenarios(links(7.8, 7.8, 50, 7.8))
    assert findings(content + "accept: [rate-outlier]\n") == []
    assert len(findings(content + "accept: [smallest-first]\n")) == 1


def test_a_site_above_its_wan(wording) -> None:
    """Each direction is summed on its own, over all menus in force; traffic inside of a site is none."""
    sites = "sites: {KIT: {wan: 15 Gb/s, rses: {A: {}, Z: {}}}}"
    into = [scenarios(f"one: {{from: {source}, to: A, rate: 10 Gb/s}}") + sites for source in "BC"]
    (found,) = findings(*into)
    assert (found.code, found.needs_accepting) == ("site-over-wan", False)
    wording(found.message)
    assert findings(into[0], text(x=sites)) == []  # 10 Gb/s in, 10 Gb/s out
    inside = scenarios("one: {from: Z, to: A, rate: 10 Gb/s}\ntwo: {from: B, to: A, rate: 10 Gb/s}") + sites
    assert findings(inside) == []


def test_a_site_above_our_own_limit_will_be_held() -> None:
    """The lower of max_ingress and limits.per_site is named; an RSE without a site counts as one."""
    (found,) = findings(text(x="sites: {X: {max_ingress: 8 Gb/s, rses: {B: {}}}}"))
    assert (found.code, found.needs_accepting) == ("site-over-limit", False)
    assert "ingress of X sums to 10 Gb/s, above sites.X.max_ingress, 8 Gb/s" in found.message
    two = findings(text(limits="limits: {total: 1 Tb/s, per_site: 9 Gb/s}"))
    assert [found.message.partition(" sums")[0] for found in two] == ["egress of A", "ingress of B"]
    assert all("above limits.per_site, 9 Gb/s" in found.message for found in two)


def test_findings_do_not_depend_on_the_order_of_menus() -> None:
    """They come by file and line."""
    contents = [scenarios(links(7.8, 7.8, 50, 7.8)), text(**SECOND, limits="limits: {per_site: 9 Gb/s}")]
    menus = [read(content, name=f"{number}.yaml") for number, content in enumerate(contents)]
    assert lint.findings(menu.campaign(menus)) == lint.findings(menu.campaign(menus[::-1]))
