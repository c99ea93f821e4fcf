"""On a grid of its own, which a test may disturb: no right to end rules; a Rucio that goes away and comes back."""

from __future__ import annotations

import configparser
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.model import DatasetFilter, Held, Hold, Link, State
from dc_inject.model.errors import NeedsOperator, Permanent, Temporary
from dc_inject.model.ports import Status
from dc_inject.sandbox import Rse
from dc_inject.system.clock import SystemClock
from tests.backends.support import Heard, injection, live
from tests.conftest import client_for, rucio_config
from tests.e2e.tool import Tool, asked, given, rules, stock, this_cycle, until

pytestmark = pytest.mark.sandbox

CYCLE = 5  # seconds
PATIENT = 3 * CYCLE  # where a cycle has to be planned, however busy the machine is


@pytest.fixture(scope="module")
def grid(generic_grid):
    """A sandbox with Rucio's generic permissions."""
    sources, destinations = ("T2_XX_From", "T2_XX_Few"), ("T2_XX_To1", "T2_XX_To2", "T2_XX_To3", "T2_XX_Last")
    stocks = {source: stock(source, count) for source, count in zip(sources, (24, 3), strict=True)}
    generic_grid.add([Rse(name, 10**16) for name in (*sources, *destinations)], stocks)
    return generic_grid


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


def test_without_the_right_to_end_the_rest_works_also_after_the_server_was_away(grid):
    """Under plain permission=generic, and while the server goes and comes back."""
    link = Link("T2_XX_Few", "T2_XX_To3")
    with rucio_config(grid.config):
        backend = RucioBackend(campaign="test", clock=SystemClock(), observer=Heard())
        assert backend.check().may_end is False
        items = list(backend.inventory(link.source, DatasetFilter(("cms:*",), mean_file=(1, 10**12))))
        made = [injection(item, link) for item in items]
        entries = live(made[:2], backend.submit(made[:2]))
        until(lambda: {o.status for o in backend.observe(entries)} == {Status.COMPLETE}, "all of it complete", 60)
        outcomes = backend.end(entries)
        assert all(type(o.error) is Permanent and o.error.hint for o in outcomes)

        grid.stop_server()
        (outcome,) = backend.submit(made[2:])
        assert type(outcome.error) is Temporary
        assert not outcome.error.lost
        with pytest.raises(Temporary):
            backend.observe(entries)
        with pytest.raises(NeedsOperator, match=r"127\.0\.0\.1"):
            backend.check()
        grid.start_server()
        assert not backend.submit(made[2:])[0].error
        assert all(o.adopted for o in backend.submit(made))
