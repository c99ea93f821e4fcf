"""While it runs: what it shows to Prometheus, what a person can do from another terminal, how it can be left."""

from __future__ import annotations

import signal
import socket
import urllib.request
import uuid
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dc_inject.model import Hold, Slice, State, units
from dc_inject.sandbox import Dataset, Link, Rse
from tests.conftest import client_for
from tests.e2e.tool import GB, add_stock, asked, given, rules, this_cycle, until

pytestmark = pytest.mark.sandbox

CYCLE = 5  # seconds


@pytest.fixture(scope="module")
def places(sandbox, request):
    """Sources with two destinations each, one for every test here."""
    wanted = sum("three" in getattr(item, "fixturenames", ()) for item in request.session.items)
    label = uuid.uuid4().hex[:8].upper()
    some = [[f"T2_{label}_{number}_{end}" for end in ("From", "To1", "To2")] for number in range(wanted)]
    add_stock(sandbox, [one[0] for one in some], [name for one in some for name in one[1:]], count=16)
    return iter(some)


@pytest.fixture
def three(places):
    """A source and two destinations that no other test knows."""
    return next(places)


def _counters(place):
    """Return due and injected of every link, as a scrape tells them."""
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=30) as answer:
        families = {f.name: f for f in text_string_to_metric_families(answer.read().decode())}
    told = {}
    for word in ("due", "injected"):
        for sample in families[f"dc_inject_{word}_bytes"].samples:
            if sample.name.endswith("_total"):
                told[sample.labels["source"], sample.labels["destination"], word] = sample.value
    return told


def _was_held_up(row, destination):
    """Tell whether a link lost a cycle because the injector was held up, by the test or by a busy machine."""
    slow = {Hold.NOT_RUNNING, Hold.OVERLOAD, Hold.API_ERRORS}
    return row.key.link.destination == destination and row.held is not None and row.held.hold in slow


def test_a_run_ends_what_it_made_and_its_metrics_are_the_numbers_of_status(tool, sandbox, three, label):
    """Menu, rules, moved, ended, deleted; every byte accounted for; nothing of ours is left."""
    source, one, two = three
    cycle, campaign = this_cycle(CYCLE), f"metrics-{label}"
    rates = {(source, one): "10 Gb/s", (source, two): "6 Gb/s"}
    menu = tool.menu(campaign, rates, start=cycle.start, cycles=4, cycle=CYCLE)
    running = tool.start("run", menu, "--metrics-address", "127.0.0.1:0", now=cycle.start)
    place = running.says("metrics at http://").split("http://")[1].removesuffix("/metrics")
    assert place.startswith("127.0.0.1:")

    def same():
        before = _counters(place)
        running.send(signal.SIGSTOP)  # what was counted stays so while somebody asks, however long that takes
        try:
            links = tool.status(campaign, "--summary")["links"]
        finally:
            running.send(signal.SIGCONT)
        status = {(r["source"], r["destination"], w): r[w] for r in links for w in ("due", "injected")}
        return before == status and all(status.values())

    def given():
        return all(link["injected"] for link in tool.status(campaign, "--summary")["links"])

    until(given, "an injected byte on each link")
    until(same, "the same figures from both")  # mostly at once: each try holds the injector up
    running.ends()
    late = {State.WITHDRAWN}  # what was to be released while it was held
    assert {e.state for e in tool.entries(campaign)} - late == {State.GONE}
    assert rules(sandbox.config, campaign) == []
    largest = max(e.injection.item.bytes for e in tool.entries(campaign))
    lost = {end: sum(row.due for row in tool.rows(campaign) if _was_held_up(row, end)) for end in (one, two)}
    for link in tool.status(campaign, "--summary")["links"]:
        assert abs(link["injected"] - link["due"]) <= largest + lost[link["destination"]]
        assert link["moved"] == link["injected"] > 0
        assert link["moved_estimated"] == 0
    total = tool.status(campaign, "--summary")["total"]
    totals = tool.run("report", campaign, "--format", "json").json["totals"]
    assert {name: totals[name] for name in ("due", "injected", "moved")} == {
        name: total[name] for name in ("due", "injected", "moved")
    }


