"""`check --online` with Rucio in memory: each finding fires, and a grid that is right has none."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from rucio.common import exception as rucio_errors

from dc_inject.backends.rucio import RucioBackend
from dc_inject.cli.shared import common
from dc_inject.model.events import Silent
from tests.backends.fake import GB, FakeClient, FakeRse, FakeRucio
from tests.cli.ledgers import run
from tests.menu.texts import text
from tests.wording import lines

TB = 1000 * GB
FILE_SPEED = "10 MB/s"  # fast enough for 8 Gb/s in the 130 transfers that FTS allows on a link
RIGHT = "scenarios: {one: {from: A, to: B, rate: 8 Gb/s}}"


@pytest.fixture
def server() -> FakeRucio:
    """100 datasets of 100 files of 1 GB at A: 10 TB, more than 1 GB/s needs in 2 h and a cycle."""
    server = FakeRucio(rses={name: FakeRse() for name in "ABC"})
    for number in range(100):
        server.add(f"cms:{number}", "A", files=100, size=GB)
    return server


@pytest.fixture
def check(server, tmp_path, monkeypatch):
    """Run `check --online`; return the exit code, the findings by code, and what was said."""
    made = {"campaign": "test", "clock": server.clock, "observer": Silent(), "make": server.client}
    backend = RucioBackend(**made, sleep=lambda _seconds: None)
    monkeypatch.setattr(common, "backends", lambda services, **_: {"rucio": backend} if services else {})

    def check(scenarios: str = RIGHT, *more: str, rows: bool = False, **parts: str):
        found = told(scenarios, *more, **parts)
        return found[1] if rows else (found[0], {row["code"]: row["message"] for row in found[1]}, found[2])

    def told(scenarios: str, *more: str, **parts: str) -> tuple[int, list[dict[str, str]], str]:
        path = tmp_path / "m.yaml"
        path.write_text(text(scenarios=scenarios, **parts))
        done = run("check", "--online", "--format", "json", "--file-speed", FILE_SPEED, *more, path)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        rows = json.loads(done.stdout)
        assert len({row["code"] for row in rows}) == len(rows)
        return done.exit_code, rows, done.stderr

    return check


def test_a_grid_that_is_right_has_no_finding_and_nothing_is_changed(check, server):
    server.may_end = False
    code, found, said = check()
    assert (code, found) == (0, {})
    assert "A: 100 datasets, 10 TB" in said
    assert "may NOT end rules early" in said
    assert "signal missing" not in said
    assert server.called("add_replication_rule") == 0


def test_a_source_of_which_a_last_look_takes_nothing(check, server, wording):
    """`run` looks at what it has chosen once more; what would be refused then is told beforehand."""
    server.opened.update(server.datasets)
    code, found, _ = check()
    assert (code, list(found)) == (2, ["nothing-usable"])
    wording(found["nothing-usable"])
    assert check(accept="accept: [nothing-usable]")[:2] == (0, {})
    assert server.called("get_locks_for_dids") == 2


def test_a_global_limit_that_matches_nothing_is_found_since_every_rule_would_be_refused(check, server):
    server.faults["get_global_account_usage"] = [rucio_errors.InvalidRSEExpression("an empty set")]
    _, found, _ = check()
    assert list(found) == ["account-limit"]


def selection(*did: str, **more: list[str]) -> str:
    """The defaults of a menu with a selection."""
    return "defaults: " + json.dumps({"datasets": {"did": list(did), **more}})


def test_entries_that_match_nothing_are_named_with_the_reason(check, server):
    """A typing error in one of several is not silent, whatever the others match."""
    server.add("cms:open", "C", files=10, size=GB)
    server.opened.add(("cms", "open"))
    server.add("cms:elsewhere", "C", files=10, size=GB)
    server.containers |= {
        ("cms", "empty"): [],
        ("cms", "far"): [("cms", "elsewhere")],
        ("cms", "near"): [("cms", "1")],
    }
    wrong = {
        "cms:Typo*": "such a name", "csm:x": "no scope csm", "cms:gone": "does not know", "cms:open": "still open",
        "cms:elsewhere": "no source", "cms:empty": "empty", "cms:far": "no source has a dataset",
        "cms:none": "does not know",
    }  # fmt: skip
    named = selection(
        "cms:?", "cms:near", *[name for name in wrong if name != "cms:none"], containers=["cms:none"]
    )
    code, found, _ = check(defaults=named, accept="accept: [pool-small]")
    assert (code, list(found)) == (0, ["unmatched-datasets"])
    for entry, why in wrong.items():
        assert re.search(rf"{re.escape(entry)} \([^)]*{why}", found["unmatched-datasets"]), entry
    assert "cms:near" not in found["unmatched-datasets"]


def test_an_exclusion_that_keeps_nothing_out_is_an_error(check, server):
    """What was meant by it may be under embargo."""
    named = selection("cms:*", exclude=["cms:1?", "cms:Embrago*"])
    code, found, _ = check(defaults=named)
    assert (code, list(found)) == (2, ["unmatched-exclude"])
    assert "cms:Embrago*" in found["unmatched-exclude"]
    assert "cms:1?" not in found["unmatched-exclude"]
    assert check(defaults=named, accept="accept: [unmatched-exclude]")[:2] == (0, {})


def test_an_entry_may_match_at_one_source_only(check, server):
    server.add("cms:c", "C", files=100, size=GB)
    two = "scenarios: {one: {from: [A, C], to: B, rate: 1 Gb/s}}"
    accept = "accept: [pool-small]"
    assert check(two, defaults=selection("cms:c", "cms:?", "cms:??"), accept=accept)[:2] == (0, {})


def test_bounds_that_leave_nothing_are_the_reason(check, server):
    named = "defaults: {datasets: {did: ['cms:*'], mean_file: 50..60 GB}}"
    code, found, _ = check(defaults=named)
    assert (code, list(found)) == (2, ["no-source-files"])
    assert "100 datasets have the names" in found["no-source-files"]
    assert "`mean_file` (50 GB to 60 GB)" in found["no-source-files"]


def test_a_last_look_is_at_datasets_from_all_over_a_source(check, server):
    """Neighbours are often of one kind: the first 50 are still open, and the others are not."""
    server.opened.update([("cms", str(number)) for number in range(50)])
    assert check()[:2] == (0, {})


def test_what_is_at_the_destination_already_is_no_fault_of_its_source(check, server):
    server.replicas["B"] = set(server.replicas["A"])
    assert check()[:2] == (0, {})


@pytest.mark.parametrize("method", ["get_metadata_bulk", "list_dataset_replicas_bulk", "get_locks_for_dids"])
@pytest.mark.parametrize(
    "error", [rucio_errors.RucioException("KeyError: 'cms'"), rucio_errors.DatabaseException()]
)
def test_a_last_look_that_fails_is_an_error(check, server, method, error, wording):
    """`run` could inject nothing. Of a server that fails nobody says that its datasets are incomplete."""
    server.faults[method] = [error] * 20
    code, found, _ = check()
    assert (code, list(found)) == (4, [None])
    wording(found[None])
    assert str(error.args[0] if error.args else "DatabaseException") in found[None]


def test_a_link_without_a_distance(check, server):
    server.unlinked.add(("A", "B"))
    code, found, _ = check()
    assert (code, list(found)) == (0, ["no-distance"])
    assert "no distance from A to B" in found["no-distance"]
    server.unlinked = {("B", "A")}
    assert check()[1] == {}


def test_ends_whose_protocols_do_not_go_together(check, server, wording):
    server.rses["B"] = FakeRse(writes=("gsiftp",))
    _, found, _ = check()
    assert list(found) == ["no-third-party-copy"]
    wording(found["no-third-party-copy"])
    server.rses["B"] = FakeRse(writes=("https",))
    assert check()[1] == {}


def test_only_the_links_that_are_named_are_asked_about_also_of_expressions(check, server):
    server.unlinked.add(("A", "B"))
    both = RIGHT.replace("to: B", "to: '*'")
    assert list(check(both)[1]) == ["no-distance"]
    code, found, said = check(both, "--link", "A:C", "--scale", "0.5")
    assert (code, found) == (0, {})
    assert "1 link in 1 scenario, 2 Gb/s together (rates times 0.5)" in said
    code, found, _ = check(both, "--link", "A:D")
    assert (code, [*found]) == (2, [None])
    assert "A -> D" in found[None]


def test_an_activity_is_looked_up_in_the_clients_schema_and_that_is_said(check):
    _, found, _ = check(RIGHT.replace("rate:", "activity: Mini Challenge, rate:"))
    assert list(found) == ["unknown-activity"]
    assert "'Mini Challenge'" in found["unknown-activity"]
    assert check(RIGHT.replace("rate:", "activity: Functional Test, rate:"))[1] == {}


def test_a_quota_that_is_too_small(check, server, wording):
    """1 GB/s for 2 h; Rucio wants more left than a dataset has."""
    server.rses["B"].quota = 7100 * GB
    _, found, _ = check()
    assert list(found) == ["account-limit"]
    wording(found["account-limit"])
    server.rses["B"].quota = None
    assert list(check()[1]) == ["account-limit"]
    server.rses["B"].quota = 7300 * GB
    assert check()[1] == {}


def test_a_storage_with_too_little_free_space(check, server):
    """1 GB/s for the shortest lifetime of 1 h and a cycle."""
    server.rses["B"].space = 4400 * GB
    assert list(check()[1]) == ["free-space"]
    server.rses["B"].space = 4500 * GB
    assert check()[1] == {}


def test_expired_data_that_nobody_has_deleted(check, server):
    server.rses["B"].expired = 4 * TB
    _, found, _ = check()
    assert "B has 4 TB that have expired and are not deleted yet" in found["expired-data"]
    server.rses["B"].expired = 3 * TB
    assert check()[1] == {}
    server.rses["B"].expired, server.rses["A"].expired = None, 9 * TB
    assert check()[1] == {}


def test_a_pool_that_is_too_small_and_one_that_is_empty(check, server):
    """With the right to end rules the shortest lifetime counts."""
    accept = "accept: [fts-link-limit]"
    twice = RIGHT.replace("8 Gb/s", "16 Gb/s")
    assert check(twice, accept=accept)[1] == {}
    server.may_end = False
    code, found, _ = check(twice, accept=accept)
    assert (code, list(found)) == (0, ["pool-small"])
    code, found, _ = check(RIGHT.replace("from: A", "from: C"))
    assert (code, sorted(found)) == (2, ["no-source-files", "unmatched-datasets"])


def test_datasets_that_are_too_coarse(check, server):
    """50 GB an hour, and the smallest has 100 GB."""
    assert list(check(RIGHT.replace("8 Gb/s", "0.11 Gb/s"))[1]) == ["coarse-datasets"]
    assert check(RIGHT.replace("8 Gb/s", "0.23 Gb/s"))[1] == {}


def test_credentials_that_expire_while_the_menus_run(check, server, monkeypatch, wording):
    import dc_inject.backends.rucio.connection as identity  # noqa: PLC0415  to replace what reads a certificate

    ends = server.clock.now() + timedelta(hours=23)  # the menu ends after 23 h
    monkeypatch.setattr(identity, "credentials_until", lambda _client: ends)
    assert check()[1] == {}
    monkeypatch.setattr(identity, "credentials_until", lambda _client: ends - timedelta(hours=1))
    _, found, said = check()
    wording(found["credentials-expire"])
    assert "credentials until" in said


def test_an_unknown_rse_is_told_once_with_the_nearest_one(check, server):
    """However many links have it."""
    server.rses["T1_DE_KIT_Disk"] = server.rses["B"]
    many = "scenarios: {one: {from: [A, B], to: [T1_DE_KIT_Disc], rate: 8 Gb/s}}"
    (row,) = check(many, rows=True)
    assert row["message"].startswith("rucio knows no ")
    assert "T1_DE_KIT_Disk?" in row["hint"]


def test_an_rse_that_does_not_exist_and_a_tape_are_errors(check, server, wording):
    """Of what does not exist nothing more is asked."""
    code, found, _ = check("scenarios: {one: {from: A, to: [X], rate: 8 Gb/s}}")
    assert (code, [*found]) == (2, [None])
    wording(found[None])
    assert server.called("get_distance") == 0
    server.rses["B"].kind = "TAPE"
    code, found, _ = check()
    assert (code, [*found]) == (2, [None])
    wording(found[None])


def test_a_source_that_is_tape_is_named_once(check, server):
    server.rses["A"].kind = "TAPE"
    _, found, said = check(tape='tape: {A: "J. Doe"}')
    assert (found, said.count("A is tape")) == ({}, 1)


def test_an_rse_that_is_not_available(check, server, wording):
    server.rses["B"].write = False
    found = check()[1]
    assert [*found] == ["storage-unreachable"]
    wording(found["storage-unreachable"])


def test_a_destination_that_deletes_nothing(check, server):
    """At a source nothing of ours has to be deleted."""
    server.rses["A"].delete = server.rses["B"].delete = False
    code, found, _ = check("scenarios: {one: {from: A, to: [B, C], rate: 8 Gb/s}}")
    assert (code, list(found)) == (0, ["deletions-off"])
    assert "B" in found["deletions-off"]
    assert check(accept="accept: [deletions-off]")[1] == {}


@pytest.mark.parametrize(
    "method",
    [
        "get_distance",
        "get_protocols",
        "get_local_account_usage",
        "get_dataset_locks_by_rse",
    ],
)
def test_what_cannot_be_told_is_said_and_is_no_finding(check, server, method, wording):
    server.faults[method] = [rucio_errors.DatabaseException("busy") for _ in range(20)]
    code, found, said = check()
    assert (code, found) == (0, {})
    wording(lines(said, "busy"))
    assert "busy" in said


def test_a_report_of_space_that_is_old_is_said(check, server):
    server.rses["B"].reported -= timedelta(days=2)
    server.rses["B"].space = 0
    _, found, said = check()
    assert found == {}
    assert "signal missing: free of B" in said


def test_what_a_menu_accepts_is_no_finding(check, server):
    server.unlinked.add(("A", "B"))
    server.rses["B"].space = 0
    assert list(check(accept="accept: [no-distance]")[1]) == ["free-space"]


def test_a_service_that_refuses_us_half_way_is_told(check, server, monkeypatch):
    def refuse(self, rse: str):
        raise rucio_errors.CannotAuthenticate("the proxy is gone")

    monkeypatch.setattr(FakeClient, "get_protocols", refuse)
    code, found, _ = check()
    assert code == 4
    assert "the proxy is gone" in found[None]
