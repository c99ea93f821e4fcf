"""What FTS tells of controlled links: kept for the words of `status`, and nothing else follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.engine import queues
from dc_inject.model import Control, Mode
from dc_inject.model.errors import Permanent
from dc_inject.model.ports import LinkQueue, Missing
from tests.engine.world import GB, START, campaign, file_flow, flow, items, source_files, world

ACT, ADVISE = Control(Mode.ACT), Control(Mode.ADVISE)
QUEUE = LinkQueue(400, 1e8, GB, START)  # of files of a GB at 100 MB/s


def full(tmp_path, control: Control = ACT):
    """A link through FTS that is full, so that something is always on its way."""
    link = file_flow("A", "B", 1.0, control=control)
    return world(tmp_path, campaign([link]), source_files("A", 3000), name="fts", speed=lambda _l: 1e9 / 8)


def tell(one, queue: LinkQueue, age: timedelta = timedelta(0)) -> None:
    """Let FTS tell of this queue, as of now or a while ago."""
    one.backend.queues = lambda links: dict.fromkeys(links, replace(queue, at=one.clock.now() - age))


def signals(one) -> dict[str, float | str | None]:
    """What is told of each subject; None where it is missing."""
    return {signal.subject: signal.value for signal in one.ledger.signals() if signal.name == "fts_queue"}


def reasons(one) -> dict[str, str]:
    """Why signals are missing, by subject."""
    return {signal.subject: signal.why for signal in one.ledger.signals() if signal.name == "fts_queue"}


@pytest.mark.parametrize("control", [ACT, ADVISE])
def test_a_link_that_has_the_most_transfers_of_its_fts_is_noted_with_their_number(tmp_path, control):
    one = full(tmp_path, control)
    tell(one, replace(QUEUE, limit=60, decision=f"Good link efficiency. {queues.AT_MOST}"))
    one.run(cycles=2)
    assert list(signals(one).values()) == [60]
    tell(one, replace(QUEUE, limit=60, decision="Good link efficiency"))
    one.run(cycles=1)
    assert list(signals(one).values()) == ["known"]


def test_a_queue_holds_nothing_however_long_it_is(tmp_path):
    """It may be of others, and be gone when what is injected now comes to its turn: windows bound what is ours."""
    made = {}
    for waiting in (0, 40_000):
        (tmp_path / str(waiting)).mkdir()
        one = full(tmp_path / str(waiting))
        tell(one, replace(QUEUE, waiting=waiting))
        one.run(cycles=3)
        made[waiting] = [(row.injected, row.held) for row in one.ledger.rows()]
    assert made[0] == made[40_000]


def test_a_queue_in_which_nothing_moves_is_a_missing_signal(tmp_path, wording):
    one = full(tmp_path)
    tell(one, replace(QUEUE, rate=0.0))
    one.run(cycles=2)
    assert list(signals(one).values()) == [None]
    wording(*reasons(one).values())


@pytest.mark.parametrize(("minutes", "value"), [(9, "known"), (11, None)])
def test_what_fts_has_not_said_for_long_is_no_signal(tmp_path, minutes, value):
    """A queue that was cancelled as a whole is told of no more: its last row says that it is long."""
    one = full(tmp_path)
    tell(one, QUEUE, timedelta(minutes=minutes))
    one.run(cycles=2)
    assert list(signals(one).values()) == [value]


def test_a_queue_that_cannot_be_read_holds_nothing_and_is_told_as_missing(tmp_path):
    one = full(tmp_path)

    def refuse(_links):
        raise Permanent("403 Forbidden")

    one.backend.queues = refuse
    one.run(cycles=4)
    assert list(reasons(one).values()) == ["403 Forbidden"]
    assert all(row.injected for row in one.ledger.rows())


def test_no_queue_is_asked_for_where_nothing_is_controlled(tmp_path):
    one = full(tmp_path, Control())
    one.run(cycles=4)
    assert "queues" not in one.backend.calls


def test_an_fts_that_may_not_be_asked_is_one_missing_signal_however_many_links_it_has(tmp_path):
    links = [flow("A", name, 0.2, control=ACT) for name in "BCD"]
    one = world(tmp_path, campaign(links), {"A": items("A", 900, 5 * GB)}, speed=lambda _l: 1e9 / 8)
    one.backend.queues = lambda links: {link: Missing("https://fts", "name it") for link in links}
    one.run(cycles=3)
    assert reasons(one) == {"https://fts": "name it"}
    one.backend.queues = lambda links: {
        link: LinkQueue(0, 1e8, GB, one.clock.now(), by="https://fts") for link in links
    }
    one.run(cycles=1)
    assert signals(one)["https://fts"] == "known"
