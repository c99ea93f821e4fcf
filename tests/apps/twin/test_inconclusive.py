"""Links that a grid does not predict: `--calibrate` names them, and no simulation gives an all-clear for them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dc_inject.apps.twin import calibrating, forecast, printing
from dc_inject.apps.twin.grid.grid_file import read
from dc_inject.model import FlowKey, Link
from tests.cli import ledgers
from tests.wording import lines

pytest.importorskip("numpy")  # an extra
SCENARIOS = Path(__file__).parents[3] / "menus" / "twin"
FAILING = SCENARIOS / "failing-transfers"
LINK = "IHEP_Disk:T1_IT_CNAF_Disk"
TROUBLE = "troubles: [{fault: failures, subject: T1_IT_CNAF_Disk, at: 3 h, for: 90 min, part: 40 %}]\n"
MENU = """\
menu: 1
campaign: three
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 12:00
defaults:
  cycle: 15 min
  lifetime: {min: 1 h, max: 2 h}
  datasets: {did: "cms:/*/RAW#*", files: 1..1000, mean_file: 0.1..20 GB}
scenarios:
  test: {from: A, to: [FULL, FREE, DOWN], rate: 3 Gb/s}
"""
GRID = """\
grid: 1
name: doubtful
sites: {X: {storages: {A: {}}}, Y: {storages: {FULL: {space: 100 TB}, FREE: {space: 100 TB}, DOWN: {space: 1 TB}}}}
links: {"A:FULL": {rate: 0.2 Gb/s}}
datasets: [{sources: [A], count: 300, files: 5..20, file_size: 0.5..1 GB}]
"""


def run(*words: object) -> str:
    done = ledgers.run("simulate", *words)
    assert done.exit_code == 0, done.exception
    return done.stdout


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> tuple[calibrating.Made, Path]:
    """What was fitted to the ledger of a link from which FTS took its transfers, and the grid file of it."""
    folder = tmp_path_factory.mktemp("failing")
    ledger, grid = folder / "past.sqlite", folder / "fitted.yaml"
    (folder / "grid.yaml").write_text((FAILING / "grid.yaml").read_text() + TROUBLE)
    how = ("--days", 0.2, "--seed", 3, "--policy", "off", "--ledger", ledger)
    run(FAILING / "menu.yaml", "--grid", folder / "grid.yaml", *how)
    return calibrating.calibrate(str(ledger), grid, lambda _: None, force=False), grid


def test_a_grid_that_missed_what_moved_gives_no_all_clear(calibrated):
    """Its transfers fail, and when FTS takes them away is chance: held-out cycles moved twice the prediction."""
    _, grid = calibrated
    said = run(FAILING / "menu.yaml", "--grid", grid, "--days", 0.1).splitlines()
    assert [line for line in said if "no link" in line] == []
    assert "; inconclusive for 1 of 1 link" in said[-3]
    (row,) = [line for line in said if read(grid.read_bytes(), "grid").inconclusive[LINK] in line]
    assert row.startswith("test ")


def test_the_file_says_of_which_links_nothing_is_known_and_how_far_off_they_were(calibrated, wording):
    _, grid = calibrated
    reason = read(grid.read_bytes(), "grid").inconclusive[LINK]
    wording(reason)
    wording(lines(grid.read_text(), "# ", "more than 10 %"))


def test_a_calibration_says_in_words_which_errors_are_too_large(calibrated, capsys, wording):
    made, grid = calibrated

    def shown(fmt: str) -> str:
        printing.show_calibration(fmt, made)
        return str(capsys.readouterr().out)

    said = shown("table")
    wording([*lines(said, "1 of 1 link"), *lines(said, "hint: ")])
    (link,) = json.loads(shown("json"))["inconclusive"]
    written = read(grid.read_bytes(), "grid").inconclusive
    assert {f"{link['source']}:{link['destination']}": link["why"]} == written
    (row,) = csv.DictReader(io.StringIO(shown("csv")))
    assert row["inconclusive"] == link["why"]


@pytest.fixture
def three(tmp_path) -> Path:
    (tmp_path / "menu.yaml").write_text(MENU)
    (tmp_path / "grid.yaml").write_text(GRID)
    return tmp_path


def last(folder: Path, *inconclusive: str) -> str:
    """The verdict on three links, one of which is short."""
    entries = ", ".join(f'"{link}": an outage' for link in inconclusive)
    (folder / "grid.yaml").write_text(f"{GRID}inconclusive: {{{entries}}}\n")
    verdict = run(folder / "menu.yaml", "--grid", folder / "grid.yaml").splitlines()[-2]
    return verdict.partition("; ")[2]


def test_the_verdict_has_links_of_which_nothing_is_known_beside_those_that_will_be_short(three, wording):
    assert last(three).startswith("1 of 3 ")
    wording(last(three, "A:DOWN"))
    (three / "menu.yaml").write_text(MENU.replace("FULL, ", ""))
    wording(last(three, "A:DOWN"))
    wording(last(three, "*:DOWN", "A:*"))


@pytest.mark.parametrize("seeds", [1, 2])
def test_programs_and_several_seeds_have_them_and_no_cause_of_a_short_one_goes_without_a_warning(three, seeds):
    (three / "grid.yaml").write_text(f'{GRID}inconclusive: {{"A:FULL": an outage}}\n')
    words = (three / "menu.yaml", "--grid", three / "grid.yaml", "--seeds", seeds)
    told = json.loads(run(*words, "--format", "json"))
    ends = {"scenario": "test", "source": "A", "destination": "FULL"}
    assert told["inconclusive"] == [ends | {"why": "an outage"}]
    (short,) = told["forecast"]
    assert short["why"].startswith("inconclusive: ")
    assert "; backlog" in short["why"]
    assert [cause["kind"] for cause in short["causes"]][:2] == ["inconclusive", "hold"]
    assert "\ninconclusive  source  destination  why\ntest          A       FULL         an outage\n" in run(
        *words
    )


beyond = forecast.UNMEASURED.format


def measured(folder: Path, links: str, *words: object) -> dict[str, str]:
    """What is inconclusive, and why, in a grid with these links; the menu asks for 1 Gb/s on each."""
    (folder / "grid.yaml").write_text(GRID.replace('{"A:FULL": {rate: 0.2 Gb/s}}', links))
    told = json.loads(run(folder / "menu.yaml", "--grid", folder / "grid.yaml", "--format", "json", *words))
    return {row["destination"]: row["why"] for row in told["inconclusive"]}


@pytest.mark.parametrize("seeds", [1, 2])
def test_what_a_link_moves_beyond_the_highest_rate_that_was_measured_is_inconclusive(three, seeds, wording):
    """Without a `rate` a link carries everything in a grid, also what it never carried."""
    link = '{"A:FREE": {highest_measured: 0.5 Gb/s}}'
    found = measured(three, link, "--seeds", seeds)
    assert found.keys() == {"FREE"}
    wording(found["FREE"])
    assert seeds > 1 or measured(three, link, "--scale", 0.5) == {}
    assert seeds > 1 or measured(three, '{"A:FREE": {highest_measured: 0.95 Gb/s}}') == {}


def test_a_link_that_is_due_more_than_was_measured_and_moves_no_more_is_short_and_nothing_else(three):
    assert measured(three, '{"A:FULL": {rate: 0.2 Gb/s, highest_measured: 0.2 Gb/s}}') == {}


def test_attempts_that_fail_count_in_the_rate_that_was_measured(three):
    assert measured(three, '{"A:FREE": {highest_measured: 1 Gb/s}}') == {}
    failing = '{"A:FREE": {highest_measured: 1 Gb/s, failures: 20 %}}'
    assert measured(three, failing) == {"FREE": beyond("1 Gb/s")}


def test_scenarios_that_share_a_link_count_together(three):
    more = "  more: {from: A, to: FREE, rate: 0.4 Gb/s}\n"
    (three / "menu.yaml").write_text(MENU.replace("3 Gb/s", "1.2 Gb/s") + more)
    assert measured(three, '{"A:FREE": {highest_measured: 0.5 Gb/s}}') == {"FREE": beyond("500 Mb/s")}
    (three / "menu.yaml").write_text(MENU.replace("3 Gb/s", "1.2 Gb/s"))
    assert measured(three, '{"A:FREE": {highest_measured: 0.5 Gb/s}}') == {}


def test_a_link_with_both_reasons_has_one_row(three):
    links = '{"A:FREE": {highest_measured: 0.5 Gb/s}}\ninconclusive: {"A:FREE": an outage}'
    assert measured(three, links) == {"FREE": f"an outage; {beyond('500 Mb/s')}"}


def test_seeds_tell_the_most_that_one_of_them_tells():
    """A link may move more than was ever measured with some seeds only."""
    row = {"scenario": "s", "source": "A", "destination": "B", "why": "an outage"}
    more, other = row | {"why": f"an outage; {beyond('1 Gb/s')}"}, row | {"destination": "A"}
    assert forecast.merge_seeds([[row], [more, other], []]) == [other, more]


def test_links_through_fts_go_by_the_hosts_of_their_storages():
    grid = read(GRID.replace("A: {}", "A: {host: a.example.org}").encode() + b'inconclusive: {"A:FREE": why}', "g")
    keys = [FlowKey("test", Link(f"davs://{host}.example.org/data", "FREE", "fts")) for host in ("a", "b")]
    (row,) = forecast.inconclusive_links(keys, grid)
    assert (row["source"], row["why"]) == ("davs://a.example.org/data", "why")
