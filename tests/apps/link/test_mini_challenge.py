"""Climbing with the engine: a link of the simulated service is found, its rates set and taken back."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.apps.link import records
from dc_inject.apps.link.judging.progress import Progress, conclusion
from dc_inject.apps.link.judging.steps import Ladder, Next
from dc_inject.apps.link.judging.verdict import StepOutcome
from dc_inject.apps.link.running import Climbing
from dc_inject.model import Campaign, State
from dc_inject.model.errors import LinkRefused, Temporary
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, url, world

HOUR = timedelta(hours=1)  # four cycles
MINUTE = timedelta(minutes=1)
GBPS = 1e9 / 8


def climbing(
    tmp_path,
    *,
    capacity,
    ladder,
    stock=None,
    link=None,
    until=START + 20 * HOUR,
    arrange=lambda one: None,
    noise=lambda: 1.0,
    **more,
):
    """An engine that climbs a link of a capacity (Gb/s), run to its end."""
    link = link or flow("A", "B", ladder.first / GBPS, end=until)
    made = campaign([link])
    made = replace(made, menus=tuple(replace(menu, end=until + 3 * CYCLE) for menu in made.menus))
    one = world(
        tmp_path,
        made,
        stock or {"A": items("A", 2000, 45 * GB)},
        speed=lambda _link: capacity * noise() * GBPS,
        **more,
    )
    climbs = Climbing(
        lambda: made, ledger=one.ledger, clock=one.clock, progress=Progress(ladder, until), who="a test"
    )  # fmt: skip
    arrange(one)
    one.menus = climbs
    one.run()
    climbs.finish(one.ledger, link.key)
    return one, climbs


def ladder(first, step, highest, *, saturate=True):
    every = 5 * HOUR / 2 if saturate else HOUR  # a trial is a fifth
    return Ladder(first * GBPS, every, step * GBPS, highest * GBPS, saturate)


@pytest.mark.parametrize(("capacity", "noise"), [(3, 0.05), (7, 0), (13.5, 0.05)])
def test_a_link_is_found_within_five_percent(tmp_path, capacity, noise):
    """It goes up, narrows down, repeats and stops; nothing stays set, and nothing is due after the end."""
    draw = random.Random(capacity)
    one, climbs = climbing(
        tmp_path, capacity=capacity, ladder=ladder(4, 4, 40), noise=lambda: 1 + draw.gauss(0, noise)
    )  # fmt: skip
    told = conclusion(ladder(4, 4, 40), climbs.verdicts, climbs.decisions)
    assert told.outcome is StepOutcome.REACHED
    assert told.capacity / GBPS == pytest.approx(capacity, rel=0.05)
    assert [decision.kind for decision in climbs.decisions][-2:] == [Next.CONFIRM, Next.STOP]
    assert one.ledger.overrides() == ()
    over = climbs.verdicts[-1].end
    assert not any(row.due for row in one.ledger.rows() if row.cycle.start >= over)
    assert one.clock.now() <= over + 3 * CYCLE
    said = [change.what for change in one.ledger.changes(100)]
    assert f"set A -> B rate {climbs.verdicts[1].rate / GBPS:g} Gb/s" in said
    rates = {round(row.due * 8 / CYCLE.total_seconds() / 1e9, 3) for row in one.ledger.rows()}
    assert rates - {0} == {round(verdict.rate / GBPS, 3) for verdict in climbs.verdicts}


def test_a_link_that_takes_all_is_stopped_at_the_most(tmp_path):
    one, climbs = climbing(tmp_path, capacity=1000, ladder=ladder(4, 4, 10))
    assert [round(one.rate / GBPS) for one in climbs.verdicts] == [4, 8, *[10] * 5]
    assert all(one.good for one in climbs.verdicts)
    assert {entry.state for entry in one.ledger.entries()} <= {State.GONE, State.ENDED, State.WITHDRAWN}


def test_fixed_steps_end_with_their_time(tmp_path):
    """And the last one is judged as the others are."""
    _, climbs = climbing(tmp_path, capacity=9, ladder=ladder(4, 4, 100, saturate=False), until=START + 3 * HOUR)
    assert [(round(one.rate / GBPS), one.good) for one in climbs.verdicts] == [(4, True), (8, True), (12, False)]
    assert climbs.verdicts[-1].end == START + 3 * HOUR
    assert 0.6 < climbs.verdicts[-1].ratio < 0.8


def test_a_pool_that_is_dry_is_not_taken_for_a_link_that_is_full(tmp_path):
    stock = {"A": items("A", 250, 20 * GB)}
    _, climbs = climbing(tmp_path, capacity=1000, ladder=ladder(4, 8, 100), stock=stock, may_end=False)
    told = conclusion(ladder(4, 8, 100), climbs.verdicts, climbs.decisions)
    assert (told.outcome, told.cause and told.cause.code) == ("inconclusive", "pool-dry")


@pytest.mark.parametrize("saturate", [True, False])
def test_a_source_with_nothing_that_fits_ends_it_after_two_cycles(tmp_path, saturate):
    steps = ladder(4, 4, 100, saturate=saturate)
    one, climbs = climbing(tmp_path, capacity=1000, ladder=steps, stock={"A": []})
    (only,) = climbs.verdicts
    assert (only.outcome, only.cause.code, only.early) == ("inconclusive", "pool-dry", True)
    assert only.why.endswith(", ended early")
    assert [decision.kind for decision in climbs.decisions] == [Next.STOP]
    assert one.clock.now() <= START + 4 * CYCLE


def test_source_files_that_are_missing_do_not_count_against_the_link(tmp_path):
    """A third of them fails for that, and what was asked for has moved all the same."""
    link = file_flow("A", "B", 1, end=START + 2 * HOUR)
    fts = {"name": "fts", "failing": lambda file: file.name.endswith(("0", "3", "6"))}
    _, climbs = climbing(
        tmp_path, capacity=1000, ladder=ladder(1, 1, 1, saturate=False), stock=source_files("A", 1000), link=link,
        until=START + HOUR, **fts,
    )  # fmt: skip
    (only,) = climbs.verdicts
    assert only.outcome is StepOutcome.REACHED
    assert 0.2 < only.failed < 0.4


def test_a_step_that_was_cut_short_says_so_where_it_was_not_reached(tmp_path):
    """Nobody should blame the link for what had no time to move."""
    link, until = flow("A", "B", 4, end=START + 20 * HOUR), START + 20 * HOUR
    stock = {"A": items("A", 300, 20 * GB)}
    made = campaign([link])
    one = world(tmp_path, made, stock, speed=lambda _link: GBPS)
    climbs = Climbing(
        lambda: made,
        ledger=one.ledger, clock=one.clock, progress=Progress(ladder(4, 4, 40, saturate=False), until), who="",
    )  # fmt: skip
    one.menus = climbs
    one.run(cycles=2)
    climbs.finish(one.ledger, link.key)
    (last,) = climbs.verdicts
    assert (last.early, last.outcome, last.cause.code) == (True, StepOutcome.INCONCLUSIVE, "ended-early")


def test_a_stop_in_the_middle_of_a_cycle_is_no_silence_of_the_service(tmp_path):
    """Nobody has asked it since the cycle began; and all that moved is not enough for a verdict."""
    link, until = flow("A", "B", 4, end=START + 20 * HOUR), START + 20 * HOUR
    made = campaign([link])
    one = world(tmp_path, made, {"A": items("A", 300, 20 * GB)}, speed=lambda _link: 4 * GBPS)
    steps = ladder(4, 4, 40, saturate=False)
    climbs = Climbing(lambda: made, ledger=one.ledger, clock=one.clock, progress=Progress(steps, until), who="")
    one.menus = climbs
    one.run(cycles=3)
    climbs()  # the turn of the cycle
    one.clock.advance(one.clock.now() + timedelta(seconds=4))
    climbs.finish(one.ledger, link.key)
    (last,) = climbs.verdicts
    assert (last.early, last.outcome, last.cause.code, last.outage) == (
        True, StepOutcome.INCONCLUSIVE, "ended-early", False,
    )  # fmt: skip


def test_a_process_that_is_suspended_in_a_step_has_not_run(tmp_path):
    """Unlike one that is resumed, it goes on with the same step."""
    link, until = flow("A", "B", 4, end=START + 20 * HOUR), START + 20 * HOUR
    made = campaign([link])
    one = world(tmp_path, made, {"A": items("A", 900, 20 * GB)}, speed=lambda _link: 4 * GBPS)
    steps = Ladder(4 * GBPS, 10 * HOUR)
    climbs = Climbing(lambda: made, ledger=one.ledger, clock=one.clock, progress=Progress(steps, until), who="")
    one.menus = climbs
    one.run(cycles=2)
    one.clock.advance(one.clock.now() + 4 * CYCLE)
    one.run(cycles=2)
    climbs.finish(one.ledger, link.key)
    (last,) = climbs.verdicts
    assert (last.outcome, last.cause.code, last.outage) == (StepOutcome.INCONCLUSIVE, "not-running", True)


def fault_between(one, since, until, *methods):
    """Let a service answer nothing of some methods for a while."""

    def fault(method, subject):
        del subject
        if method in methods and since <= one.clock.now() < until:
            raise Temporary("no connection")

    one.backend.fault = fault


EVERYTHING = ("submit", "observe", "sites", "inventory", "check_replicas", "end", "check", "remove")


@pytest.mark.parametrize("methods", [EVERYTHING, ("submit",), ("observe",), ("sites",)])
def test_a_service_that_is_away_is_no_verdict_on_the_link(tmp_path, methods):
    """The step is repeated, and the link found where it is, not far below."""
    steps = ladder(8, 4, 12)
    _, climbs = climbing(
        tmp_path,
        capacity=9,
        ladder=steps,
        arrange=lambda one: fault_between(one, START + 80 * MINUTE, START + 125 * MINUTE, *methods),
    )
    told = conclusion(steps, climbs.verdicts, climbs.decisions)
    assert told.outcome is StepOutcome.REACHED
    assert told.capacity / GBPS == pytest.approx(9, rel=0.05)
    spoilt = [one for one in climbs.verdicts if one.outcome is StepOutcome.INCONCLUSIVE]
    assert all(one.cause.code in {"api-errors", "no-answer", "standstill"} for one in spoilt), spoilt
    assert spoilt or "submit" not in methods
    if spoilt:
        assert Next.REPEAT in [decision.kind for decision in climbs.decisions]


def test_a_destination_that_is_away_is_no_verdict_on_the_link(tmp_path):
    """Neither while it says so, nor when transfers fail."""
    link = file_flow("A", "B", 4, end=START + 20 * HOUR)
    steps = ladder(4, 4, 8, saturate=False)
    one, climbs = climbing(
        tmp_path, capacity=1000, ladder=steps, stock=source_files("A", 4000), link=link, until=START + 2 * HOUR,
        name="fts", unwritable={url("B")},
    )  # fmt: skip
    assert {one.cause.code for one in climbs.verdicts} == {"destination-unavailable"}
    assert one.clock.now() >= START + 2 * HOUR, "it waits for it"


def test_a_link_that_is_refused_is_no_outage_of_the_service(tmp_path):
    """Also before the row of the cycle is closed."""
    steps = ladder(4, 4, 8, saturate=False)

    def arrange(one):
        def fault(method, _subject):
            if method == "submit":
                raise LinkRefused("'Nope' is not one of the activities")

        one.backend.fault = fault

    _, climbs = climbing(tmp_path, capacity=1000, ladder=steps, until=START + 2 * HOUR, arrange=arrange)
    assert {(one.cause.code, one.outage) for one in climbs.verdicts} == {("quarantined", False)}
    assert all("'Nope'" in one.cause.words for one in climbs.verdicts)


@pytest.mark.parametrize(("size", "code"), [(1000 * GB, "coarse-datasets"), (700 * GB, None)])
def test_coarse_datasets_are_not_the_links_fault(tmp_path, size, code):
    """Half of one may come due within the hour or not: 1 Gb/s are 450 GB."""
    steps = ladder(1, 1, 1, saturate=False)
    stock = {"A": items("A", 300, size)}
    _, climbs = climbing(tmp_path, capacity=1000, ladder=steps, stock=stock, until=START + HOUR)
    (only,) = climbs.verdicts
    assert only.outcome is (StepOutcome.INCONCLUSIVE if code else StepOutcome.REACHED)
    assert (only.cause and only.cause.code) == code


def test_a_saturated_link_is_called_so(tmp_path, wording):
    """Also where planning waits for datasets, which is what its cycles say."""
    steps = ladder(8, 1, 8, saturate=False)
    _, climbs = climbing(tmp_path, capacity=4, ladder=steps, until=START + 2 * HOUR)
    assert {one.cause.code for one in climbs.verdicts} == {"saturated"}
    wording(climbs.verdicts[-1].why)


def test_the_verdict_follows_from_the_ledger_and_another_process_goes_on(tmp_path):
    """What one process has judged, another makes again from the readings, to the byte."""
    steps, until = ladder(4, 4, 40), START + 20 * HOUR
    link = flow("A", "B", 4, end=until)
    made = campaign([link])
    one = world(tmp_path, made, {"A": items("A", 2000, 45 * GB)}, speed=lambda _link: 9 * GBPS)

    def climbs(progress):
        one.menus = Climbing(lambda: made, ledger=one.ledger, clock=one.clock, progress=progress, who="a test")
        return one.menus

    one.ledger.keep_challenge("asked", records.settings(steps, until), START)
    first = climbs(Progress(steps, until))
    one.run(cycles=4)  # in the middle of the second trial
    first.finish(one.ledger, link.key)
    again = records.progress(one.ledger.challenge())
    assert again.verdicts == first.verdicts
    assert [round(v.rate / GBPS) for v in again.verdicts] == [4, 8]
    assert again.verdicts[-1].early
    one.clock.advance(START + 5 * HOUR)
    one.ledger.keep_challenge("asked", records.settings(steps, until), one.clock.now())
    second = climbs(records.progress(one.ledger.challenge()))
    one.run()
    assert [round(v.rate / GBPS) for v in second.verdicts[:2]] == [4, 8], "what was judged stays"
    assert [round(v.rate / GBPS, 2) for v in second.verdicts[2:]] == [8, 16, *[9] * 4]
    assert second.verdicts[2].start >= START + 5 * HOUR
    assert records.progress(one.ledger.challenge()).verdicts == second.verdicts
    rates = {round(row.due * 8 / CYCLE.total_seconds() / 1e9) for row in one.ledger.rows(since=START + 5 * HOUR)}
    assert rates == {0, 8, 9, 16}, "it goes on with the rate that was being tried"


def test_an_end_before_the_first_reading_says_nothing(tmp_path):
    made: list[Campaign] = []
    one = world(tmp_path, campaign([flow("A", "B", 4)]), {"A": []})
    progress = Progress(ladder(4, 4, 40), START)
    climbs = Climbing(lambda: made[0], ledger=one.ledger, clock=one.clock, progress=progress, who="")
    climbs.finish(one.ledger, flow("A", "B", 1).key)
    assert climbs.verdicts == []
