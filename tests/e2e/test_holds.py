"""What a site or a quota does not let through is held, with numbers, and the other links go on."""

from __future__ import annotations

import pytest

from dc_inject.sandbox import Rse
from tests.conftest import client_for
from tests.e2e.tool import GB, add_stock, asked, given, rules, this_cycle

pytestmark = pytest.mark.sandbox

CYCLE = 15  # seconds: a busy machine has planned before they are over


def test_a_quota_nearly_used_a_sites_own_brake_and_a_refusal_hold_their_links_only(tool, sandbox, label):
    source, free, tight, shut, wrong = (f"T2_{label}_{end}" for end in ("From", "Free", "Tight", "Shut", "Wrong"))
    quota = 5 * GB
    add_stock(sandbox, [source], [free, Rse(tight, 10**15, quotas={"dcops": quota}), shut, wrong])
    client_for(sandbox.root_config).update_rse(shut, {"availability_write": False})
    cycle, campaign = this_cycle(CYCLE), f"holds-{label}"
    rates = {(source, name): "20 Gb/s" for name in (free, tight, shut)}
    menu = tool.menu(campaign, rates, start=cycle.start, cycle=CYCLE)
    with menu.open("a") as more:
        more.write(f"      - {{from: {source}, to: {wrong}, rate: 20 Gb/s, activity: Nonsense}}\n")

    tool.run("run", "--once", menu, now=cycle.start)
    row = {row["destination"]: row for row in tool.status(campaign)["rows"]}
    assert row[free]["held"] in {None, "too-coarse"}  # whole datasets: a little less than due is as it should be
    assert abs(row[free]["injected"] - row[free]["due"]) <= 0.2 * row[free]["due"]
    assert row[tight]["held"] == "quota"
    assert 0 < row[tight]["injected"] < quota
    assert row[tight]["numbers"]["quota_left"] < quota < row[tight]["numbers"]["wanted"]
    assert row[shut]["held"] == "destination-unavailable"
    assert row[shut]["numbers"] == {"rse": shut, "signal": "availability_write"}
    assert row[shut]["injected"] == 0 < row[shut]["due"]
    assert (row[wrong]["held"], row[wrong]["injected"]) == ("quarantined", 0)
    assert "'Nonsense' is not one of" in row[wrong]["numbers"]["message"]
    assert row[wrong]["numbers"]["times"] <= 2 * 12  # datasets of the source: two calls
    there = rules(sandbox.config, campaign)
    assert {rule["rse_expression"] for rule in there} <= {free, tight}
    assert set(asked(there)) <= set(given(tool.entries(campaign)))
