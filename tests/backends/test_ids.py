"""Ids of rules that an answer names: nothing counts or is ended by them alone, and our own rules are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.rucio.observing import SURE_AFTER
from dc_inject.model import Entry, Injection, Item, Link, State, transitions
from dc_inject.model.deletion import NotOurs
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import Observation, Outcome, Status

from .fake import GB, FakeRucio
from .support import CYCLE, injection, live

Answers = Callable[[Callable[[list[str]], Any]], None]


@pytest.fixture
def answers(server: FakeRucio, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Let Rucio make rules and answer with other ids."""
    real = server.make_rules

    def change(ids: Callable[[list[str]], Any]) -> None:
        monkeypatch.setattr(server, "make_rules", lambda dids, **asked: ids(real(dids, **asked)))

    return change


@pytest.fixture
def made(items: list[Item], link: Link) -> list[Injection]:
    return [injection(item, link) for item in items[:3]]


def theirs(server: FakeRucio) -> str:
    """A complete rule of another account, for a dataset that we inject, at its source."""
    return next(iter(server.pinned.values()))


def as_asked(made: list[Injection], outcomes: list[Outcome]) -> list[Entry]:
    """The entries after the answers to their calls, as the ledger has them."""
    called = [transitions.called(Entry(one, State.INTENDED), CYCLE.start) for one in made]
    return [
        transitions.answered(entry, outcome, CYCLE.start, CYCLE.start)
        for entry, outcome in zip(called, outcomes, strict=True)
    ]


def own_ids(server: FakeRucio, made: list[Injection]) -> list[str]:
    by_did = {
        f"{r.row['scope']}:{r.row['name']}": r.id for r in server.rules.values() if r.row["account"] == "dcops"
    }
    return [by_did[one.item.name] for one in made]


def ended(server: FakeRucio) -> set[str]:
    """Rules that Rucio was asked to end or to change."""
    changes = {"update_replication_rule", "delete_replication_rule"}
    return {args[0] for name, args, _ in server.calls if name in changes}


def after(entries: list[Entry], seen: list[Observation], server: FakeRucio) -> list[Entry]:
    return [
        transitions.observed(entry, observation, server.clock.now())
        for entry, observation in zip(entries, seen, strict=True)
    ]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("whose", ["theirs", "ours, of another dataset", "of nobody"])
def test_a_rule_that_an_answer_names_counts_only_once_it_is_seen_to_be_ours(
    backend: RucioBackend, server: FakeRucio, made: list[Injection], answers: Answers, whose: str, exact: bool
) -> None:
    (first,) = live(made[:1], backend.submit(made[:1]))
    foreign = {"theirs": theirs(server), "of nobody": "0" * 32}.get(whose, first.external_id)
    server.rules[first.external_id].files = dict.fromkeys(server.rules[first.external_id].files, "OK")
    answers(lambda _: [foreign])
    entries = as_asked(made[1:2], backend.submit(made[1:2]))
    assert [entry.external_id for entry in entries] == [foreign]
    assert all(outcome.error for outcome in backend.end(entries) if whose == "theirs")
    together = [first, *entries] if whose == "ours, of another dataset" else entries
    seen = backend.observe(together, exact=exact)[-1:]
    assert [(one.status, one.moved, one.external_id) for one in seen] == [
        (Status.MOVING, 0, own_ids(server, made[1:2])[0])
    ]
    assert not ended(server)
    entries = after(entries, seen, server)
    assert not [outcome.error for outcome in backend.end(entries) if outcome.error]
    assert ended(server) == {entries[0].external_id} == set(own_ids(server, made[1:2]))


@pytest.mark.parametrize("batch_rules", [1, 100])
def test_one_id_for_all_is_none(
    make: Callable[..., RucioBackend],
    server: FakeRucio,
    made: list[Injection],
    answers: Answers,
    batch_rules: int,
) -> None:
    """In one answer it is refused; in several of one rule each, the look finds for each its own."""
    backend = make(batch_rules=batch_rules)
    answers(lambda ids: [theirs(server)] * len(ids))
    entries = as_asked(made, backend.submit(made))
    assert {entry.state for entry in entries} == {State.CALLED if batch_rules > 1 else State.LIVE}
    seen = backend.observe(entries)
    assert [one.external_id for one in seen] == own_ids(server, made)
    assert {(one.status, one.moved) for one in seen} == {(Status.MOVING, 0)}
    assert {entry.state for entry in after(entries, seen, server)} == {State.LIVE}


