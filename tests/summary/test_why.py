"""What stands below the closing table of a simulation: why links were held, in sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from dc_inject.cli.shared import summary_output, tables
from dc_inject.ledger import Ledger
from dc_inject.model import FlowKey, Held, Hold, Link
from dc_inject.model.on_call import CHANGE_THE_MENU
from dc_inject.summary import figures, what_to_do, why
from dc_inject.summary.why import HeldLink
from tests.cli.ledgers import CYCLE, GB, ME, START

LINKS = [FlowKey("export", Link("T0", f"T2_{number:04}")) for number in range(1_200)]


LAST = "in the last such cycle: "


def full(percent: int) -> Held:
    return Held(Hold.DESTINATION_FULL, {"space": percent * GB, "message": f"the space holds {percent} %"})


@pytest.fixture
def ledger(tmp_path: Path):
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as made:
        made.bind("dc27", CYCLE.length, [ME], START)
        yield made


def held(ledger: Ledger, holds: dict[FlowKey, Held]) -> None:
    dues = {key: ((1 + number) * GB, hold) for number, (key, hold) in enumerate(holds.items())}
    ledger.open_cycle(CYCLE, dues, START)


def test_links_that_are_held_for_the_same_reason_share_a_line(ledger):
    holds = {key: full(65) for key in LINKS[:5]}
    holds |= {LINKS[5]: full(40), LINKS[6]: Held(Hold.TOO_COARSE, {"smallest": GB})}
    held(ledger, holds)
    one, other = why.reasons(why.held_links(ledger))  # what needs no action is left out
    assert (one["links"], one["cycles"], one["missing"]) == (5, 5, 15 * GB)
    assert one["most_held"] == [str(LINKS[4]), str(LINKS[3])]
    assert (other["links"], other["missing"]) == (1, 6 * GB)
    assert other["why"].endswith(" 40 %")


@pytest.mark.parametrize(
    "hold",
    [
        Held(Hold.BACKLOG, {"window": 5 * GB}),
        Held(Hold.BACKLOG, {"storage": "to KIT", "window": 5 * GB, "in_flight": 6 * GB}),
        Held(Hold.BACKLOG, {"window": 5 * GB, "success": 0.55}),
        Held(Hold.FTS_QUEUE, {"waiting": 90, "limit": 2}),
        Held(Hold.FTS_QUEUE, {"waiting": 90, "limit": 2, "success": 0.55, "also": "failing"}),
        Held(Hold.SITE_LIMIT, {"site": "KIT", "direction": "in", "allowed": GB}),
        Held(Hold.SITE_LIMIT, {"site": "KIT", "direction": "in", "most": 25 * GB // 10, "allowed": GB}),
        Held(Hold.POOL_DRY, {"pool_items": 0, "pool_bytes": 0, "resident": GB}),
        Held(Hold.POOL_DRY, {"pool_bytes": GB, "wanted": 2 * GB, "budget": GB}),
        Held(Hold.PAUSED, {"by": "ann", "why": "downtime"}),
        Held(Hold.FAILING, {"also": "backlog"}),
    ],
)
def test_a_hold_without_a_message_is_told_in_short_and_with_whose_it_is(ledger, hold, wording):
    held(ledger, {LINKS[0]: hold})
    (row,) = why.reasons(why.held_links(ledger))
    wording(row["why"])


def test_each_limit_of_the_campaign_has_a_row_with_its_value_whatever_held_a_link_last(ledger, wording):
    """And whatever would have held it nearly as much."""
    limits = [
        {"limit": "rules_per_hour", "most": 1000, "left": 3, "wanted": 9},
        {"limit": "total", "most": 25 * GB // 10, "allowed": GB},
        {"limit": "total", "most": 25 * GB // 10, "allowed": GB, "also": "backlog"},
        {"limit": "files_in_flight", "most": 100_000, "left": 2, "wanted": 9},
    ]
    cycle = CYCLE
    for numbers in limits:
        held = Held(Hold.CAMPAIGN_LIMIT, numbers)
        ledger.open_cycle(cycle, {LINKS[0]: (GB, held), LINKS[1]: (GB, held)}, cycle.start)
        ledger.close_cycle(cycle, cycle.end)
        cycle = cycle.next
    links = why.held_links(ledger)
    rows = why.reasons(links)
    assert sorted((row["links"], row["cycles"], row["missing"]) for row in rows) == [
        (2, 2, 2 * GB),
        (2, 2, 2 * GB),
        (2, 4, 4 * GB),
    ]
    wording(sorted(f"{row['why']} [{row['cycles']} cycles]" for row in rows))
    assert why.merge_seed_causes([links, links]) == links
    assert {link.name for link in links} == {f"campaign-limit ({numbers['limit']})" for numbers in limits}


@pytest.mark.parametrize(
    ("numbers", "hold", "call"),
    [
        ([{}], Hold.DESTINATION_FULL, "the site"),
        ([{"message": "small"}], Hold.DESTINATION_FULL, CHANGE_THE_MENU),
        ([{"message": "small"}, {"message": "small", "overdue": GB}], Hold.DESTINATION_FULL, "the site"),
        ([{"inventory": "none"}], Hold.QUARANTINED, what_to_do.whom(what_to_do.entry("quarantined"))),
        ([{"storage": "to T2_0000"}], Hold.BACKLOG, "KIT"),
        ([{"storage": "from T0"}], Hold.BACKLOG, "T0"),
        ([{"window": GB}], Hold.BACKLOG, why.THEIRS),
        ([{}, {"also": "quota"}], Hold.FAILING, why.THEIRS),
    ],
)
def test_whom_to_call_about_a_campaign_that_is_over(ledger, numbers, hold, call):
    """Not a site for what its menu is the cause of, and no line that names nobody."""
    ledger.put_in_force([("day.yaml", "digest", "sites: {KIT: {rses: {T2_0000: {}}}}")], START)
    held(ledger, {key: Held(hold, of) for key, of in zip(LINKS, numbers, strict=False)})
    assert {row["call"] for row in why.explain_all(ledger)} == {call}


def test_a_report_has_the_reasons_of_its_period_and_of_a_campaigns_limits_the_one_with_most_cycles(ledger):
    """Also where another limit, or another reason of the same hold, came later."""
    limits = [{"limit": name, "most": 1000, "left": 1} for name in ("total", "total", "rules_per_hour")]
    cycle, ends = CYCLE, []
    for number, numbers in enumerate([*limits, limits[-1], limits[-1]]):
        dry = Held(Hold.POOL_DRY, {"message": f"dry {number}"})
        held = Held(Hold.CAMPAIGN_LIMIT, numbers)
        ledger.open_cycle(cycle, {LINKS[0]: (GB, held), LINKS[1]: (GB, dry)}, cycle.start)
        ledger.close_cycle(cycle, cycle.end)
        ends.append(cycle.end)
        cycle = cycle.next
    for until, limit, number in ((2, "total", 2), (4, "rules_per_hour", 4)):
        scope = figures.ReportScope(until=ends[until])
        reasons = [link["why"] for link in figures.report(ledger, scope, None, cycle.start)["links"]]
        assert f"`{limit}`" in reasons[0]
        assert reasons[1].endswith(f"dry {number}")


def test_a_large_campaign_has_the_worst_reasons_in_lines_of_a_terminal_and_the_rest_is_counted(
    ledger, monkeypatch, capsys, wording
):
    held(ledger, {key: full(number % 60) for number, key in enumerate(LINKS)})
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    summary_output.show_reasons(why.reasons(why.held_links(ledger)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 2 + 3 * summary_output.MOST_REASONS + 1
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("    ") and line.rstrip().endswith(" 59 %") for line in lines)
    assert "    export T0 -> T2_1199, export T0 -> T2_1139 and 18 more" in [line.rstrip() for line in lines]
    wording(lines[-1])


def test_of_several_seeds_a_link_has_what_half_of_them_have_in_common():
    """With the sentence of most seeds, and medians: percents differ from seed to seed."""

    def link(number: int, why: str, cycles: int, missing: int) -> HeldLink:
        return HeldLink(LINKS[number], Hold.DESTINATION_FULL, why, cycles, missing)

    runs = [
        [link(0, "holds 65 %", 4, 8), link(1, "holds 40 %", 1, 1)],
        [link(0, "holds 64 %", 6, 9)],
        [link(0, "holds 65 %", 8, 2), link(2, "holds 65 %", 2, 6)],
        [link(2, "holds 65 %", 2, 6)],
    ]
    assert why.merge_seed_causes(runs) == [link(0, "holds 65 %", 5, 5), link(2, "holds 65 %", 1, 3)]
    (row,) = why.reasons(why.merge_seed_causes(runs))
    assert (row["why"], row["links"], row["cycles"], row["missing"]) == ("holds 65 %", 2, 6, 8)
