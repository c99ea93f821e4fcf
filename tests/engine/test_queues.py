"""What waits on controlled links, in FTS and before it: the guard `fts-queue`, and what it does without."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.engine import queues
from dc_inject.model import Hold
from dc_inject.model.errors import Permanent
from dc_inject.model.ports import LinkQueue, Missing, Requests
from tests.core.builders import demand
from tests.engine.test_guarding import ACT, ADVISE, DUE, holds, kept, queue
from tests.engine.world import CYCLE, GB, START, campaign, file_flow, flow, items, source_files, world


@pytest.mark.parametrize("control", [ACT, ADVISE])
def test_a_queue_in_fts_that_takes_half_of_the_lifetime_holds_until_it_takes_a_quarter(tmp_path, control):
    """Whoever filled it."""
    link = file_flow("A", "B", 1.0, control=control)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)
    queued = {0: 10, 3: 400, 5: 220, 7: 100}  # by cycle, of files of a GB at 100 MB/s; the lifetime is 7200 s

    def look(links):
        count = max(cycle for cycle in queued if cycle <= (one.clock.now() - START) / CYCLE)
        return {asked: LinkQueue(queued[count], 20, 1e8, GB, one.clock.now()) for asked in links}

    one.backend.queues = look
    one.run(cycles=10)
    held = holds(one)
    if control is ADVISE:
        assert "fts-queue" not in held
        return
    row = one.ledger.rows()[3]
    assert row.held is not None
    assert (row.held.numbers["waiting"], row.held.numbers["active"], row.held.numbers["waits"]) == (400, 20, 4000)
    assert held == ["-", "-", "-", *["fts-queue"] * 4, "-", "-", "-"]


@pytest.mark.parametrize(("success", "told"), [(0.55, 0.55), (0.98, None), (None, None)])
def test_a_queue_that_is_long_while_many_attempts_fail_says_so(tmp_path, success, told):
    link = file_flow("A", "B", 1.0, control=ACT)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)
    one.backend.queues = lambda links: {
        asked: LinkQueue(400, 20, 1e8, GB, one.clock.now(), success=success) for asked in links
    }
    one.run(cycles=3)
    held = one.ledger.rows()[-1].held
    assert held is not None
    assert held.hold is Hold.FTS_QUEUE
    assert held.numbers.get("success") == told


def test_a_queue_in_which_nothing_moves_is_not_drained_and_blames_nobody(tmp_path, wording):
    """The guard neither engages by it nor lets go."""
    link = file_flow("A", "B", 1.0, control=ACT)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)
    for waiting, rate, cycles in ((400, 0.0, 3), (400, 1e8, 1), (400, 0.0, 3), (0, 0.0, 2)):
        queue(one, waiting, rate)
        one.run(cycles=cycles)
        if rate == 0.0 and waiting:
            (missing,) = [signal for signal in one.ledger.signals() if signal.name == "fts_queue"]
            assert missing.value is None
            wording(missing.why)
    assert holds(one) == ["-"] * 3 + ["fts-queue"] * 4 + ["-"] * 2
    held = one.ledger.rows()[5].held
    assert held is not None
    assert dict(held.numbers) == {"waiting": 400, "active": 20, "reading": "inconclusive", "until": 0.25}


def test_what_fts_has_not_said_anew_is_no_signal(tmp_path, wording):
    """A queue that was cancelled as a whole is told of no more: its last row says that it is long."""
    link = file_flow("A", "B", 1.0, control=ACT)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)
    queue(one, 400)
    one.run(cycles=3)
    queue(one, 400, at=one.clock.now() - timedelta(minutes=9))
    one.run(cycles=1)
    assert holds(one)[-1] == "fts-queue"
    queue(one, 400, at=one.clock.now() - timedelta(minutes=11))
    one.run(cycles=1)
    assert holds(one)[-1] == "-"
    (missing,) = [signal for signal in one.ledger.signals() if signal.name == "fts_queue"]
    wording(missing.why)
    assert kept(one)["floor"] == 0


def test_a_queue_that_cannot_be_read_holds_nothing_and_is_told_as_missing(tmp_path):
    link = file_flow("A", "B", 1.0, control=ACT)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)

    def refuse(_links):
        raise Permanent("403 Forbidden")

    one.backend.queues = refuse
    one.run(cycles=4)
    (missing,) = [signal for signal in one.ledger.signals() if signal.name == "fts_queue"]
    assert (missing.value, missing.why) == (None, "403 Forbidden")
    assert all(row.injected for row in one.ledger.rows())


def test_no_queue_is_asked_for_where_nothing_is_controlled(tmp_path):
    link = file_flow("A", "B", 1.0)
    one = world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)
    one.run(cycles=4)
    assert "queues" not in one.backend.calls


# --------------------------------------------------------------------------- through Rucio


def signals(one, name: str) -> dict[str, str | None]:
    """What is told of a signal: its value, or why it is missing, by subject."""
    return {signal.subject: signal.value or signal.why for signal in one.ledger.signals() if signal.name == name}


def through_rucio(tmp_path, speed: float = 1e9 / 8):
    """A link that is full, so that something is always on its way."""
    return world(
        tmp_path, campaign([flow("A", "B", 1.0, control=ACT)]), {"A": items("A", 900, 5 * GB)},
        speed=lambda _l: speed,
    )  # fmt: skip


def test_a_queue_in_the_fts_that_rucio_uses_holds_too(tmp_path):
    one = through_rucio(tmp_path)
    one.backend.queues = lambda links: {
        link: LinkQueue(400, 20, 1e8, GB, one.clock.now(), 30, "Queue emptying", by="https://fts")
        for link in links
    }
    one.run(cycles=3)
    held = one.ledger.rows()[2].held
    assert held is not None
    assert (held.hold, held.numbers["waits"], held.numbers["limit"]) == (Hold.FTS_QUEUE, 4000, 30)
    assert held.numbers["decision"] == "Queue emptying"
    assert kept(one)["floor"] == 22 * GB
    assert set(signals(one, "fts_queue")) == {"A:B", "https://fts"}


def test_an_fts_that_may_not_be_asked_is_one_missing_signal_however_many_links_it_has(tmp_path):
    links = [flow("A", name, 0.2, control=ACT) for name in "BCD"]
    one = world(tmp_path, campaign(links), {"A": items("A", 900, 5 * GB)}, speed=lambda _l: 1e9 / 8)
    one.backend.queues = lambda links: {link: Missing("https://fts", "name it") for link in links}
    one.run(cycles=3)
    assert signals(one, "fts_queue") == {"https://fts": "name it"}
    one.backend.queues = lambda links: {
        link: LinkQueue(0, 20, 1e8, GB, one.clock.now(), by="https://fts") for link in links
    }
    one.run(cycles=1)
    assert signals(one, "fts_queue")["https://fts"] == "known"


def test_what_waits_in_rucio_counts_with_the_rate_of_fts(tmp_path):
    one = through_rucio(tmp_path)
    one.backend.queues = lambda links: {link: LinkQueue(100, 20, 1e8, GB, one.clock.now()) for link in links}
    one.backend.requests = lambda links: dict.fromkeys(links, Requests(300, 300 * GB, 1e5))
    one.run(cycles=3)
    held = one.ledger.rows()[2].held
    assert held is not None
    assert (held.hold, held.numbers["waits"], held.numbers["requests"]) == (Hold.FTS_QUEUE, 4000, 300)


def test_without_fts_what_waits_in_rucio_counts_when_the_last_hour_tells_of_the_link(tmp_path):
    """In the first hour little has arrived in the last hour, whatever the link carries."""
    one = through_rucio(tmp_path, speed=4e7)
    one.backend.requests = lambda links: dict.fromkeys(links, Requests(900, 900 * GB, 1e6))
    one.run(cycles=7)
    assert "fts-queue" not in holds(one)[:4]
    held = one.ledger.rows()[-1].held
    assert held is not None
    assert held.hold is Hold.FTS_QUEUE


def test_an_account_that_may_not_see_requests_is_told_once(tmp_path):
    one = through_rucio(tmp_path)

    def refuse(_links):
        raise Permanent("403 Forbidden")

    one.backend.requests = refuse
    one.run(cycles=3)
    assert signals(one, "requests") == {"rucio": "403 Forbidden"}
    assert all(row.injected for row in one.ledger.rows())


# --------------------------------------------------------------------------- transfers that FTS takes away


def losing_transfers(tmp_path, control=ACT, **more):
    """A link of which FTS lets five transfers go on: they carry a fifth of what is due, and are taken away."""
    one = world(
        tmp_path, campaign([flow("A", "B", 1.0, control=control)]), {"A": items("A", 900, 5 * GB)},
        speed=lambda _l: 1e9 / 8,
    )  # fmt: skip
    known = {"limit": 5, "decision": "Bad link efficiency", "speed": 5e6, "success": 0.82} | more

    def queues(links):
        return {link: LinkQueue(0, 5, 25e6, GB, known.get("at") or one.clock.now(), **known) for link in links}

    one.backend.queues = queues
    return one


def test_a_link_from_which_fts_takes_transfers_is_given_what_those_that_are_left_carry(tmp_path):
    one = losing_transfers(tmp_path)
    one.run(cycles=3)
    row = one.ledger.rows()[2]
    assert row.held is not None
    assert row.held.hold is Hold.BACKLOG
    numbers = row.held.numbers
    assert (numbers["transfers"], numbers["transfers_age"], numbers["success"]) == (5, 0, 0.82)
    assert numbers["window"] <= 5 * (GB + 5_000_000 * 1.5 * CYCLE.total_seconds())
    assert row.injected < DUE / 3
    assert kept(one)["kept"][2] < 1e9 / 8 / 4, "D, which the next cycle begins with"


def test_where_control_advises_the_same_is_told_and_nothing_is_held(tmp_path, caplog):
    caplog.set_level("INFO", "dc_inject")
    one = losing_transfers(tmp_path, ADVISE)
    one.run(cycles=3)
    assert all(row.injected > DUE - 5 * GB for row in one.ledger.rows())
    assert (kept(one)["hold"], kept(one)["numbers"]["transfers"]) == ("backlog", 5)
    assert any(line.startswith("control would hold test A -> B to ") for line in caplog.messages)


@pytest.mark.parametrize(
    "more",
    [
        {"success": 0.97},
        {"success": None},
        {"limit": None},
        {"speed": 0.0},
        {"decision": "Range fixed"},
    ],
    ids=str,
)
def test_where_fts_takes_nothing_away_or_does_not_tell_nothing_is_foreseen(tmp_path, more):
    one = losing_transfers(tmp_path, **more)
    one.run(cycles=3)
    assert "transfers" not in kept(one)["numbers"]
    assert all(row.injected > DUE - 5 * GB for row in one.ledger.rows())


LINK = flow("A", "B", 1.0).link
TOLD = LinkQueue(10, 40, 1e8, GB, START, limit=40, speed=5e6, success=0.82)


def test_flows_of_a_link_share_its_transfers_by_what_they_are_due():
    demands = [
        demand(flow("A", "B", 1.0, scenario=name), due * GB, coming=25 * GB) for name, due in (("a", 3), ("b", 1))
    ]
    parts = queues.taken_away(demands, {LINK: TOLD}, START)
    assert [(made.limit, made.speed, made.file) for made in parts.values()] == [
        (40, 3.75e6, 0.75 * GB),
        (40, 1.25e6, 0.25 * GB),
    ]


@pytest.mark.parametrize(
    ("coming", "told"),
    [
        (50, replace(TOLD, waiting=20)),  # 60 files in FTS, of which 50 are ours at most
        (0, TOLD),
        (50, replace(TOLD, file=0)),
    ],
    ids=["waiting", "all", "no size"],
)
def test_where_others_use_a_link_or_sizes_are_not_known_nothing_is_said_of_its_transfers(coming, told):
    ours = demand(flow("A", "B", 1.0), GB, coming=coming * GB)
    assert queues.taken_away([ours], {LINK: told}, START) == {}
    assert queues.taken_away([replace(ours, coming=50 * GB)], {LINK: TOLD}, START)
    assert queues.taken_away([ours], {LINK: replace(TOLD, waiting=3)}, START), "an old report of an empty link"


def test_transfers_at_their_least_are_not_taken_away(tmp_path):
    """Five that stay carry more in a lifetime than five of which soon two are left."""
    for name in ("falling", "staying"):
        (tmp_path / name).mkdir()
    falling = losing_transfers(tmp_path / "falling")
    at_least = "Bad link efficiency. Hit lower range limit"
    staying = losing_transfers(tmp_path / "staying", decision=at_least)
    for one in (falling, staying):
        one.run(cycles=3)
    assert kept(staying)["numbers"]["delivered"] > 2 * kept(falling)["numbers"]["delivered"]


def test_a_link_that_carried_less_than_its_due_is_asked_about_also_while_nothing_is_on_its_way(tmp_path):
    """Else it would be filled as soon as it is empty."""
    one = losing_transfers(tmp_path, limit=2, speed=5e5)
    tell, coming = one.backend.queues, []

    def queues(links):
        coming.append(sum(account.coming for account in one.ledger.accounts().values()))
        return tell(links)

    one.backend.queues = queues
    one.run(cycles=6)
    assert 0 in coming[1:]
    assert [row.injected for row in one.ledger.rows()][2:] == [5 * GB] * 4, "an empty link may have its smallest"
