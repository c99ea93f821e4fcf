"""`dc-inject simulate --calibrate` after an incident: what happened for a while is no figure of the grid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dc_inject.apps.twin.grid.grid_file import read
from tests.cli import ledgers

pytest.importorskip("numpy")  # an extra
GBPS = 1e9 / 8
GRID = """\
grid: 1
name: incident
defaults: {link: {file_speed: 30 MB/s, overhead: 10 s}}
sites:
  A: {storages: {SOURCE: {}}}
  B: {storages: {SINK: {}}}
datasets:
  - {sources: [SOURCE], count: 400, files: 10..60, file_size: 2..5 GB}
"""
DOWN = """\
links: {"SOURCE:SINK": {failures: 1 %}}
troubles: [{fault: storage-down, subject: SINK, at: 2 h, for: 1 h}]
"""
CUT = """\
links: {"SOURCE:SINK": {rate: 12 Gb/s}}
troubles: [{fault: capacity, subject: "SOURCE:SINK", at: 2 h, for: 135 min, part: 30 %}]
"""
MENU = """\
menu: 1
campaign: incident
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 16:00
defaults:
  cycle: 15 min
  lifetime: {min: 1 h, max: 2 h}
  datasets: {did: "cms:/*/RAW#*", files: 1..1000, mean_file: 1..20 GB}
scenarios:
  test: {from: SOURCE, to: SINK, rate: RATE}
"""


def fitted(folder: Path, incident: str, rate: str, seed: int) -> tuple[str, str]:
    """The grid file fitted to a campaign with an incident, and what was printed."""
    menu, grid, ledger, file = (folder / name for name in ("menu.yaml", "grid.yaml", "past.sqlite", "fitted.yaml"))
    menu.write_text(MENU.replace("RATE", rate))
    grid.write_text(GRID + incident)
    for words in ((menu, "--grid", grid, "--ledger", ledger, "--seed", seed), ("--calibrate", ledger, "-o", file)):
        done = ledgers.run("simulate", *words)
        assert done.exit_code == 0, done.exception
    return file.read_text(), done.stdout


def outside(text: str) -> list[str]:
    """The fitted values that are not in the range that is given for them."""
    number, wrong = r"([\d.]+) (?:%|[MG]b?B?/s)", []
    for line in re.findall(rf"\w+: {number}  # fitted.*\({number} to {number}", text):
        value, low, high = map(float, line)
        if not low <= value <= high:
            wrong.append(str(line))
    return wrong


@pytest.fixture(scope="module")
def down(tmp_path_factory) -> str:
    return fitted(tmp_path_factory.mktemp("down"), DOWN, "2 Gb/s", 2)[0]


@pytest.fixture(scope="module")
def cut(tmp_path_factory) -> tuple[str, str]:
    return fitted(tmp_path_factory.mktemp("cut"), CUT, "10 Gb/s", 1)


def test_files_that_failed_while_a_storage_was_down_are_no_rate_of_failures(down):
    assert "# failures: not " in down
    assert read(down.encode(), "fitted.yaml").links["SOURCE:SINK"].failures == 0


def test_a_fitted_value_is_within_its_range_though_replays_have_corrected_it(down):
    assert outside(down) == []


def test_the_time_of_a_file_is_found_on_a_link_with_an_incident(down):
    """At 30 MB/s and 10 s, files of 3.5 GB take 127 s, and more with the retries of 1 % of the attempts."""
    link = read(down.encode(), "fitted.yaml").links["SOURCE:SINK"]
    assert 100 <= link.overhead + 3.5e9 / link.file_speed <= 190


def test_what_a_link_carried_with_and_without_an_incident_is_no_capacity(cut):
    text, _ = cut
    link = read(text.encode(), "fitted.yaml").links["SOURCE:SINK"]
    assert link.rate is None
    assert link.highest_measured == pytest.approx(12 * GBPS, rel=0.1)
    assert re.search(
        r"# rate: not known; in \d+ cycles files waited all the time, and it carried 3\.\d+ Gb/s to", text
    )
    assert 100 <= link.overhead + 3.5e9 / link.file_speed <= 190


def test_figures_of_a_link_with_an_incident_are_no_all_clear_once_the_incident_is_in_the_grid(cut):
    """They are fitted as if it had not happened, so adding it would count it twice."""
    text, told = cut
    assert '"SOURCE:SINK": "' in text.partition("\ninconclusive:\n")[2]
    for place in (text, told):
        words = " ".join(place.replace("\n#", " ").split())
        assert "nothing had" in words
        assert "only then" in words
    of_link = text.partition('  "SOURCE:SINK":\n')[2]
    assert of_link.startswith("    # inconclusive, see below: ")