def test_a_service_manager_is_told_when_it_is_ready_and_that_it_lives(tool, three, label, tmp_path):
    """What the watchdog of the unit waits for."""
    source, one, _ = three
    cycle = this_cycle(CYCLE)
    menu = tool.menu(f"notify-{label}", {(source, one): "1 Gb/s"}, start=cycle.start, cycles=60, cycle=CYCLE)
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(address))
        channel.settimeout(120)
        tool.more["NOTIFY_SOCKET"] = str(address)
        running = tool.start("run", menu, now=cycle.start)
        assert channel.recv(100) == b"READY=1"
        assert channel.recv(100) == b"WATCHDOG=1"
        running.send(signal.SIGTERM)
        running.ends()


def test_a_rate_is_set_from_another_terminal_and_taken_back(tool, three, label):
    """The cycle after it is due the new rate, and status says by whom and why."""
    source, one, two = three
    cycle, campaign = this_cycle(CYCLE), f"set-{label}"
    menu = tool.menu(
        campaign, {(source, one): "4 Gb/s", (source, two): "4 Gb/s"}, start=cycle.start, cycles=60, cycle=CYCLE
    )
    running = tool.start("run", menu, now=cycle.start)
    until(lambda: given(tool.entries(campaign)), "a rule")
    tool.run("set", source, one, "rate", "12Gb/s", "--why", "more")

    def targets():
        rows = tool.status(campaign)["rows"]
        return {row["destination"]: round(row["target"] * 8 / 1e9, 2) for row in rows}

    until(lambda: targets() == {one: 12, two: 4}, "a cycle with the new rate")
    (shown,) = tool.status(campaign)["overrides"]
    assert (shown["subject"], shown["what"], shown["why"]) == (f"{source}:{one}", "rate 12 Gb/s", "more")
    running.says(f"{source} -> {one}: rate 12 Gb/s is set")
    assert "deleted rate 12 Gb/s" in tool.run("unset", campaign, f"{source}->{one}").err
    until(lambda: targets() == {one: 4, two: 4}, "a cycle with the menu's rate")
    assert tool.status(campaign)["overrides"] == []
    running.send(signal.SIGTERM)
    running.ends()


def test_stop_and_resume_from_another_terminal_and_end_afterwards(tool, sandbox, three, label):
    source, one, two = three
    cycle, campaign = this_cycle(CYCLE), f"hands-{label}"
    rates = {(source, one): "6 Gb/s", (source, two): "4 Gb/s"}
    menu = tool.menu(campaign, rates, start=cycle.start, cycles=60, cycle=CYCLE, dwell=3600)
    running = tool.start("run", menu, now=cycle.start)
    until(lambda: given(tool.entries(campaign)), "a rule")

    assert "within seconds" in tool.run("stop", campaign, "--why", "lunch").err

    def paused():
        rows = tool.status(campaign)["rows"]
        return rows and all(row["held"] == "paused" and row["due"] == 0 for row in rows)

    until(paused, "a cycle in which nothing is due")
    before = given(tool.entries(campaign))
    assert not [e for e in tool.entries(campaign) if e.state in {State.INTENDED, State.CALLED}]
    assert "injector" in tool.run("end", campaign, "--yes", code=3).err
    assert given(tool.entries(campaign)) == before
    assert "resumes" in tool.run("resume", campaign).err

    def goes_on():
        now = given(tool.entries(campaign))
        return len(now) > len(before) and {to for _, to, _ in now} == {one, two}

    until(goes_on, "a rule after the resume, and one of each link")
    running.send(signal.SIGTERM)
    running.ends()

    made = asked(rules(sandbox.config, campaign))
    assert made == given(tool.entries(campaign))
    until(lambda: all(rule["state"] == "OK" for rule in rules(sandbox.config, campaign)), "all have arrived")
    tool.run("end", campaign, code=2)  # nobody is there to be asked
    assert asked(rules(sandbox.config, campaign)) == made
    ended = tool.run("end", campaign, f"{source}:{one}", "--yes").err
    assert f"{units.counted(sum(to == one for _, to, _ in made), 'rules')} ended" in ended
    until(lambda: {to for _, to, _ in asked(rules(sandbox.config, campaign))} == {two}, "one link's rules go")
    tool.ledger(campaign).rename(tool.state / "elsewhere.sqlite")
    assert f"ledger rebuild {campaign} MENUS" in tool.run("end", campaign, "--yes", code=3).err
    tool.run("ledger", "rebuild", campaign, menu, "--yes")
    ended = tool.run("end", campaign, "--yes").err
    assert f"{units.counted(sum(to == two for _, to, _ in made), 'rules')} ended" in ended
    until(lambda: not rules(sandbox.config, campaign), "they go")


