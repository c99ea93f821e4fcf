"""`check --online` asks services and storages, changes nothing there, and says what would go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import Result

from tests.wording import lines

pytest.importorskip("fts3", reason="needs the extra `fts`: apt install gcc libssl-dev python3-dev")

from dc_inject.backends.rucio import Survey
from dc_inject.backends.sim import SimClock
from dc_inject.cli.shared import common
from dc_inject.credentials.trust import ENDPOINT
from dc_inject.model import Dataset, File
from dc_inject.model.errors import NeedsOperator, Permanent, Temporary
from dc_inject.model.ports import Backend, RseFacts
from tests.backends.fts.service import FakeFts
from tests.cli.ledgers import START, run
from tests.cli.storages import TOKEN, Open, a_service
from tests.menu.texts import text
from tests.sim import SimBackend

NONE = "no-source-files"
SOURCE, DESTINATION = "davs://a:1094/data", "davs://b:1095/dc"
TOP = {
    "fts": 'fts: {endpoint: "https://fts.example.org:8446"}',
    "defaults": "defaults: {through: fts, files: {folder: in}}",
    "scenarios": f'scenarios: {{one: {{from: "{SOURCE}", to: "{DESTINATION}", rate: 0.5 Gb/s}}}}',
}


@pytest.fixture
def storage() -> Open:
    """Storages with 20 files of 1 GB to start from."""
    storage = Open()
    for number in range(20):
        storage.put(f"{SOURCE}/in/f{number:02}", 10**9)
    return storage


@pytest.fixture
def replicas() -> Mock:
    """Rucio's answer where a menu names datasets."""
    return Mock(return_value=iter(()))


@pytest.fixture
def services(storage: Open, replicas: Mock, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Backend]]:
    """The back ends that the command is given: FTS, by its real client."""
    with a_service(storage, monkeypatch, replicas) as (fts, backend):
        made: dict[str, Backend] = {"fts": backend}
        monkeypatch.setattr(common, "backends", lambda services, **_: {one: made[one] for one in services})
        made["fake"] = fts  # type: ignore[assignment]  for the test
        yield made


@pytest.fixture
def fts(services: dict[str, Backend]) -> FakeFts:
    return services["fake"]  # type: ignore[return-value]


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Result]:
    """Run `check --online` on a menu with some parts of the test's own."""

    def check(*arguments: str, online: bool = True, **parts: str) -> Result:
        path = tmp_path / "m.yaml"
        path.write_text(text(**{**TOP, **parts}))
        done = run("check", *(["--online"] if online else []), *arguments, path)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert TOKEN not in done.output
        return done

    return check


def rows(done: Result) -> list[dict[str, Any]]:
    return [row for row in json.loads(done.stdout) if row["severity"] != "note"]  # where credentials would go


def codes(done: Result) -> list[str | None]:
    return [row["code"] for row in rows(done)]


def test_nothing_is_wrong_and_it_says_what_it_saw(check, services, storage, wording) -> None:
    """Who I am, what there is to take, and where limits come from; on stderr, since it is talk."""
    done = check()
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "/CN=me of dteam" in done.stderr
    assert f"{SOURCE}: 20 files, 20 GB" in done.stderr
    wording(lines(done.stderr, "FTS's limits"))
    assert {verb for verb, _ in storage.asked} == {"reachable", "verbs", "list"}  # what was listed is there


def test_nothing_is_changed_anywhere(check, fts, storage, tmp_path: Path) -> None:
    """Only questions are asked."""
    (tmp_path / "files.txt").write_text("in/f01\nin/f02\n")
    listed = check(defaults="defaults: {through: fts, files: {list: files.txt}}")  # sizes have to be asked for
    assert f"{SOURCE}: 2 files, 2 GB" in listed.stderr
    onward = check(scenarios=TOP["scenarios"].replace("rate", 'then: {to: "davs://c:1096/dc"}, rate'))
    assert (onward.exit_code, onward.stdout) == (0, ""), "what lands is not there yet, and nothing is missing"
    assert {method for method, _, _ in fts.seen} == {"GET"}
    assert {verb for verb, _ in storage.asked} <= {"reachable", "verbs", "list", "stat"}


