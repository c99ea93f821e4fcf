"""`dc-inject smoke` against a real Rucio: 30 links, of which four are broken in four ways."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

from dc_inject.sandbox import Link, Sandbox
from tests.conftest import client_for
from tests.e2e.tool import GB, Tool, add_stock, rules

MENU = """\
menu: 1
campaign: day-{label}
contact: e2e@example.org
start: {start:%Y-%m-%dT%H:%M:%SZ}
end: {end:%Y-%m-%dT%H:%M:%SZ}
defaults: {{datasets: {{did: ["cms:*"], files: 1..100, mean_file: 0.1..20 GB}}}}
scenarios:
  mesh: {{mesh: [{mesh}], rate: 20 Gb/s}}
  out: {{from: {first}, to: [{out}], rate: 10 Gb/s}}
  in: {{from: {empty}, to: {first}, rate: 1 Gb/s}}
"""


def test_each_of_thirty_links_is_reported_rightly_and_nothing_is_left(
    sandbox: Sandbox, tool: Tool, label: str
) -> None:
    """A closed destination, no quota, a source without files, and a link on which all transfers fail."""
    mesh = [f"T1_{label}_{n}" for n in range(5)]
    closed, poor, failing, empty = (f"T2_{label}_{name}" for name in ("Closed", "Poor", "Failing", "Empty"))
    out = [*(f"T2_{label}_{n}" for n in range(6)), closed, poor, failing]
    add_stock(sandbox, mesh, [*out, empty], count=2)
    sandbox.set_links({(mesh[0], failing): Link(rate=10 * GB, failures=1)})
    sandbox.set_quota(poor, 1000)
    client_for(sandbox.root_config).update_rse(closed, {"availability_write": False})
    menu, junit = tool.state / "day.yaml", tool.state / "smoke.xml"
    start = datetime.now(UTC) + timedelta(days=7)  # the week before
    menu.write_text(
        MENU.format(
            label=label, start=start, end=start + timedelta(days=1), mesh=", ".join(mesh), first=mesh[0],
            out=", ".join(out), empty=empty,
        )
    )  # fmt: skip
    done = tool.run("smoke", menu, "--within", "100s", "--format", "json", "--junit", junit, code=5)
    found = {(one["source"], one["destination"]): one for one in done.json["links"]}
    assert len(found) == 30
    bad = {pair: (one["fault"], one["cause"]) for pair, one in found.items() if one["outcome"] != "passed"}
    assert bad == {
        (mesh[0], closed): ("destination", "destination-unavailable"),
        (mesh[0], poor): ("Rucio", "quota"),
        (mesh[0], failing): ("unknown", "other"),  # the sandbox's transfers fail without a reason
        (empty, mesh[0]): ("source", "pool-dry"),
    }
    assert all(one["rate"] > 0 for pair, one in found.items() if pair not in bad)
    assert len(ET.parse(junit).getroot().findall(".//failure")) == 4
    campaign = done.json["campaign"]
    assert rules(tool.config, campaign) == []
    assert {entry.injection.item.files for entry in tool.entries(campaign)} == {1}
