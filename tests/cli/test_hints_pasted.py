"""The commands in hints and messages, typed as they are where they came up, do what is promised."""

from __future__ import annotations

import errno
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import Result

from dc_inject.apps.link import checks, hints
from dc_inject.apps.link.command import link
from dc_inject.backends.sim import SimClock
from dc_inject.cli.shared import common
from dc_inject.credentials.trust import ENDPOINT
from dc_inject.engine import admission
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.errors import of_system
from dc_inject.ledger.lock import ENDS
from dc_inject.model.errors import LedgerError, MenuError, UsageError
from dc_inject.model.events import Silent
from dc_inject.model.ports import RseFacts
from tests.apps.link.linking import A, B, signalled
from tests.cli.ledgers import FNAL, START, make, run
from tests.cli.test_hints import NO_KEYS, OF_MODULE, OPTION, SOURCES, texts
from tests.engine.world import campaign, flow, url

ASKED = (A, B, "--rate", "2Gb/s", "--for", "12m", "--campaign", "mini", "--cancel-rate", "600/h")
OF_LINK = OF_MODULE["dc_inject.apps.link.command"]
OF_RUN = OF_MODULE["dc_inject.cli.run"]


def named(done: Result) -> list[str]:
    """The commands that stderr, the error and its hint tell to type, in their order."""
    words = f"{done.stderr} {done.exception} {getattr(done.exception, 'hint', '')}"
    return list(dict.fromkeys(re.findall(r"`dc-inject ([^`]+)`", words)))


def pasted(done: Result) -> dict[str, int]:
    """Type the commands that it names, and answer y; how each of them ended."""
    ended = {command: run(*shlex.split(command), text="y\n") for command in named(done)}
    return {command: getattr(one.exception, "exit_code", one.exit_code) for command, one in ended.items()}


def in_service(folder: Path) -> int:
    with LedgerView.open(folder / "dc_inject" / "mini.sqlite") as view:
        return sum(entry.state.in_service for entry in view.entries())


def full_disk(monkeypatch: pytest.MonkeyPatch, *, closings: int) -> None:
    """Let a ledger find the disk full after it has closed some cycles, once."""
    close, closed = Ledger.close_cycle, []

    def fails(ledger: Ledger, *arguments: object) -> None:
        closed.append(ledger)
        if len(closed) == closings:
            raise of_system(ledger.path, OSError(errno.ENOSPC, "No space left on device"))
        close(ledger, *arguments)

    monkeypatch.setattr(Ledger, "close_cycle", fails)


