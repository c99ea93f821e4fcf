"""`dc-inject simulate --calibrate`: what was known of a grid is found again in the ledger of a campaign in it."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from dc_inject.apps.twin import calibrating, printing
from dc_inject.apps.twin.grid.grid_file import read
from dc_inject.ledger import Ledger
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.system import files
from tests.cli import ledgers

pytest.importorskip("numpy")  # an extra
GBPS = 1e9 / 8
GRID = """\
grid: 1
name: known
defaults: {link: {file_speed: 25 MB/s, overhead: 5 s}}
fts: {per_storage: 2000}
sites:
  A: {storages: {SOURCE: {}, OTHER: {}}}
  B: {storages: {ROOMY: {}, FAILING: {}}}
  C: {storages: {FULL: {}, SHARED: {write: 2 Gb/s}, LATE: {deletion: {lag: 90 min}},
      BEHIND: {deletion: {seconds_per_file: 20 s, parallel: 1}}}}
links:
  "SOURCE:FULL": {rate: 1.5 Gb/s}
  "OTHER:ROOMY": {file_speed: 5 MB/s, overhead: 60 s}
  "SOURCE:FAILING": {file_speed: 100 MB/s, failures: 60 %}
datasets:
  - {sources: [SOURCE], count: 600, files: 20..60, file_size: 0.2..1.8 GB}
  - {sources: [OTHER], count: 600, files: 5..15, file_size: 0.2..1.8 GB}
"""
MENU = """\
menu: 1
campaign: known
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 18:00
defaults:
  cycle: 15 min
  lifetime: {min: 1 h, max: 2 h}
  datasets: {did: "cms:/*/RAW#*", files: 1..1000, mean_file: 0.1..20 GB}
scenarios:
  full: {from: SOURCE, to: FULL, rate: 2.5 Gb/s}
  roomy: {from: OTHER, to: ROOMY, rate: 0.5 Gb/s}
  failing: {from: SOURCE, to: FAILING, rate: 0.1 Gb/s}
  late: {from: SOURCE, to: LATE, rate: 0.5 Gb/s}
  behind: {from: SOURCE, to: BEHIND, rate: 1 Gb/s}
  shared-one: {from: SOURCE, to: SHARED, rate: 2 Gb/s}
  shared-two: {from: OTHER, to: SHARED, rate: 2 Gb/s, shape: {burst: 1 h, pause: 3 h}}
