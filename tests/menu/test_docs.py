"""Every menu in the docs is read, and every key is on the page that explains menus."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.menu.schema import (
    ControlEntry,
    Datasets,
    Defaults,
    Document,
    ExcludeEntry,
    Files,
    FtsEntry,
    Jobs,
    LimitsEntry,
    RseEntry,
    ShapeEntry,
    SiteEntry,
    SlicesEntry,
    ThenEntry,
    json_schema,
)
from dc_inject.menu.validation import MenuModel
from dc_inject.model import DatasetFilter, Limits
from dc_inject.model.findings import CODES
from tests.menu.texts import draft, text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "menus.md").read_text()
MAKING = (ROOT / "docs" / "how-to" / "make-menus.md").read_text()
CHOOSING = (ROOT / "docs" / "how-to" / "choose-control.md").read_text()
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE + MAKING + CHOOSING, re.MULTILINE | re.DOTALL)
FILES = {name: content for _, name, content in BLOCKS if name}
EXAMPLES = [content for kind, name, content in BLOCKS if kind == "yaml" and not name]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples(example: str) -> None:
    """An example is a menu, or together with the rest of a small one it is."""
    whole = example.startswith("menu: 1")
    content = example if whole else text(**dict.fromkeys(yaml.safe_load(example), "")) + example
    made = draft(content, FILES)
    campaign = menu.campaign([made.resolve({"tier=2&country=DE": ("T2_DE_DESY", "T2_DE_RWTH")})])
    if whole:
        assert lint.findings(campaign) == ()


@pytest.mark.parametrize("page", ["tutorial/first-menu.md", "how-to/inject-through-fts.md"])
def test_menus_on_other_pages(page: str) -> None:
    """A menu there is whole, right, and has no finding, with the files of docs/reference/menus.md."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for content in blocks:
        campaign = menu.campaign([draft(content, FILES).resolve({})])
        assert lint.findings(campaign) == ()


def test_there_are_examples() -> None:
    """The page is really looked at."""
    assert len(EXAMPLES) > 10
    assert set(FILES) == {
        "t1-t2.csv", "datasets.txt", "_sites.yaml", "sources.csv", "sources.yaml", "more.txt",
        "dc24.csv", "matrix.csv", "day2.yaml", "day4.yaml", "links.yaml", "new.yaml",
        "week/day-01.yaml",
    }  # fmt: skip


@pytest.mark.parametrize(
    "part",
    [
        Document,
        Defaults,
        Datasets,
        Files,
        Jobs,
        SiteEntry,
        RseEntry,
        ExcludeEntry,
        LimitsEntry,
        FtsEntry,
        ShapeEntry,
        ThenEntry,
        SlicesEntry,
        ControlEntry,
    ],
)
def test_every_key_is_on_the_page(part: type[MenuModel]) -> None:
    """No key without its explanation."""
    keys = {field.alias or name for name, field in part.model_fields.items()} - {"from", "to"}
    assert {key for key in keys if not re.search(rf"`{key}\b", PAGE)} <= {
        "rses",
        "rse",
        "link",
        "site",
        "scenario",
    }


def test_every_code_is_on_the_page() -> None:
    """No finding without its section, and a row that leads there, in the order of the code."""
    page = (ROOT / "docs" / "reference" / "checks.md").read_text()
    assert re.findall(r"^## (\S+)\n\n\S", page, re.MULTILINE) == list(CODES)
    row = r"^\| \[`([a-z-]+)`\]\(#\1\)(?:, an outlier)? \| \S"
    assert re.findall(row, page, re.MULTILINE) == list(CODES)


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    """As a menu that names them shows."""
    limits = "limits: {total: 100 Gb/s, per_site: 50 Gb/s, rules_per_hour: 1000, files_in_flight: 100000}"
    assert draft(text(limits=limits)).preview.limits == Limits()
    datasets = draft(text(defaults="defaults: {datasets: {did: 'a:*', files: 1..1000, mean_file: 1..20 GB}}"))
    assert datasets.preview.flows[0].datasets == DatasetFilter(("a:*",))


def test_the_schema_describes_what_is_read() -> None:
    """The JSON Schema takes the whole example, knows every key, and refuses unknown ones but `x-` ones."""
    made = json_schema()
    assert made["$schema"].endswith("2020-12/schema")
    assert set(made["properties"]) == {field.alias or name for name, field in Document.model_fields.items()}
    assert {"menu", "campaign", "contact", "start", "end", "scenarios"} == set(made["required"])
    for part in (made, *made["$defs"].values()):
        assert part["additionalProperties"] is False
        assert part["patternProperties"] == {"^x-": {}}
    assert '"null"' not in json.dumps(made)
    assert {"list", "folder", "pattern", "size"} == set(made["$defs"]["Files"]["properties"])
    assert made["$defs"]["Jobs"]["properties"]["files"]["maximum"] == 5000
    assert made["$defs"]["Jobs"]["properties"]["verify"]["enum"] == ["none", "source", "target", "both"]
    links = made["$defs"]["Scenario"]["properties"]["links"]["anyOf"]
    assert [one.get("items", one) for one in links] == [
        {"$ref": "#/$defs/LinkEntry"},
        {"$ref": "#/$defs/LinkFile"},
    ]
