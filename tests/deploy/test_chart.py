"""The Helm chart without helm: its values fit their schema, and it carries the rules and dashboard of the docs.

`make chart` renders it and validates what comes out.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

CHART = Path(__file__).parents[2] / "docs" / "deploy" / "helm" / "dc-inject"
NEEDED = {"image": {"repository": "registry.example.org/dc-inject"}, "campaign": "dc27"}


def schema() -> dict[str, object]:
    return json.loads((CHART / "values.schema.json").read_text())


def values() -> dict[str, object]:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_values_fit_once_what_is_required_is_given() -> None:
    image = {**values()["image"], **NEEDED["image"]}
    jsonschema.validate({**values(), **NEEDED, "image": image}, schema())
    with pytest.raises(jsonschema.ValidationError, match=r"^''"):
        jsonschema.validate(values(), schema())


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "twice"},
        {"shards": 11},
        {"menu": {"a.yaml": ""}},
        {"menus": {"../a.yaml": ""}},
        {"ftsEndpoint": "http://fts.example.org"},
        {"metrics": {"port": 80}},
        {"campaign": "a b"},
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**NEEDED, **wrong}, schema())


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    described = schema()["properties"]
    assert set(described) - {"global"} == set(values())
    for name, value in values().items():
        if "properties" in described[name]:
            assert set(described[name]["properties"]) == set(value), name


@pytest.mark.parametrize(
    ("inside", "page"),
    [("prometheus-rules.yaml", "prometheus-rules.yaml"), ("dashboard.json", "grafana-dashboard.json")],
)
def test_the_chart_carries_what_the_docs_have(inside: str, page: str) -> None:
    assert (CHART / "files" / inside).resolve() == CHART.parents[2] / "reference" / page
