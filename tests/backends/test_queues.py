"""What waits on links through Rucio: in the FTS that RSEs name, if the person has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from dc_inject.model import Link
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import LinkQueue, Missing

from .conftest import DESTINATION, SOURCE
from .fake import GB, FakeRse, FakeRucio

FTS, OTHER = "https://fts.example.org:8446", "https://elsewhere.example.org:8446"
KNOWN = ("davs://t2-ch-cern.example.org", "davs://t1-de-kit-disk.example.org")
LINK = Link(SOURCE, DESTINATION)


class Asked:
    """Stands in for FTS: one endpoint is named, and knows one link."""

    def __init__(self, clock, error: Exception | None = None) -> None:
        self.queue = LinkQueue(40, 1e8, GB, clock.now(), by=FTS)
        self.asked: list[tuple[str, Sequence[tuple[str, str]]]] = []
        self.error = error

    def refusal(self, endpoint: str) -> str:
        return "" if endpoint == FTS else "not named"

    def queues(self, endpoint: str, pairs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], LinkQueue]:
        self.asked.append((endpoint, pairs))
        if self.error is not None:
            raise self.error
        return {pair: self.queue for pair in pairs if pair == KNOWN}


@pytest.fixture
def fts(server: FakeRucio) -> Asked:
    server.fts = {DESTINATION: FTS}
    return Asked(server.clock)


def test_the_fts_of_the_destination_is_asked_for_the_storages_that_rucio_copies_between(server, make, fts) -> None:
    server.fts[DESTINATION] = f"{FTS}, {OTHER}"  # the second is for retries
    assert make(fts=fts).queues([LINK]) == {LINK: fts.queue}
    assert fts.asked == [(FTS, [KNOWN])]
    server.rses[SOURCE].reads = ("root",)
    make(fts=fts).queues([LINK])
    assert fts.asked[1:] == [(FTS, [tuple(end.replace("davs", "root") for end in KNOWN)])]


def test_an_fts_that_only_the_rse_names_is_never_asked(server, make, fts) -> None:
    server.fts[DESTINATION] = OTHER
    assert make(fts=fts).queues([LINK]) == {LINK: Missing(OTHER, "not named")}
    assert fts.asked == []
    assert make().queues([LINK]) == {LINK: Missing(OTHER, "no FTS is asked")}
    assert server.called("get_protocols") == 0


def test_what_is_not_there_is_missing_with_its_reason(server, make, fts) -> None:
    server.rses |= {"NONE": FakeRse(writes=("gsiftp",)), "BARE": FakeRse(reads=(), writes=()), "PLAIN": FakeRse()}
    server.fts |= {"NONE": FTS, "BARE": FTS}
    links = {name: Link(SOURCE, name) for name in ("NONE", "BARE", "PLAIN")}
    schemes = "its RSEs have no schemes for a copy by third party"
    assert make(fts=fts).queues([LINK, *links.values()]) == {
        LINK: fts.queue,
        links["NONE"]: Missing(str(links["NONE"]), schemes),
        links["BARE"]: Missing(str(links["BARE"]), schemes),
        links["PLAIN"]: Missing("PLAIN", "the RSE has no attribute `fts`"),
    }


def test_a_link_of_which_fts_knows_nothing_is_left_out(server, make, fts) -> None:
    server.rses["QUIET"] = FakeRse()
    server.fts["QUIET"] = FTS
    assert make(fts=fts).queues([LINK, Link(SOURCE, "QUIET")]) == {LINK: fts.queue}
    assert len(fts.asked) == 1


def test_trouble_of_an_fts_is_a_missing_signal_and_no_trouble_of_rucio(make, fts) -> None:
    fts.error = Temporary("no answer")
    assert make(fts=fts).queues([LINK]) == {LINK: Missing(FTS, "no answer")}
