"""What a calibrated grid is worth for a forecast: the campaign's own menus, as its ledger keeps them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.apps.twin import calibrating, own_menus, printing
from dc_inject.ledger import LedgerView
from dc_inject.model.errors import UsageError
from tests.cli import ledgers

pytest.importorskip("numpy")  # an extra
GRID = """\
grid: 1
name: known
sites: {X: {storages: {A: {}}}, Y: {storages: {B: {}, C: {}}}}
links: {"A:B": {rate: 1 Gb/s}}
datasets:
  - {sources: [A], count: 300, files: 5..20, file_size: 0.5..1 GB}
"""
PART = """\
scenarios:
  one: {from: A, to: [B, C], rate: 4 Gb/s}
"""
MENU = """\
menu: 1
campaign: own
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 12:00
include: part.yaml
defaults:
  cycle: 15 min
  lifetime: {min: 1 h, max: 2 h}
  datasets: {did: "cms:/*/RAW#*", files: 1..1000, mean_file: 0.1..20 GB}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("own")
    for name, text in (("grid.yaml", GRID), ("part.yaml", PART), ("menu.yaml", MENU)):
        (made / name).write_text(text)
    return made


def simulated(folder: Path, *how: object) -> Path:
    """The ledger of a campaign in a known grid, which is simulated once."""
    path = folder / f"past{''.join(map(str, how))}.sqlite"
    if path.exists():
        return path
    done = ledgers.run("simulate", folder / "menu.yaml", "--grid", folder / "grid.yaml", "--ledger", path, *how)
    assert done.exit_code == 0, done.exception
    return path


def calibrated(folder: Path, path: Path) -> calibrating.Made:
    return calibrating.calibrate(str(path), folder / "fitted.yaml", lambda _: None, force=True)


def own(folder: Path, path: Path) -> own_menus.OwnMenus:
    with LedgerView.open(path) as view, view.snapshot():
        return own_menus.write_own_menus(view, calibrating.closed_cycles(view), folder)


def test_menus_are_simulated_in_the_fitted_grid_and_what_they_move_is_told_beside_what_moved(folder, capsys):
    made = calibrated(folder, simulated(folder, "--policy", "act"))
    capsys.readouterr()
    printing.show_calibration("json", made)
    forecast = json.loads(capsys.readouterr().out)["forecast"]
    assert (forecast["why_not"], forecast["policy"]) == (None, "act")
    assert {link["destination"] for link in forecast["links"]} == {"B", "C"}
    assert all(link["due"] == link["due_now"] for link in forecast["links"])
    assert all(link["error"] <= 0.1 for link in forecast["links"])
    assert forecast["error"] == abs(forecast["forecast"] - forecast["moved"]) / forecast["moved"]
    printing.show_calibration("table", made)
    told = capsys.readouterr().out
    assert ", with control: act, " in told
    assert "\nforecast error: " in told
    assert "# forecast error: " in (folder / "fitted.yaml").read_text()
    printing.show_calibration("csv", made)
    rows = {row["destination"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    for link in forecast["links"]:
        row = rows[link["destination"]]
        assert float(row["forecast_error"]) == link["error"]
        sums = [int(row[key]) for key in ("campaign_due", "campaign_moved", "forecast_due", "forecast")]
        assert sums == [link[key] for key in ("due", "moved", "due_now", "forecast")]
        assert row["by_cycle"]


def test_a_forecast_has_the_policy_and_the_links_of_the_campaign(folder):
    narrowed = own(folder, simulated(folder, "--policy", "fixed", "--link", "A:C"))
    assert (narrowed.policy, narrowed.links) == ("fixed", ["A:C"])


def test_a_campaign_at_a_fixed_rate_is_forecast_at_a_fixed_rate(folder):
    made = calibrated(folder, simulated(folder, "--policy", "fixed"))
    assert not isinstance(made.forecast, str)
    assert made.forecast.policy == "fixed"
    assert made.forecast.total.forecast > 0


def test_a_source_that_was_never_listed_has_what_it_sent(folder):
    """Such as the first destination of a second hop."""
    with LedgerView.open(simulated(folder)) as view, view.snapshot():
        sent = calibrating.read(view).sent
    unlisted = SimpleNamespace(sizes_at_sources=dict)
    assert set(calibrating._stocks(unlisted, sent)["A"]) == {(rule.files, rule.bytes) for rule in sent}


def test_why_there_is_no_forecast_names_no_temporary_folder(folder, monkeypatch):
    path = simulated(folder, "--policy", "fixed")
    monkeypatch.setattr(calibrating, "_stocks", lambda *_: {})
    forecast = calibrated(folder, path).forecast
    assert isinstance(forecast, str)
    assert "grid.yaml has no " in forecast
    assert "dc_inject-" not in forecast


def test_rates_that_no_menu_has_are_told_by_what_is_due(folder):
    forecast = calibrated(folder, simulated(folder, "--scale", "0.5")).forecast
    assert not isinstance(forecast, str)
    assert forecast.total.due_now == 2 * forecast.total.due
    assert "were due then, and " in list(forecast.sentences())[-1]


def test_of_a_large_campaign_the_first_cycles_are_simulated(folder, monkeypatch):
    monkeypatch.setattr(own_menus, "MOST", 8)
    menus = own(folder, simulated(folder))
    assert menus.cycles == 4 < menus.of
    assert menus.period.until - menus.period.since == 4 * menus.period.since.resolution * 900_000_000
    text = "the first 6 cycles of 9, which is enough of so many links"
    assert text in own_menus.OwnForecast([], None, 6, 9).title


def test_a_menu_whose_parts_have_changed_is_not_simulated_and_the_reason_is_told(folder, capsys, wording):
    path = simulated(folder)
    (folder / "part.yaml").write_text(PART.replace("4 Gb/s", "3 Gb/s"))
    try:
        made = calibrated(folder, path)
    finally:
        (folder / "part.yaml").write_text(PART)
    assert str(made.forecast).startswith(f"{folder / 'menu.yaml'} ")
    capsys.readouterr()
    printing.show_calibration("table", made)
    wording(capsys.readouterr().out, TMP=folder)
    printing.show_calibration("json", made)
    assert json.loads(capsys.readouterr().out)["forecast"] == {"why_not": made.forecast}
    printing.show_calibration("csv", made)
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert {row["forecast_error"] for row in rows} == {""}
    assert "# no forecast: " in (folder / "fitted.yaml").read_text()


def test_a_mini_challenge_has_no_menu_to_simulate(folder, monkeypatch, wording):
    path = simulated(folder)
    monkeypatch.setattr(LedgerView, "challenge", lambda _: ("asked",))
    with pytest.raises(UsageError) as refused:
        own(folder, path)
    wording(refused.value, TMP=folder)
