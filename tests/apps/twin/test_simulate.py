"""`dc-inject simulate`: menus in a simulated grid, from the outside."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from dc_inject.analysis import lint
from dc_inject.apps.twin import forecast, printing, simulation
from dc_inject.apps.twin.grid.grid_file import read
from dc_inject.cli.shared import exits
from dc_inject.ledger import LedgerView
from dc_inject.menu import campaign
from dc_inject.model import Hold
from dc_inject.model.errors import MenuError, UsageError
from dc_inject.planning import lifetime
from dc_inject.system import files
from tests.apps.twin import scenarios
from tests.cli import ledgers

pytest.importorskip("numpy")  # an extra
ROOT = Path(__file__).parents[3]
SCENARIOS = sorted(path.parent for path in (ROOT / "menus" / "twin").glob("*/grid.yaml"))


def run(*words: object):
    return ledgers.run("simulate", *words)


def of(name: str, *more: object):
    folder = ROOT / "menus" / "twin" / name
    return run(folder / "menu.yaml", "--grid", folder / "grid.yaml", *more)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("signals_of_a_terminal")  # a simulation in this process may have left signals ignored
def test_a_simulation_that_is_ended_leaves_no_temporary_file(tmp_path, number):
    """The ledger of twelve days has a gigabyte."""
    scenario = ROOT / "menus" / "twin" / "slow-deletions"
    words = ("simulate", scenario / "menu.yaml", "--grid", scenario / "grid.yaml")
    with subprocess.Popen(
        [sys.executable, "-m", "dc_inject", *words],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = next((line for line in process.stderr if line.startswith("simulated: ")), None)
        assert line is not None
        assert [*tmp_path.iterdir()]
        process.send_signal(number)
        assert process.wait(120) == exits.INTERRUPTED
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("folder", SCENARIOS, ids=lambda folder: folder.name)
def test_a_scenario_is_a_menu_without_findings_and_a_grid_with_sources(folder):
    drafts = files.read_menus(scenarios.menus(folder.name))
    assert lint.findings(campaign([draft.resolve({}) for draft in drafts])) == ()
    text = (folder / "grid.yaml").read_text()
    assert read(text.encode(), "grid.yaml").name == folder.name
    assert "sources:" in text
    assert f"[{folder.name}]({folder.name}/)" in (ROOT / "menus" / "twin" / "README.md").read_text()


def test_what_it_ends_with_for_people(wording):
    done = of("link-at-70-percent", "--days", 0.25)
    assert done.exit_code == 0, done.exception
    assert "T1_DE_KIT_Disk" in done.stdout
    shown = re.sub(r"\b\d[\d.,]*(-\d\d-\d\dT[\d:]+Z)?", "N", done.stdout)
    wording([" ".join(line.split()) for line in shown.splitlines() if line])
    assert "100 %" in done.stderr
    assert "\x1b" not in done.output


def test_what_it_ends_with_for_programs(tmp_path):
    ledger = tmp_path / "kept.sqlite"
    done = of("one-link", "--days", 0.125, "--format", "json", "--seed", 3, "--ledger", ledger)
    told = json.loads(done.stdout)
    assert told["total"]["moved"] >= 0.97 * told["total"]["due"]
    assert (told["grid"], told["seed"], told["forecast"]) == ("one-link", 3, [])
    assert set(told["lost"]) == {
        *("unsent_bytes", "unsent_files", "interrupted_bytes", "cancelled_files"),
        *("failed_bytes", "failed_files", "unseen_bytes"),
    }
    assert not any(told["lost"].values())
    assert [one["storage"] for one in told["storages"]] == ["T2_CH_CERN", "T1_DE_KIT_Disk"]
    assert ledger.exists()
    assert told["total"]["cycles"] == 12  # 0.125 days end with a cycle, and another one does not begin
    again = of("one-link", "--ledger", ledger)
    assert isinstance(again.exception, UsageError)
    assert "exists already" in again.exception.message


def test_what_the_ledger_says_did_not_move_is_what_the_grid_lost():
    """The ledger knows neither the grid nor its transfers, only what moved until minutes before rules ended."""
    told = json.loads(of("link-at-70-percent", "--days", 0.25, "--policy", "off", "--format", "json").stdout)
    lost = told["lost"]["unsent_bytes"] + told["lost"]["interrupted_bytes"]
    assert lost > 50e9
    assert told["total"]["not_moved"] == lost + told["lost"]["unseen_bytes"]
    assert told["lost"]["failed_files"] == told["lost"]["failed_bytes"] == told["total"]["failed"] == 0


def test_a_ledger_that_cannot_be_kept_is_refused_before_anything_is_simulated(tmp_path, wording):
    error = of("one-link", "--ledger", tmp_path / "nowhere" / "kept.sqlite").exception
    assert isinstance(error, UsageError)
    wording(error.message)
    error = of("one-link", "--ledger", tmp_path / ("n" * 256)).exception
    assert isinstance(error, UsageError)
    wording(error.message)


def test_what_is_refused_leaves_no_ledger(tmp_path):
    """So the same command works once its grid is mended."""
    (grid := tmp_path / "grid.yaml").write_text("grid: one")
    menu = ROOT / "menus" / "twin" / "one-link" / "menu.yaml"
    done = run(menu, "--grid", grid, "--ledger", tmp_path / "kept.sqlite")
    assert isinstance(done.exception, MenuError)
    assert [path.name for path in tmp_path.iterdir()] == ["grid.yaml"]
    assert run(menu, "--grid", grid, "--days", "nan").exit_code == 2


@pytest.mark.parametrize("goes", ["/dev/full", "nowhere"])
def test_the_ledger_of_a_complete_simulation_is_kept_even_if_its_output_cannot_be_written(tmp_path, goes):
    """As with `| head -1`, after hours perhaps."""
    folder, kept = ROOT / "menus" / "twin" / "one-link", tmp_path / "kept.sqlite"
    words = ("--grid", folder / "grid.yaml", "--days", "0.05", "--ledger", kept)
    command = [sys.executable, "-m", "dc_inject", "simulate", folder / "menu.yaml", *words]
    if goes == "nowhere":
        reader, output = os.pipe()
        os.close(reader)
    else:
        output = os.open(goes, os.O_WRONLY)
    try:
        done = subprocess.run(command, check=False, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(output)
    assert done.returncode == (141 if goes == "nowhere" else 1), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept.sqlite"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with LedgerView.open(kept) as view:
        assert view.summary()[0].moved > 0


def test_an_interrupted_simulation_says_that_its_ledger_is_not_kept(tmp_path, monkeypatch, wording):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulation, "Engine", interrupted)
    done = of("one-link", "--ledger", tmp_path / "kept.sqlite")
    assert done.exit_code == 130
    wording(done.stderr)
    assert list(tmp_path.iterdir()) == []
    assert "ledger" not in of("one-link").stderr


def test_a_full_disk_leaves_no_part_of_the_ledger(tmp_path, monkeypatch, wording):
    def full(source: BinaryIO, copy: BinaryIO) -> None:
        copy.write(source.read(4096))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    done = of("one-link", "--days", 0.05, "--ledger", tmp_path / "kept.sqlite")
    assert isinstance(done.exception, UsageError)
    wording(done.exception.message)
    assert "closing table" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_command_in_the_readme_and_in_the_help_works_in_a_clone(monkeypatch):
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(r"^dc-inject simulate (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert f"Example: dc-inject simulate {command}" in " ".join(run("--help").stdout.split())
    done = run(*command.split(), "--days", "0.02")
    assert done.exit_code == 0, done.exception
    assert "be short" in done.stdout


@pytest.mark.parametrize(
    ("words", "option"),
    [(("-o", "out.txt"), "--output"), (("--force",), "--force"), (("--force", "-o", "x"), "--output")],
)
def test_options_of_calibrate_are_refused_without_it(words, option, wording):
    error = of("one-link", *words).exception
    assert isinstance(error, UsageError)
    wording(error.message)
    assert "--ledger FILE" in str(error.hint)


@pytest.mark.parametrize(
    "file",
    [
        "menu.yaml:1",
        "grid.yaml:2",
    ],
)
def test_two_menus_or_two_grids_are_told_apart(monkeypatch, file, wording):
    monkeypatch.chdir(ROOT / "menus" / "twin" / "one-link")
    name = file.partition(":")[0]
    error = run(name, "--grid", name).exception
    assert isinstance(error, MenuError)
    wording(error)


@pytest.mark.parametrize("seeds", [1, 2])
def test_rates_of_a_menu_that_are_too_large_are_named(tmp_path, seeds, wording):
    """Not the temporary ledger that cannot count them."""
    folder = ROOT / "menus" / "twin" / "slow-deletions"
    menu = tmp_path / "menu.yaml"
    limit = "accept: [fts-link-limit]\nlimits: {total: 9 Eb/s}"
    text = (folder / "menu.yaml").read_text().replace("rate: 25 Gb/s", "rate: 2 Eb/s")
    menu.write_text(re.sub(r"accept: \[fts-link-limit\]", limit, text))
    error = run(menu, "--grid", folder / "grid.yaml", "--seeds", seeds).exception
    assert isinstance(error, UsageError)
    wording(error.message)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_scale_that_is_too_large_is_named(seeds, wording):
    error = of("one-link", "--scale", "1e9", "--seeds", seeds).exception
    assert isinstance(error, MenuError)
    wording(error.message)
    assert "--scale" in str(error)


def test_reads_are_refused(wording):
    error = run(ROOT / "menus" / "cms-aaa-reads.yaml", "--grid", ROOT / "menus/twin/one-link/grid.yaml").exception
    assert isinstance(error, UsageError)
    wording(error.message)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--days", "1d"), ("--scale", "50%")],
)
def test_a_number_with_a_unit_is_refused_with_an_example(option, value, wording):
    done = of("one-link", option, value)
    assert done.exit_code == 2
    wording(done.stderr)


def test_a_disk_that_is_too_small_is_told():
    done = of("full-disk", "--days", 0.25, "--format", "json")
    (link,) = json.loads(done.stdout)["forecast"]
    assert "destination-full" in link["why"]
    assert "T2_UK_London_Brunel above 98 %" in link["why"]


@pytest.mark.parametrize("policy", ["off", "act"])
def test_an_empty_disk_is_not_called_too_small_before_it_is_known_how_soon_data_go(policy, tmp_path, wording):
    """Complete rules end after half an hour, and the disk holds an hour's worth: it is never half full."""
    grid = (ROOT / "menus" / "twin" / "full-disk" / "grid.yaml").read_text()
    for old, new in (("{may_end: no}", "{}"), ("space: 6 TB", "space: 4 TB"), ("lag: 15 min", "lag: 5 min")):
        assert old in grid
        grid = grid.replace(old, new)
    (tmp_path / "grid.yaml").write_text(grid)
    menu, kept = ROOT / "menus" / "twin" / "full-disk" / "menu.yaml", tmp_path / "kept.sqlite"
    more = ("--days", 0.125, "--policy", policy, "--ledger", kept, "--format", "json")
    made = json.loads(run(menu, "--grid", tmp_path / "grid.yaml", *more).stdout)
    assert made["storages"][1]["most_filled"] < 0.5
    with LedgerView.open(kept) as view:
        held = [row.held for row in view.rows() if row.held is not None]
    messages = [str(one.numbers["message"]) for one in held if one.hold is Hold.DESTINATION_FULL]
    assert len(messages) == lifetime.UNKNOWN_CYCLES
    wording(sorted({re.sub(r"\d[\d.]*", "N", message) for message in messages}))


