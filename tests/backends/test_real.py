"""What the Rucio in memory assumes, asked of a real one: how it refuses, and what it tells."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, timedelta
from itertools import islice
from typing import Any

import pytest
from rucio.client import Client
from rucio.common.exception import DatabaseException, DataIdentifierNotFound

from dc_inject import sandbox as grid
from dc_inject.backends.rucio import RucioBackend
from dc_inject.model import Cycle, Dataset, DatasetFilter, Injection, Item, Link, Slice, naming
from dc_inject.model.errors import LinkRefused, NoSlices, Permanent, ServiceError, Temporary
from dc_inject.model.items import Range, SliceId, Slicing
from dc_inject.model.ports import Candidate, Observation, Status
from dc_inject.sandbox import Rse, Sandbox, make_datasets
from dc_inject.system.clock import SystemClock

from ..conftest import client_for, rucio_config
from ..sandbox.rules import until
from .support import Heard, injection, live

pytestmark = pytest.mark.sandbox
TESTS = 10  # more than there are


@dataclass
class Real:
    """A back end on a real Rucio, as an ordinary account, and root for what only root may do."""

    backend: RucioBackend
    root: Client
    sandbox: Sandbox
    link: Link
    datasets: tuple[grid.Dataset, ...]

    @property
    def items(self) -> list[Item]:
        return [Dataset(f"{d.scope}:{d.name}", d.size, len(d.files)) for d in self.datasets]

    def injections(self, *numbers: int, **more: Any) -> list[Injection]:
        cycle = Cycle.at(SystemClock().now(), timedelta(seconds=15))
        link = more.pop("link", self.link)
        return [injection(self.items[n], link, cycle=cycle, **more) for n in numbers]


@pytest.fixture(scope="module")
def stock(sandbox: Sandbox) -> tuple[str, Iterator[str], Iterator[grid.Dataset]]:
    """A source, and for each test a destination and datasets of its own; made together, which is quick."""
    label = uuid.uuid4().hex[:8].upper()
    source, destinations = f"T2_XX_{label}_From", [f"T2_XX_{label}_To{n}" for n in range(TESTS)]
    datasets = make_datasets(source, 3 * TESTS, seed=label, files=(2, 4))
    sandbox.add([Rse(source, 10**16), *(Rse(name, 10**15) for name in destinations)], {source: datasets})
    return source, iter(destinations), iter(datasets)


@pytest.fixture
def real(sandbox: Sandbox, stock: tuple[str, Iterator[str], Iterator[grid.Dataset]]) -> Iterator[Real]:
    source, destinations, datasets = stock
    root = client_for(sandbox.root_config)
    with rucio_config(sandbox.config):
        backend = RucioBackend(campaign="test", clock=SystemClock(), observer=Heard())
        yield Real(backend, root, sandbox, Link(source, next(destinations)), tuple(islice(datasets, 3)))


def at_last(call: Callable[..., Any], *args: Any) -> Any:
    """Call as root, again while the database is busy with the daemons: SQLite refuses then, and Rucio says so."""
    answers: list[Any] = []

    def done() -> bool:
        with contextlib.suppress(DatabaseException):
            answers.append(call(*args))
        return bool(answers)

    until(done)
    return answers[0]


def kind(real: Real, injections: list[Injection]) -> list[type[ServiceError] | None]:
    return [type(o.error) if o.error else None for o in real.backend.submit(injections)]


def test_refusals_are_understood(real: Real) -> None:
    """One rule after another that a real server refuses; where it says so, nothing is in doubt."""
    destination = real.link.destination
    wrong_activity = real.injections(0, activity="No Such Activity")
    nowhere = real.injections(0, link=Link(real.link.source, "NO_SUCH_RSE"))
    for injections in (wrong_activity, nowhere):
        (outcome,) = real.backend.submit(injections)
        assert type(outcome.error) is LinkRefused
        assert not outcome.error.lost
        assert outcome.error.hint
    from_nowhere = real.injections(0, link=Link("NO_SUCH_RSE", destination))
    assert kind(real, from_nowhere) == [Temporary]  # a 500 without a word, so that it is in doubt
    missing = injection(Dataset("cms:/no/such/THING", 1, 1), real.link)
    assert kind(real, [missing, *real.injections(1)]) == [Permanent, None]

    real.sandbox.set_quota(destination, real.items[0].bytes)
    assert kind(real, real.injections(0)) == [LinkRefused]
    real.sandbox.set_quota(destination, -1)
    assert real.backend.sites([destination])[destination].quota_left is None

    at_last(real.root.update_rse, destination, {"availability_write": False, "availability_read": False})
    assert kind(real, real.injections(2)) == [LinkRefused]


def test_facts_follow_what_the_site_says(real: Real) -> None:
    destination = real.link.destination
    real.sandbox.set_quota(destination, 1000)
    at_last(real.root.update_rse, destination, {"availability_write": False, "availability_delete": False})
    told = real.backend.sites([destination, "NO_SUCH_RSE", real.link.source])
    assert (told[destination].writable, told[destination].readable) == (False, True)
    assert (told[destination].deletable, told[real.link.source].deletable) == (False, True)
    assert told[destination].quota_left == 999
    assert told[destination].free is not None
    assert not told["NO_SUCH_RSE"].exists


def test_a_survey_tells_links_protocols_and_what_has_expired(real: Real) -> None:
    """A distance that root deletes is none, and so is a protocol; only what was told is known of what expired."""
    source, destination = pair = real.link.source, real.link.destination
    at_last(real.root.set_rse_usage, destination, "expired", 5_000, None)
    told = real.backend.survey([pair])
    assert dict(told.distances) == {pair: 1}
    assert told.can_copy(*pair) is True
    assert dict(told.expired) == {destination: 5_000}
    assert dict(told.missing) == {}
    assert "Data Challenge" in (told.activities or ())
    at_last(real.root.delete_distance, source, destination)
    (protocol,) = told.protocols[destination].writes
    at_last(real.root.delete_protocols, destination, protocol)
    told = real.backend.survey([pair])
    assert dict(told.distances) == {pair: None}
    assert told.can_copy(*pair) is False


def test_files_that_were_there_are_told_when_a_rule_is_complete(real: Real) -> None:
    dataset, files = real.datasets[0], real.root.list_files("cms", real.datasets[0].name)
    first = next(iter(files))
    rule = at_last(
        real.root.add_replication_rule, [{"scope": "cms", "name": first["name"]}], 1, real.link.destination
    )
    until(lambda: real.root.get_replication_rule(rule[0])["state"] == "OK", 60)
    made = real.injections(0)
    (entry,) = live(made, real.backend.submit(made))
    seen: list[Observation] = []

    def complete() -> bool:
        seen[:] = real.backend.observe([entry])
        return seen[0].status is Status.COMPLETE

    until(complete, 60)
    assert seen[0].files_done == len(dataset.files)
    assert seen[0].present == dataset.size // len(dataset.files)


def test_datasets_are_found_by_name_pattern_and_container(real: Real) -> None:
    name = f"/container/{real.link.source}/RAW"
    at_last(real.root.add_container, "cms", name)
    at_last(
        real.root.add_containers_to_container,
        "cms",
        name,
        [{"scope": "cms", "name": d.name} for d in real.datasets[:2]],
    )
    any_size = {"mean_file": (1, 10**12)}
    in_container = DatasetFilter((), containers=(f"cms:{name}",), **any_size)  # type: ignore[arg-type]
    named = DatasetFilter((real.items[2].name, "cms:not/there"), **any_size)  # type: ignore[arg-type]
    assert set(real.backend.inventory(real.link.source, in_container)) == set(real.items[:2])
    assert set(real.backend.inventory(real.link.source, named)) == {real.items[2]}
    with pytest.raises(Permanent):
        list(real.backend.inventory("NO_SUCH_RSE", DatasetFilter(("cms:*",))))


def test_an_open_dataset_and_one_whose_source_expires_are_told(real: Real) -> None:
    name = f"open.{real.link.source}"
    at_last(real.root.add_dataset, "cms", name)
    opened, held, dying = (Candidate(did, real.link) for did in (f"cms:{name}", *(i.name for i in real.items[:2])))
    at_last(real.root.set_metadata, "cms", real.datasets[1].name, "lifetime", 3600)
    soon = SystemClock().now() + timedelta(hours=1)
    statuses = real.backend.check_replicas([opened, held, dying])
    assert not statuses[opened].closed
    until = statuses[dying].source_until
    assert until is not None
    assert soon - timedelta(minutes=10) < until <= soon
    assert (statuses[held].closed, statuses[held].source_locked, statuses[held].source_until) == (True, True, None)


def test_rules_are_found_by_their_comment(real: Real) -> None:
    mine = real.injections(0, 1, campaign=f"c-{real.link.source}")
    outcomes = real.backend.submit(mine)
    found = list(real.backend.ours(mine[0].campaign, since=mine[0].cycle.start - timedelta(days=1)))
    assert {(f.key, f.external_id, f.files) for f in found} == {
        (o.key, o.external_id, i.item.files) for i, o in zip(mine, outcomes, strict=True)
    }
    assert not list(real.backend.ours(mine[0].campaign, since=SystemClock().now() + timedelta(hours=1)))


def test_a_slice_lives_and_ends(real: Real) -> None:
    """Made once though asked for twice, moved, ended; its dataset has its own end, and Rucio deletes it then."""
    parent, now = real.items[0], SystemClock().now()
    cycle = Cycle.at(now, timedelta(seconds=15))
    part = Slice(SliceId(Range(parent.name, 2, parent.files, parent.files)), 0)

    def made(scope: str) -> Injection:
        wanted = naming.build_slice(part, Slicing(scope), "test", "s", cycle.start, real.link)
        (status,) = real.backend.check_replicas([Candidate(wanted.id, real.link)]).values()
        assert status.item is not None
        assert (status.closed, status.source_complete, status.source_locked) == (True, True, True)
        assert (status.destination_bytes, status.destination_locked) == (0, False)
        assert status.item.files == parent.files - 1
        return injection(status.item, real.link, cycle=cycle)

    assert kind(real, [made("cms")]) == [NoSlices]
    one = made("user.dcops")
    (entry,) = live([one], real.backend.submit([one]))
    (again,) = real.backend.submit([one])
    assert again.adopted
    assert isinstance(one.item, Slice)
    scope, name = one.item.id.did.split(":")
    assert len(list(real.root.list_files(scope, name))) == part.files
    assert {found.key for found in real.backend.ours(since=now - timedelta(minutes=1))} >= {one.key}
    until(lambda: real.backend.observe([entry])[0].status is Status.COMPLETE, 60)
    assert real.backend.observe([entry])[0].moved == one.item.bytes
    (removal,) = real.backend.remove([entry])
    assert not removal.gone

    before = real.root.get_metadata(scope, name)["expired_at"]
    assert before.replace(tzinfo=UTC) > now + one.lifetime
    assert [outcome.error for outcome in real.backend.end([entry])] == [None]
    assert real.root.get_metadata(scope, name)["expired_at"] < before
    at_last(real.root.set_metadata, scope, name, "lifetime", 0)
    until(lambda: is_gone(real.root, scope, name), 60)
    until(lambda: real.backend.remove([entry])[0].gone, 90)


def is_gone(root: Client, scope: str, name: str) -> bool:
    try:
        root.get_did(scope, name)
    except DataIdentifierNotFound:
        return True
    return False
