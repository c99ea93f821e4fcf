"""On a grid of its own, which a test may disturb: no right to end rules; a Rucio that goes away and comes back."""

from __future__ import annotations

import configparser
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from dc_inject.model import Held, Hold, State
from dc_inject.sandbox import Sandbox
from tests.conftest import client_for
from tests.e2e.tool import Tool, add_stock, asked, given, rules, this_cycle, until

pytestmark = pytest.mark.sandbox

GRID = """
seed: 1
scopes: [cms]
account: {name: dcops, quota: 400 TB}
rses: {}
default_link: {rate: 10 Tb/s}
"""
CYCLE = 5  # seconds
PATIENT = 3 * CYCLE  # where a cycle has to be planned, however busy the machine is


@pytest.fixture(scope="module")
def grid(sandbox_env, tmp_path_factory):
    """A sandbox with Rucio's generic permissions."""
    folder = tmp_path_factory.mktemp("generic")
    (folder / "grid.yaml").write_text(GRID)
    made = Sandbox(folder / "sandbox")
    made.up(grid=folder / "grid.yaml", policy="generic", env=sandbox_env)
    add_stock(made, ["T2_XX_From"], ["T2_XX_To1", "T2_XX_To2", "T2_XX_Last"], count=24)
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def tool(grid, tmp_path):
    made = Tool(tmp_path, grid.config)
    try:
        yield made
    finally:
        made.kill()


def test_without_the_right_to_end_rules_it_says_so_and_does_the_rest(tool, grid):
    cycle = this_cycle(PATIENT)
    menu = tool.menu("norights", {("T2_XX_From", "T2_XX_To1"): "2 Gb/s"}, start=cycle.start, cycle=PATIENT)
    (identity,) = tool.run("ping", "--format", "json").json
    assert identity["may_end"] is False
    assert "may NOT end rules early" in tool.run("run", "--once", menu, now=cycle.start).err
    shown = tool.status("norights")
    assert [right["may_end"] for right in shown["rights"]] == [False]
    assert "may NOT end rules early" in tool.run("status", "norights").out
    made = given(tool.entries("norights"))
    assert made
    until(lambda: all(rule["state"] == "OK" for rule in rules(grid.config, "norights")), "all have arrived")
    tool.run("run", "--once", menu, now=cycle.start + timedelta(seconds=12))  # sees that they are complete
    assert {e.state for e in tool.entries("norights")} == {State.COMPLETE}
    assert "may not end rules" in tool.run("end", "norights", "--yes", code=4).err
    assert asked(rules(grid.config, "norights")) == made  # left to their lifetime
    assert not [e for e in tool.entries("norights") if e.end_asked_at]


def test_what_has_landed_goes_on_while_rucios_summary_lags(tool, grid):
    """In production the summary of what is where follows minutes later; here it does not come at all."""
    cycle = this_cycle(CYCLE)
    menu = tool.menu("lag", {("T2_XX_From", "T2_XX_To1"): "4 Gb/s"}, start=cycle.start, cycles=60, cycle=CYCLE)
    menu.write_text(f"{menu.read_text()}    then: {{to: {{T2_XX_To1: T2_XX_Last}}}}\n")
    grid.slow_daemon("abacus-collection-replica", 3600)
    try:
        running = tool.start("run", menu, now=cycle.start)
        until(lambda: [e for e in given(tool.entries("lag")) if e[1] == "T2_XX_Last"], "a second hop")
        running.send(signal.SIGTERM)
        running.ends()
        replicas = client_for(grid.config).list_datasets_per_rse("T2_XX_To1")
        ours = {e[0].partition(":")[2] for e in given(tool.entries("lag")) if e[1] == "T2_XX_To1"}
        told = {row["name"] for row in replicas if row["state"] == "AVAILABLE"}
        assert ours
        assert not ours & told, "the summary knows what has landed"
    finally:
        grid.slow_daemon("abacus-collection-replica", 0)


def _in_doubt(tool, until_cycle):
    entries = tool.entries("outage")
    return [e for e in entries if e.state is State.CALLED and e.injection.cycle <= until_cycle]