def test_without_a_grid_it_says_where_there_are_some(wording):
    error = run(ONE_LINK).exception
    assert isinstance(error, UsageError)
    wording(error.message)
    path = re.search(r"--grid (menus/twin/\S+\.yaml)`", error.hint)[1]
    assert (ROOT / path).exists()


def test_the_closing_table_as_csv():
    done = of("one-link", "--days", 0.05, "--format", "csv")
    head, row = done.stdout.splitlines()
    assert head.startswith("scenario,source,destination,")
    assert row.startswith("test,T2_CH_CERN,T1_DE_KIT_Disk,")


def test_without_numpy_it_says_how_to_install_it(monkeypatch, wording):
    monkeypatch.setattr(simulation, "find_spec", lambda _: None)
    error = of("one-link").exception
    assert isinstance(error, UsageError)
    assert "numpy" in error.message
    wording(str(error.hint))


def test_what_is_wrong_in_a_grid_is_told_with_its_place(tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text("grid: 1\nname: x\nsites: {A: {storages: {a: {space: 5}}}}\n")
    error = run(ROOT / "menus" / "twin" / "one-link" / "menu.yaml", "--grid", grid).exception
    assert isinstance(error, MenuError)
    assert str(error).startswith(f"{grid}:3:")


ONE_LINK = ROOT / "menus" / "twin" / "one-link" / "menu.yaml"


def test_a_storage_that_the_grid_does_not_have_is_told(tmp_path, wording):
    grid = tmp_path / "grid.yaml"
    grid.write_text("grid: 1\nname: x\nsites: {A: {storages: {T2_CH_CERN: {}, T1_DE_KIT_Dis: {}}}}\n")
    done = run(ONE_LINK, "--grid", grid)
    assert isinstance(done.exception, MenuError)
    line = 1 + ONE_LINK.read_text().partition("T1_DE_KIT_Disk")[0].count("\n")
    (problem,) = done.exception.problems
    assert (problem.file, problem.line) == (str(ONE_LINK), line)
    wording(str(done.exception))


def test_an_expression_that_means_no_storage_is_told_with_its_place(tmp_path):
    grid = ROOT / "menus" / "twin" / "one-link" / "grid.yaml"
    (menu := tmp_path / "menu.yaml").write_text(
        ONE_LINK.read_text().replace("T1_DE_KIT_Disk", "tier=1&country=DE")
    )
    line = 1 + menu.read_text().partition("tier=1")[0].count("\n")
    error = run(menu, "--grid", grid).exception
    assert isinstance(error, MenuError)
    assert str(error).startswith(f"{menu}:{line}: ")


def test_queues_in_which_nothing_ever_waits_are_left_out_and_no_signal_is_missing(tmp_path):
    ledger = tmp_path / "kept.sqlite"
    done = of("one-link", "--days", 0.125, "--policy", "act", "--ledger", ledger)
    assert "FTS moves" in done.stdout
    assert "still to" not in done.stdout
    assert done.stdout.splitlines()[-1] == "not moved 0 B; files cancelled: 0"
    status = json.loads(ledgers.run("status", ledger, "--format", "json").stdout)
    assert [one["signal"] for one in status["signals_missing"]] == []
    queues = json.loads(of("one-link", "--days", 0.05, "--format", "json").stdout)["queues"]
    assert {row["at"] for row in queues if not row["most"]} == {None}


def test_a_storage_is_never_more_than_full():
    """What arrives within a step of the world is counted at its end."""
    spec = SimpleNamespace(site="S", space=100.0)
    storages = SimpleNamespace(hours_nearly_full=[0.0], most_used=[100.3], backlog=lambda _: 0)
    world = SimpleNamespace(
        network=SimpleNamespace(storages={"A": 0}),
        grid=SimpleNamespace(storages={"A": spec}),
        storages=storages,
    )
    (row,) = forecast.storages(world)
    assert (row["most_used"], row["most_filled"]) == (100, 1.0)


def test_only_the_fullest_of_many_storages_are_shown(tmp_path, wording):
    """Those whose space the grid does not limit say nothing of themselves."""
    names = [f"D{number}" for number in range(30)]
    menu, grid = tmp_path / "many.yaml", tmp_path / "grid.yaml"
    menu.write_text(
        "menu: 1\ncampaign: many\ncontact: me@example.org\nstart: 2027-02-08 00:00\nend: 2027-02-09 00:00\n"
        "defaults: {datasets: {did: 'cms:*'}}\n"
        f"scenarios:\n  test: {{from: S, to: [{', '.join(names)}, FREE], rate: 60 Gb/s}}\n"
    )
    grid.write_text(
        "grid: 1\nname: many\ndatasets: [{sources: ['*'], count: 90, files: 20..30, file_size: 1..2 GB}]\n"
        "sites:\n  Q: {storages: {S: {}, FREE: {}}}\n"
        + "".join(f"  P{n}: {{storages: {{{name}: {{space: {5 + n} TB}}}}}}\n" for n, name in enumerate(names))
    )
    lines = run(menu, "--grid", grid, "--days", 0.05).stdout.splitlines()
    fullest = [line.split()[0] for line in lines if line.startswith("D")]
    assert len(fullest) == printing.MOST_STORAGES
    assert {"D0", "D1", "D2"} < set(fullest)
    assert len([line for line in lines if "10 storages" in line]) == 1
    wording(lines[-1])


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_disk_whose_space_the_grid_does_not_have_gets_no_all_clear(tmp_path, seeds, wording):
    """And one whose space it has, or at which nothing arrives, gets no warning."""
    menu, words = ROOT / "menus" / "twin" / "full-disk" / "menu.yaml", ("--days", 0.1, "--seeds", seeds)
    grid = (menu.parent / "grid.yaml").read_text()
    assert "`space`" not in run(menu, "--grid", menu.parent / "grid.yaml", *words).stdout
    (tmp_path / "grid.yaml").write_text(grid.replace("space: 6 TB, ", ""))
    done = run(menu, "--grid", tmp_path / "grid.yaml", *words)
    assert "`space`" in done.stdout.splitlines()[-1]
    wording(done.stdout.splitlines()[-1])


def test_of_many_disks_without_space_some_are_named(capsys, wording):
    printing.show_without_space([f"D{number}" for number in range(7)])
    wording(capsys.readouterr().out)


def test_a_host_that_the_grid_does_not_have_is_told(wording):
    grid = ROOT / "menus" / "twin" / "one-link" / "grid.yaml"
    error = run(ROOT / "menus" / "fts-juno-steps.yaml", "--grid", grid).exception
    wording(str(error))
    assert "host: se.cnaf.example.org" in str(error)


NOTHING = "grid: 1\nname: x\nsites: {A: {storages: {T2_CH_CERN: {}, T1_IT_CNAF_Disk: {}, T1_DE_KIT_Disk: {}}}}\n"
SMALL = NOTHING + "datasets: [{sources: [T2_CH_CERN], count: 9, files: 9..9, file_size: 1..2 MB}]\n"
LATE = "troubles: [{fault: rucio-down, at: 20 min, for: 5 min}, {fault: fts-down, at: 30 min, for: 5 min}]\n"
AT_ONE = NOTHING + "datasets: [{sources: [T1_IT_CNAF_Disk], count: 90, files: 9..9, file_size: 1 GB..2 GB}]\n"


@pytest.mark.parametrize(
    "text",
    [
        NOTHING,
        SMALL,
    ],
)
def test_a_grid_without_datasets_at_any_source_is_refused(tmp_path, text, wording):
    """They would be pool-dry all the time, and nobody would know why."""
    (grid := tmp_path / "grid.yaml").write_text(text)
    error = run(ONE_LINK, "--grid", grid).exception
    assert isinstance(error, MenuError)
    wording(error)
    assert error.exit_code == 2


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.usefixtures("real_processes")
def test_a_source_without_datasets_in_the_grid_is_warned_of_once(tmp_path, seeds):
    (grid := tmp_path / "grid.yaml").write_text(AT_ONE)
    menu = tmp_path / "menu.yaml"
    menu.write_text(ONE_LINK.read_text().replace("from: T2_CH_CERN", "from: [T2_CH_CERN, T1_IT_CNAF_Disk]"))
    done = run(menu, "--grid", grid, "--days", 0.02, "--seeds", seeds)
    assert done.exit_code == 0, done.exception
    assert done.stderr.count(f"warning: {menu}:14: {grid} ") == 1


def test_a_trouble_that_begins_after_the_end_is_warned_of(tmp_path, wording):
    (grid := tmp_path / "grid.yaml").write_text(AT_ONE.replace("T1_IT_CNAF_Disk]", "T2_CH_CERN]") + LATE)
    done = run(ONE_LINK, "--grid", grid, "--days", 0.02)
    assert done.exit_code == 0, done.exception
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    wording(warned)