def test_a_full_disk_leaves_a_list_of_what_is_live_and_ways_to_end_it_and_to_go_on(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service(0.5)
    full_disk(monkeypatch, closings=2)
    done = run("link", *ASKED)
    assert isinstance(done.exception, LedgerError), done.exception
    left = in_service(tmp_path)
    assert left > 0
    assert sum(map(int, re.findall(r"(\d+) rules? (?:left to|asked to end)", done.stderr))) == left
    assert named(done) == ["end mini --cancel", "link --resume mini"]
    assert pasted(done)["end mini --cancel"] == 0
    assert in_service(tmp_path) == 0
    assert "step" in run("link", "--verdict", "mini").stdout


def test_a_campaign_that_exists_is_continued_only_where_that_is_possible(service, tmp_path: Path) -> None:
    backend = service()
    assert run("link", *ASKED).exit_code == 0
    repeated = run("link", *ASKED)
    assert repeated.exception.exit_code == 2
    assert pasted(repeated) == {"link --verdict mini": 0}
    assert backend.rules


def test_an_administrator_is_told_an_option_of_this_command(service, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = service()
    is_admin(monkeypatch, backend)
    refused = run("link", *ASKED)
    assert isinstance(refused.exception, UsageError)
    assert set(OPTION.findall(refused.exception.hint)) == {"--allow-admin"}
    assert run("link", *ASKED, "--allow-admin").exit_code == 0


def is_admin(monkeypatch: pytest.MonkeyPatch, backend) -> None:
    check = backend.check
    monkeypatch.setattr(backend, "check", lambda: replace(check(), admin=True))


def test_a_source_on_tape_gets_no_advice_to_write_files_there(
    service, monkeypatch: pytest.MonkeyPatch, wording
) -> None:
    """Through Rucio it is tape, and has nothing that fits; through FTS all of its files are on tape."""
    service(stock={A: []})
    with pytest.raises(MenuError) as tape:
        admission.ends(campaign([flow(A, B, 1)]), lambda _, names: {n: RseFacts(n, tape=n == A) for n in names})
    with_answers(monkeypatch, lambda told: told.problems.extend(tape.value.problems))
    refused = run("link", *ASKED)
    assert "tape" in refused.exception.message
    wording(refused.exception.hint)
    assert "data make" not in refused.stderr

    service(stock={url("A"): []}, name="fts")
    with_answers(monkeypatch, lambda told: told.on_tape.add(url("A")))
    ends = (url("A"), url("B"), *ASKED[2:], "--fts", "https://fts.example.org:8446")
    refused = run("link", *ends)
    assert refused.exception.exit_code == 2
    assert named(refused) == []


def with_answers(monkeypatch: pytest.MonkeyPatch, adds) -> None:
    ask = checks.online.ask

    def asked(*arguments):
        told = ask(*arguments)
        adds(told)
        return told

    monkeypatch.setattr(checks.online, "ask", asked)


def test_an_interruption_names_commands_that_work(service, tmp_path: Path) -> None:
    backend = service(0.5)
    signalled(backend, "submit", 5, lost=None)
    by_call = backend.fault

    def fault(method: str, subject: object) -> None:
        if method == "end":
            signal.raise_signal(signal.SIGINT)
        by_call(method, subject)

    backend.fault = fault
    done = run("link", *ASKED)
    backend.fault = lambda _method, _subject: None
    assert in_service(tmp_path) > 0
    assert "end mini --cancel" in named(done)
    assert pasted(done)["end mini --cancel"] == 0
    assert in_service(tmp_path) == 0


def test_end_is_kept_from_a_ledger_by_an_injector_or_by_another_end(tmp_path: Path) -> None:
    """The injector is to be ended first only where one runs."""
    path = make(tmp_path / "dc27.sqlite", {FNAL: 1}).path
    for does, says in (({}, True), ({"does": ENDS}, False)):
        with Ledger.open(path) as ledger, ledger.hold("me@vobox", **does):
            error = run("end", path, "--yes").exception
        assert isinstance(error, LedgerError)
        assert "me@vobox" in error.message
        assert ("end the injector" in error.hint) is says


def test_an_injector_that_is_in_the_way_is_stopped_by_the_command_that_the_hint_names(tmp_path: Path) -> None:
    path = make(tmp_path / "dc27.sqlite", {FNAL: 1}).path
    with Ledger.open(path) as ledger, ledger.hold("me@vobox"):
        with pytest.raises(LedgerError) as second, Ledger.open(path) as other, other.hold("you@vobox"):
            pass
        (command,) = re.findall(r"`dc-inject ([^`]+)`", second.value.hint)
        assert run(*shlex.split(command)).exit_code == 0
        assert ledger.pauses()


# --------------------------------------------------------------------------- hints of menus and of `run`


@pytest.fixture
def of_link():
    with click.Context(link):
        yield


@pytest.mark.usefixtures("of_link")
@pytest.mark.parametrize(
    ("hint", "followed"),
    [
        ("name who agreed with `tape_agreed: ...` on the link, or use a disk RSE", "use a disk RSE"),
        ("hours are usual; if it is meant: `accept: [rate-outlier]`",
         "hours are usual; if it is meant: `--accept rate-outlier`"),
        ("lower the rates, shorten `lifetime: {min: ...}`, or ask the site for space",
         "lower the rates, or ask the site for space"),
        ("name a file on a local disk, with --ledger or XDG_STATE_HOME",
         "name a file on a local disk, with XDG_STATE_HOME"),
        ("check the campaign's name, or name the file with --ledger", "check the campaign's name"),
        ("take another folder: `files: {folder: ...}`", "take another folder: --folder"),
        ("write `slices: no, or [a, b]`", hints.NONE),
        ("confirm with --allow-admin", "confirm with --allow-admin"),
        ("", ""),
    ],
)  # fmt: skip
def test_link_names_what_its_user_has(hint: str, followed: str) -> None:
    assert hints.adapt_hint(hint) == followed
    assert hints.adapt_hint(followed) == followed, "twice is once"


@pytest.mark.usefixtures("of_link")
def test_no_text_of_the_package_names_a_key_of_a_menu_or_an_option_of_run_to_a_user_of_link() -> None:
    for path in SOURCES:
        for line, text in texts(path):
            is_hint = re.search(r"`\w+: |--[a-z]", text) and " " in text and "\n" not in text
            if path.name.startswith("link") or not is_hint or "dc-inject " in text:
                continue
            hint = hints.adapt_hint(text)
            assert set(re.findall(r"`(\w+): ", hint)) <= NO_KEYS - {"storages", "host"}, f"{path.name}:{line}"
            assert not set(OPTION.findall(hint)) & (OF_RUN - OF_LINK), f"{path.name}:{line}"


@pytest.mark.usefixtures("of_link")
def test_the_address_of_fts_is_an_option_of_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    with pytest.raises(UsageError) as error, hints.translated():
        common.backends({"fts"}, campaign="dc27", clock=SimClock(START), observer=Silent(), timeout=1)
    words = error.value.hint.split("`")[1]
    link.make_context("link", [url("A"), url("B"), "--rate", "1Gb/s", *words.split()])