def test_without_the_option_nobody_is_asked(check, monkeypatch) -> None:
    """Not even a back end is made."""
    monkeypatch.setattr(common, "backends", None)
    assert check(online=False).exit_code == 0


# --------------------------------------------------------------------------- limits


FAST = TOP["scenarios"].replace("0.5 Gb/s", "20 Gb/s")


def test_a_link_that_needs_more_than_fts_allows(check, services, wording) -> None:
    """The optimizer allows 17 just now; the storages have FTS's usual limit, which it does not tell."""
    done = check("--format", "json", scenarios=FAST, end="end: 2027-02-08 10:30")
    assert done.exit_code == 0
    assert codes(done) == ["fts-link-limit", "fts-ramp", "fts-storage-limit", "fts-storage-limit"]
    link, ramp, storage, _ = rows(done)
    wording(link["message"])
    assert "it runs 17 just now and adds 2 a minute" in ramp["message"]
    assert "17 files at 6 MB/s are 816 Mb/s" in link["message"]
    assert (link["severity"], link["line"]) == ("warning", 9)
    assert "200 files at 6 MB/s are 9.6 Gb/s" in storage["message"]
    assert check("--strict", scenarios=FAST).exit_code == 2


def test_the_speed_of_a_file_can_be_told(check, services) -> None:
    """With its unit."""
    assert codes(check("--format", "json", "--file-speed", "60 MB/s", scenarios=FAST)) == ["fts-link-limit"]
    assert codes(check("--format", "json", "--file-speed", "1.5 Gb/s", scenarios=FAST)) == []
    for wrong in ("60", "0 MB/s", "fast"):
        assert check("--file-speed", wrong).exit_code == 2


def test_limits_of_the_configuration_count_where_we_may_read_it(check, fts, wording) -> None:
    """They are told as such."""
    links = [{"source": "*", "destination": "*", "max_active": 500}]
    storages = {"davs://b": {"se_info": {"inbound_max_active": 40, "outbound_max_active": None}}}
    fts.instead += [("GET", "/config/links", (200, links)), ("GET", "/config/se", (200, storages))]
    done = check("--format", "json", scenarios=FAST.replace("20 Gb/s", "5 Gb/s"))
    (row,) = rows(done)
    wording(row["message"])
    wording(lines(done.stderr, "FTS's limits"))


# --------------------------------------------------------------------------- storages


def test_a_storage_that_is_down_is_told_and_the_others_are_asked(check, services, storage) -> None:
    """With --strict it is an error."""

    def fault(_verb: str, url: str) -> None:
        if url.startswith("davs://b"):
            raise Temporary("PROPFIND davs://b:1095/dc: no connection (Connection refused)")

    storage.fault = fault
    done = check("--format", "json")
    assert (done.exit_code, codes(done)) == (0, ["storage-unreachable"])
    assert "the destination davs://b:1095/dc cannot be reached" in rows(done)[0]["message"]
    assert "20 files" in done.stderr
    assert ("verbs", DESTINATION) not in storage.asked  # it would wait for the timeout once more
    assert check("--strict").exit_code == 2
    assert check("--strict", accept="accept: [storage-unreachable]").exit_code == 0


@pytest.mark.parametrize(("free", "found"), [(281 * 10**9, ["free-space"]), (282 * 10**9, []), (None, [])])
def test_a_destination_with_too_little_free_space(check, services, storage, free, found) -> None:
    """0.5 Gb/s for 1 h and a cycle are 281 GB."""
    storage.free = free
    done = check("--format", "json")
    assert (done.exit_code, codes(done)) == (0, found)
    assert all(DESTINATION in row["message"] and "281 GB" in row["message"] for row in rows(done))


def test_a_source_that_is_down_is_not_asked_for_its_files(check, services, storage) -> None:
    """One sentence, not two."""

    def fault(_verb: str, url: str) -> None:
        if url.startswith("davs://a"):
            raise Temporary("no answer in time")

    storage.fault = fault
    assert codes(check("--format", "json")) == ["storage-unreachable"]
    assert [verb for verb, url in storage.asked if url.startswith("davs://a")] == ["reachable"]


