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


def test_a_test_that_runs_is_not_resumed_and_its_menu_stays(service, tmp_path: Path, wording) -> None:
    """The menu that the running one reads at each cycle would end at another time."""
    backend = service()
    run("link", A, B, *ASKED, "--campaign", "mini")
    menu = tmp_path / "dc_inject" / "links" / "mini.yaml"
    before, calls = menu.read_text(), dict(backend.calls)
    with Ledger.open(tmp_path / "dc_inject" / "mini.sqlite") as ledger, ledger.hold("ops"):
        error = run("link", "--resume", "mini", "--for", "2h").exception
    assert isinstance(error, LedgerError)
    assert "ops, process " in error.message
    wording(error.hint)
    assert (menu.read_text(), backend.calls) == (before, calls)


@pytest.mark.parametrize(
    "words",
    [
        ("--resume", "mini", "--rate", "5Gb/s", "--step", "1Gb/s"),
        (A, B, "--resume", "mini"),
        ("--verdict", "mini", "--resume", "mini"),
        ("--verdict", "mini", "--for", "1h"),
    ],
)
def test_what_would_be_ignored_is_refused(service, words: tuple[str, ...], wording) -> None:
    """Somebody who gives another rate believes that it counts."""
    signalled(service(), "submit", 8)
    run("link", A, B, *ASKED, "--campaign", "mini")
    error = run("link", *words).exception
    assert isinstance(error, UsageError)
    wording(error)
    assert error.hint


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((A, B), ("--folder", "data")),
        ((A, B), ("--rate", "1b/s")),
        ((A, B), ("--accept", "pool")),
        ((A, B), ("--mean-file", "1..2")),
        ((A, B), ("--mean-file", "5 GB..1 GB")),
        ((A, B), ("--for", "3s")),
        ((A, B), ("--cycle", "90.5s")),
        (
            (A, B),
            ("--for", "1h", "--until-saturated", "--max", "9Gb/s", "--every", "10s"),
        ),
        ((url("A"), url("B")), ("--accept", "pool")),
    ],
)
def test_the_option_is_named_and_not_a_place_in_a_menu_that_nobody_wrote(
    service, tmp_path: Path, ends: tuple[str, str], words: tuple[str, ...], wording
) -> None:
    service()
    error = run("link", *ends, *ASKED, *words).exception
    assert isinstance(error, UsageError)
    wording(error)
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
