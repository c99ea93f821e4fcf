"""`explain` prints what a hold, an alert or what is short in a campaign means, and what to do about it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.ledger import Ledger
from dc_inject.model import Entry, FlowKey, Hold, Link, State
from dc_inject.model.causes import FILE_CLASSES
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.ports import Outcome
from dc_inject.summary import short_links, what_to_do, why
from tests import cpu
from tests.apps.report import campaigns_to_watch as watching
from tests.cli.ledgers import FNAL, KIT, injection, run
from tests.metrics.prometheus import RULES


def test_every_alert_has_an_entry_to_which_it_links():
    entries = what_to_do.entries()
    linked = dict(
        re.findall(r"alert: (\w+)\n(?:.*\n)*? +runbook: docs/how-to/on-call.md#(\S+)", RULES.read_text())
    )
    assert linked == {alert: key for key, entry in entries.items() for alert in entry.alerts}
    assert set(linked) == set(re.findall(r"alert: (\w+)", RULES.read_text()))


def test_every_key_that_a_view_shows_is_accepted():
    """Holds, causes of a shortfall, and classes of failed files; a hold of the same name comes first."""
    causes = {short_links.UNEXPLAINED, short_links.FEW, short_links.LIMIT, short_links.RAMP}
    for key in {*map(str, Hold), *causes, *FILE_CLASSES}:
        own = key in what_to_do.entries()
        assert what_to_do.entry(key)["key"] == (key if own else "failing"), key
    assert json.loads(run("explain", "timeout", "--format", "json").stdout)[0]["key"] == "failing"


@pytest.mark.parametrize(
    ("subject", "key"),
    [("quota", "quota"), ("DcInjectNothingArrives", "silent"), ("fts_queue", "signal-missing")],
)
def test_an_entry_is_printed_by_its_key_or_its_alert(subject: str, key: str):
    (row,) = json.loads(run("explain", subject, "--format", "json").stdout)
    assert (row["key"], row["means"]) == (key, what_to_do.entry(key)["means"])
    text = run("explain", subject).stdout
    assert text.startswith(f"{key}: ")
    assert max(map(len, text.splitlines())) <= 80


def test_what_is_short_in_a_campaign_is_explained_with_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: watching.NOW)
    path = watching.campaign(tmp_path / "dc27.sqlite")
    rows = json.loads(run("explain", path, "--format", "json").stdout)
    rows = rows[1:]  # the first is that no injector runs
    assert [row["key"] for row in rows] == ["failing", "destination-full", "pool-dry"]
    assert "free=12 GB" in rows[1]["line"]
    assert rows[1]["call"] == "T2_US_MIT"
    assert {row["contact"] for row in rows} == {""}
    with Ledger.open(path, synchronous="OFF") as ledger:
        one = injection(KIT, 0)
        ledger.add_injections([one], watching.NOW)
        ledger.call([one.key], watching.NOW)
        ledger.answer([Outcome(one.key, one.key)], watching.NOW, {})
    rows = json.loads(run("explain", path, "--format", "json").stdout)[1:]
    (text,) = {row["contact"] for row in rows}
    assert one.contact in text
    assert f"rule show {one.key}`" in rows[0]["rucio"]  # commands can be run as they are
    assert f"status {path} --summary`" in rows[0]["fts"]
    assert "rse show T2_US_MIT`" in rows[1]["rucio"]


def test_that_no_injector_works_is_explained_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """None runs, or a person has stopped it; after the menus, it explains the whole campaign."""
    path = watching.campaign(tmp_path / "dc27.sqlite")

    def explained(now: datetime) -> list[dict[str, Any]]:
        monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: now)
        more = json.loads(run("status", path, "--format", "json").stdout)["more"]
        rows: list[dict[str, Any]] = json.loads(run("explain", path, "--format", "json").stdout)
        assert bool(more) == bool(rows)
        return rows

    keys = [row["key"] for row in explained(watching.NOW)]
    assert keys == ["not-running", "failing", "destination-full", "pool-dry"]
    dead = watching.NOW + 4 * watching.LENGTH  # what was short then may not be so any more
    (row,) = explained(dead)
    assert (row["key"], row["needs_action"]) == ("not-running", True)
    assert row["call"] == what_to_do.entry("not-running")["call"]
    assert f"`dc-inject health {path}`" in row["here"]
    over = explained(dead + timedelta(days=1))
    assert {row["key"] for row in over} == {"failing", "destination-full", "pool-dry"}
    assert not any(row["needs_action"] for row in over)
    with Ledger.open(path, synchronous="OFF") as ledger, ledger.hold("me"):
        assert explained(dead) == []
        ledger.pause("*", "dc@vobox", "the LHCOPN is needed", dead)
        (row,) = explained(dead)
        assert row["key"] == "paused"
        assert "dc@vobox" in row["line"]


def test_links_of_a_campaign_that_is_over_are_listed_where_no_hold_is_known(tmp_path: Path, monkeypatch):
    """Those that moved under 70 % of their due, as `status` counts them."""
    path = watching.campaign(tmp_path / "dc27.sqlite")
    over = watching.NOW + timedelta(days=2)
    monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: over)
    monkeypatch.setattr("dc_inject.ledger.Reader.held_flows", lambda *_: [])
    status = json.loads(run("status", path, "--format", "json").stdout)
    (row,) = json.loads(run("explain", path, "--format", "json").stdout)
    count = re.search(r" (\d+) of \d+ ", status["first_lines"][2])
    assert status["more"]
    assert (row["key"], row["needs_action"], row["call"]) == (short_links.UNEXPLAINED, False, why.THEIRS)
    assert re.search(rf": {count and count[1]} ", row["line"])


def test_an_entry_names_no_service_that_no_link_uses():
    row = {"cause": "silent", "links": [{"source": "davs://a", "destination": "davs://b", "service": "fts"}]}
    entry = what_to_do.entry_for(row, "dc27", [])
    assert entry["fts"]
    assert entry["rucio"] == ""
    assert what_to_do.entry("silent")["rucio"]


def test_rucio_is_asked_about_its_own_rules_and_ends_where_links_of_fts_share_a_cause():
    ends = Link("davs://a.example.org/dc", "davs://b.example.org/dc", "fts")
    key = FlowKey("export", ends)
    job = Entry(replace(injection(KIT, 0), link=ends, scenario="export"), State.LIVE, "the-job", files_stuck=9)
    rule = Entry(injection(KIT, 1), State.LIVE, "the-rule")
    row = {"cause": "silent", "links": [key.names(), KIT.names()]}
    assert "rule show the-rule`" in what_to_do.entry_for(row, "dc27", [job, rule])["rucio"]
    row = {**row, "cause": "destination-unavailable"}
    assert f"rse show {KIT.link.destination}`" in what_to_do.entry_for(row, "dc27", [])["rucio"]


def test_a_command_for_a_single_link_has_its_ends():
    row, command = (
        {"cause": "deletion-lag", "links": [KIT.names()]},
        f"set dc27 {KIT.link.source} {KIT.link.destination} ",
    )
    assert command in what_to_do.entry_for(row, "dc27", [])["do"]
    row["links"].append(FNAL.names())
    assert "set dc27 SRC DST " in what_to_do.entry_for(row, "dc27", [])["do"]


def test_a_rule_is_found_in_a_mesh_of_ten_thousand_links():
    keys = [FlowKey("mesh", Link(f"S{number // 100}", f"D{number % 100}")) for number in range(10_000)]
    live = [Entry(replace(injection(KIT, 1), link=keys[-1].link, scenario="mesh"), State.LIVE, "rule")] * 3000
    with cpu.budget(0.5, "a rule of one of 10,000 links"):
        found = what_to_do.entry_for({"cause": "silent", "links": [key.names() for key in keys]}, "dc27", live)
    assert "rule show rule`" in found["rucio"]


def test_a_campaign_with_the_name_of_a_hold_is_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "dc_inject").mkdir()
    with Ledger.open(tmp_path / "dc_inject" / "quota.sqlite") as ledger:
        ledger.bind("quota", watching.LENGTH, [watching.ME], watching.NOW)
    assert json.loads(run("explain", "quota", "--format", "json").stdout) == []


def test_a_ledger_that_cannot_be_read_is_no_unknown_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "dc_inject").mkdir()
    (tmp_path / "dc_inject" / "dc27.sqlite").write_text("no database" * 100)
    assert isinstance(run("explain", "dc27").exception, LedgerError)
    assert isinstance(run("explain", tmp_path / "none.sqlite").exception, LedgerError)


def test_another_word_is_refused_with_the_nearest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """That may be a campaign."""
    error = run("explain", "destinationfull").exception
    assert isinstance(error, UsageError)
    assert "destination-full" in (error.hint or "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "dc_inject").mkdir()
    with Ledger.open(tmp_path / "dc_inject" / "rehearsal.sqlite"):
        assert "rehearsal" in (run("explain", "rehersal").exception.hint or "")
    assert isinstance(run("explain", "dc27", "--ledger", tmp_path / "none.sqlite").exception, LedgerError)
