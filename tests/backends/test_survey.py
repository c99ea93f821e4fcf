"""What Rucio is asked before a campaign begins: links, protocols, what has expired, activities."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend, Survey, links
from dc_inject.backends.rucio.links import Protocols
from dc_inject.model import Link
from dc_inject.model.errors import NeedsOperator

from .fake import GB, FakeRse, FakeRucio


@pytest.fixture
def pair(link: Link) -> tuple[str, str]:
    return link.source, link.destination


def test_links_and_their_ends_are_asked_for_once(backend: RucioBackend, server: FakeRucio, pair) -> None:
    server.rses[pair[1]] = FakeRse(reads=("root",), writes=("davs",), expired=5 * GB)
    back = pair[::-1]
    server.unlinked.add(back)
    told = backend.survey([pair, back, pair])
    assert dict(told.distances) == {pair: 1, back: None}
    assert told.protocols[pair[1]] == Protocols(frozenset({"root"}), frozenset({"davs"}))
    assert dict(told.expired) == {pair[0]: 0, pair[1]: 5 * GB}
    assert dict(told.missing) == {}
    assert (server.called("get_distance"), server.called("get_protocols"), server.called("get_rse_usage")) == (
        2,
        2,
        2,
    )


def test_an_rse_without_protocols_and_one_that_tells_nothing_expired(backend, server, pair) -> None:
    server.rses[pair[0]] = FakeRse(reads=(), writes=(), expired=None)
    told = backend.survey([pair])
    assert told.protocols[pair[0]] == Protocols(frozenset(), frozenset())
    assert pair[0] not in told.expired
    assert told.can_copy(*pair) is False


@pytest.mark.parametrize(
    ("reads", "writes", "can"),
    [
        (("davs",), ("https",), True),
        (("root",), ("davs",), False),
        (("root", "davs"), ("davs",), True),
        (("gsiftp",), ("gsiftp",), True),
        ((), ("davs",), False),
    ],
)
def test_schemes_that_go_together(backend, server, pair, reads, writes, can) -> None:
    server.rses[pair[0]] = FakeRse(reads=reads, writes=())
    server.rses[pair[1]] = FakeRse(reads=(), writes=writes)
    assert backend.survey([pair]).can_copy(*pair) is can
    assert Survey().can_copy(*pair) is None


@pytest.mark.parametrize(
    ("method", "signal"),
    [("get_protocols", "protocols"), ("get_rse_usage", "expired"), ("get_distance", "distances")],
)
def test_what_cannot_be_told_is_missing_and_the_rest_is_told(backend, server, pair, method, signal) -> None:
    """Nothing is concluded from it, whatever else is known; it is asked again before it is given up."""
    server.faults[method] = [rucio.DatabaseException("busy") for _ in range(20)]
    told = backend.survey([pair])
    assert list(told.missing) == [signal]
    assert "busy" in told.missing[signal]
    assert told.can_copy(*pair) is (None if signal == "protocols" else True)
    assert dict(told.distances) == ({} if signal == "distances" else {pair: 1})


def test_a_protocol_that_may_not_be_read_is_missing_and_not_none(backend, server, pair) -> None:
    server.faults["get_protocols"] = [rucio.AccessDenied("no")]
    told = backend.survey([pair])
    assert "protocols" in told.missing
    assert told.can_copy(*pair) is None


def test_an_answer_that_nobody_understands_is_missing(backend, server, pair, monkeypatch) -> None:
    monkeypatch.setattr(server.rses[pair[0]], "expired", -1)
    told = backend.survey([pair])
    assert "cannot be understood (ValueError)" in told.missing["expired"]
    assert list(told.expired) == [pair[1]]


def test_credentials_that_are_refused_are_fatal(backend, server, pair) -> None:
    server.faults["get_distance"] = [rucio.CannotAuthenticate("no")]
    with pytest.raises(NeedsOperator):
        backend.survey([pair])


def test_activities_are_those_of_the_clients_schema(backend, pair) -> None:
    assert {"Data Challenge", "Debug"} < backend.survey([pair]).activities


@pytest.mark.parametrize("source", [None, "ACTIVITY = (", "ACTIVITY = {'enum': 5}", "ACTIVITY = f()", "OTHER = 1"])
def test_a_client_with_another_schema_tells_no_activities(source, tmp_path, monkeypatch) -> None:
    if source is not None:
        (tmp_path / "schema").mkdir()
        (tmp_path / "schema" / "generic.py").write_text(source)
    monkeypatch.setattr(links, "find_spec", lambda _: Mock(submodule_search_locations=[str(tmp_path)]))
    assert links.activities() is None
