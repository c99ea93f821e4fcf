"""The FTS back end on the sandbox's FTS and real storages: who may, what is lost, what stops and starts again."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.rucio import RucioBackend
from dc_inject.credentials import Credentials
from dc_inject.model import (
    Bundle,
    Cycle,
    DatasetFilter,
    Entry,
    File,
    FileFilter,
    Injection,
    JobOptions,
    Link,
    State,
    naming,
)
from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.model.ports import Observation, Status
from dc_inject.sandbox import Sandbox
from dc_inject.sandbox.state import write_private
from dc_inject.system.clock import SystemClock

from ..conftest import rucio_config
from .support import Heard, fts3_or_skip, injection, live

pytestmark = pytest.mark.sandbox
CLOCK = SystemClock()


@dataclass
class Real:
    """A back end, a link between two storages, and what a test does to them."""

    grid: Sandbox
    make: Callable[..., FtsBackend]
    backend: FtsBackend
    link: Link
    label: str

    def bundle(self, name: str, files: int = 2, size: int = 50_000, **more: Any) -> Injection:
        """An injection of fresh files at the source."""
        members = []
        for n in range(files):
            path = f"/real/{self.label}/{name}-{n}"
            stored = self.grid.put("XRD1", path, size + n, seed=path)
            members.append(File(f"{self.grid.storages['XRD1']}{path}", stored.size, f"adler32:{stored.adler32}"))
        item = Bundle(name, sum(m.bytes for m in members), files, members=tuple(members))
        job = more.pop("job", JobOptions(retry=0, longest_transfer=timedelta(seconds=2)))
        return injection(item, self.link, cycle=Cycle.at(CLOCK.now(), timedelta(seconds=15)), job=job, **more)

    def set(self, **settings: Any) -> None:
        """Change the service's settings."""
        write(self.grid.folder / "fts" / "settings.json", settings)

    def there(self) -> dict[str, int]:
        """Sizes of what lies below the destination, by path."""
        return self.grid.storage_files("XRD2", f"/real/{self.label}")

    def gone(self, entries: list[Entry], seen: list[Observation]) -> None:
        """End entries as the ledger would, and wait until their bytes are gone."""
        now = CLOCK.now()
        times = {"completed_at": now, "end_asked_at": now, "ended_at": now}
        over = [
            replace(entry, state=State.ENDED, files_done=one.files_done, failed=one.failed, **times)
            for entry, one in zip(entries, seen, strict=True)
        ]
        until(lambda: all(removal.gone for removal in self.backend.remove(over)))
        assert self.there() == {}


def write(file: Path, content: Any) -> None:
    write_private(file, json.dumps(content))


def until(holds: Callable[[], object], patience: float = 300.0) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.2)  # real bytes need their time


def complete(backend: FtsBackend, entries: list[Entry]) -> list[Observation]:
    until(lambda: {seen.status for seen in backend.observe(entries)} == {Status.COMPLETE})
    return backend.observe(entries)


@pytest.fixture
def real(storage_grid: Sandbox) -> Iterator[Real]:
    fts3_or_skip()
    label = uuid.uuid4().hex[:8]
    source, destination = (f"{storage_grid.storages[name]}/real/{label}" for name in ("XRD1", "XRD2"))

    def make(endpoint: str = "", **environ: str) -> FtsBackend:
        credentials = Credentials(environ, CLOCK, uid=-1)
        where = endpoint or storage_grid.fts_url
        return FtsBackend(where, campaign="test", clock=CLOCK, observer=Heard(), credentials=credentials)

    one = Real(storage_grid, make, make(), Link(source, destination, "fts"), label)
    yield one
    one.set()
    (storage_grid.folder / "fts" / "tokens.json").unlink(missing_ok=True)


def test_bytes_arrive_as_they_were_and_nothing_is_left(real: Real) -> None:
    made = [real.bundle("a", 5), real.bundle("b", 3)]
    entries = live(made, real.backend.submit(made))
    seen = complete(real.backend, entries)
    for injected in made:
        for member, copy in zip(injected.item.members, naming.copies(injected), strict=True):
            stored = real.grid.storage_file("XRD2", copy.removeprefix(real.grid.storages["XRD2"]))
            assert (stored.size, f"adler32:{stored.adler32}") == (member.bytes, member.checksum)
    assert [one.moved for one in seen] == [one.item.bytes for one in made]
    assert len(list(real.backend.sweep(real.link.destination, "test"))) == 8
    real.gone(entries, seen)


def test_a_wrong_checksum_is_told_and_the_file_set_aside(real: Real) -> None:
    made = real.bundle("wrong")
    first, second = made.item.members
    wrong = replace(first, checksum="adler32:00000001")
    made = replace(made, item=replace(made.item, members=(wrong, second)))
    entries = live([made], real.backend.submit([made]))
    (seen,) = complete(real.backend, entries)
    assert dict(seen.reasons) == {"checksum": 1}
    assert seen.unfit == (first.name,)
    assert (seen.failed, seen.moved) == (first.bytes, second.bytes)
    real.gone(entries, [seen])