@pytest.mark.parametrize("verb", ["DELETE", "COPY"])
def test_a_destination_that_refuses_what_is_needed(check, services, storage, verb: str, wording) -> None:
    """DELETE takes our copies away, COPY lets it fetch them; whoever does not tell may well allow it."""
    storage.allowed = {"PROPFIND": True, "DELETE": True, "MKCOL": None, "COPY": True, verb: False}
    done = check("--format", "json")
    assert (done.exit_code, codes(done)) == (0, ["storage-verbs"])
    wording(rows(done)[0]["message"])
    storage.allowed = dict.fromkeys(storage.allowed)
    assert codes(check("--format", "json")) == []


def test_a_destination_that_does_not_let_us_look(check, services, storage) -> None:
    """It is there; whether DELETE would work is not known."""

    def fault(verb: str, url: str) -> None:
        if (verb, url) == ("reachable", DESTINATION):
            raise NeedsOperator("PROPFIND: it answered 403", "renew the proxy or token", hold="credentials")

    def refuse_options(verb: str, _url: str) -> None:
        if verb == "verbs":
            raise Permanent("OPTIONS: the storage answered 405")

    storage.fault = fault
    done = check("--format", "json")
    assert (done.exit_code, codes(done)) == (0, ["storage-verbs"])
    assert rows(done)[0]["hint"] == "renew the proxy or token"
    storage.fault = refuse_options  # some do, and are not blamed
    assert codes(check("--format", "json")) == []


# --------------------------------------------------------------------------- source files


@pytest.mark.parametrize(
    "files", ["{folder: elsewhere}", "{folder: in, pattern: '*.root'}", "{folder: in, size: 2..3 GB}"]
)
def test_a_source_without_files_is_an_error(check, services, files: str) -> None:
    """As long as the menu does not mean it: files may come later."""
    defaults = f"defaults: {{through: fts, files: {files}}}"
    done = check("--format", "json", defaults=defaults)
    assert (done.exit_code, codes(done)) == (2, ["no-source-files"])
    assert rows(done)[0]["severity"] == "error"
    assert check(defaults=defaults).stdout.startswith("error: ")
    done = check("--format", "json", defaults=defaults, accept="accept: [no-source-files]")
    assert (done.exit_code, codes(done)) == (0, [])


def test_the_first_listed_files_are_looked_at(check, services, storage, tmp_path: Path) -> None:
    """A list may be older than the storage's contents."""
    listed = [f"{SOURCE}/in/f{number:02},1 GB" for number in range(10)]
    (tmp_path / "files.csv").write_text("\n".join(["url,size", *listed]) + "\n")
    defaults = "defaults: {through: fts, files: {list: files.csv}}"
    done = check("--format", "json", defaults=defaults)
    assert codes(done) == []
    assert f"{SOURCE}: 10 files, 10 GB" in done.stderr
    assert len([verb for verb, _ in storage.asked if verb == "stat"]) == 10
    del storage.files[f"{SOURCE}/in/f01"]
    done = check("--format", "json", defaults=defaults)
    assert (done.exit_code, codes(done)) == (2, ["no-source-files"])
    assert f"{SOURCE}/in/f01 is listed, " in rows(done)[0]["message"]


def test_listed_files_of_another_size_are_told_once_for_all(
    check, services, storage, tmp_path: Path, wording
) -> None:
    """FTS compares no sizes: it copies what is there, and plans count what is listed."""
    (tmp_path / "files.csv").write_text("path,size\nin/f00,1 GB\nin/f01,5 GB\nin/f02,1 kB\n")
    done = check("--format", "json", defaults="defaults: {through: fts, files: {list: files.csv}}")
    assert (done.exit_code, codes(done)) == (0, ["wrong-size"])
    wording(f"{rows(done)[0]['message']} ({rows(done)[0]['hint']})")


def test_files_that_are_on_tape_only(check, services, storage, tmp_path: Path) -> None:
    """Listed ones are found; of a folder they are left out, and nothing is left if all are."""
    storage.tapes.add(f"{SOURCE}/in/f01")
    (tmp_path / "files.csv").write_text("path,size\nin/f00,1 GB\nin/f01,1 GB\n")
    done = check("--format", "json", defaults="defaults: {through: fts, files: {list: files.csv}}")
    assert (done.exit_code, codes(done)) == (0, ["source-on-tape"])
    assert f"{SOURCE}/in/f01" in rows(done)[0]["message"]
    assert f"{SOURCE}: 19 files" in check().stderr
    storage.tapes |= set(storage.files)
    assert codes(check("--format", "json")) == ["no-source-files"]
    site = f'sites: {{X: {{rses: {{"{SOURCE}": {{}}}}, tape: {{drives: 4, rate: 300 MB/s, buffer: 20 TB}}}}}}'
    recalled = check("--format", "json", sites=site, tape=f'tape: {{"{SOURCE}": "J. Doe"}}')
    assert codes(recalled) == []
    assert recalled.stderr.count("nearline") == 1


