"""Only some links of a campaign, or all with other rates, as `--link` and `--scale` want them."""

from __future__ import annotations

import pytest

from dc_inject.analysis import lint
from dc_inject.menu import campaign, narrowed, read
from dc_inject.model import Campaign
from dc_inject.model.errors import MenuError

TEXT = """\
menu: 1
campaign: small
contact: me@example.org
start: 2027-02-08 10:00
end: 2027-02-08 22:00
target: 30 Gb/s
defaults: {datasets: {did: "cms:*"}}
scenarios:
  test:
    links:
      - {from: A, to: B, rate: 10 Gb/s}
      - {from: A, to: C, rate: 20 Gb/s}
"""


def findings(made: Campaign) -> list[str]:
    return [problem.code for problem in lint.findings(made, file_speed=1e10) if problem.code == "target-differs"]


@pytest.mark.parametrize(("links", "scale"), [((), 2.0), ((), 0.5), (["A:B"], 1.0), (["A:B"], 3.0)])
def test_a_target_is_of_the_rates_as_the_menu_has_them(links, scale):
    """Nobody has to edit a menu so that its links can be tried with other rates."""
    made = narrowed(campaign([read(TEXT, "small.yaml").preview]), links, scale)
    assert findings(made) == []


@pytest.mark.parametrize("scale", [1e9, 1e300])
def test_a_scale_beyond_what_a_ledger_counts_is_refused_with_its_place(scale, wording):
    whole = campaign([read(TEXT, "small.yaml").preview])
    with pytest.raises(MenuError) as raised:
        narrowed(whole, (), scale)
    (problem,) = raised.value.problems
    assert (problem.file, problem.line, problem.hint) == ("small.yaml", 11, "lower --scale")
    wording(problem.message)
    assert narrowed(whole, (), 1e4).flows[0].rate == 1e4 * whole.flows[0].rate


def test_a_scaled_sum_above_the_total_is_found(wording):
    """Unscaled it is an error of the menu; each side of the limit."""
    limited = TEXT.replace("target:", "limits: {total: 60 Gb/s}\ntarget:")
    whole = campaign([read(limited, "small.yaml").preview])
    (found,) = [
        problem
        for problem in lint.findings(narrowed(whole, (), 2.1), file_speed=1e10)
        if problem.code == "total-over-limit"
    ]
    assert (found.file, found.line) == ("small.yaml", 13)
    wording(found.message)
    codes = [problem.code for problem in lint.findings(narrowed(whole, (), 2.0), file_speed=1e10)]
    assert "total-over-limit" not in codes


def test_rates_that_miss_the_target_are_still_found_when_scaled():
    wrong = read(TEXT.replace("rate: 20 Gb/s", "rate: 5 Gb/s"), "small.yaml").preview
    assert findings(narrowed(campaign([wrong]), (), 2.0)) == ["target-differs"]