"""


class Calibrated:
    """A campaign in a grid that is known, and what was calibrated from its ledger."""

    def __init__(self, folder: Path) -> None:
        """Simulate, then calibrate."""
        self.folder, self.ledger, self.file = folder, folder / "past.sqlite", folder / "fitted.yaml"
        (folder / "menu.yaml").write_text(MENU)
        (folder / "grid.yaml").write_text(GRID)
        menu, grid = folder / "menu.yaml", folder / "grid.yaml"
        done = ledgers.run("simulate", menu, "--grid", grid, "--ledger", self.ledger, "--seed", "3")
        assert done.exit_code == 0, done.exception
        self.file.touch()
        self.made, self.done = calibrated(self.ledger, self.file)
        self.text = self.file.read_text()
        self.grid = read(self.text.encode(), "fitted.yaml")


def calibrated(ledger: Path, file: Path) -> tuple[calibrating.Made, Result]:
    """Run the command, which replaces a file; returns what it made, and what it printed."""
    made, calibrate = [], calibrating.calibrate

    def kept(*how: Any, **more: Any) -> calibrating.Made:
        made.append(calibrate(*how, **more))
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrating, "calibrate", kept)
        done = ledgers.run("simulate", "--calibrate", ledger, "-o", file, "--force")
    assert done.exit_code == 0, done.exception
    return made[0], done


@pytest.fixture(scope="module")
def past(tmp_path_factory) -> Calibrated:
    return Calibrated(tmp_path_factory.mktemp("past"))


def lines(text: str, link: str) -> str:
    """What the file says of a link."""
    return text.partition(f'"{link}":\n')[2].partition('\n  "')[0]


def test_the_capacity_of_a_full_link_is_found_within_3_percent(past):
    assert past.grid.links["SOURCE:FULL"].rate == pytest.approx(1.5 * GBPS, rel=0.03)


def test_what_several_links_share_is_found_and_not_blamed_on_them(past):
    assert past.grid.storages["SHARED"].write == pytest.approx(2 * GBPS, rel=0.03)
    assert past.grid.links["OTHER:SHARED"].rate is None
    assert "write of SHARED is full first" in past.text


def test_the_time_of_a_file_is_found_within_10_percent(past):
    """The largest of some files of 1 GB on average takes longer than one of these, by less than that."""
    link = past.grid.links["OTHER:ROOMY"]
    assert link.overhead + 1e9 / link.file_speed == pytest.approx(60 + 1e9 / 5e6, rel=0.1)


def test_a_time_of_a_file_that_hides_behind_daemons_and_looks_is_assumed_to_be_half_of_what_it_is_at_most(past):
    """Rules take as long with any time up to this, so corrections would go on until files take none."""
    assert " only that " in lines(past.text, "SOURCE:LATE")
    assert past.grid.links["SOURCE:LATE"].file_speed == pytest.approx(25e6, rel=0.2)


def test_failures_of_attempts_are_found_within_6_percent_of_all_attempts(past):
    assert past.grid.links["SOURCE:FAILING"].failures == pytest.approx(0.6, abs=0.06)


def test_deletion_lag_is_found_within_a_cycle_and_a_rate_within_10_percent(past):
    assert past.grid.storages["LATE"].delete_lag == pytest.approx(90 * 60, abs=15 * 60)
    behind = past.grid.storages["BEHIND"]
    assert behind.delete_seconds / behind.deleting == pytest.approx(20, rel=0.1)


def test_what_was_never_full_has_no_capacity_and_its_file_says_so(past):
    assert past.grid.links["OTHER:ROOMY"].rate is None
    assert "rate: not known, " in lines(past.text, "OTHER:ROOMY")
    assert "failures: not known; none of " in lines(past.text, "OTHER:ROOMY")
    assert "never fell" in past.text


def test_a_link_without_a_capacity_has_the_highest_rate_that_was_measured(past):
    """In the grid it carries everything, so a simulation has to know up to where that was seen."""
    links = past.grid.links
    assert links["OTHER:ROOMY"].highest_measured == pytest.approx(0.5 * GBPS, rel=0.2)
    assert "highest_measured: " in lines(past.text, "OTHER:ROOMY")
    assert links["SOURCE:FULL"].highest_measured is None  # it has a rate
    assert links["SOURCE:SHARED"].highest_measured is None  # its storage has one


def test_its_own_menu_is_conclusive_and_four_times_as_much_is_not(past):
    def doubtful(*words: object) -> set[str]:
        menu = past.folder / "menu.yaml"
        done = ledgers.run("simulate", menu, "--grid", past.file, "--days", "0.15", "--format", "json", *words)
        assert done.exit_code == 0, done.exception
        return {row["destination"] for row in json.loads(done.stdout)["inconclusive"]}

    assert doubtful() == set()
    assert doubtful("--scale", "4") == {"ROOMY", "FAILING", "LATE", "BEHIND"}


def test_held_out_cycles_are_predicted_within_9_percent_and_the_file_says_so(past, capsys):
    printing.show_calibration("json", past.made)
    told = json.loads(capsys.readouterr().out)
    assert told["held_out"] == told["cycles"] // 3
    assert told["worst_error"] <= 0.09
    assert told["median_error"] <= 0.04
    assert len(told["errors"]) == 6  # on one, nothing moves in these
    assert "median error" in past.text


def test_its_own_menu_is_forecast_within_15_percent_on_each_link(past):
    forecast = past.made.forecast
    assert not isinstance(forecast, str)
    assert len(forecast.links) == 7
    assert all(link.error <= 0.15 for link in forecast.links)


def test_nothing_is_overwritten_without_being_told(past):
    again = ledgers.run("simulate", "--calibrate", past.ledger, "-o", past.file)
    assert isinstance(again.exception, UsageError)
    assert "exists already" in str(again.exception)


def test_that_a_grid_has_no_space_of_disks_is_told_when_it_is_written_and_in_it(past, wording):
    """Whoever simulates in it is told no disk is full, and believes it."""
    warning = past.done.stderr.splitlines()[-1]
    wording(warning)
    text = warning.removeprefix("warning: ")
    assert f"# {text[0].upper()}{text[1:]}." in past.file.read_text().splitlines()


def test_for_people_it_says_what_was_fitted(past, capsys):
    printing.show_calibration("table", past.made)
    told = capsys.readouterr().out
    assert "3 of 7 capacities" in told
    assert "at times" not in told
    assert "by link: median" in told


def test_a_link_that_was_full_at_times_only_is_told_apart(past, capsys):
    """The grid carries all that is asked there; held-out cycles do not show it, being told what went out."""
    fit, ends = past.made.calibrated.fit, ("OTHER", "ROOMY")
    link = replace(fit.links[ends], rate=replace(fit.links[ends].rate, count=16))
    fit = replace(fit, links={**fit.links, ends: link})
    made = replace(past.made, calibrated=replace(past.made.calibrated, fit=fit))
    printing.show_calibration("table", made)
    told = capsys.readouterr().out
    assert ": OTHER -> ROOMY\nhint: " in told
    printing.show_calibration("json", made)
    assert json.loads(capsys.readouterr().out)["full_at_times"] == [{"source": "OTHER", "destination": "ROOMY"}]


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_fitted(tmp_path, wording):
    error = ledgers.run("simulate", "--calibrate", "any", "-o", tmp_path / "nowhere" / "grid.yaml").exception
    wording(str(error))


def test_a_full_disk_is_told_from_a_path_that_is_wrong(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device") as refused:
        files.write_whole(tmp_path / "grid.yaml", "grid: 1\n", force=False)
    assert "df -h" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_files_is_refused_before_anything_is_fitted(wording):
    """Also for root, who has the right to write everywhere."""
    error = ledgers.run("simulate", "--calibrate", "any", "-o", "/proc/grid.yaml").exception
    wording(str(error))


IGNORED = (
    ("--days", "1"),
    ("--seed", "2"),
    ("--seeds", "3"),
    ("--policy", "act"),
    ("--ledger", "kept.sqlite"),
    ("--link", "A -> B"),
    ("--scale", "2"),
    ("--grid", __file__),
)


@pytest.mark.parametrize("words", [*IGNORED, ("menu.yaml",)], ids=lambda words: words[0])
def test_what_would_be_ignored_is_refused(words, tmp_path):
    """Somebody who gives it believes that it counts, and learns so before a campaign is asked for."""
    error = ledgers.run("simulate", "--calibrate", "never-ran", "-o", tmp_path / "grid.yaml", *words).exception
    assert isinstance(error, UsageError)
    called = words[0] if words[0].startswith("--") else "MENUS"
    assert error.message.startswith(f"{called} ")
    assert "--calibrate dc27-rehearsal" in str(error.hint)


def test_the_file_of_a_grid_has_to_be_named(wording):
    error = ledgers.run("simulate", "--calibrate", "never-ran").exception
    assert isinstance(error, UsageError)
    wording(error.message)


def test_what_cannot_be_calibrated_is_told(tmp_path, past, wording):
    def error(*words):
        return ledgers.run("simulate", "--calibrate", *words, "-o", tmp_path / "grid.yaml").exception

    assert isinstance(error("never-ran"), LedgerError)
    (broken := tmp_path / "broken.sqlite").write_text("no ledger")
    assert isinstance(error(broken), LedgerError)
    with Ledger.open(tmp_path / "empty.sqlite"):
        pass
    wording(str(error(tmp_path / "empty.sqlite")))
    short = ledgers.make(tmp_path / "short.sqlite", {ledgers.KIT: 3})
    assert "too few" in str(error(short.path))
    assert not (tmp_path / "grid.yaml").exists()
    assert ledgers.run("simulate").exit_code == 2