@pytest.mark.parametrize("error", [NeedsOperator("403", hold="credentials"), Permanent("405")])
def test_a_source_that_may_not_be_read(check, services, storage, tmp_path: Path, error: Exception) -> None:
    """Neither its folder nor its files."""

    def fault(_verb: str, url: str) -> None:
        if url.startswith(SOURCE):
            raise error

    storage.fault = fault
    (tmp_path / "files.csv").write_text("path,size\nin/f01,1 GB\n")
    for files in ("{folder: in}", "{list: files.csv}"):
        done = check("--format", "json", defaults=f"defaults: {{through: fts, files: {files}}}")
        assert codes(done) == ["storage-verbs"]


DATASETS = 'defaults: {through: fts, datasets: {did: "cms:*"}}'


def test_replicas_of_datasets_are_looked_up(check, services, replicas) -> None:
    """And the first of them are looked at, as Rucio may be wrong about them."""
    replicas.return_value = iter([File(f"{SOURCE}/in/f00", 10**9), File(f"{SOURCE}/in/lost", 10**9)])
    done = check("--format", "json", defaults=DATASETS)
    assert (done.exit_code, codes(done)) == (2, ["no-source-files"])
    assert f"{SOURCE}/in/lost is listed" in rows(done)[0]["message"]
    assert f"{SOURCE}: 2 files" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [(NeedsOperator("no answer"), None, 4), (Temporary("503"), None, 4), (Permanent("no scope"), NONE, 2)],
)
def test_replicas_that_rucio_does_not_tell(check, services, replicas, error, code, exit_code) -> None:
    """It is a service that cannot be reached, not a storage; or it knows of none."""
    replicas.side_effect = error
    done = check("--format", "json", defaults=DATASETS)
    assert (done.exit_code, codes(done)) == (exit_code, [code])
    assert rows(done)[0]["severity"] == "error"


# --------------------------------------------------------------------------- the service itself


def test_a_service_that_is_down_ends_with_4_and_storages_are_asked_all_the_same(check, fts, storage) -> None:
    """Its error stands among the problems."""
    storage.allowed["DELETE"] = False
    fts.instead += [("GET", "/", (503, "gone for lunch"))] * 2
    done = check("--format", "json")
    assert (done.exit_code, codes(done)) == (4, [None, "storage-verbs"])
    assert "FTS at http://127.0.0.1" in rows(done)[0]["message"]
    assert rows(done)[0]["severity"] == "error"
    assert "20 files" in done.stderr


def test_credentials_that_are_refused_end_with_4_and_are_not_shown(check, fts) -> None:
    """Also when FTS repeats them."""
    fts.instead.append(("GET", "/whoami", (401, {"message": f"Bearer {TOKEN} has expired"})))
    done = check()
    assert done.exit_code == 4
    assert "401" in done.stdout or "refused" in done.stdout


def test_limits_that_cannot_be_told_stop_nothing(check, fts, wording) -> None:
    """It is said, and the rest is checked."""
    fts.instead.append(("GET", "/config/links", (500, "oops")))
    done = check()
    assert done.exit_code == 0
    wording(lines(done.stderr, "FTS's limits"))


def test_without_an_endpoint_nobody_can_be_asked(check, monkeypatch, wording) -> None:
    """It is a problem of the menu, beside its others."""
    monkeypatch.delenv(ENDPOINT, raising=False)
    done = check("--format", "json", fts="", limits="limits: {per_site: 0.1 Gb/s}")
    assert done.exit_code == 2
    assert codes(done) == [None, "site-over-limit", "site-over-limit"]
    wording(rows(done)[0]["message"])


def test_a_menu_that_is_wrong_is_not_asked_for(check, monkeypatch) -> None:
    """First things first."""
    monkeypatch.setattr(common, "backends", None)
    assert check(contact="").exit_code == 2


