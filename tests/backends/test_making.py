"""Making rules: in batches, twice, refused, and with answers that are lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
import requests
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.rucio.connection import ASK
from dc_inject.model import Cycle, Dataset, Entry, Item, Link, State
from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary, TryOtherItem
from dc_inject.model.ports import Status

from .fake import GB, FakeRucio
from .support import CYCLE, Heard, injection, live


def test_a_rule_says_whose_it_is_and_how_it_is_to_be_treated(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    backend.submit([injection(items[0], link, lifetime=timedelta(seconds=90.5), contact="x" * 5000)])
    (_, _, asked) = next(call for call in server.calls if call[0] == "add_replication_rule")
    meta = json.loads(asked.pop("meta"))
    assert asked.pop("dids") == [{"scope": "cms", "name": "/data/RAW#0"}]
    assert asked == {
        "copies": 1,
        "rse_expression": link.destination,
        "source_replica_expression": link.source,
        "priority": 3,
        "lifetime": 91,
        "activity": "Data Challenge",
        "grouping": "DATASET",
        "purge_replicas": True,
        "ask_approval": False,
        "asynchronous": False,
        "comment": "dc_inject/1 test s 2027-02-08T10:00:00Z",
    }
    assert meta["tool"].startswith("dc_inject/")
    assert (meta["campaign"], meta["scenario"], len(meta["contact"])) == ("test", "s", 200)


@pytest.mark.parametrize(
    ("bounds", "calls"),
    [
        ({}, 1),
        ({"batch_rules": 4}, 3),
        ({"batch_files": 6}, 5),
        ({"batch_files": 1}, 10),
        ({"batch_files": 29}, 2),
    ],
)
def test_batches_are_bounded_by_files_and_rules(
    make: Callable[..., RucioBackend],
    server: FakeRucio,
    items: list[Item],
    link: Link,
    bounds: dict[str, int],
    calls: int,
) -> None:
    outcomes = make(**bounds).submit([injection(item, link) for item in items])
    assert len({outcome.external_id for outcome in outcomes}) == 10
    assert server.called("add_replication_rule") == calls


def test_what_cannot_share_a_call_does_not(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    alike = injection(items[0], link)
    others = [
        injection(items[1], link, scenario="other"),
        injection(items[2], link, lifetime=timedelta(hours=2)),
        injection(items[3], link, cycle=CYCLE.next),
        injection(items[4], Link(link.destination, link.source)),
    ]
    injections = [others[0], alike, *others[1:], injection(items[5], link)]
    outcomes = backend.submit(injections)
    assert [outcome.key for outcome in outcomes] == [one.key for one in injections]
    assert server.called("add_replication_rule") == 5


def test_twice_is_the_same_as_once(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    injections = [injection(item, link) for item in items[:3]]
    first, second = backend.submit(injections), backend.submit(injections)
    assert [o.external_id for o in first] == [o.external_id for o in second]
    assert not any(o.adopted for o in first)
    assert all(o.adopted for o in second)
    assert sum(rule.row["account"] == "dcops" for rule in server.rules.values()) == 3


def test_one_bad_member_does_not_spoil_a_batch(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    gone = Dataset("cms:/data/RAW#gone", 6 * GB, 3)
    outcomes = backend.submit([injection(item, link) for item in [items[0], gone, items[1]]])
    assert [type(o.error) for o in outcomes] == [type(None), Permanent, type(None)]
    assert outcomes[1].error is not None
    assert "/data/RAW#gone" in outcomes[1].error.message


def test_an_earlier_rule_of_ours_means_still_resident(
    backend: RucioBackend, items: list[Item], link: Link
) -> None:
    earlier = Cycle(CYCLE.start - CYCLE.length, CYCLE.length)
    backend.submit([injection(items[0], link, cycle=earlier)])
    (outcome,) = backend.submit([injection(items[0], link)])
    assert isinstance(outcome.error, TryOtherItem)
    assert "still resident" in outcome.error.message


def test_another_source_does_not_make_another_rule(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server.add(items[0].name, "T1_UK_RAL_Disk")
    backend.submit([injection(items[0], link)])
    (outcome,) = backend.submit([injection(items[0], Link("T1_UK_RAL_Disk", link.destination))])
    assert isinstance(outcome.error, TryOtherItem)


def test_a_rule_that_somebody_made_by_hand_is_not_adopted(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server._rule("cms", "/data/RAW#0", link.destination, "dcops", {"comments": "by hand", "expires_at": None})
    (outcome,) = backend.submit([injection(items[0], link)])
    assert isinstance(outcome.error, TryOtherItem)
    assert "another rule" in outcome.error.message


def test_a_duplicate_that_cannot_be_looked_up_is_in_doubt(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    backend.submit([injection(items[0], link)])
    server.faults["list_replication_rules"] = [rucio.DatabaseException("busy")] * ASK
    (outcome,) = backend.submit([injection(items[0], link)])
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost


def test_a_duplicate_of_what_has_just_gone_is_tried_again(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server.faults["add_replication_rule"] = [rucio.DuplicateRule("x")]
    (outcome,) = backend.submit([injection(items[0], link)])
    assert isinstance(outcome.error, Temporary)
    assert not outcome.error.lost


@pytest.mark.parametrize("loss", [requests.ReadTimeout("slow"), rucio.ServerConnectionException()])
def test_a_lost_answer_leaves_the_whole_batch_in_doubt_and_the_rules_can_be_found(
    backend: RucioBackend, server: FakeRucio, heard: Heard, items: list[Item], link: Link, loss: Exception
) -> None:
    injections = [injection(item, link) for item in items[:3]]
    server.losses["add_replication_rule"] = [loss]
    outcomes = backend.submit(injections)
    assert all(isinstance(o.error, Temporary) and o.error.lost for o in outcomes)
    assert heard.results("add_replication_rule") == ["lost"]
    seen = backend.observe([Entry(one, State.CALLED) for one in injections])
    assert {o.status for o in seen} == {Status.MOVING}
    assert {o.external_id for o in seen} == {r.id for r in server.rules.values() if r.row["account"] == "dcops"}
    assert all(o.adopted for o in backend.submit(injections))


def test_an_answer_of_the_wrong_length_is_in_doubt(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "make_rules", lambda *_, **__: ["one"])
    outcomes = backend.submit([injection(item, link) for item in items[:2]])
    assert all(isinstance(o.error, Temporary) and o.error.lost for o in outcomes)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (rucio.RSEWriteBlocked("x"), LinkRefused),
        (rucio.InvalidRSEExpression("x"), LinkRefused),
        (rucio.InvalidSourceReplicaExpression("x"), LinkRefused),
        (rucio.InvalidObject("On instance['activity']"), LinkRefused),
        (rucio.AccessDenied("x"), LinkRefused),
        (rucio.DatabaseException("x"), Temporary),
        (rucio.ReplicationRuleCreationTemporaryFailed("x"), TryOtherItem),
        (rucio.MissingSourceReplica("x"), TryOtherItem),
        (rucio.DataIdentifierNotFound("x"), Permanent),
        (rucio.CannotAuthenticate("x"), NeedsOperator),
        (rucio.RucioException("no error information passed (http status code: 413)"), Permanent),
        (rucio.RucioException("no error information passed (http status code: 429)"), Temporary),
        (rucio.RucioException("no error information passed (http status code: 401)"), NeedsOperator),
    ],
)
def test_only_what_is_wrong_with_the_dataset_is_held_against_it(
    backend: RucioBackend,
    server: FakeRucio,
    items: list[Item],
    link: Link,
    error: Exception,
    kind: type[ServiceError],
) -> None:
    server.faults["add_replication_rule"] = [error]
    (outcome,) = backend.submit([injection(items[0], link)])
    assert type(outcome.error) is kind


def test_of_a_batch_that_is_too_much_for_the_quota_what_fits_goes_out(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server.rses[link.destination].quota = 13 * GB
    outcomes = backend.submit([injection(item, link) for item in items])
    assert [o.error is None for o in outcomes] == [True, True] + [False] * 8
    assert all(isinstance(o.error, Temporary) and not o.error.lost for o in outcomes[2:])
    assert (
        server.called("add_replication_rule") == 5
    )  # the batch, its halves, two that fit, the first that does not


@pytest.mark.parametrize("error", [rucio.DatabaseException("busy"), rucio.CannotAuthenticate("no")])
def test_trouble_that_all_share_is_met_only_once(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link, error: Exception
) -> None:
    server.faults["add_replication_rule"] = [error]
    outcomes = backend.submit([injection(item, link) for item in items])
    assert all(o.error for o in outcomes)
    assert server.called("add_replication_rule") == 1


def test_rules_are_found_again_without_a_ledger(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    mine = [injection(item, link) for item in items[:2]]
    live(mine, backend.submit(mine))
    backend.submit([injection(items[2], link, campaign="other")])
    found = list(backend.ours())
    assert [(f.key, f.item, f.link, f.scenario, f.cycle) for f in found] == [
        (one.key, one.item.name, link, "s", CYCLE.start) for one in mine
    ]
    assert [f.campaign for f in backend.ours("other", since=CYCLE.start)] == ["other"]
    assert {f.files for f in found} == {3}


@pytest.mark.parametrize("bad", [0, 41, 63])
def test_one_bad_member_of_many_costs_few_calls(
    backend: RucioBackend, server: FakeRucio, link: Link, bad: int
) -> None:
    many = [Dataset(f"cms:/data/MANY#{number}", 2 * GB, 1) for number in range(64)]
    for number, item in enumerate(many):
        if number != bad:
            server.add(item.name, link.source, files=1)
    outcomes = backend.submit([injection(item, link) for item in many])
    assert [number for number, outcome in enumerate(outcomes) if outcome.error] == [bad]
    assert isinstance(outcomes[bad].error, Permanent)
    assert len({outcome.external_id for outcome in outcomes if not outcome.error}) == 63
    assert server.called("add_replication_rule") <= 2 * 6 + 1