def test_a_job_is_cancelled_while_it_moves_and_what_it_wrote_goes_away(real: Real) -> None:
    real.set(copy_delay=30.0)
    made = [real.bundle("slow", 4)]
    entries = live(made, real.backend.submit(made))
    until(lambda: real.backend.observe(entries)[0].status is Status.MOVING)
    assert not real.backend.end(entries)[0].error
    (seen,) = real.backend.observe([replace(entry, end_asked_at=CLOCK.now()) for entry in entries])
    assert (seen.status, seen.failed) == (Status.ABSENT, 0)
    real.gone(entries, [seen])


def test_an_answer_that_was_lost_is_found_and_nothing_is_sent_twice(real: Real) -> None:
    real.backend.check()
    real.set(lose_answers=1)
    made = [real.bundle("lost")]
    (outcome,) = real.backend.submit(made)
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost
    doubt = [Entry(made[0], State.CALLED)]
    (seen,) = complete(real.backend, doubt)
    (again,) = real.backend.submit(made)
    assert (again.adopted, again.external_id) == (True, seen.external_id)
    real.gone(doubt, [seen])


def test_a_service_that_is_overloaded_or_bans_a_storage_says_so(real: Real) -> None:
    made = [real.bundle("refused")]
    real.backend.check()
    real.set(submit_503=1)
    (outcome,) = real.backend.submit(made)
    assert isinstance(outcome.error, Temporary)
    assert not outcome.error.lost
    for end, hold in (
        (real.link.source, "source-unavailable"),
        (real.link.destination, "destination-unavailable"),
    ):
        real.set(banned=[end.rpartition(":")[0]])
        (outcome,) = real.backend.submit(made)
        assert isinstance(outcome.error, Temporary)
        assert (outcome.error.hold, outcome.error.lost) == (hold, False)
        assert outcome.error.hint
    real.set()
    entries = live(made, real.backend.submit(made))
    real.gone(entries, complete(real.backend, entries))


def test_a_job_that_vanishes_is_over_and_its_files_are_deleted(real: Real) -> None:
    made = [real.bundle("vanish"), real.bundle("stay")]
    entries = live(made, real.backend.submit(made))
    before = complete(real.backend, entries)
    real.set(forget=[entries[0].external_id])
    assert [one.status for one in real.backend.observe(entries)] == [Status.UNKNOWN, Status.COMPLETE]
    real.backend._observing = replace(real.backend._observing, sure_after=timedelta(0))
    seen = real.backend.observe(entries)  # FTS says so again, and is believed
    assert [one.status for one in seen] == [Status.ABSENT, Status.COMPLETE]
    assert "does not know" in seen[0].error
    assert not any(outcome.error for outcome in real.backend.end(entries))
    real.gone(entries, before)


def test_the_service_stops_and_starts_and_nothing_is_lost(real: Real) -> None:
    made = [real.bundle("before"), real.bundle("after")]
    entries = live(made[:1], real.backend.submit(made[:1]))
    real.grid.stop_fts()
    try:
        (outcome,) = real.backend.submit(made[1:])
        assert isinstance(outcome.error, Temporary)
        assert not outcome.error.lost
        with pytest.raises(Temporary):
            real.backend.observe(entries)
        assert isinstance(real.backend.end(entries)[0].error, Temporary)
        with pytest.raises(NeedsOperator, match=r"127\.0\.0\.1"):
            real.backend.check()
    finally:
        real.grid.start_fts()
    assert [o.adopted for o in real.backend.submit(made)] == [True, False]
    entries = [Entry(one, State.CALLED) for one in made]
    real.gone(entries, complete(real.backend, entries))


def test_a_storage_stops_and_its_files_go_when_it_is_back(real: Real) -> None:
    made = [real.bundle("stays")]
    entries = live(made, real.backend.submit(made))
    seen = complete(real.backend, entries)
    over = [replace(entries[0], state=State.ENDED, ended_at=CLOCK.now(), files_done=seen[0].files_done)]
    real.grid.stop_storage("XRD2")
    try:
        (removal,) = real.backend.remove(over)
        assert not removal.gone
        assert isinstance(removal.error, Temporary)
        assert removal.again_at is not None
        assert removal.again_at > CLOCK.now()
        facts = real.make().sites([real.link.source, real.link.destination])
        assert (facts[real.link.source].readable, facts[real.link.destination].writable) == (True, False)
    finally:
        real.grid.start_storage("XRD2")
    real.gone(entries, seen)