def test_a_second_ctrl_c_leaves_at_once_and_one_at_the_start_is_clean(tool, three, label):
    source, one, two = three
    cycle, campaign = this_cycle(60), f"twice-{label}"
    menu = tool.menu(campaign, {(source, one): "1 Gb/s", (source, two): "1 Gb/s"}, start=cycle.start, cycle=60)
    accidents = {"twice": "Calling:1:SIGINT,SIGINT", "at the start": "RequestMade:1:SIGINT"}
    started = [
        tool.start(
            "run", menu, "--ledger", tool.state / f"{name}.sqlite",
            now=cycle.start, accident=accident, told=tool.state / name,
        )
        for name, accident in accidents.items()
    ]  # fmt: skip
    for process in started:
        done = process.ends(130)
        assert done.err.strip().splitlines()[-1] == "dc-inject: interrupted"


def test_end_on_stop_ends_complete_rules_and_leaves_the_others_to_their_lifetime(tool, sandbox, three, label):
    source, quick, slow = three
    sandbox.set_links({(source, quick): Link(rate=1e12), (source, slow): Link(rate=1e12, latency=3600)})
    cycle, campaign = this_cycle(CYCLE), f"leave-{label}"
    rates = {(source, quick): "10 Gb/s", (source, slow): "10 Gb/s"}
    menu = tool.menu(campaign, rates, start=cycle.start, cycles=20, cycle=CYCLE, dwell=3600)
    running = tool.start("run", menu, "--end-on-stop", now=cycle.start)

    def some_complete():
        entries = tool.entries(campaign)
        unfinished = [e for e in entries if e.state is State.LIVE and e.injection.link.destination == slow]
        return unfinished and any(e.state is State.COMPLETE for e in entries)

    until(some_complete, "a complete rule and an unfinished one")
    running.send(signal.SIGINT)
    running.ends()
    complete = {e.external_id for e in tool.entries(campaign) if e.completed_at}
    until(lambda: not complete & {rule["id"] for rule in rules(sandbox.config, campaign)}, "complete rules go")
    left = {rule["id"] for rule in rules(sandbox.config, campaign) if rule["rse_expression"] == slow}
    assert left == {
        e.external_id for e in tool.entries(campaign) if e.injection.link.destination == slow and e.external_id
    }
    expiries = [rule["expires_at"] for rule in rules(sandbox.config, campaign) if rule["rse_expression"] == slow]
    assert min(expiries) > datetime.now()  # noqa: DTZ005  Rucio's are naive


def test_a_second_injector_is_refused_on_one_ledger_and_shares_a_destination_with_another_one(
    tool, sandbox, three, label
):
    """It says who holds it; of two with ledgers of their own, none gives what is there, or ends the other's."""
    source, destination, _ = three
    cycle = this_cycle(CYCLE)
    campaigns = [f"{word}-{label}" for word in ("first", "second")]
    rates = {(source, destination): "5 Gb/s"}
    menus = [tool.menu(one, rates, start=cycle.start, cycles=5, cycle=CYCLE) for one in campaigns]
    running = [tool.start("run", menu, now=cycle.start) for menu in menus]
    for one in running:
        one.says("; ledger ")
    refused = tool.run("run", menus[0], code=3)
    assert "injects with it since" in refused.err
    assert f"process {running[0].process.pid} on " in refused.err
    for one in running:
        one.ends()
    made = [entry for one in campaigns for entry in tool.entries(one) if entry.accepted_at]
    there = sorted((entry.injection.item.name, entry.called_at, entry.ended_at) for entry in made)
    for (name, _, ended), (other, called, _) in pairwise(there):
        assert name != other or ended <= called, f"{name} was given twice at a time"
    for one in campaigns:
        assert {entry.state for entry in tool.entries(one)} <= {State.GONE, State.REFUSED, State.WITHDRAWN}
        assert sum(row.injected for row in tool.rows(one)) > 0
        assert rules(sandbox.config, one) == []


