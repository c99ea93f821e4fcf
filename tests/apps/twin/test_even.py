"""Traffic is even on many links at a time, with the engine, the ledger and a grid that carries all of it."""

from __future__ import annotations

import pytest

from dc_inject.apps.twin import simulation
from dc_inject.apps.twin.several_seeds import compute_peaks_to_means
from dc_inject.ledger import Ledger
from dc_inject.menu import campaign
from dc_inject.planning.release import TICKS
from dc_inject.system import files
from tests.apps.twin.even import ENOUGH, strays

SOURCES, DESTINATIONS, CYCLES = 4, 9, 10
PEAK = 1.2  # to the mean, in bins worth ten of a link's largest datasets

GRID_FILE = """\
grid: 1
name: wide
defaults: {link: {file_speed: 50 MB/s}}
fts: {actives: 100..5000, per_storage: 100000, operations: 10000}
rucio: {requests: 10000}
sites:
SITES
datasets:
  - {sources: ["S0", "S1"], count: 500, files: 10..20, file_size: 4..5 GB}
  - {sources: ["S2", "S3"], count: 500, files: 5..50, file_size: 2..6 GB}
"""
MENU = """\
menu: 1
campaign: even
contact: dc-ops@example.org
start: 2027-02-08 10:00
end: 2027-02-08 12:30
limits: {total: 1000 Gb/s, per_site: 1000 Gb/s, rules_per_hour: 10000, files_in_flight: 1000000}
defaults:
  lifetime: {min: 1 h, max: 2 h}
  datasets: {did: "cms:*", files: 1..1000, mean_file: 1..20 GB}
scenarios:
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """36 links of 0.1 to 20 Gb/s, half of them controlled: more datasets in a cycle than calls."""
    folder = tmp_path_factory.mktemp("even")
    ends = [*(f"S{n}" for n in range(SOURCES)), *(f"D{n}" for n in range(DESTINATIONS))]
    (folder / "grid.yaml").write_text(
        GRID_FILE.replace("SITES", "\n".join(f"  site-{end}: {{storages: {{{end}: {{}}}}}}" for end in ends)),
        "utf-8",
    )
    rates = [20.0, 8.0, *[5.0] * 22, *(0.1 * 1.5**n for n in range(12))]
    scenarios = [
        f"  s{n}: {{from: S{n % SOURCES}, to: D{n // SOURCES}, rate: {rate:.3f} Gb/s"
        f"{', control: act' if n % 2 else ''}}}\n"
        for n, rate in enumerate(rates)
    ]
    menu = folder / "menu.yaml"
    menu.write_text(MENU + "".join(scenarios), "utf-8")
    flows = campaign([draft.resolve({}) for draft in files.read_menus([menu])]).flows
    with Ledger.open(folder / "even.sqlite", synchronous="OFF") as ledger:
        made = simulation.run(simulation.Request([menu], folder / "grid.yaml"), ledger)
        yield strays(ledger, flows), compute_peaks_to_means(ledger, made.start, made.end)


def test_no_link_strays_by_more_than_a_dataset_and_the_debt_that_it_carried_in(simulated) -> None:
    found, _ = simulated
    assert not any(one.held for one in found)
    assert len(found) >= 34 * CYCLES
    # Moments of release lie on a grid, and so up to half of its width beside what they should be.
    assert [str(one) for one in found if one.beyond > 1 + one.due / (2 * TICKS)] == []


def test_bins_worth_ten_datasets_are_alike(simulated) -> None:
    found, peaks = simulated
    datasets = {key: sum(one.due for one in found if one.key == key) for key in peaks}
    enough = {key: peak for key, peak in peaks.items() if datasets[key] >= ENOUGH}
    assert len(enough) >= 24
    assert {str(key): peak for key, peak in enough.items() if peak > PEAK} == {}
