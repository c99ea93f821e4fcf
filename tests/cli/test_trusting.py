"""Who may get credentials is asked on a terminal and kept for the campaign; `check` lists where they would go."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.cli.shared import defaults, trusting
from dc_inject.credentials import Credential, Credentials
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model.errors import LedgerError, MenuError, UsageError
from dc_inject.model.ports import FoundInjection
from dc_inject.sandbox import ownership, processes
from dc_inject.sandbox.state import State
from dc_inject.system import account
from tests.cli.ending import Files, world_of_files
from tests.cli.ledgers import CYCLE, START, run
from tests.sim import SimBackend
from tests.wording import lines

MENU = """\
menu: 1
campaign: dc27
contact: me@example.org
timezone: UTC
start: 2020-02-08 10:00
end: 2020-02-08 11:00
fts: {endpoint: "https://fts.example.org:8446"}
defaults: {through: fts}
scenarios:
  one:
    files: {folder: data}
    rate: 1 Gb/s
    from: davs://se1.example.org/x
    to: [davs://se2.example.org/dc, davs://se2.example.org/more]
"""
HOSTS = ("fts.example.org", "se1.example.org", "se2.example.org")
QUESTION = (
    "This menu sends your token (or a proxy delegated from yours) to: fts.example.org (FTS), se1.example.org, "
    "se2.example.org. Allow it for this campaign? [y/N]"
)


class Fts(SimBackend):
    """A simulated FTS that has no job of ours."""

    def ours(self, campaign: str, *, since: datetime | None) -> Iterator[FoundInjection]:
        del campaign, since
        return iter(())


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_of_a_terminal: None) -> Path:
    """A home without configuration or credentials but a token, and an FTS that makes nothing of calls."""
    del signals_of_a_terminal  # commands take them
    for name in [name for name in os.environ if name.startswith(("DC_INJECT_", "X509_", "BEARER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BEARER_TOKEN", "abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(defaults, "SYSTEM", tmp_path / "etc" / "dc_inject.toml")
    monkeypatch.setattr("dc_inject.backends.fts.FtsBackend", lambda *_, **__: Fts(SimClock(START), {}, name="fts"))
    return tmp_path


@pytest.fixture
def menu(alone: Path) -> Path:
    path = alone / "menu.yaml"
    path.write_text(MENU)
    return path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusting, "_terminal", lambda: True)


def ledger(home: Path) -> Path:
    return home / "state" / "dc_inject" / "dc27.sqlite"


def answered(path: Path) -> tuple[str, ...]:
    with LedgerView.open(path) as view:
        return view.trusted()


# --------------------------------------------------------------------------- run


def test_a_yes_is_kept_for_the_campaign(alone: Path, menu: Path, terminal: None) -> None:
    first = run("run", menu, text="y\n")
    assert QUESTION in first.stderr
    assert first.exit_code == 0, first.exception
    with LedgerView.open(ledger(alone)) as view:
        assert view.trusted() == HOSTS
        (change,) = view.changes()
    assert (change.who, change.what) == (account.who(), "trust " + " ".join(HOSTS))
    again = run("run", menu, text="")
    assert again.exit_code == 0, again.exception
    assert "Allow it" not in again.stderr


def test_a_yes_counts_where_nobody_can_be_asked(
    menu: Path, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("run", menu, text="y\n").exit_code == 0
    monkeypatch.setattr(trusting, "_terminal", lambda: False)
    assert run("run", menu).exit_code == 0


@pytest.mark.parametrize("text", ["n\n", "\n", ""])
def test_a_no_is_refused_with_the_option_and_leaves_nothing(
    alone: Path, menu: Path, terminal: None, text: str
) -> None:
    done = run("run", menu, text=text)
    assert QUESTION in done.stderr
    assert isinstance(done.exception, UsageError)
    assert "--trust-host fts.example.org" in str(done.exception.hint)
    assert not ledger(alone).exists()


def test_nobody_is_asked_off_a_terminal(menu: Path) -> None:
    done = run("run", menu, text="y\n")
    assert "Allow it" not in done.stderr
    assert isinstance(done.exception, UsageError)


def test_only_new_hosts_are_asked_for(alone: Path, menu: Path, terminal: None) -> None:
    assert run("--trust-host", "fts.example.org", "run", menu, text="y\n").exit_code == 0
    assert answered(ledger(alone)) == HOSTS[1:]  # what was named for one call only is not kept
    menu.write_text(MENU.replace("se1", "se3"))
    done = run("--trust-host", "fts.example.org", "run", menu, text="y\n")
    assert "to: se3.example.org. Allow" in done.stderr
    assert answered(ledger(alone)) == (*HOSTS[1:], "se3.example.org")


def test_storages_that_get_no_token_are_not_asked_for(
    alone: Path, menu: Path, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BEARER_TOKEN")
    assert run("run", menu, text="y\n").exit_code == 0
    assert answered(ledger(alone)) == HOSTS[:1]


def test_a_storage_that_was_not_named_ends_a_run(menu: Path, wording) -> None:
    done = run("--trust-host", "fts.example.org", "run", menu)
    assert isinstance(done.exception, MenuError)
    wording(str(done.exception))


def test_the_answer_for_another_campaign_does_not_count(alone: Path, menu: Path, terminal: None) -> None:
    assert run("run", menu, text="y\n").exit_code == 0
    other = menu.with_name("other.yaml")
    other.write_text(MENU.replace("dc27", "dc28"))
    done = run("run", other, "--ledger", ledger(alone), text="y\n")
    assert QUESTION in done.stderr
    assert isinstance(done.exception, LedgerError)
    with LedgerView.open(ledger(alone)) as view:
        assert len(view.changes()) == 1


def test_a_name_that_means_more_than_one_host_is_not_asked_for(
    alone: Path, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dc_inject.cli.shared.trusting.agreed", lambda _question: True)
    assert trusting.trust().ask([("source", "davs://c.example.org/x")], "") == ("c.example.org",)
    assert trusting.trust().ask([("source", "davs://*.example.org/x")], "https://a b.example.org") == ()


def test_an_address_with_plain_http_is_never_asked_for(alone: Path, menu: Path, terminal: None) -> None:
    menu.write_text(MENU.replace("https://fts.example.org:8446", "http://127.0.0.1:31339"))
    done = run("run", menu, text="y\n")
    assert "127.0.0.1" not in done.stderr
    assert isinstance(done.exception, UsageError)
    assert "--trust-host 127.0.0.1:31339 " in str(done.exception.hint)
    assert not ledger(alone).exists()


# --------------------------------------------------------------------------- the sandbox


@pytest.fixture
def own_sandbox(alone: Path) -> Iterator[Path]:
    """A folder as a sandbox has it, and a process that carries its marker and the role of its FTS."""
    folder = alone / "state" / "dc_inject" / "sandbox"
    folder.parent.mkdir(parents=True)
    ownership.claim(folder, "--folder")
    State("abc123", 1, "", "owners", "dcops", 1, storages={"XRD1": "127.0.0.2:1094"}, fts=31339).write(folder)
    environ = {processes.MARKER: "abc123", processes.ROLE: "fts"}
    served = subprocess.Popen(["/bin/sleep", "600"], env=environ)
    try:
        yield folder
    finally:
        served.kill()
        served.wait()


def test_a_running_sandbox_of_ours_needs_no_naming(own_sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trusting.trust().destinations().allow("http://127.0.0.1:31339")
    assert not trusting.trust().destinations().allow("http://127.0.0.2:1094"), "no process serves this storage"
    moved = own_sandbox.rename(own_sandbox.with_name("elsewhere"))
    assert not trusting.trust().destinations().allow("http://127.0.0.1:31339")
    for variable, file in (("RUCIO_CONFIG", "rucio.cfg"), ("BEARER_TOKEN_FILE", "authority/me.token")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(moved / file))
            assert trusting.trust().destinations().allow("http://127.0.0.1:31339")


@pytest.mark.parametrize(("where", "mode"), [("state.json", 0o644), ("state.json", 0o660), ("", 0o777)])
def test_a_sandbox_that_others_can_read_or_write_proves_nothing(own_sandbox: Path, where: str, mode: int) -> None:
    (own_sandbox / where).chmod(mode)
    assert not trusting.trust().destinations().allow("http://127.0.0.1:31339")


def test_a_sandbox_of_another_user_proves_nothing(own_sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership.os, "geteuid", lambda: os.getuid() + 1)
    assert not trusting.trust().destinations().allow("http://127.0.0.1:31339")


def test_a_tape_system_of_our_sandbox_needs_no_naming_while_it_runs(own_sandbox: Path) -> None:
    replace(State.read(own_sandbox), tapes={"XRD1": "127.0.0.2:8080"}).write(own_sandbox)
    for role in ("storage-XRD1", "tape-XRD1"):
        served = subprocess.Popen(["/bin/sleep", "600"], env={processes.MARKER: "abc123", processes.ROLE: role})
        try:
            allowed = trusting.trust().destinations().allow("http://127.0.0.2:8080")
        finally:
            served.kill()
            served.wait()
        assert allowed == (role == "tape-XRD1")


def test_a_sandbox_without_processes_proves_nothing(own_sandbox: Path) -> None:
    state = json.loads((own_sandbox / "state.json").read_text())
    (own_sandbox / "state.json").write_text(json.dumps(state | {"marker": "another"}))
    assert not trusting.trust().destinations().allow("http://127.0.0.1:31339")


# --------------------------------------------------------------------------- end


@pytest.fixture
def world(alone: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return world_of_files(alone, monkeypatch)


def test_ending_gives_no_token_to_a_storage_that_was_never_named(world: Files) -> None:
    """A run with a proxy shows a storage nothing that it could use; a token of now is another thing."""
    done = world.end("--yes")
    assert isinstance(done.exception, UsageError), done.exception
    assert "--trust-host b.example.org" in str(done.exception.hint)
    with Ledger.open(world.path) as made:
        made.trust(["b.example.org"], "me", START)
    assert world.end("--yes").exit_code == 0


def test_ending_asks_on_a_terminal(world: Files, terminal: None, wording) -> None:
    done = world.end("--yes", text="y\n")
    wording(lines(done.stderr, "Allow"))
    assert done.exit_code == 0, done.exception
    assert answered(world.path) == ("b.example.org",)


def test_ending_with_a_proxy_asks_nobody(world: Files, terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEARER_TOKEN")
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception


# --------------------------------------------------------------------------- ledger rebuild


def test_a_ledger_that_is_made_anew_keeps_the_answer_too(alone: Path, menu: Path, terminal: None) -> None:
    done = run("ledger", "rebuild", "dc27", menu, "--yes", text="y\n")
    assert "to: fts.example.org (FTS). Allow it" in done.stderr
    assert done.exit_code == 0, done.exception
    assert answered(ledger(alone)) == HOSTS[:1]


# --------------------------------------------------------------------------- check, and others that ask nobody


def test_check_lists_where_credentials_would_go(
    alone: Path, menu: Path, monkeypatch: pytest.MonkeyPatch, wording
) -> None:
    monkeypatch.setenv("DC_INJECT_TRUST", "se1.example.org")
    done = run("check", menu)
    assert done.exit_code == 0
    wording(lines(done.stderr, "would go to"))
    named = run("--trust-host", "*.example.org", "check", menu)
    assert "fts.example.org (trusted: --trust-host)" in named.stderr
    menu.write_text(MENU.replace("davs://se1.example.org", "dav://127.0.0.1:80"))
    assert "127.0.0.1:80 (not trusted yet)" in run("check", menu).stderr
    with Ledger.open(ledger(alone)) as made:
        made.bind("dc27", CYCLE.length, [], START)
        made.trust(["se2.example.org"], "me", START)
    wording(lines(run("check", menu).stderr, "127.0.0.1"))


def test_programs_read_it_too(menu: Path) -> None:
    rows = json.loads(run("check", menu, "--format", "json").stdout)
    notes = [row["message"] for row in rows if row["severity"] == "note"]
    assert [note.split(": ")[0].split()[-1] for note in notes] == ["FTS", "storages"]


def test_check_without_a_token_lists_no_storages_that_see_a_proxy_only(
    menu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BEARER_TOKEN")
    assert "go to storages" in run("check", menu).stderr, "nobody knows yet what will open them"
    monkeypatch.setattr(Credentials, "access", lambda *_: Credential("proxy", "X509_USER_PROXY"))
    assert "go to storages" not in run("check", menu).stderr


@pytest.mark.parametrize("command", [["ping"], ["plan"]])
def test_what_was_answered_counts_for_those_who_only_ask(alone: Path, menu: Path, command: list[str]) -> None:
    refused = run(*command, menu)
    assert isinstance(refused.exception, UsageError)
    assert "--trust-host fts.example.org" in str(refused.exception.hint)
    with Ledger.open(ledger(alone)) as made:
        made.bind("dc27", CYCLE.length, [], START)
        made.trust(HOSTS, "me", START)
    assert "your token" not in str(run(*command, menu).exception)


def test_plan_reads_no_storage_that_was_not_named(menu: Path) -> None:
    done = run("--trust-host", "fts.example.org", "plan", menu, "--at", "2020-02-08T10:00Z")
    assert isinstance(done.exception, MenuError)
    assert "DC_INJECT_TRUST=se1.example.org" in str(done.exception)


# --------------------------------------------------------------------------- the configuration file


def test_the_configuration_file_names_hosts(alone: Path, menu: Path) -> None:
    path = alone / ".config" / "dc_inject" / "dc_inject.toml"
    path.parent.mkdir(parents=True)
    path.write_text('trust-host = ["*.example.org"]\n[run]\nquiet = true\n')
    assert "fts.example.org (trusted: configuration file)" in run("check", menu).stderr
    assert run("run", menu).exit_code == 0


@pytest.mark.parametrize("wrong", ['"fts.example.org"', "[1]", "{a = 1}"])
def test_hosts_in_the_configuration_file_are_a_list(alone: Path, menu: Path, wrong: str, wording) -> None:
    path = alone / "mine.toml"
    path.write_text(f"trust-host = {wrong}\n")
    done = run("--config", path, "check", menu)
    assert isinstance(done.exception, UsageError)
    wording(done.exception.message)