def test_rules_that_an_operator_suspends_are_ended_after_some_minutes_and_made_up(tool, sandbox, three, label):
    """They have moved nothing, so all of their bytes are given back; what runs then is another dataset."""
    source, destination, _ = three
    sandbox.set_links({(source, destination): Link(rate=1e12, latency=3600)})
    cycle, campaign = this_cycle(CYCLE), f"suspended-{label}"
    menu = tool.menu(campaign, {(source, destination): "6 Gb/s"}, start=cycle.start, cycles=200, cycle=CYCLE)
    tool.run("run", "--once", menu, now=cycle.start)
    root, made = client_for(sandbox.root_config), tool.entries(campaign)
    for entry in made:
        root.update_replication_rule(entry.external_id, {"state": "SUSPENDED"})
    running = tool.start("run", menu, now=cycle.start + timedelta(minutes=11))
    bad = {entry.injection.key: entry for entry in made}

    def given_back():
        now = {entry.injection.key: entry for entry in tool.entries(campaign) if entry.accepted_at}
        return now if now.keys() > bad.keys() and all(now[key].failed for key in bad) else None

    now = until(given_back, "suspended rules have gone, and others are there")
    running.send(signal.SIGINT)
    running.ends()
    for key, entry in bad.items():
        assert (now[key].failed, now[key].injected) == (entry.injection.item.bytes, 0)
        assert now[key].state in {State.ENDED, State.GONE}
    assert not {entry.external_id for entry in made} & {rule["id"] for rule in rules(sandbox.config, campaign)}
    (link,) = tool.status(campaign, "--summary")["links"]
    assert link["failed_files"] == {"suspended": sum(entry.injection.item.files for entry in made)}


def test_a_link_that_is_too_slow_for_its_datasets_is_given_slices(tool, sandbox, label):
    """1 GB a cycle, and a dataset of five: cut, moved, ended and deleted; no file twice at a time."""
    source, destination = (f"T2_{label}_{end}" for end in ("From", "To"))
    whole = Dataset("cms", f"/E2E_{source}/v1/RAW#000", (GB,) * 5)
    sandbox.add([Rse(source, 10**16), Rse(destination, 10**15)], {source: (whole,)})
    cycle, campaign = this_cycle(CYCLE), f"slices-{label}"
    menu = tool.menu(campaign, {(source, destination): "1600 Mb/s"}, start=cycle.start, cycles=6, cycle=CYCLE)
    menu.write_text(menu.read_text().replace("datasets: {", "datasets: {slices: user.dcops, ", 1))
    tool.start("run", menu, now=cycle.start).ends()
    made = [entry for entry in tool.entries(campaign) if entry.accepted_at]
    assert {entry.state for entry in made} == {State.GONE}
    assert all(isinstance(entry.injection.item, Slice) for entry in made)
    there = sorted((e.injection.item.range, e.called_at, e.ended_at) for e in made)
    assert len(there) >= 2  # however late it began
    for (part, _, ended), (other, called, _) in pairwise(there):
        assert not part.overlaps(other) or ended <= called
    (link,) = tool.status(campaign, "--summary")["links"]
    assert abs(link["due"] - link["injected"]) <= max(e.injection.item.bytes for e in made)
    assert link["moved"] == link["injected"] > 0
    assert rules(sandbox.config, campaign) == []
    client = client_for(sandbox.config)
    for entry in made:
        scope, name = entry.injection.item.id.did.split(":")
        left = client.get_metadata(scope, name)["expired_at"] - entry.ended_at.replace(tzinfo=None)
        assert left < timedelta(hours=2)
