"""`control:` says for a menu, a scenario or a link whether what is in flight is bounded."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.model import Control, Mode
from tests.menu.texts import problems, read, text

OFF, ADVISE, ACT = Control(), Control(Mode.ADVISE), Control(Mode.ACT)
DEFAULTS = 'defaults: {{datasets: {{did: "cms:*"}}, control: {}}}'


def control(defaults: str, scenario: str = "", link: str = "") -> Control:
    """What holds for a link that has these at its three levels."""
    inner = f"control: {scenario}, " if scenario else ""
    own = f", control: {link}" if link else ""
    one = f"one: {{{inner}links: [{{from: A, to: B, rate: 1 Gb/s{own}}}]}}"
    (flow,) = read(text(defaults=DEFAULTS.format(defaults), scenarios=f"scenarios:\n  {one}")).flows
    return flow.control


def test_nothing_is_controlled_where_nothing_is_said():
    assert read(text()).flows[0].control == OFF


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (("off",), OFF),
        (("advise",), ADVISE),
        (("act",), ACT),
        (("{mode: act, catch_up: 90 min}",), Control(Mode.ACT, timedelta(minutes=90))),
        (("advise", "act"), ACT),
        (("act", "advise", "off"), OFF),
        (("{catch_up: 1 h}", "act"), Control(Mode.ACT, timedelta(hours=1))),
        (("{mode: act, catch_up: 1 h}", "", "{catch_up: 3 h}"), ACT),
    ],
)
def test_the_nearest_level_counts_for_each_key(levels, expected):
    assert control(*levels) == expected


def test_a_second_hop_has_that_of_its_first():
    scenarios = "scenarios:\n  one: {from: A, to: B, rate: 1 Gb/s, control: act, then: {to: C}}"
    assert {flow.control for flow in read(text(scenarios=scenarios)).flows} == {ACT}


def test_what_is_not_known_is_refused_with_the_words_that_are():
    (problem,) = problems(text(defaults=DEFAULTS.format("on")))
    assert problem.message == "`control`: expected off, advise or act, got 'on'"
    assert problem.hint == "write off, advise or act"


def test_what_held_links_leave_is_not_given_to_others_any_more():
    """`redistribute` of exclusions stays."""
    (problem,) = problems(text(defaults=DEFAULTS.format("{mode: act, redistribute: true}")))
    assert "redistribute" in problem.message