def test_a_rucio_that_goes_away_costs_nothing_and_doubles_nothing(tool, grid):
    cycle = this_cycle(CYCLE)
    menu = tool.menu("outage", {("T2_XX_From", "T2_XX_To2"): "4 Gb/s"}, start=cycle.start, cycles=60, cycle=CYCLE)
    running = tool.start("run", menu, "--timeout", 3, now=cycle.start)
    until(lambda: given(tool.entries("outage")), "a rule")
    grid.stop_server()
    try:
        last = tool.rows("outage")[-1].cycle
        until(lambda: tool.rows("outage")[-1].cycle > last.next, "two cycles have begun meanwhile")
    finally:
        grid.start_server()
    back = tool.rows("outage")[-1].cycle
    until(lambda: any(e.injection.cycle > back for e in tool.entries("outage") if e.accepted_at), "it goes on")
    until(lambda: not _in_doubt(tool, back), "every answer that was lost is found")
    running.send(signal.SIGTERM)
    running.ends()

    rows = tool.rows("outage")
    assert [row.cycle.start for row in rows] == [cycle.start + n * cycle.length for n in range(len(rows))]
    (missed,) = [row for row in rows if row.cycle == last.next]
    assert (missed.injected, missed.held.hold) == (0, Hold.API_ERRORS)
    entries, there = tool.entries("outage"), asked(rules(grid.config, "outage"))
    assert given(entries) == there
    (link,) = tool.status("outage", "--summary")["links"]
    assert link["injected"] == sum(e.injection.item.bytes for e in entries if e.accepted_at)
    assert link["injected"] <= link["due"] + max(e.injection.item.bytes for e in entries)


def test_a_password_that_is_changed_in_the_middle_is_a_hold_until_the_new_one_is_in_its_file(tool, grid):
    """No restart, and neither of them is told; the rules that are there stay in the account."""
    root, config = client_for(grid.root_config), tool.state / "rucio.cfg"
    parts = configparser.ConfigParser()
    parts.read(grid.config)
    secrets = ["the-first-password-8472", "the-second-password-1936"]

    def change(number: int) -> None:
        identity = {"identity": f"night{number}", "authtype": "USERPASS", "email": "night@example.org"}
        root.add_identity("dcops", **identity, password=secrets[number])
        parts["client"].update({"username": f"night{number}", "password": secrets[number]})
        parts["client"]["auth_token_file_path"] = str(tool.state / "rucio-token")
        with config.open("w") as file:
            parts.write(file)
        config.chmod(0o600)

    change(0)
    cycle = this_cycle(CYCLE)
    menu = tool.menu("night", {("T2_XX_From", "T2_XX_To1"): "4 Gb/s"}, start=cycle.start, cycles=60, cycle=CYCLE)
    running = tool.start("run", menu, "--timeout", 3, config=config, now=cycle.start)
    until(lambda: given(tool.entries("night")), "a rule")

    root.del_identity("dcops", "night0", "USERPASS")
    grid.stop_server()  # it remembers tokens for a while
    with closing(sqlite3.connect(grid.folder / "rucio.db", timeout=60)) as db, db:
        db.execute("DELETE FROM tokens WHERE identity = 'night0'")
    grid.start_server()

    def held() -> list[Held]:
        rows = tool.rows("night")
        return [row.held for row in rows if row.closed and row.held and row.held.hold is Hold.CREDENTIALS]

    reason = until(held, "a hold for the password")[0].numbers["message"]
    assert "night0" in reason or "credentials" in reason.lower() or "authenticate" in reason.lower(), reason
    before = len(given(tool.entries("night")))
    change(1)
    running.says("rucio works again")
    until(lambda: len(given(tool.entries("night"))) > before, "more rules")
    running.send(signal.SIGTERM)
    running.ends()
    made = [file for file in tool.state.rglob("*") if file.is_file() and file != config]
    told = "".join(file.read_text(errors="replace") for file in made)
    assert not any(secret in told for secret in secrets)
