"""A scrape tells the ledger's numbers exactly, whatever else happens to the ledger meanwhile."""

from __future__ import annotations

import shutil
import sqlite3
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dc_inject.ledger import ControlDecision, Ledger, LedgerView
from dc_inject.metrics import Metrics
from dc_inject.metrics.bookkeeping import COUNTED, GAUGED
from dc_inject.metrics.catalogue import METRICS
from dc_inject.model import (
    Cycle,
    Dataset,
    FlowKey,
    Held,
    Hold,
    Injection,
    Link,
    RseSpec,
    Site,
    State,
    events,
    naming,
)
from dc_inject.model.holds import Trait
from dc_inject.model.plan import FlowDecision, Plan
from dc_inject.model.ports import Identity, Observation, Outcome, Status
from tests.engine import world as simulated
from tests.metrics.test_counters import drive

from ..ledger.world import totals_from_rows

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
CYCLE = Cycle(START, timedelta(minutes=15))
GB = 10**9
GOOD = FlowKey("t0-export", Link("T2_CH_CERN", "T1_US_FNAL_Disk"))
DRY = FlowKey("t0-export", Link("T2_CH_CERN", 'T1_"ODD"\\_Disk'))  # a name that the text format has to escape
UNTIL = START + timedelta(days=3)


def injection(number: int) -> Injection:
    name = f"cms:/data#{number}"
    return Injection(
        key=naming.key("dc27", GOOD.scenario, START, GOOD.link, name),
        campaign="dc27",
        cycle=CYCLE,
        scenario=GOOD.scenario,
        link=GOOD.link,
        item=Dataset(name, 100 * GB, 10),
        release=START,
        lifetime=timedelta(hours=2),
        activity="Data Challenge",
        service_priority=3,
        contact="dc@example.org",
    )


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A ledger with one complete rule, one half way, one in doubt, and one link that is dry."""
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        identity = Identity("rucio", "https://rucio", "41", "def", "dc", False, True, UNTIL)
        ledger.bind("dc27", CYCLE.length, [identity], START)
        ledger.open_cycle(CYCLE, {GOOD: (450 * GB, None), DRY: (90 * GB, None)}, START)
        some = [injection(number) for number in range(3)]
        nothing = {"cap": 0, "lifetime": timedelta(hours=2), "budget": 0, "items": ()}
        good = FlowDecision(
            GOOD, 450 * GB, 470 * GB, forgiven=7, held=None, pool_items=9, pool_bytes=900, **nothing
        )
        dry = FlowDecision(
            DRY, 90 * GB, 90 * GB, forgiven=0, held=Held(Hold.POOL_DRY), pool_items=0, pool_bytes=0, **nothing
        )
        ledger.record_plan(Plan(CYCLE, (good, dry), tuple(some)), START)
        window = {"in_flight": 5 * GB, "window": 9 * GB}
        ledger.record_decisions([ControlDecision(CYCLE, GOOD, "act", Hold.BACKLOG, 5e8, window)])
        keys = [one.key for one in some]
        ledger.call(keys, START)
        ledger.answer([Outcome(keys[0], "r0"), Outcome(keys[1], "r1", present=3)], START, {})
        seen = [
            Observation(keys[0], Status.COMPLETE, files_done=10, reasons={"connection": 2}),
            Observation(keys[1], Status.MOVING, files_done=5, moved=50 * GB),
        ]
        ledger.observe(seen, START)
        ledger.signal("free", "T1_US_FNAL_Disk", None, START, "403")
        ledger.signal("quota_left", "T1_US_FNAL_Disk", 5, START)
        ledger.pause("t0-export", "me", "lunch", START)
    return path


SIZES = {"dc_inject_ledger_bytes", "dc_inject_ledger_disk_free_bytes"}  # which anybody may change


def scrape(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The page as Prometheus reads it: (name, labels) -> value."""
    with metrics.serve("0") as place, urllib.request.urlopen(f"http://{place}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(key: FlowKey) -> frozenset[tuple[str, str]]:
    link = key.link
    named = {"scenario": key.scenario, "source": link.source, "destination": link.destination, "service": "rucio"}
    return frozenset(named.items())


def test_every_number_of_every_account_is_the_ledgers_own(path: Path) -> None:
    """Due, injected, moved, forgiven, rules, resident and in doubt agree to the byte, for every link."""
    found = scrape(Metrics(path))
    with LedgerView.open(path) as view:
        accounts = view.accounts()
    assert accounts[GOOD].injected == 200 * GB - 3
    assert accounts[GOOD].moved == 150 * GB - 3
    assert set(accounts) == {GOOD, DRY}
    for key, totals in accounts.items():
        for field, name in COUNTED.items():
            assert found[f"dc_inject_{name}", labels(key)] == getattr(totals, field), (field, key)
        for field, name in GAUGED.items():
            assert found[f"dc_inject_{name}", labels(key)] == getattr(totals, field), (field, key)


def test_what_control_decided_is_told_of_links_that_have_it(path: Path) -> None:
    """As in the last plan; the others have no series, and the holds all have one."""
    found = scrape(Metrics(path))
    told = {name[len("dc_inject_control_") :]: value for (name, of), value in found.items() if of == labels(GOOD)
            and name.startswith("dc_inject_control_")}  # fmt: skip
    assert told == {"window_bytes": 9 * GB, "in_flight_bytes": 5 * GB}
    assert not any(of == labels(DRY) for name, of in found if name.startswith("dc_inject_control_"))
    held = {of: value for (name, of), value in found.items() if name == "dc_inject_control_held_links"}
    assert {dict(of)["hold"] for of in held} == {hold.value for hold in Hold if Trait.CONTROL in hold.traits}
    assert {dict(of)["mode"] for of in held} == {"act", "advise"}
    assert {of for of, value in held.items() if value} == {
        frozenset({("hold", "backlog"), ("mode", "act")}),
    }  # fmt: skip


def test_what_fails_is_counted_apart_and_takes_nothing_from_what_was_injected(path: Path) -> None:
    """A counter that fell, or stood still until it is made up, would show a hole in every rate."""
    metrics = Metrics(path)
    before = scrape(metrics)["dc_inject_injected_bytes_total", labels(GOOD)]
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.observe([Observation(injection(1).key, Status.COMPLETE, failed=30 * GB, files_stuck=3)], START)
        assert ledger.accounts()[GOOD].injected == before - 30 * GB
        assert ledger.accounts() == totals_from_rows(ledger)
    for found in (scrape(metrics), scrape(Metrics(path))):  # also of a process that begins now
        assert found["dc_inject_injected_bytes_total", labels(GOOD)] == before
        assert found["dc_inject_failed_bytes_total", labels(GOOD)] == 30 * GB


def test_what_had_not_moved_when_its_rule_ended_is_told(path: Path) -> None:
    assert scrape(Metrics(path))["dc_inject_not_moved_bytes", labels(GOOD)] == 0
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.observe([Observation(injection(1).key, Status.ABSENT)], UNTIL)
    assert scrape(Metrics(path))["dc_inject_not_moved_bytes", labels(GOOD)] == 50 * GB


def test_the_state_of_the_campaign(path: Path) -> None:
    """Target, debt, pool, holds, rules, pauses, missing signals, credentials and build, as the ledger has them."""
    found = scrape(Metrics(path))

    def value(name: str, **some: str) -> float:
        return found[f"dc_inject_{name}", frozenset(some.items())]

    assert found["dc_inject_target_bytes_per_second", labels(GOOD)] == 450 * GB / 900
    assert found["dc_inject_debt_bytes", labels(GOOD)] == 470 * GB - (200 * GB - 3) - 7
    assert found["dc_inject_pool_items", labels(GOOD)] == 9
    assert found["dc_inject_pool_bytes", labels(DRY)] == 0
    assert value("held_links", hold="pool-dry", harmless="false") == 1
    links = {
        hold: value("held_links", hold=hold.value, harmless="true" if hold.harmless else "false") for hold in Hold
    }
    assert sum(links.values()) == 1
    assert value("rules", state="complete") == 1
    assert value("rules", state="live") == 1
    assert value("rules", state="called") == 1
    assert sum(value("rules", state=state.value) for state in State) == 3
    assert value("pauses") == 1
    assert value("signals_missing", signal="free") == 1
    assert value("signals_missing", signal="quota_left") == 0
    assert value("credentials_expiry_timestamp_seconds", service="rucio") == UNTIL.timestamp()
    assert value("last_cycle_timestamp_seconds") == START.timestamp()
    assert value("ledger_up") == 1
    assert [name for name, _ in found].count("dc_inject_build_info") == 1


def heard(metrics: Metrics, *answers: bool, service: str = "rucio") -> None:
    for answered in answers:
        metrics.event(events.RequestMade(service, "x", 1.0, "ok", answered))


def test_a_service_is_down_when_three_calls_in_a_row_fail_or_the_ledger_says_so(path: Path) -> None:
    """One that fails may be an accident; and a refusal is an answer."""
    metrics = Metrics(path)
    up = "dc_inject_service_up", frozenset({("service", "rucio")})
    assert up not in scrape(metrics)  # nobody knows
    heard(metrics, False, True, False, False)
    assert scrape(metrics)[up] == 1
    heard(metrics, False)
    assert scrape(metrics)[up] == 0
    heard(metrics, True)
    assert scrape(metrics)[up] == 1
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.signal("service", "rucio", None, START, "401")
    assert scrape(metrics)[up] == 0


def test_links_are_held_as_soon_as_it_is_known_and_not_when_the_cycle_is_over(path: Path) -> None:
    """The reasons of the ledger are those of the plan; what arises afterwards is told by the process."""
    metrics = Metrics(path)

    def held() -> dict[str, float]:
        found = scrape(metrics)
        return {
            hold.value: count
            for hold in Hold
            if (
                count := found[
                    "dc_inject_held_links",
                    frozenset({("hold", hold.value), ("harmless", str(hold.harmless).lower())}),
                ]
            )
        }

    metrics.event(events.CycleOpened(CYCLE))
    assert held() == {"pool-dry": 1}
    metrics.event(events.LinkTroubled(GOOD, Hold.QUOTA))
    metrics.event(events.LinkTroubled(GOOD, Hold.API_ERRORS))
    assert held() == {"pool-dry": 1, "quota": 1}
    metrics.event(events.CycleOpened(CYCLE.next))
    assert held() == {"pool-dry": 1}
    heard(metrics, False, False, False, service="fts")  # not the one that serves the link
    assert held() == {"pool-dry": 1}
    heard(metrics, False, False, False)
    assert held() == {"pool-dry": 1, "api-errors": 1}


def test_a_scrape_while_the_ledger_is_written(path: Path) -> None:
    """Inside another process's transaction a scrape tells the state before it."""
    metrics = Metrics(path)

    def numbers() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {key: value for key, value in scrape(metrics).items() if key[0] not in SIZES}

    before = numbers()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("UPDATE account SET due = due + 1")
    during = numbers()
    writer.execute("COMMIT")
    writer.close()
    assert during == before
    assert scrape(metrics)["dc_inject_due_bytes_total", labels(GOOD)] == 450 * GB + 1


def test_without_a_ledger_what_was_counted_is_still_told(tmp_path: Path) -> None:
    """A ledger that is not there, or is none, fails neither the scrape nor the next one."""
    path = tmp_path / "dc27.sqlite"
    metrics = Metrics(path)
    metrics.event(events.UnexpectedError("KeyError"))
    assert scrape(metrics)["dc_inject_ledger_up", frozenset()] == 0
    path.write_bytes(b"this is not SQLite, and longer than any header of it would be " * 100)
    found = scrape(metrics)
    assert found["dc_inject_ledger_up", frozenset()] == 0
    assert found["dc_inject_unexpected_errors_total", frozenset()] == 1
    path.unlink()
    with Ledger.open(path) as ledger:
        ledger.open_cycle(CYCLE, {GOOD: (5, None)}, START)
    assert scrape(metrics)["dc_inject_due_bytes_total", labels(GOOD)] == 5


def test_a_counter_does_not_fall_when_an_estimate_was_too_high(path: Path) -> None:
    """Prometheus takes a fall for a restart and would add the whole value to the rate."""
    metrics = Metrics(path)
    before = scrape(metrics)["dc_inject_moved_bytes_total", labels(GOOD)]
    with Ledger.open(path) as ledger:
        lower = Observation(injection(1).key, Status.MOVING, files_done=4, moved=40 * GB, exact=True)
        ledger.observe([lower], START)
        assert ledger.accounts()[GOOD].moved < before
    assert scrape(metrics)["dc_inject_moved_bytes_total", labels(GOOD)] == before
    with Ledger.open(path) as ledger:
        ledger.observe([lower._replace(moved=90 * GB)], START)
        assert scrape(metrics)["dc_inject_moved_bytes_total", labels(GOOD)] == ledger.accounts()[GOOD].moved


def test_what_is_served_is_the_catalogue(path: Path) -> None:
    """All metrics of it, with their types, labels and texts, and no other ones; the reference is made of it."""
    metrics = Metrics(path)
    drive(metrics)
    metrics.in_force(simulated.campaign([simulated.flow("A", "B", 1)]))
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.signal("service", "rucio", None, START, "401")
    served = {}
    for family in metrics.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        served[name] = family.type, labels, family.documentation
    assert served == {
        f"dc_inject_{spec.name}": (spec.type, set(spec.labels), spec.text) for spec in METRICS.values()
    }


def test_each_held_link_is_told_with_its_reason(path: Path) -> None:
    metrics = Metrics(path)

    def held() -> set[frozenset[tuple[str, str]]]:
        return {
            of for (name, of), value in scrape(metrics).items() if name == "dc_inject_link_held" and value == 1
        }

    dry = labels(DRY) | {("hold", "pool-dry"), ("harmless", "false")}
    assert held() == {dry}
    metrics.event(events.CycleOpened(CYCLE))
    metrics.event(events.LinkTroubled(GOOD, Hold.TOO_COARSE))
    assert held() == {dry, labels(GOOD) | {("hold", "too-coarse"), ("harmless", "true")}}


def test_the_disk_of_the_ledger_is_told_also_when_the_ledger_cannot_be_read(path: Path) -> None:
    """When it is full, that is what somebody has to know."""
    for content in (path.read_bytes(), b"no ledger any more"):
        path.write_bytes(content)
        found = scrape(Metrics(path))
        log = path.with_name(f"{path.name}-wal")
        assert found["dc_inject_ledger_bytes", frozenset()] == len(content) + (
            log.stat().st_size if log.exists() else 0
        )
        assert 0 <= found["dc_inject_ledger_disk_free_bytes", frozenset()] <= shutil.disk_usage(path).total


def test_the_sites_of_the_menus_in_force_are_told(path: Path) -> None:
    metrics = Metrics(path)
    sites = (Site("KIT", rses={"A": RseSpec(), "Z": RseSpec()}),)
    metrics.in_force(simulated.campaign([simulated.flow("A", "B", 1)], sites=sites))
    found = scrape(metrics)
    told = {tuple(sorted(of)) for name, of in found if name == "dc_inject_rse_info"}
    assert told == {(("rse", "A"), ("site", "KIT")), (("rse", "B"), ("site", "B"))}
