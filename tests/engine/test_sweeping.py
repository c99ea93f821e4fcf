"""Files that no ledger has: each is young, of a job at work, of one that is not known, or free."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from dc_inject.assembly.sweeping import Sweep
from dc_inject.backends.sim import SimClock
from dc_inject.model import Cycle, naming
from dc_inject.model.errors import UsageError
from dc_inject.model.ports import Status
from tests.cli.ending import LINK, Service, job
from tests.cli.ledgers import CYCLE, START
from tests.sim import SimBackend

OLD = Cycle(START - timedelta(days=3), CYCLE.length)


class Telling(Service):
    """A service that tells of each job what it is told to."""

    def tell(self, told: dict[str, Status]) -> None:
        self.told = told

    def statuses(self, keys: Iterable[str]) -> dict[str, Status]:
        return {key: self.told[key] for key in keys}


def test_each_file_is_in_one_group_and_only_free_ones_are_deleted():
    service = Telling(SimClock(START), {})
    jobs = {status: job(number, OLD) for number, status in enumerate(Status)}
    service.tell({one.key: status for status, one in jobs.items()})
    recent = job(90)
    service.strays = [url for one in (*jobs.values(), recent) for url in naming.copies(one)[:2]]
    sweep = Sweep(service, LINK.destination, "dc27", None, SimClock(START))
    found = sweep.find(include_recent=False)
    of = {name: {stray.copy.key for stray in getattr(found, name)} for name in ("young", "unknown", "free")}
    quiet = {jobs[status].key for status in (Status.ABSENT, Status.COMPLETE)}
    assert of == {"young": {recent.key}, "unknown": {jobs[Status.UNKNOWN].key}, "free": quiet}
    assert {stray.copy.key for stray in found.working} == {one.key for one in jobs.values()} - quiet - of[
        "unknown"
    ]
    assert (len(found.every), found.recent) == (2 * len(jobs) + 2, False)
    assert list(sweep.delete(found.free)) == [[None] * 4]
    assert service.deleted == sorted(stray.url for stray in found.free)


def test_recent_files_are_free_where_they_are_asked_for():
    service = Telling(SimClock(START), {})
    service.strays = naming.copies(job(1))
    service.tell({job(1).key: Status.ABSENT})
    found = Sweep(service, LINK.destination, "dc27", None, SimClock(START)).find(include_recent=True)
    assert (found.young, found.recent, len(found.free)) == ([], True, 10)


def test_a_service_that_leaves_no_files_is_refused():
    with pytest.raises(UsageError):
        Sweep(SimBackend(SimClock(START), {}), "", "dc27", None, SimClock(START)).find(include_recent=False)
