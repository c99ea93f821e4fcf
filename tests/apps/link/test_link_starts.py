"""What `dc-inject link` refuses before anything begins, what bounds it, and what it says when services fail."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.apps.data.command import make
from dc_inject.apps.link import challenges
from dc_inject.model import Entry
from dc_inject.model.errors import DcInjectError, ServiceError, Temporary, UsageError
from dc_inject.model.ports import Removal
from tests.apps.link.linking import SEARCH, A, B
from tests.cli.ledgers import START, run
from tests.engine.world import GB, items, source_files, url
from tests.wording import lines


def nothing_left(tmp_path: Path) -> bool:
    """Whether neither a ledger nor a menu was made."""
    return [path for path in tmp_path.rglob("*") if path.is_file()] == []


def refused(*words: str, text: str | None = None) -> DcInjectError:
    """The error of a mini-challenge that does not begin."""
    error = run("link", *words, text=text).exception
    assert isinstance(error, DcInjectError), error
    return error


def test_a_high_rate_has_to_be_meant(service, tmp_path: Path, wording) -> None:
    """Typed wrong, it would have begun: 10 Gb/s is asked about, and where nobody is, an option has to say it."""
    backend = service(stock={A: items(A, 300, 50 * GB)})
    error = refused(A, B, "--rate", "30Tb/s", "--for", "20m")
    assert error.exit_code == 2
    wording(error)
    assert "--max 30Tb/s" in error.hint
    assert "--yes" in error.hint
    assert nothing_left(tmp_path)
    assert backend.calls == {}, "nobody was asked yet"
    assert "20 Gb/s" in run("link", A, B, "--rate", "20Gb/s", "--for", "12m", text="n\n").stderr
    for more in (("--max", "20Gb/s"), ("--yes",)):
        done = run("link", A, B, "--rate", "20Gb/s", "--for", "12m", *more, "--campaign", f"c{len(more)}")
        assert done.exit_code == 0, done.exception
    assert run("link", A, B, "--rate", "20Gb/s", "--for", "12m", text="y\n").exit_code == 0
    assert "more than" not in run("link", A, B, "--rate", "10Gb/s", "--for", "12m", "--campaign", "d").stderr


def test_steps_count_by_their_highest_rate(service, tmp_path: Path) -> None:
    """Which is what the sites will see."""
    service()
    steps = ("--step", "4Gb/s", "--every", "30m", "--for", "2h")
    assert "14 Gb/s is above 10 Gb/s" in refused(A, B, "--rate", "2Gb/s", *steps).message
    assert nothing_left(tmp_path)


def test_what_the_source_does_not_have_is_told_before_anything_begins(service, tmp_path: Path) -> None:
    """With both numbers, the options that help, and a way to say that it is meant."""
    service(stock={A: items(A, 105, 10 * GB)})
    wanted = (A, B, "--rate", "30Gb/s", "--for", "20m", "--yes")
    error = refused(*wanted)
    assert error.exit_code == 2
    assert "30 Gb/s for 20 min needs 4.5 TB" in error.message
    assert f"{A} has 1.05 TB in 105 datasets that fit" in error.message
    for option in ("--did", "--mean-file", "--rate", "--for", "--accept pool-small"):
        assert option in error.hint
    assert nothing_left(tmp_path)
    assert "menu: " in run("link", *wanted, "--accept", "pool-small").stderr


@pytest.mark.parametrize(
    ("more", "helps"),
    [
        (("--mean-file", "1..2 GB"),
         ("--mean-file", "0.2..20GB")),
        (("--did", "cms:/wrong/*"),
         ("--did", f"cms:/{A}/*")),
    ],
)  # fmt: skip
def test_bounds_that_nothing_fits_are_told_with_what_is_there(
    service, tmp_path: Path, more, helps, wording
) -> None:
    """At once, not after two cycles; and the option that the hint names mends it."""
    service(stock={A: items(A, 300, 10 * GB)})
    error = refused(A, B, "--rate", "2Gb/s", "--for", "1h", *more)
    wording(error)
    assert helps[0] in error.hint
    assert nothing_left(tmp_path)
    mended = run("link", A, B, "--rate", "2Gb/s", "--for", "1h", *helps)
    assert mended.exit_code == 0, mended.exception


def test_bounds_that_are_proposed_are_round_and_nothing_absurd_is_made_for_others(service) -> None:
    """Both ends are inside; who asks for files of 1 kB has mistaken a unit, and needs no millions of them."""
    service(stock={A: items(A, 300, 10 * GB + 12_345)})
    hint = refused(A, B, "--rate", "2Gb/s", "--for", "1h", "--mean-file", "1..2 kB").hint
    assert hint == "--mean-file 200MB..210MB"


def test_a_source_without_any_dataset_is_told_as_that(service, tmp_path: Path, wording) -> None:
    service(stock={A: []})
    wording(refused(A, B, "--rate", "2Gb/s", "--for", "1h").message)
    assert nothing_left(tmp_path)


def test_an_rse_that_is_not_known_is_told_with_its_like(service, tmp_path: Path) -> None:
    service()
    error = refused("T1_UK_RAL_Disc", B, "--rate", "2Gb/s", "--for", "1h")
    assert error.exit_code == 2
    assert "T1_UK_RAL_Disc" in error.message
    assert A in error.hint
    assert nothing_left(tmp_path)


def test_a_campaign_that_there_is_already_is_told_with_ways_that_work(service, wording) -> None:
    """No option of another command."""
    service(stock={A: items(A, 300, 50 * GB)})
    wanted = (A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign")
    assert run("link", *wanted, "mini").exit_code == 0
    error = refused(*wanted, "mini")
    assert "--force" not in f"{error.message} {error.hint}"
    wording(error.hint)
    assert "every step" in run("link", "--verdict", "mini").stdout
    wording(refused("--resume", "mini").message)
    assert run("link", *wanted, "other").exit_code == 0


def test_findings_name_the_option_that_accepts_them(service, tmp_path: Path) -> None:
    """There is no menu yet that one could edit."""
    service(stock={A: items(A, 300, 50 * GB)})
    done = run("link", A, B, "--rate", "40Gb/s", "--for", "12m", "--max", "40Gb/s", "--accept", "pool-small")
    assert "[fts-link-limit]" in done.stderr
    assert "--accept fts-link-limit" in done.stderr
    assert "accept: [" not in done.stderr
    done = run("link", A, B, "--rate", "40Gb/s", "--for", "12m", "--max", "40Gb/s", "--accept", "pool-small",
               "--accept", "fts-link-limit", "--campaign", "two")  # fmt: skip
    assert "fts-link-limit" not in done.stderr


@pytest.mark.parametrize(("accept", "warned"), [((), True), (("--accept", "fts-ramp"), False)])
def test_steps_that_are_over_before_fts_has_grown_to_them_are_warned_of(service, accept, warned: bool) -> None:
    """What moves in them is FTS's ramp; what few transfers carry needs none."""
    service()
    steps = ("--rate", "5Gb/s", "--step", "1Gb/s", "--every", "12m", "--for", "24m", "--accept", "pool-small")
    done = run("link", A, B, *steps, *accept)
    assert ("19 min 5 s" in done.stderr) is warned
    assert "fts-ramp" not in run("link", A, B, "--rate", "2Gb/s", "--for", "12m", "--campaign", "few").stderr


