"""The menu format as a JSON Schema, for editors that complete and check a menu while it is written."""

from __future__ import annotations

from typing import Any

from dc_inject.menu.schema import Document


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a menu, so that editors can complete it."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dc_inject menu"}
    made: dict[str, Any] = Document.model_json_schema(by_alias=True)
    for part in (made, *made["$defs"].values()):
        for name, one in part["properties"].items():
            part["properties"][name] = _without_null(one)
    return made | head


def _without_null(one: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a key that may be left out, but not be given without a value."""
    kept = {key: value for key, value in one.items() if key != "title" and (key, value) != ("default", None)}
    choices = [choice for choice in kept.pop("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        only: dict[str, Any] = choices[0]
        return only | kept
    return kept | {"anyOf": choices} if choices else kept
