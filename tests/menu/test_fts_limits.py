"""What FTS allows at a time against what rates need: rate / speed of one file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.model import Campaign
from dc_inject.model.errors import Problem
from dc_inject.model.transfers import TransferLimit, transfers_needed
from tests.menu.texts import read, text

TOP = {
    "defaults": "defaults: {through: fts, files: {folder: data}}",
    "fts": 'fts: {endpoint: "https://fts.example.org:8446"}',
}
LINK = TransferLimit("davs://a", "davs://b", 130, "default")
INTO = TransferLimit("", "davs://b", 200, "config")
OUT = TransferLimit("davs://a", "", 200, "default")


def campaign(scenarios: str, **parts: str) -> Campaign:
    return menu.campaign([read(text(**{**TOP, "scenarios": scenarios, **parts}))])


def one(rate: str, **parts: str) -> Campaign:
    return campaign(f'scenarios: {{one: {{from: "davs://a:1/x", to: "davs://b:2/y", rate: {rate}}}}}', **parts)


def found(made: Campaign, *limits: TransferLimit, speed: float = 6e6) -> list[str]:
    found = lint.transfer_findings(made, limits, speed)
    return sorted(problem.code for menu_, problem in found if problem.code not in menu_.accept)


def test_what_a_link_needs_and_what_fts_allows_by_default_is_told_with_its_release(wording) -> None:
    """With the 200 of DC24 a link carried almost 10 Gb/s."""
    assert transfers_needed(9.6e9 / 8, 6e6) == 200
    ((_, problem),) = lint.transfer_findings(one("10 Gb/s"), [LINK], 6e6)
    assert isinstance(problem, Problem)
    assert problem.code == "fts-link-limit"
    assert (problem.file, problem.line, problem.needs_accepting) == ("m.yaml", 9, False)
    wording(problem.message)
    assert "accept: [fts-link-limit]" in problem.hint
    ((_, told),) = lint.transfer_findings(
        one("10 Gb/s"), [TransferLimit("davs://a", "davs://b", 100, "config")], 6e6
    )
    assert "and FTS allows 100 (by its configuration); 100 files" in told.message
    assert "--file-speed" in told.hint


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_limit_is_found_if_and_only_if_it_is_below_the_need(most: int, files: int) -> None:
    """With one file more than is allowed, and not with as many."""
    made = one(f"{files * 6} MB/s", limits="limits: {total: 10 Tb/s, per_site: 10 Tb/s}")
    limit = TransferLimit("davs://a", "davs://b", most, "config")
    assert ("fts-link-limit" in found(made, limit)) is (files > most)


def test_faster_files_need_fewer_of_them() -> None:
    """So the speed of a file can be told."""
    assert found(one("40 Gb/s"), LINK, OUT, speed=6e6) == ["fts-link-limit", "fts-storage-limit"]
    assert found(one("40 Gb/s"), LINK, OUT, speed=50e6) == []


def test_all_prefixes_of_two_storages_are_one_link_to_fts() -> None:
    """A port or a path makes no other link; a host does."""
    ends = '["davs://b:2/y", "davs://b:3/z"]'
    shared = campaign(f'scenarios: {{one: {{from: "davs://a/x", to: {ends}, rate: 12 Gb/s}}}}')
    assert found(shared, LINK) == ["fts-link-limit"]
    ends = '["davs://b:2/y", "davs://c:3/z"]'
    apart = campaign(f'scenarios: {{one: {{from: "davs://a/x", to: {ends}, rate: 12 Gb/s}}}}')
    assert found(apart, LINK, INTO) == []
    assert found(apart, OUT) == ["fts-storage-limit"]


def test_what_is_not_at_the_same_time_does_not_add_up() -> None:
    """Two days of 6 Gb/s are not one of 12."""
    day = "scenarios:\n  {}: {{from: 'davs://a/x', to: 'davs://b/y', rate: 6 Gb/s, {}: 2027-02-08 18:00}}"
    first, second = day.format("one", "end"), day.format("two", "start")
    assert found(campaign(f"{first}\n{second.splitlines()[1]}"), LINK, INTO, OUT) == []
    again = second.replace("start: 2027-02-08 18:00", "start: 2027-02-08 17:00").splitlines()[1]
    assert found(campaign(f"{first}\n{again}"), INTO) == ["fts-storage-limit"]


@pytest.mark.parametrize("code", ["fts-link-limit", "fts-storage-limit"])
def test_a_menu_may_accept_it(code: str) -> None:
    """By the code."""
    limit = LINK if code == "fts-link-limit" else INTO
    assert found(one("40 Gb/s"), limit) == [code]
    assert found(one("40 Gb/s", accept=f"accept: [{code}]"), limit) == []


def test_links_through_rucio_do_not_count() -> None:
    """What Rucio's own FTS allows is not ours to ask."""
    made = menu.campaign([read(text())])
    assert found(made, TransferLimit("", "", 1, "default")) == []


def test_the_overhead_needs_transfers_too() -> None:
    """It is injected like all else."""
    limit = TransferLimit("davs://a", "davs://b", 110, "config")
    more = "defaults: {through: fts, files: {folder: data}, overhead: 10 %}"
    assert found(one("660 MB/s"), limit) == []
    assert found(one("660 MB/s", defaults=more), limit) == ["fts-link-limit"]


SHORT = {"end": "end: 2027-02-08 10:10"}


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([LINK], r"\b19 min 30 s\b.*\b66\b.*\b2 a minute"),
        ([], r"\b19 min 30 s\b.*\b66\b.*\b2 a minute"),
        ([TransferLimit("davs://a", "davs://b", 160, "config")], r"\b12 min\b.*\b81\b"),
        ([TransferLimit("davs://a", "davs://b", 200, "config")], ""),
        ([TransferLimit("davs://a", "davs://b", 30, "optimizer")], r"\b37 min 30 s\b.*\b30\b"),
        ([TransferLimit("davs://a", "davs://b", 150, "optimizer")], ""),
    ],
)
def test_a_ramp_is_that_of_the_limits_that_fts_told(limits: list[TransferLimit], words: str) -> None:
    """So `check --online` finds what `check` does, and better where FTS tells more: 105 files at 6 MB/s."""
    made = one("5.04 Gb/s", **SHORT)
    (offline,) = [problem.message for problem in lint.findings(made) if problem.code == "fts-ramp"]
    assert re.search(r"\b66\b", offline)
    assert not [
        problem for problem in lint.findings(made, services_with_limits={"fts"}) if problem.code == "fts-ramp"
    ]
    ramps = [
        problem.message for _, problem in lint.transfer_findings(made, limits, 6e6) if problem.code == "fts-ramp"
    ]
    assert len(ramps) == bool(words)
    assert not words or re.search(words, ramps[0])
