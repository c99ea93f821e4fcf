"""Which storage does not accept connections any more; one that never did is not blamed."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta

from dc_inject.apps.link.reachability import Reachability


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_a_storage_that_is_stopped_is_named_until_it_is_back():
    with listening() as first, listening() as second:
        place = second.getsockname()
        storages = Reachability({"A": [first.getsockname()], "B": [place]})
        assert storages.down() == ""
        second.close()
        assert storages.down() == "B"
        with socket.create_server(place):
            assert storages.down() == ""


def test_a_storage_that_this_machine_never_reached_is_not_blamed():
    with listening() as gone:
        place = gone.getsockname()
    assert Reachability({"A": [place], "B": [], "C": [("no-such-host.invalid", 1)]}).down() == ""


def test_one_of_its_endpoints_is_enough():
    with listening() as first, listening() as second:
        storages = Reachability({"A": [first.getsockname(), second.getsockname()]})
        first.close()
        assert storages.down() == ""
        second.close()
        assert storages.down() == "A"


def test_names_are_resolved_once():
    """A name server that hangs later holds nothing up."""
    asked = []

    def connects(endpoint):
        asked.append(endpoint)
        return ("192.0.2.1", endpoint[1])

    Reachability({"A": [("storage.example.org", 443)]}, connects=connects).down()
    assert asked == [("storage.example.org", 443), ("192.0.2.1", 443)]


class Storages:
    """Storages that accept connections but for those that are stopped."""

    def __init__(self):
        self.stopped = set()
        self.tried = []
        self.often = threading.Event()

    def connects(self, endpoint):
        self.tried.append(endpoint)
        if len(self.tried) > 20:
            self.often.set()
        return None if endpoint[0] in self.stopped else endpoint


def test_a_stop_between_two_questions_is_named_once():
    """By whoever looked meanwhile; one failure alone may be this machine's."""
    some = Storages()
    storages = Reachability({"A": [("a", 1)], "B": [("b", 1)]}, connects=some.connects)
    some.stopped = {"b"}
    storages.probe()
    some.stopped = set()
    storages.probe()
    assert storages.down() == ""
    some.stopped = {"b"}
    storages.probe()
    storages.probe()
    some.stopped = set()
    storages.probe()
    assert [storages.down(), storages.down()] == ["B", ""]


def test_who_watches_looks_again_and_again_and_ends_with_the_block():
    some = Storages()
    storages = Reachability({"A": [("a", 1)]}, connects=some.connects)
    with storages.watched(timedelta(milliseconds=1)):
        assert some.often.wait(30)
    tried = len(some.tried)
    assert not [thread for thread in threading.enumerate() if thread.name == "reachability"]
    storages.probe()
    assert len(some.tried) == tried, "it is stopped"