def test_a_token_opens_it_until_it_expires_and_its_successor_is_taken_up(real: Real, tmp_path: Path) -> None:
    token = tmp_path / "token"
    write(real.grid.folder / "fts" / "tokens.json", {"first-token-0123": {"vo": "cms", "user": "me"}})
    backend = real.make(BEARER_TOKEN_FILE=str(token))
    with pytest.raises(NeedsOperator, match="token"):
        backend.check()
    token.write_text("first-token-0123\n")
    assert (backend.check().account, backend.check().vo) == ("me", "cms")
    write(
        real.grid.folder / "fts" / "tokens.json",
        {
            "first-token-0123": {"vo": "cms", "user": "me", "expires": 1.0},
            "second-token-0123": {"vo": "cms", "user": "me"},
        },
    )
    made = [real.bundle("token")]
    (outcome,) = backend.submit(made)
    assert isinstance(outcome.error, NeedsOperator)
    assert outcome.error.hold == "credentials"
    assert "first-token" not in f"{outcome.error.message} {outcome.error.hint}"
    token.write_text("second-token-0123\n")
    entries = live(made, backend.submit(made))
    seen = complete(backend, entries)
    real.gone(entries, seen)


def test_a_file_that_moves_after_its_job_was_cancelled_is_deleted(real: Real, tmp_path: Path) -> None:
    """FTS moves what waited for its token (TOKEN_PREP) though the job is cancelled: a later look finds it."""
    token = tmp_path / "token"
    token.write_text("token-01234567\n")
    write(real.grid.folder / "fts" / "tokens.json", {"token-01234567": {"vo": "cms", "user": "me"}})
    real.set(token_prep=2.0)
    real.backend = real.make(BEARER_TOKEN_FILE=str(token))
    made = [real.bundle("late", job=JobOptions(retry=0, longest_transfer=timedelta(seconds=5)))]
    entries = live(made, real.backend.submit(made))
    assert not real.backend.end(entries)[0].error
    (seen,) = real.backend.observe([replace(entry, end_asked_at=CLOCK.now()) for entry in entries])
    assert (seen.status, real.there()) == (Status.ABSENT, {})
    until(lambda: len(real.there()) == 2)
    real.gone(entries, [seen])


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_certificate_is_delegated_when_that_is_needed_and_nobody_is_refused(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FTS's client leaves the certificate's file to the collector, which warns."""
    certificate, key = real.grid.authority.issue(f"user-{real.label}")
    monkeypatch.setenv("X509_CERT_DIR", str(real.grid.authority.directory))
    with pytest.raises(NeedsOperator, match="403") as refused:
        real.make(real.grid.fts_tls_url).check()
    assert refused.value.hold == "credentials"
    backend = real.make(real.grid.fts_tls_url, X509_USER_CERT=str(certificate), X509_USER_KEY=str(key))
    made = [real.bundle("x509")]
    entries = live(made, backend.submit(made))  # it is told 419, delegates, and asks once more
    told = backend.check()
    assert f"user-{real.label}" in told.account
    assert told.credentials_until is not None
    seen = complete(backend, entries)
    real.gone(entries, seen)


def test_a_service_of_an_unknown_authority_is_not_trusted(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("X509_CERT_DIR", raising=False)
    with pytest.raises(NeedsOperator, match="trusted") as refused:
        real.make(real.grid.fts_tls_url).check()
    assert "X509_CERT_DIR" in (refused.value.hint or "")


def test_replicas_that_rucio_knows_are_injected_by_their_urls(real: Real) -> None:
    datasets = DatasetFilter(("cms:/Primary*_XRD1/*",), exclude=("cms:/PrimaryB*",), mean_file=(1, 10**12))
    source = real.grid.storages["XRD1"]
    with rucio_config(real.grid.config):
        rucio = RucioBackend(campaign="test", clock=CLOCK, observer=Heard())
        credentials = Credentials({}, CLOCK, uid=-1)
        backend = FtsBackend(
            real.grid.fts_url,
            campaign="test",
            clock=CLOCK,
            observer=Heard(),
            credentials=credentials,
            replicas=rucio.replicas,
        )
        found = list(backend.inventory(source, FileFilter(datasets=datasets)))
        elsewhere = list(backend.inventory(real.link.source, FileFilter(datasets=datasets)))
    assert found
    assert not elsewhere
    assert not [item for item in found if "PrimaryB" in item.name]
    for item in found[:3]:
        stored = real.grid.storage_file("XRD1", item.name.removeprefix(source))
        assert (item.bytes, item.checksum) == (stored.size, f"adler32:{stored.adler32}")


def test_a_folder_is_listed_with_its_sizes(real: Real) -> None:
    made = real.bundle("listed", 3)
    found = list(real.backend.inventory(real.link.source, FileFilter(folder="")))
    assert {(item.name, item.bytes) for item in found} == {(m.name, m.bytes) for m in made.item.members}
