"""What `dc-inject link` refuses before it asks a service or writes anything, in words of its own options."""

from __future__ import annotations

from pathlib import Path

import pytest

from dc_inject.ledger import Ledger
from dc_inject.model.errors import LedgerError, UsageError
from tests.apps.link.linking import A, B, signalled
from tests.cli.ledgers import run
from tests.engine.world import url

ASKED = ("--rate", "2Gb/s", "--for", "1h")


def test_a_test_that_runs_is_not_resumed_and_its_menu_stays(service, tmp_path: Path) -> None:
    """The menu that the running one reads at each cycle would end at another time."""
    backend = service()
    run("link", A, B, *ASKED, "--campaign", "mini")
    menu = tmp_path / "dc_inject" / "links" / "mini.yaml"
    before, calls = menu.read_text(), dict(backend.calls)
    with Ledger.open(tmp_path / "dc_inject" / "mini.sqlite") as ledger, ledger.hold("ops"):
        error = run("link", "--resume", "mini", "--for", "2h").exception
    assert isinstance(error, LedgerError)
    assert error.message.startswith("mini is still running: ops, process ")
    assert "`dc-inject link --verdict mini`" in error.hint
    assert (menu.read_text(), backend.calls) == (before, calls)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("--resume", "mini", "--rate", "5Gb/s", "--step", "1Gb/s"),
            "--rate and --step cannot be combined with --resume",
        ),
        ((A, B, "--resume", "mini"), "SRC and DST cannot be combined with --resume"),
        (("--verdict", "mini", "--resume", "mini"), "--resume cannot be combined with --verdict"),
        (("--verdict", "mini", "--for", "1h"), "--for cannot be combined with --verdict"),
    ],
)
def test_what_would_be_ignored_is_refused(service, words: tuple[str, ...], says: str) -> None:
    """Somebody who gives another rate believes that it counts."""
    signalled(service(), "submit", 8)
    run("link", A, B, *ASKED, "--campaign", "mini")
    error = run("link", *words).exception
    assert isinstance(error, UsageError)
    assert error.message == says
    assert error.hint


@pytest.mark.parametrize(
    ("ends", "words", "says"),
    [
        ((A, B), ("--folder", "data"), "--folder is for files through FTS"),
        ((A, B), ("--rate", "1b/s"), "--rate is less than a byte per second"),
        ((A, B), ("--accept", "pool"), "--accept: no finding has the code 'pool'"),
        ((A, B), ("--mean-file", "1..2"), "--mean-file: '1' has no unit"),
        ((A, B), ("--mean-file", "5 GB..1 GB"), "--mean-file: '5 GB..1 GB' has its lower bound above"),
        ((A, B), ("--for", "3s"), "a step of 3 s has less than two cycles of 5 s"),
        ((A, B), ("--cycle", "90.5s"), "--cycle is not of whole seconds"),
        (
            (A, B),
            ("--for", "1h", "--until-saturated", "--max", "9Gb/s", "--every", "10s"),
            "a trial of 2 s, a fifth of --every,",
        ),
        ((url("A"), url("B")), ("--accept", "pool"), "--accept: no finding has the code 'pool'"),
    ],
)
def test_the_option_is_named_and_not_a_place_in_a_menu_that_nobody_wrote(
    service, tmp_path: Path, ends: tuple[str, str], words: tuple[str, ...], says: str
) -> None:
    service()
    error = run("link", *ends, *ASKED, *words).exception
    assert isinstance(error, UsageError)
    assert error.message.startswith(says)
    assert "the menu of" not in f"{error.message} {error.hint}"
    assert error.hint
    assert not (tmp_path / "dc_inject").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--timeout", "0"),
        ("--timeout", "nan"),
        ("--timeout", "1e300"),  # more than a thread can wait
        ("--for", "401d"),
        ("--every", "900000000d"),  # beyond the year 9999
    ],
)
def test_numbers_that_mean_nothing_are_refused(service, words: tuple[str, str]) -> None:
    """A timeout of 0 would pass for a Rucio that cannot be understood."""
    service()
    done = run("link", A, B, *ASKED, *words)
    assert done.exit_code == 2
    assert f"Invalid value for '{words[0]}'" in done.stderr
