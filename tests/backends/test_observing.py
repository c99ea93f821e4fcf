"""Reading how rules stand, and ending them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.rucio.connection import ASK, DOWN_AFTER
from dc_inject.model import Dataset, Entry, Item, Link, State
from dc_inject.model.deletion import NotOurs
from dc_inject.model.errors import Permanent, Temporary
from dc_inject.model.ports import Status

from .fake import GB, FakeRucio
from .support import CYCLE, injection, live

# ---------------------------------------------------------------------------------------- observe


def arrive(server: FakeRucio, entry: Entry, files: int) -> None:
    rule = server.rules[entry.external_id]
    some = list(rule.files)[:files]
    rule.files |= dict.fromkeys(some, "OK")
    server.replicas.setdefault(rule.row["rse_expression"], set()).update(some)


def test_progress_is_estimated_from_locks_and_completion_is_exact(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    arrive(server, entries[0], 1)
    arrive(server, entries[1], 3)
    server.clock.time += CYCLE.length
    seen = backend.observe(entries)
    assert [o.key for o in seen] == [e.injection.key for e in entries]
    told = [(o.status, o.files_done, o.moved, o.exact, o.present) for o in seen]
    assert told[0] == (Status.MOVING, 1, 2 * GB, False, 0)
    assert told[1] == (Status.COMPLETE, 3, 6 * GB, True, 0)
    assert told[2] == (Status.MOVING, 0, None, False, None)  # one of 50 is looked at by itself
    assert seen[0].expires_at == server.clock.now() - CYCLE.length + timedelta(hours=1)


def test_the_exact_look_adds_up_the_files_that_have_arrived(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#mixed", link.source)
    server.datasets["cms", "/data/RAW#mixed"] = {"/data/RAW#mixed/0": 5, "/data/RAW#mixed/1": 7}
    one = [injection(Dataset("cms:/data/RAW#mixed", 12, 2), link)]
    (entry,) = live(one, backend.submit(one))
    arrive(server, entry, 1)
    server.clock.time += CYCLE.length
    (rough,), (exact,) = backend.observe([entry]), backend.observe([entry], exact=True)
    assert (rough.moved, rough.exact) == (6, False)
    assert (exact.moved, exact.exact, exact.status) == (5, True, Status.MOVING)


def test_a_stuck_rule_says_why(backend: RucioBackend, server: FakeRucio, entries: list[Entry]) -> None:
    rule = server.rules[entries[0].external_id]
    rule.files |= {next(iter(rule.files)): "STUCK"}
    rule.row["error"] = "DESTINATION No space left"
    (seen,) = backend.observe(entries[:1])
    assert (seen.status, seen.files_stuck, seen.error) == (Status.STUCK, 1, "DESTINATION No space left")


def test_a_glance_at_locks_does_not_forget_why_a_rule_is_being_ended(
    backend: RucioBackend, entries: list[Entry]
) -> None:
    """A suspended rule stays for a while after its end was asked for, and its lock says nothing of that."""
    suspended = replace(entries[0], error="suspended: the rule does nothing")
    assert backend.observe([suspended])[0].error == "suspended: the rule does nothing"


@pytest.mark.parametrize(
    ("state", "status"),
    [("SUSPENDED", Status.SUSPENDED), ("INJECT", Status.WAITING), ("WAITING_APPROVAL", Status.WAITING)],
)
def test_a_rule_that_has_no_locks_yet_is_not_taken_as_gone(
    backend: RucioBackend,
    server: FakeRucio,
    entries: list[Entry],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    status: Status,
) -> None:
    rule = server.rules[entries[0].external_id]
    rule.row["state"], rule.files = state, {}
    monkeypatch.setattr(server, "locks", lambda rule: {**FakeRucio.locks(server, rule), "rule_id": "other"})
    (seen,) = backend.observe(entries[:1])
    assert (seen.status, seen.moved) == (status, 0)


def test_a_rule_that_is_gone_is_absent_also_when_asked_twice(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.clock.time += timedelta(hours=2)
    server.clean()
    for _ in range(2):
        assert {o.status for o in backend.observe(entries)} == {Status.ABSENT}


def test_an_intent_in_doubt_that_was_never_carried_out_is_absent(
    backend: RucioBackend, items: list[Item], link: Link
) -> None:
    (seen,) = backend.observe([Entry(injection(items[0], link), State.CALLED)])
    assert (seen.status, seen.external_id) == (Status.ABSENT, "")


def test_an_intent_in_doubt_is_not_taken_for_another_rule_of_its_dataset(
    backend: RucioBackend, entries: list[Entry], items: list[Item], link: Link
) -> None:
    other = injection(items[0], link, scenario="other")
    (seen,) = backend.observe([Entry(other, State.CALLED)])
    assert seen.status is Status.ABSENT
    assert backend.end([Entry(other, State.CALLED)])[0].external_id == ""
    assert backend.observe(entries[:1])[0].status is Status.MOVING


def test_what_takes_longer_than_a_cycle_is_looked_at_by_itself_in_turns_and_ever_more_rarely(
    make: Callable[..., RucioBackend], server: FakeRucio, entries: list[Entry]
) -> None:
    backend, rounds = make(estimates=2), []
    for entry in entries:
        arrive(server, entry, 2)
    for _ in range(6 * 5):  # cycles of five looks
        server.clock.time += CYCLE.length / 5
        before = server.called("get_replication_rule")
        seen = backend.observe(entries)
        rounds.append(server.called("get_replication_rule") - before)
        assert {o.status for o in seen} == {Status.MOVING}
        assert sum(o.moved is not None for o in seen) == rounds[-1]
    assert sum(rounds[:4]) == 0
    assert rounds[4:8] == [1, 1, 1, 1]
    assert 2 * len(entries) <= sum(rounds) <= 3 * len(entries)  # at about one, two and four cycles


def test_while_progress_cannot_be_read_what_is_known_is_told(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.clock.time += CYCLE.length
    server.faults["get_replication_rule"] = [rucio.DatabaseException("busy")] * ASK
    assert {o.status for o in backend.observe(entries)} == {Status.MOVING}
    assert server.called("get_replication_rule") == ASK


def test_what_was_complete_and_has_no_lock_any_more_is_gone_without_a_call_for_each(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.clock.time += timedelta(hours=2)
    server.clean()
    complete = [replace(entry, state=State.COMPLETE) for entry in entries]
    assert {o.status for o in backend.observe(complete)} == {Status.ABSENT}
    assert server.called("get_replication_rule") == 0
    server.rules.clear()  # an answer that tells nothing of a dataset may be a lost one
    assert {o.status for o in backend.observe(complete)} == {Status.ABSENT}
    assert server.called("get_replication_rule") == len(complete)


def test_trouble_with_one_rule_is_no_trouble_of_the_others(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    for entry in entries:
        arrive(server, entry, 1)
    server.faults["list_files"] = [rucio.DataIdentifierNotFound("erased")]
    seen = backend.observe(entries, exact=True)
    assert [o.status for o in seen] == [Status.UNKNOWN, *[Status.MOVING] * (len(entries) - 1)]
    assert all(o.exact for o in seen[1:])


def test_a_service_that_has_stopped_answering_is_not_asked_for_every_rule(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    many = [injection(item, link) for item in items]
    some = live(many, backend.submit(many)) * 4
    server.faults["get_replication_rule"] = [rucio.DatabaseException("busy")] * 100
    assert {o.status for o in backend.observe(some, exact=True)} == {Status.UNKNOWN}
    assert server.called("get_replication_rule") == DOWN_AFTER + 1


@pytest.mark.parametrize(("files", "present"), [(1, 2 * GB), (3, 6 * GB)])
def test_files_that_were_there_at_the_birth_of_a_rule_are_told_once(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link, files: int, present: int
) -> None:
    server.replicas[link.destination] = {f"/data/RAW#0/{number}" for number in range(files)}
    one = [injection(items[0], link)]
    (entry,) = live(one, backend.submit(one))
    server.complete()
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.present) == (Status.COMPLETE, present)
    (again,) = backend.observe([replace(entry, files_done=3, present=present)])
    assert again.present is None
    assert server.called("list_replication_rule_full_history") == 1


def test_without_its_history_a_rule_is_observed_all_the_same(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.complete()
    server.faults["list_replication_rule_full_history"] = [rucio.AccessDenied("x")] * 4
    seen = backend.observe(entries)
    assert {(o.status, o.present) for o in seen} == {(Status.COMPLETE, None)}


# ---------------------------------------------------------------------------------------- end


def test_ending_works_at_once_and_what_is_gone_is_a_success(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    assert not any(o.error for o in backend.end(entries))
    assert not any(o.error for o in backend.end(entries))
    server.clean()
    assert not any(o.error for o in backend.end(entries))
    assert {o.status for o in backend.observe(entries)} == {Status.ABSENT}


def test_an_end_that_meets_the_cleaner_is_a_success_and_a_lost_one_is_asked_again(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.losses["update_replication_rule"] = [rucio.RucioException("(http status code: 500)")]
    (outcome,) = backend.end(entries[:1])
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost
    server.losses["update_replication_rule"] = [rucio.RucioException("(http status code: 500)")]
    server.losses["get_replication_rule"] = [rucio.RuleNotFound("the cleaner was faster")]
    assert backend.end(entries[:1])[0].error is None


def test_without_the_right_to_end_nothing_is_asked_twice(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.may_end = False
    outcomes = backend.end(entries)
    assert all(isinstance(o.error, Permanent) and o.error.hint for o in outcomes)
    assert server.called("update_replication_rule") == 1


def test_ending_never_purges_what_was_there_before(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    backend.end([replace(entries[0], present=2 * GB), entries[1]])
    purges = [server.rules[entry.external_id].row["purge_replicas"] for entry in entries[:2]]
    assert purges == [False, True]


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize(
    "theirs",
    [
        {"account": "production"},
        {"scope": "cms", "name": "/data/0/other"},
        {"rse_expression": "T3_XX"},
    ],
)
def test_only_rules_that_are_seen_to_be_ours_are_ended(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry], theirs: dict[str, str], locked: bool
) -> None:
    """An id alone is no proof; the others of the same call are ended all the same."""
    rule = server.rules[entries[0].external_id]
    rule.row.update(theirs)
    files = server.datasets["cms", entries[0].injection.item.name.partition(":")[2]]
    server.datasets.setdefault((rule.row["scope"], rule.row["name"]), files)
    if not locked:
        server.hidden.add(rule.id)
    outcomes = backend.end(entries)
    assert isinstance(outcomes[0].error, NotOurs)
    assert not [outcome for outcome in outcomes[1:] if outcome.error]
    assert [args[0] for name, args, _ in server.calls if name == "update_replication_rule"] == [
        entry.external_id for entry in entries[1:]
    ]


@pytest.mark.parametrize("comment", [None, "mine", "dc_inject/1 other s 2027-02-08T10:00:00Z"])
def test_without_a_lock_the_comment_has_to_be_ours(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry], comment: str | None
) -> None:
    """One of another campaign is not ours to end either."""
    first = entries[0].external_id
    server.hidden.add(first)
    server.rules[first].row["comments"] = comment
    assert isinstance(backend.end(entries[:1])[0].error, NotOurs)
    assert not server.called("update_replication_rule")


def test_that_rules_are_ours_is_asked_for_many_at_once(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.calls.clear()
    backend.end(entries)
    calls = [name for name, _, _ in server.calls if name not in {"whoami", "ping"}]
    assert calls == ["get_locks_for_dids", *["update_replication_rule"] * len(entries)]


def test_an_entry_in_doubt_is_ended_too(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    one, never = injection(items[0], link), injection(items[1], link)
    backend.submit([one])
    outcomes = backend.end([Entry(one, State.CALLED), Entry(never, State.CALLED)])
    assert [bool(o.external_id) for o in outcomes] == [True, False]
    assert not any(o.error for o in outcomes)
