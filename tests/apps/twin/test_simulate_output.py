"""What `dc-inject simulate` gives to programs: losses, CSV, and the ledger that it keeps."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dc_inject.ledger import LedgerView
from tests.cli import ledgers

rucio = pytest.importorskip("dc_inject.apps.twin.grid.rucio")  # needs numpy, an extra
SCENARIOS = Path(__file__).parents[3] / "menus" / "twin"


def of(name: str, *words: object):
    folder = SCENARIOS / name
    return ledgers.run("simulate", folder / "menu.yaml", "--grid", folder / "grid.yaml", *words)


@pytest.mark.parametrize("policy", ["off", "fixed"])
def test_losses_add_up_to_what_did_not_move_to_the_byte(policy, tmp_path, monkeypatch):
    """On a slow link with a storage that is down: files fail, expire, or arrive after the last look at a rule."""
    grid, menu = (SCENARIOS / "link-at-70-percent" / name for name in ("grid.yaml", "menu.yaml"))
    trouble = "troubles: [{fault: storage-down, subject: T1_DE_KIT_Disk, at: 2 h, for: 1 h}]\n"
    (tmp_path / "grid.yaml").write_text(f"{grid.read_text()}{trouble}".replace("rate: 7 Gb/s", "rate: 3 Gb/s"))
    arrived, end = {}, rucio.Rules._end

    def ended(rules, rule, now, jobs):
        end(rules, rule, now, jobs)
        arrived[rule.name] = rule.arrived

    monkeypatch.setattr(rucio.Rules, "_end", ended)
    words = ("--grid", tmp_path / "grid.yaml", "--days", 0.3, "--policy", policy, "--ledger", tmp_path / "kept")
    done = ledgers.run("simulate", menu, *words, "--format", "json")
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)
    lost, not_moved = told["lost"], told["total"]["not_moved"]
    parts = ("failed_bytes", "unsent_bytes", "interrupted_bytes", "unseen_bytes")
    assert not_moved == sum(lost[name] for name in parts)
    with LedgerView.open(tmp_path / "kept") as view:
        unseen = sum(arrived[entry.injection.key] - entry.moved for entry in view.entries())
    assert lost["unseen_bytes"] == unseen
    assert unseen > 0
    assert told["total"]["not_moved_failed"] == lost["failed_bytes"] > 0


def test_readers_of_a_ledger_that_was_kept_leave_nothing_beside_it(tmp_path):
    of("one-link", "--days", 0.05, "--ledger", tmp_path / "kept.sqlite")
    for words in (["status"], ["status", "--summary"], ["report"], ["export", "-o", tmp_path / "made.csv"]):
        command, *more = words
        done = ledgers.run(command, tmp_path / "kept.sqlite", *more)
        assert done.exit_code == 0, done.exception
    assert {path.name for path in tmp_path.iterdir()} == {"kept.sqlite", "made.csv"}


def test_csv_is_the_closing_table_of_the_links(tmp_path):
    """With the columns of `status --summary`, which are a part of what JSON has of each link."""
    words = ("link-at-70-percent", "--days", 0.3, "--policy", "off")
    table = of(*words, "--ledger", tmp_path / "kept.sqlite", "--format", "csv").stdout
    assert table == ledgers.run("status", tmp_path / "kept.sqlite", "--summary", "--format", "csv").stdout
    (row,) = csv.DictReader(io.StringIO(table))
    (link,) = json.loads(of(*words, "--format", "json").stdout)["links"]
    assert {name: row[name] for name in ("due", "moved", "not_moved")} == {
        name: str(link[name]) for name in ("due", "moved", "not_moved")
    }


def test_csv_of_seeds_has_what_json_has_of_each_seed_under_the_same_names():
    words = ("link-at-70-percent", "--days", 0.3, "--policy", "off", "--seeds", 2, "--format")
    rows = list(csv.DictReader(io.StringIO(of(*words, "csv").stdout)))
    told = json.loads(of(*words, "json").stdout)
    assert len(rows) == 2
    for row, figures in zip(rows, told["seeds"], strict=True):
        assert {name: json.loads(value) for name, value in row.items()} == figures
    alone = json.loads(of(*words[:-2], 1, "--format", "json").stdout)
    names = ("moved_of_due", "moved_of_target", "late_bytes")
    assert {name: told["seeds"][0][name] for name in names} == {name: alone[name] for name in names}
    of_total = ("due", "injected", "moved", "not_moved", "failed", "held")
    assert {name: told["seeds"][0][name] for name in of_total} == {name: alone["total"][name] for name in of_total}
    assert {name: told["seeds"][0][name] for name in alone["lost"]} == alone["lost"]
    (link,) = told["seeds"][0]["forecast"]
    assert link == alone["forecast"][0]


def test_advice_stands_below_the_reasons_of_one_simulation_and_of_several():
    words = ("link-at-70-percent", "--days", 0.3, "--policy")
    (row,) = json.loads(of(*words, "advise", "--format", "json").stdout)["advice"]
    assert (row["hold"], row["links"]) == ("backlog", 1)
    assert row["held_back"] > 0
    for more, title in (((), ""), (("--seeds", 2), ", medians of 2 seeds")):
        out = of(*words, "advise", *more).stdout
        assert f"would have held{title}\nheld by " in out
        assert "left alone: " in out
        assert "would have" not in of(*words, "off", *more).stdout
