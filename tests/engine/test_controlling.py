"""What a link has in flight is bounded by what it carries, and what held links leave goes to others."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dc_inject.engine import control_records, controlling
from dc_inject.model import Control, Hold, Mode, RseSpec, Site
from dc_inject.model.errors import Temporary
from dc_inject.model.events import Called
from dc_inject.model.shape import Point, Shape
from dc_inject.planning.overrides import Kind
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, world

DUE = 112_500_000_000  # a cycle's at 1 Gb/s
ACT, ADVISE = Control(Mode.ACT), Control(Mode.ADVISE)
RATE = 1e9 / 8


def slow(tmp_path, part: float = 0.7, service: str = "rucio", **more):
    """A link that carries a part of its target, with small pieces."""
    if service == "fts":
        link = file_flow("A", "B", 1.0, **more)
        return world(tmp_path, campaign([link]), source_files("A", 2000), name="fts", speed=lambda _l: part * RATE)
    link = flow("A", "B", 1.0, **more)
    return world(tmp_path, campaign([link]), {"A": items("A", 1500, 5 * GB)}, speed=lambda _l: part * RATE)


def decided(one) -> dict[str, dict[str, Any]]:
    """What was decided last of each link, by its destination."""
    signals = [json.loads(signal.value) for signal in one.ledger.signals() if signal.name == control_records.NAME]
    return {record["destination"]: record for record in signals}


def unsent(one) -> int:
    """Bytes of rules that ended before they had arrived."""
    return sum(
        entry.injection.item.bytes - entry.moved
        for entry in one.ledger.entries()
        if entry.ended_at is not None and entry.completed_at is None
    )


@pytest.mark.parametrize("service", ["rucio", "fts"])
def test_a_link_at_seven_tenths_of_its_target_expires_nothing(tmp_path, service):
    one = slow(tmp_path, 0.7, service, control=ACT)
    one.run(cycles=40)
    totals = next(iter(one.ledger.accounts().values()))
    assert unsent(one) == 0
    assert totals.coming <= 4 * DUE
    assert totals.moved >= 0.69 * 39 * DUE
    held = [row.held for row in one.ledger.rows() if row.held and row.held.hold is Hold.BACKLOG]
    assert len(held) > 20
    assert {"in_flight", "window", "allowed", "completion", "age", "wanted", "budget"} <= set(held[-1].numbers)


def test_without_the_key_the_queue_is_as_long_as_the_lifetime_allows(tmp_path):
    one = slow(tmp_path, 0.7)
    one.run(cycles=40)
    assert next(iter(one.ledger.accounts().values())).coming > 4.5 * DUE
    assert control_records.last_decisions(one.ledger) == []


def test_advice_changes_nothing_and_says_what_would_be_done(tmp_path, caplog):
    caplog.set_level("INFO", "dc_inject")
    (tmp_path / "off").mkdir()
    (tmp_path / "on").mkdir()
    off, on = slow(tmp_path / "off", 0.7), slow(tmp_path / "on", 0.7, control=ADVISE)
    off.run(cycles=20)
    on.run(cycles=20)
    assert on.ledger.rows() == off.ledger.rows()
    (advice,) = control_records.last_decisions(on.ledger)
    assert (advice["mode"], advice["hold"]) == ("advise", "backlog")
    assert advice["numbers"]["allowed"] < DUE
    assert any(line.startswith("control would hold test A -> B to ") for line in caplog.messages)


def test_a_link_that_carries_its_target_is_left_alone(tmp_path):
    one = slow(tmp_path, 1.3, control=ACT)
    one.run(cycles=30)
    assert Hold.BACKLOG not in {row.held.hold for row in one.ledger.rows() if row.held}
    totals = next(iter(one.ledger.accounts().values()))
    assert totals.injected == pytest.approx(30 * DUE, rel=0.01)


def test_after_an_outage_there_is_no_burst(tmp_path):
    one = slow(tmp_path, 1.3, control=ACT)
    speed = one.backend.speed
    down = START + 10 * CYCLE, START + 16 * CYCLE
    one.backend.speed = lambda link: 0.0 if down[0] <= one.clock.now() < down[1] else speed(link)
    one.run(cycles=30)
    rows = one.ledger.rows()
    assert max(row.injected for row in rows) <= 1.55 * DUE
    assert sum(row.moved for row in rows[17:19]) >= 0.9 * DUE, "what was on its way comes first"
    assert min(row.moved for row in rows[19:22]) >= 0.9 * DUE, "at its target in the third cycle"
    assert sum(row.forgiven for row in rows) > 2 * DUE, "what could not be given then is not made up"


def test_what_expires_is_known_to_the_law_and_the_link_is_not_filled_again(tmp_path):
    """A twentieth of the target: what was given before anything was known expires, and nothing much after that."""
    one = slow(tmp_path, 0.05, control=ACT)
    one.run(cycles=30)
    assert 0 < unsent(one) <= 2 * DUE
    (key,) = one.ledger.accounts()
    expired = one.ledger.expired(START, START)[key]
    assert sum(size for _, size in expired) == unsent(one)
    coming = one.ledger.accounts()[key].coming
    rows = one.ledger.rows()
    past = controlling._past(rows, [row.due for row in rows], coming, expired)
    assert sum(cycle.expired for cycle in past) == unsent(one)
    assert past[0].in_flight == 0, "nothing was in flight when it began, so nothing is missing from the account"


def test_a_start_in_the_middle_of_a_cycle_decides_the_same_again(tmp_path):
    one = slow(tmp_path, 0.7, control=ACT)
    one.run(cycles=12)
    kept = {s.subject: json.loads(s.value) for s in one.ledger.signals() if s.name == control_records.NAME}
    one.clock.advance(one.clock.now() + timedelta(minutes=1))
    one.run(cycles=1)
    one.run(cycles=0)
    again = {s.subject: json.loads(s.value) for s in one.ledger.signals() if s.name == control_records.NAME}
    assert kept.keys() == again.keys()
    (value,) = again.values()
    assert value["kept"] != value["before"] or value["bias"] == 0


def test_the_bias_is_due_on_top_and_the_ledger_still_adds_up(tmp_path):
    """A twentieth vanishes without a word: it is injected again, and no total is wrong."""
    one = slow(tmp_path, 2.0, control=ACT)
    one.run(cycles=12)
    (key,) = one.ledger.accounts()
    assert one.ledger.accounts() == one.ledger.totals_from_rows()
    assert one.ledger.extras()[key] >= 0


def test_an_overhead_is_no_success_of_the_bias(tmp_path):
    """What moves of it is what the menu asks for."""
    one = slow(tmp_path, 2.0, control=ACT, overhead=0.1)
    one.run(cycles=30)
    assert abs(decided(one)["B"]["bias"]) < 0.005
    assert sum(row.injected for row in one.ledger.rows()) == pytest.approx(30 * 1.1 * DUE, rel=0.01)


def test_what_others_left_is_no_success_of_the_bias(tmp_path):
    share = Control(Mode.ACT, redistribute=True)
    links = [flow("A", place, 1.0, control=share) for place in ("B", "C")]
    one = world(tmp_path, campaign(links), {"A": items("A", 9000, 5 * GB)}, unwritable={"B"})
    one.run(cycles=20)
    assert abs(decided(one)["C"]["bias"]) < 0.01


def test_what_a_held_link_leaves_goes_to_the_others_and_the_sum_is_kept(tmp_path):
    share = Control(Mode.ACT, redistribute=True)
    links = [flow("A", place, 1.0, control=share) for place in ("B", "C", "D")]
    one = world(tmp_path, campaign(links), {"A": items("A", 9000, 5 * GB)}, unwritable={"B"})
    one.run(cycles=20)
    injected = {key.link.destination: t.injected for key, t in one.ledger.accounts().items()}
    assert injected["B"] == 0
    assert injected["C"] == pytest.approx(1.5 * 19 * DUE + DUE, rel=0.02)
    assert sum(injected.values()) == pytest.approx(3 * 19 * DUE + 2 * DUE, rel=0.02)
    assert max(row.injected for row in one.ledger.rows()) <= 1.55 * DUE
    assert one.ledger.accounts() == one.ledger.totals_from_rows()
    shared = {key.link.destination: total for key, total in control_records.redistributed(one.ledger).items()}
    assert {place: total.left > 0 for place, total in shared.items()} == {"B": True, "C": False, "D": False}
    assert shared["B"].left == shared["C"].received + shared["D"].received == pytest.approx(19 * DUE, rel=0.02)
    of_c = [made.numbers for made in one.ledger.decisions() if made.key.link.destination == "C"]
    assert sum(numbers.get("for_others", 0) for numbers in of_c) == shared["C"].received


def test_what_a_space_never_lets_through_goes_to_the_others_too(tmp_path):
    """It is forgiven in the cycle itself, and was never owed."""
    share = Control(Mode.ACT, redistribute=True)
    links = [flow("A", place, 1.0, control=share) for place in ("B", "C", "D")]
    sites = (Site("S", rses={"B": RseSpec(space=int(0.6 * DUE))}),)
    one = world(tmp_path, campaign(links, sites=sites), {"A": items("A", 9000, 5 * GB)})
    one.run(cycles=12)
    rows = one.ledger.rows()
    of_b = [row for row in rows if row.key.link.destination == "B"]
    assert {row.held.hold for row in of_b if row.held is not None} == {Hold.DESTINATION_FULL}
    assert sum(row.injected for row in of_b) < 0.8 * 12 * DUE
    left = of_b[-1].due - of_b[-1].injected  # the others have it in the cycle that does not come any more
    assert sum(row.injected for row in rows) == pytest.approx(3 * 12 * DUE - left, rel=0.01)
    assert max(row.injected for row in rows) <= 1.55 * DUE
    assert one.ledger.accounts() == one.ledger.totals_from_rows()


def test_a_link_that_a_limit_holds_gets_nothing_of_others(tmp_path):
    """Not only its own troubles count: it could not take it."""
    share = Control(Mode.ACT, redistribute=True)
    links = [flow("A", place, 1.0, control=share) for place in ("B", "C", "D")]
    sites = (Site("S", max_ingress=0.9 * RATE, rses={"C": RseSpec()}),)
    one = world(tmp_path, campaign(links, sites=sites), {"A": items("A", 9000, 5 * GB)}, unwritable={"B"})
    one.run(cycles=12)
    extras = {key.link.destination: size for key, size in one.ledger.extras().items()}
    assert extras["C"] < 0.02 * DUE, "but for the bias"
    assert extras["D"] == pytest.approx(0.5 * 11 * DUE, rel=0.05)
    rows = one.ledger.rows()
    assert max(row.injected for row in rows) <= 1.55 * DUE
    given = sum(record["added"].get(record["cycle"], 0) for record in decided(one).values())
    assert given == sum(record["moved_over"] for record in decided(one).values()) > 0
    assert one.ledger.accounts() == one.ledger.totals_from_rows()


def test_a_start_in_the_middle_of_a_cycle_moves_nothing_over_again(tmp_path):
    share = Control(Mode.ACT, redistribute=True)
    links = [flow("A", place, 1.0, control=share) for place in ("B", "C", "D")]
    one = world(tmp_path, campaign(links), {"A": items("A", 9000, 5 * GB)}, unwritable={"B"})
    one.run(cycles=4.4)
    before, totals = decided(one), one.ledger.extras()
    shared = control_records.redistributed(one.ledger)
    one.run(cycles=0.2)
    assert decided(one) == before
    assert control_records.redistributed(one.ledger) == shared
    assert one.ledger.extras() == totals


def test_a_link_that_is_back_is_not_given_what_the_others_had(tmp_path):
    share = Control(Mode.ACT, redistribute=True)
    links = [flow("A", place, 1.0, control=share) for place in ("B", "C", "D")]
    one = world(tmp_path, campaign(links), {"A": items("A", 9000, 5 * GB)}, unwritable={"B"})
    one.run(cycles=10)
    one.backend.unwritable.clear()
    one.run(cycles=10)
    late = [row for row in one.ledger.rows() if row.cycle.start >= START + 13 * CYCLE]
    assert max(row.injected for row in late) <= 1.1 * DUE
    assert sum(row.injected for row in late) == pytest.approx(3 * 7 * DUE, rel=0.03)


def test_a_rate_that_is_lowered_is_heeded_at_once_though_others_have_what_the_link_owed(tmp_path):
    share = Control(Mode.ACT, redistribute=True)
    links = [flow("A", place, 1.0, control=share) for place in ("B", "C", "D")]
    one = world(tmp_path, campaign(links), {"A": items("A", 9000, 5 * GB)}, unwritable={"B"})
    one.run(cycles=3)
    one.backend.unwritable.clear()
    one.run(cycles=1)

    def lower() -> None:
        if one.clock.now() >= START + 4.2 * CYCLE and not one.ledger.overrides():
            one.ledger.override("A:B", Kind.RATE, RATE / 2, "me", "", one.clock.now())

    one.heard.at[Called] = lower
    one.run(cycles=1)  # its destination was open for two cycles: it gets its due again
    row = next(row for row in one.ledger.rows()[-3:] if row.key.link.destination == "B")
    older = decided(one)["B"]["moved_over"]
    assert older > 0.9 * DUE, "others have what it was short of in the cycle before"
    assert 0.3 * DUE <= row.forgiven - older <= 0.4 * DUE
    assert row.injected == pytest.approx(DUE - (row.forgiven - older), abs=5 * GB)
    assert one.ledger.accounts() == one.ledger.totals_from_rows()


def test_only_links_that_share_give_and_take(tmp_path):
    links = [flow("A", place, 1.0, control=ACT) for place in ("B", "C")]
    one = world(tmp_path, campaign(links), {"A": items("A", 9000, 5 * GB)}, unwritable={"B"})
    one.run(cycles=8)
    injected = {key.link.destination: t.injected for key, t in one.ledger.accounts().items()}
    assert injected["C"] == pytest.approx(8 * DUE, rel=0.03)


def test_a_service_that_is_not_seen_is_no_backlog(tmp_path):
    """What was not looked at says nothing of what the link carries."""
    one = slow(tmp_path, 1.3, control=ACT)

    def fault(method, _subject):
        if method == "observe" and START + 6 * CYCLE <= one.clock.now() < START + 8 * CYCLE:
            raise Temporary("504")

    one.backend.fault = fault
    one.run(cycles=14)
    rows = one.ledger.rows()
    assert sum(row.injected for row in rows[9:]) == pytest.approx(5 * DUE, rel=0.35)


def test_a_link_that_is_due_nothing_for_two_cycles_is_bounded_still(tmp_path):
    """What it owes may be given then, and as little as its queue has room for."""
    pulses = (Point(timedelta(0), 1.0), Point(2 * CYCLE, 1.0), Point(2 * CYCLE, 0.0), Point(8 * CYCLE, 0.0))
    link = flow("A", "B", 1.0, shape=Shape(START, pulses, 8 * CYCLE), control=Control(Mode.ACT))
    stock = {"A": items("A", 1500, 5 * GB)}
    one = world(tmp_path, campaign([link]), stock, speed=lambda _link: 0.3 * RATE)
    one.run(cycles=3.5)
    (record,) = decided(one).values()
    assert record["cycle"] == one.ledger.last_cycle().name
    assert one.ledger.rows()[-1].due == 0