def test_the_space_is_half_of_what_is_free_and_bounds_what_is_there(service, wording) -> None:
    """It slows down, and says why, instead of filling a site."""
    most = [0]
    backend = service(space={B: 400 * GB}, deletion_lag=timedelta(minutes=20))

    def fault(method: str, _subject: object) -> None:
        there = {id(rule): rule.injection.item.bytes for rule in backend._there.values()}
        most[0] = max(most[0], sum(there.values()))

    backend.fault = fault
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini", "--format", "json")
    told = json.loads(done.stdout)
    assert told["space"] == 200 * GB
    wording(lines(done.stderr, "200 GB", "400 GB"))
    assert "of 200 GB" in done.stderr
    assert 0 < most[0] <= 200 * GB
    assert (told["outcome"], told["cause"]) == ("inconclusive", "destination-full")
    assert isinstance(done.exception, UsageError)
    assert "--space" in done.exception.hint


def test_a_space_that_is_not_free_is_refused(service, tmp_path: Path, wording) -> None:
    service(space={B: 400 * GB})
    error = refused(A, B, "--rate", "1Gb/s", "--for", "1h", "--space", "500GB")
    wording(error.message)
    assert nothing_left(tmp_path)
    assert run("link", A, B, "--rate", "1Gb/s", "--for", "1h", "--space", "300GB").exit_code == 0


