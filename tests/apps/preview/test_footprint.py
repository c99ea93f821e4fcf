"""`dc-inject footprint`: what the page shows is what is printed, and every head says its unit."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from dc_inject.analysis.footprint.load import Assumptions
from dc_inject.apps.preview import command_footprint
from dc_inject.model.errors import DcInjectError
from tests.cli.ledgers import run
from tests.menu.texts import scenarios, text
from tests.wording import lines

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "footprint.md").read_text()
UNITS = ("Gb/s", "GB/s", "%", "TB", "TB/24 h", " h", "/h", "at a time")
COUNTS = {"links", "on the busiest link", "FTS's limit of a link"}


def columns() -> list[tuple[str, str]]:
    """The keys and heads of all columns with numbers."""
    return [(column.key, column.head) for topic in command_footprint.TOPICS.values() for column in topic]


def refusal(*words) -> tuple[int, str]:
    """The exit code and what is said, by click or by us."""
    done = run(*words)
    ours = isinstance(done.exception, DcInjectError)
    return (done.exception.exit_code if ours else done.exit_code), done.stderr + str(done.exception)


@pytest.fixture
def menu(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(text(x="sites: {KIT: {wan: 40 Gb/s, rses: {B: {space: 90 TB}}}}"))
    return path


def test_the_example_of_the_page_is_what_is_printed(tmp_path):
    path = tmp_path / "t0.yaml"
    path.write_text(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
    command, shown = re.search(r"```console\n\$ (.*?)\n(.*?)```", PAGE, re.DOTALL).groups()
    words = [str(path) if word == path.name else word for word in command.split()]
    assert words[0] == "dc-inject"
    done = run(*words[1:])
    assert done.exit_code == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == [*shown.splitlines(), ""]
    assert "of 5 GB" in done.stderr


def test_the_page_explains_every_column_and_every_option():
    told = re.findall(r"^\| .+? \| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert [key for cell in told for key in re.findall(r"`(\w+)`", cell)] == [key for key, _ in columns()]
    for name in (field.name for field in fields(Assumptions)):
        assert f"| `--{name.replace('_', '-')}` |" in PAGE


def test_every_head_says_its_unit_and_so_does_every_key():
    for _, head in columns():
        if head not in COUNTS:
            assert head.replace(" (estimate)", "").endswith(UNITS), head
    assert not [key for key, _ in columns() if re.search(r"[KMGTP]i", key)]


def test_json_and_csv_say_the_same(menu):
    rows = json.loads(run("footprint", menu, "--format", "json").stdout)
    assert [(row["by"], row["name"]) for row in rows] == [
        ("site", "A"), ("site", "KIT"), ("scenario", "one"), ("total", "total"),
    ]  # fmt: skip
    kit = rows[1]
    assert (kit["ingress_Gbit_s"], kit["ingress_GB_s"], kit["wan_in_percent"], kit["space_TB"]) == (
        10,
        1.25,
        25,
        90,
    )
    assert rows[0]["wan_Gbit_s"] is None
    table = list(csv.DictReader(io.StringIO(run("footprint", menu, "--format", "csv").stdout)))
    assert [{key: value if key in ("by", "name") else float(value or "nan") for key, value in row.items()}
            for row in table] == [
        {key: pytest.approx(float("nan"), nan_ok=True) if value is None else value for key, value in row.items()}
        for row in rows
    ]  # fmt: skip


def test_options_and_scale_are_taken(menu):
    row = json.loads(
        run(
            "footprint", menu, "--format", "json", "--scale", "2", "--mean-file", "2 GB",
            "--file-speed", "80 Mb/s", "--deletion-seconds", "4", "--lifetime", "30 min", "--deletion-lag", "0 s",
            "--dataset-files", "10", "--link-limit", "7",
        ).stdout
    )[-1]  # fmt: skip
    assert row["ingress_GB_s"] == 2.5
    assert row["files_per_h"] == 4500
    assert row["transfers_in"] == 250
    assert row["parallel_deletions"] == 5
    assert row["cancelled_TB"] == 4.5
    assert row["resident_TB"] == 6.75
    assert row["rules_per_h"] == 450
    assert row["transfers_link_limit"] == 7


def test_menus_of_two_experiments_add_up_and_a_link_narrows_them(tmp_path, menu):
    other = tmp_path / "other.yaml"
    other.write_text(
        text(campaign="campaign: other", x="sites: {KIT: {wan: 30 Gb/s, rses: {D: {}}}}").replace("to: B", "to: D")
    )
    rows = json.loads(run("footprint", menu, other, "--format", "json").stdout)
    kit = next(row for row in rows if row["name"] == "KIT")
    assert (kit["ingress_Gbit_s"], kit["wan_Gbit_s"], kit["space_TB"]) == (20, 30, None)
    rows = json.loads(run("footprint", menu, other, "--format", "json", "--link", "A:D").stdout)
    assert [row["name"] for row in rows if row["by"] == "site"] == ["A", "KIT"]
    code, heard = refusal("footprint", menu, other, "--link", "A:X")
    assert code == 2
    assert "A -> X" in heard


def test_an_inventory_tells_how_long_the_pool_lasts(tmp_path, menu):
    stock = tmp_path / "stock.csv"
    stock.write_text("source,name,bytes,files\nA,cms:1,4500000000000,1000\nA,else:2,1,1\n")
    rows = json.loads(run("footprint", menu, "--inventory", stock, "--format", "json").stdout)
    assert [row["pool_lasts_h"] for row in rows] == [1, None, 1, 1]
    assert rows[-1]["files_per_h"] == 1000


def test_rse_expressions_are_told(tmp_path, wording):
    menu = tmp_path / "m.yaml"
    menu.write_text(scenarios("one: {from: A, to: 'tier=2&country=DE', rate: 1 Gb/s}"))
    wording(lines(run("footprint", menu).stderr, "RSE expressions"))


@pytest.mark.parametrize(
    "words",
    [
        ["--cycles", "2"],
        ["--mean-file", "5"],
        ["--mean-file", "0 GB"],
        ["--file-speed", "5 GB"],
    ],
)
def test_what_cannot_be_meant_is_refused(menu, words, wording):
    code, heard = refusal("footprint", menu, *words)
    assert code == 2
    wording(heard)