# --------------------------------------------------------------------------- Rucio


@pytest.fixture
def rucio(services: dict[str, Backend], monkeypatch: pytest.MonkeyPatch) -> SimBackend:
    """A simulated service in Rucio's place."""
    items = {source: [Dataset(f"cms:{n}", 10**11, 100) for n in range(50)] for source in "AD"}
    services["rucio"] = service = SimBackend(SimClock(START), items)
    inventory = service.inventory
    monkeypatch.setattr(service, "survey", lambda _pairs: Survey(), raising=False)
    monkeypatch.setattr(service, "inventory", lambda source, datasets, _coverage: inventory(source, datasets))
    monkeypatch.setattr(service, "explain", lambda *_selection: {}, raising=False)
    return service


RUCIO = {"defaults": 'defaults: {datasets: {did: "cms:*"}}', "fts": "", "scenarios": ""}


def facts(**of: RseFacts) -> Callable[[Any], dict[str, RseFacts]]:
    return lambda names: {name: of.get(name, RseFacts(name, readable=True, writable=True)) for name in names}


def test_rses_are_asked_for(check, rucio, monkeypatch) -> None:
    """Whether they exist, are available, and are tape; sources are read once."""
    scenarios = "scenarios: {one: {from: A, to: [B, C, D], rate: 1 Gb/s}, two: {from: D, to: A, rate: 1 Gb/s}}"
    known = {
        "B": RseFacts("B", writable=False),
        "C": RseFacts("C", exists=False),
        "D": RseFacts("D", readable=True, writable=True, tape=True),
    }
    monkeypatch.setattr(rucio, "sites", facts(**known))
    done = check("--format", "json", **{**RUCIO, "scenarios": scenarios})
    assert done.exit_code == 2
    told = [(row["severity"], row["code"], row["message"]) for row in rows(done)]
    assert told == [
        ("error", None, "D is tape, and no agreement is named"),
        ("warning", "storage-unreachable", "in Rucio, B is not writable now"),
        ("error", None, "rucio knows no RSE C"),
    ]
    assert "rucio at sim://: sim of def, may end rules early" in done.stderr
    assert rucio.calls == {"check": 1, "inventory": 2, "check_replicas": 2}  # some datasets of each source


def test_expressions_are_resolved(check, rucio, monkeypatch) -> None:
    """What is found out is about the RSEs that they mean."""
    scenarios = 'scenarios: {one: {from: A, to: "tier=1", rate: 1 Gb/s}}'
    monkeypatch.setattr(rucio, "resolve", lambda _expression: ("B", "C"), raising=False)
    monkeypatch.setattr(rucio, "sites", facts(C=RseFacts("C", writable=False)))
    done = check("--format", "json", **{**RUCIO, "scenarios": scenarios})
    assert (done.exit_code, codes(done)) == (0, ["storage-unreachable"])
    assert "2 links" in done.stderr
    assert "as one" not in done.stderr

    def refuse(expression: str) -> tuple[str, ...]:
        raise Permanent(f"{expression} means nothing", "check its spelling")

    monkeypatch.setattr(rucio, "resolve", refuse)
    monkeypatch.setattr(rucio, "sites", facts(**{"tier=1": RseFacts("tier=1", exists=False)}))  # of course
    done = check("--format", "json", **{**RUCIO, "scenarios": scenarios})
    assert (done.exit_code, codes(done)) == (2, [None])
    assert rows(done)[0]["message"] == "tier=1 means nothing"


def test_one_service_that_is_down_does_not_keep_the_other_from_being_asked(check, rucio, storage) -> None:
    """Rucio is away, a storage of FTS refuses DELETE: both are told."""

    def fault(_method: str, _subject: object) -> None:
        raise NeedsOperator("Rucio at https://rucio.example.org: cannot be reached", "check rucio_host")

    rucio.fault = fault
    storage.allowed["DELETE"] = False
    scenarios = (
        'scenarios: {one: {through: rucio, from: A, to: "tier=1", rate: 1 Gb/s, datasets: {did: "cms:*"}}, two: '
        + TOP["scenarios"].partition("one: ")[2]
    )
    done = check("--format", "json", scenarios=scenarios)
    assert (done.exit_code, codes(done)) == (4, [None, "storage-verbs"])