@pytest.mark.parametrize("space", [("--space", "9GB"), ()])
def test_a_space_in_which_no_dataset_fits_is_refused(
    service, tmp_path: Path, space: tuple[str, ...], wording
) -> None:
    """It would run, and be held by a full destination."""
    service(space={B: 18 * GB})
    error = refused(A, B, "--rate", "1Gb/s", "--for", "1h", *space)
    assert error.exit_code == 2
    wording(error)
    assert "--mean-file" in error.hint
    assert nothing_left(tmp_path)


def test_a_storage_that_is_away_at_the_start_is_no_mistake_of_ours(service, tmp_path: Path, wording) -> None:
    """As a service that is."""
    service(unwritable={B})
    error = refused(A, B, "--rate", "1Gb/s", "--for", "1h")
    assert (type(error), error.exit_code) == (ServiceError, 4)
    wording(error.message)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("more", [(), ("--mean-file", "0.3..1 GB")])
def test_too_little_to_inject_is_told_with_how_to_make_more(service, more: tuple[str, ...], wording) -> None:
    """Whether nothing fits or not enough, by who may, with options that there are."""
    service(stock={A: items(A, 1, GB // 2)})
    error = refused(A, B, "--rate", "100Mb/s", "--for", "8m", *more)
    words = error.hint.split("`dc-inject data make ")[1].split("`")[0].split()
    assert words == [A, "rehearsal", "--files", "25", "--size", "300MB", "--dataset-files", "1"]
    assert make.make_context("make", [*words, "--dry-run"])
    assert "--dry-run" in error.hint
    wording(error.hint)
    assert "data make" not in refused(A, B, "--rate", "9Gb/s", "--for", "1h", *more).hint, "too much to make"


def test_an_empty_folder_is_told_with_how_to_fill_one(service) -> None:
    """Where `data make` puts its files, from which this command takes them then."""
    service(stock={url("A"): []}, name="fts")
    wanted = (url("A"), url("B"), "--rate", "100Mb/s", "--for", "8m", "--fts", "https://fts.example.org:8446")
    hint = refused(*wanted).hint
    assert hint.startswith("see --folder; ")
    assert "--did" not in hint, "an option for datasets"
    words = hint.split("`dc-inject data make ")[1].split("`")[0].split()
    assert words == [url("A"), "rehearsal", "--files", "25", "--size", "300MB"]
    assert hint.endswith("--folder dc_inject-data/rehearsal/25x300000000")
    assert make.make_context("make", [*words, "--dry-run"])


def test_going_on_for_less_than_two_cycles_says_how_long_it_takes_at_least(service) -> None:
    backend = service()
    backend.fault = lambda method, _subject: signal.raise_signal(signal.SIGINT) if method == "submit" else None
    run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign", "mini")
    error = refused("--resume", "mini", "--for", "1m")
    assert (error.message, error.hint) == (
        "--for 1 min is less than two cycles of mini", "it needs at least 20 min",
    )  # fmt: skip


def test_a_service_that_is_away_ends_with_its_own_exit_code(service) -> None:
    """And with the hint that works when it is back."""
    backend = service(8)

    def fault(method: str, subject: object) -> None:
        del subject
        if START + timedelta(minutes=30) <= backend.clock.now() < START + timedelta(minutes=60):
            raise Temporary("no connection")

    backend.fault = fault
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini")
    assert isinstance(done.exception, ServiceError)
    assert done.exception.exit_code == 4
    assert done.exception.message == "mini: inconclusive (api-errors)"
    assert "inconclusive: 1 of 1 step inconclusive: at 4 Gb/s Rucio did not answer" in done.stdout
    assert "no connection" in done.stdout
    assert "(10:3" in done.stdout, "when it was"
    words = done.exception.hint.split("`")[1].split()
    assert words[-4:] == ["--resume", "mini", "--for", "1h"], "as long as the step that it repeats"
    backend.fault = lambda _method, _subject: None
    on = run(*words[1:])
    assert on.exit_code == 0, on.exception
    assert "every step" in on.stdout


def test_a_verdict_needs_a_mini_challenge(service, tmp_path: Path) -> None:
    service(stock={A: items(A, 300, 50 * GB)})
    run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign", "mini")
    error = run("link", "--verdict", "minj").exception
    assert isinstance(error, DcInjectError)
    assert "mini" in (error.hint or "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((A, "--rate", "2Gb/s"), "DST is missing"),
        ((A, B), "--rate is missing"),
        ((), "SRC and DST and --rate are missing"),
    ],
)
def test_what_is_missing_is_named(words: tuple[str, ...], said: str) -> None:
    assert refused(*words, "--for", "1h").message == said


def test_the_brake_is_the_one_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "test-one-link.md").read_text()
    assert f"Above {challenges.BRAKE * 8 / 1e9:.0f} Gb/s" in page


@pytest.mark.parametrize(("stopped", "patience"), [(True, "15 s"), (False, "2 min")])
def test_who_stops_it_does_not_wait_for_a_storage_that_does_not_answer(
    service, stopped: bool, patience: str
) -> None:
    """What is left there is told; without a stop there is time."""
    source, destination = url("A"), url("B")
    backend = service(5, name="fts", stock=source_files("A", 300, GB))
    calls = []

    def fault(method: str, subject: object) -> None:
        del subject
        calls.append(method)
        if stopped and calls.count("submit") == 10:
            calls.append("submit")  # once
            signal.raise_signal(signal.SIGINT)

    def mute(entries: Sequence[Entry]) -> list[Removal]:
        backend.clock.advance(backend.clock.now() + timedelta(seconds=5))
        return [Removal(e.injection.key, gone=False, error=Temporary("no answer in time")) for e in entries]

    backend.fault, backend.remove = fault, mute
    fts = ("--fts", "https://fts.example.org:8446", "--folder", "x", "--campaign", "mini")
    done = run("link", source, destination, "--rate", "2Gb/s", "--for", "12m", *fts)
    assert f"waiting for {destination}: " in done.stderr
    assert f" after {patience} " in done.stderr
    assert done.stderr.endswith(" `dc-inject end mini --cancel`\n")


def test_too_few_rules_an_hour_are_told_of_before_and_never_taken_for_the_link(
    service, tmp_path: Path, wording
) -> None:
    """125 rules of 4 GB an hour are 1.11 Gb/s; the link carries 5."""
    service(5, stock={A: items(A, 2_500, 4 * GB, files=4)})
    search = ("link", A, B, "--rate", "2Gb/s", *SEARCH, "--cancel-rate", "60/min")
    done = run(*search, "--campaign", "few", "--rules-per-hour", "125")
    wording(lines(done.stderr, "--rules-per-hour 1013"))
    assert done.exception.message == "few: inconclusive (campaign-limit)"
    assert "limit=rules_per_hour" in done.stdout
    assert "--rules-per-hour" in done.exception.hint
    more = run(*search, "--campaign", "more", "--rules-per-hour", "1013")
    assert "an hour are" not in more.stderr
    assert "capacity 5" in more.stdout
    menu_of = (tmp_path / "dc_inject" / "links" / "more.yaml").read_text()
    assert "rules_per_hour: 1013" in menu_of


def test_through_fts_jobs_are_made_as_large_as_their_number_needs(service) -> None:
    service(stock=source_files("A", 100), name="fts")
    done = run(
        "link", url("A"), url("B"), "--fts", "https://fts.example.org:8446", "--rate", "9Gb/s", "--for", "1h"
    )
    assert "rules-per-hour" not in done.stderr


def test_a_search_tells_before_how_much_space_it_takes(service, wording) -> None:
    """With so much it is never held; with less it is, or could be."""
    service(8.5)
    search = ("link", A, B, "--rate", "2Gb/s", *SEARCH, "--cancel-rate", "60/min")
    done = run(*search, "--campaign", "less", "--space", "150GB")
    wording(lines(done.stderr, "962 Mb/s"))
    assert done.exception.message == "less: inconclusive (destination-full)"
    (space,) = re.findall(r"\(--space (\S+), if the site agrees, or a lower --max\)", done.stderr)
    enough = run(*search, "--campaign", "enough", "--space", space)
    assert "is enough" not in enough.stderr
    assert "capacity 8.5 Gb/s" in enough.stdout


@pytest.mark.parametrize(("rate", "rules"), [("9Mb/s", 0), ("12Mb/s", 1)])
def test_a_rate_at_which_no_dataset_would_ever_go_out_is_refused(service, rate: str, rules: int) -> None:
    """A typing error of Mb/s for Gb/s: a step of 30 min has half of a dataset of 5 GB at 11.1 Mb/s."""
    backend = service(stock={A: items(A, 300, 5 * GB)})
    error = run("link", A, B, "--rate", rate, "--for", "30m", "--campaign", "low").exception
    assert len(backend.rules) == rules
    assert isinstance(error, UsageError) == (rules == 0)