@pytest.mark.parametrize("odd", ["x" * 65, "", "a\nb", "../../rules", "é", 7, None, ["a"], {}])
def test_an_odd_id_is_not_stored(
    make: Callable[..., RucioBackend], server: FakeRucio, made: list[Injection], answers: Answers, odd: Any
) -> None:
    """Its rule is in doubt, and found; others of the same call are none the worse."""
    answers_ = chain([[odd]], ([rule] for rule in iter(lambda: list(server.rules)[-1], None)))
    answers(lambda _: next(answers_))
    backend = make(batch_rules=1)
    outcomes = backend.submit(made)
    assert isinstance(outcomes[0].error, Temporary)
    assert outcomes[0].error.lost
    assert [outcome.external_id for outcome in outcomes] == ["", *own_ids(server, made[1:])]
    (seen,) = backend.observe(as_asked(made[:1], outcomes[:1]))
    assert (seen.status, seen.external_id) == (Status.MOVING, own_ids(server, made[:1])[0])


def test_what_an_answer_named_and_rucio_does_not_have_returns_to_the_debt(
    backend: RucioBackend, server: FakeRucio, made: list[Injection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "make_rules", lambda dids, **_: [theirs(server)])
    entries = as_asked(made[:1], backend.submit(made[:1]))
    (seen,) = backend.observe(entries)
    assert (seen.status, seen.again_at) == (Status.UNKNOWN, server.clock.now() + SURE_AFTER)
    server.clock.time += SURE_AFTER
    seen_again = backend.observe(entries)
    (entry,) = after(entries, seen_again, server)
    assert (entry.state, entry.moved, entry.failed) == (State.ENDED, 0, 6 * GB)
    assert seen_again[0].reasons == {"vanished": 3}
    assert not ended(server)


def test_a_rule_with_another_comment_is_not_ours(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    """Account, dataset and RSE agree: it is one that somebody else made with our account."""
    rule = server.rules[entries[0].external_id]
    rule.row["comments"] = "by hand"
    rule.files = dict.fromkeys(rule.files, "OK")
    server.hidden.add(rule.id)
    seen = backend.observe(entries[:1])
    assert [(one.status, one.moved, one.again_at is None) for one in seen] == [(Status.UNKNOWN, None, False)]
    assert isinstance(backend.end(entries[:1])[0].error, NotOurs)
    assert not ended(server)


def test_that_all_rules_are_gone_is_believed_when_it_is_answered_again(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    """A broken front end; then rules that somebody has deleted. How many of them makes no difference."""
    server.clock.time += timedelta(minutes=1)
    entries = after(entries, backend.observe(entries, exact=True), server)
    complete = [replace(entry, state=State.COMPLETE, completed_at=CYCLE.start) for entry in entries]
    rules, server.rules = server.rules, {}
    for together in (entries, complete[:1]):
        seen = backend.observe(together)
        assert {(one.status, one.again_at) for one in seen} == {(Status.UNKNOWN, server.clock.now() + SURE_AFTER)}
    assert not [
        outcome.error for outcome in backend.end(complete) if outcome.error
    ]  # nothing is there to be ended
    assert {one.status for one in backend.observe(entries)} == {Status.UNKNOWN}
    server.rules = rules
    assert {one.status for one in backend.observe(entries)} == {Status.MOVING}
    server.rules = {}
    server.clock.time += SURE_AFTER
    assert {one.status for one in backend.observe(entries)} == {Status.UNKNOWN}
    server.clock.time += SURE_AFTER
    gone = after(entries, backend.observe(entries), server)
    assert {(entry.state, entry.failed) for entry in gone} == {(State.ENDED, 0)}


def test_what_was_ended_or_has_expired_is_gone_at_once(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    assert not [outcome.error for outcome in backend.end(entries[:2]) if outcome.error]
    server.rules.clear()
    assert {one.status for one in backend.observe(entries[:2])} == {Status.ABSENT}
    server.clock.time = CYCLE.start + entries[2].injection.lifetime
    assert {one.status for one in backend.observe(entries[2:])} == {Status.ABSENT}


def test_a_search_that_finds_what_the_next_look_denies_ends_there(
    backend: RucioBackend, server: FakeRucio, made: list[Injection], answers: Answers
) -> None:
    """An answer for each question, and none agrees with another: it is asked twice, and nothing counts."""
    answers(lambda _: [theirs(server)])
    entries = as_asked(made[:1], backend.submit(made[:1]))
    own = server.rules[own_ids(server, made[:1])[0]]
    server.rules[own.id] = replace(own, row={**own.row, "id": theirs(server)})
    (seen,) = backend.observe(entries)
    assert (seen.status, seen.again_at) == (Status.UNKNOWN, None)
    assert server.called("get_replication_rule") == 2
    server.faults["list_replication_rules"] = [rucio.DatabaseException("busy")] * 9
    assert backend.observe(entries)[0].status is Status.UNKNOWN
