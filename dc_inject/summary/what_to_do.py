"""What to do about each hold, alert and cause of a shortfall, for all who show it.

The texts of a hold are in its definition (`model/holds.py`), those of all else in the table `what_to_do.toml`.
`dc-inject explain`, docs/how-to/on-call.md and the alerts' links are made from it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from dc_inject.model.causes import FILE_CLASSES
from dc_inject.model.holds import Hold
from dc_inject.model.on_call import OnCall
from dc_inject.model.services import SERVICES
from dc_inject.model.types import Entry

PLACES = {"rucio": "Rucio", "fts": "FTS", "network": "network", "deletions": "deletions", "here": "here"}


@cache
def entries() -> Mapping[str, OnCall]:
    """Return all entries by their keys: those of the table, and after `held` all holds, the leading ones first."""
    found = {}
    table = tomllib.loads(files("dc_inject.summary").joinpath("what_to_do.toml").read_text(encoding="utf-8"))
    for key, texts in table.items():
        found[key] = OnCall(**texts)
        if key == "held":
            found |= {hold.value: hold.on_call for hold in Hold}
    return found


def entry(name: str) -> dict[str, Any]:
    """Return the entry of a hold, cause, alert, signal or class of failed files, with its `key` and all places.

    Raises KeyError.
    """
    keys = dict.fromkeys(FILE_CLASSES.keys() - entries().keys(), Hold.FAILING.value)
    keys |= {other: key for key, of in entries().items() for other in (*of.alerts, *of.signals)}
    key = keys.get(name, name)
    given = {field: value for field, value in asdict(entries()[key]).items() if value not in ((), "", None)}
    return {"key": key, "alerts": [], "needs_action": True, **dict.fromkeys(PLACES, ""), **given}


def entry_for(group: Mapping[str, Any], campaign: str, live: Sequence[Entry]) -> dict[str, Any]:
    """Return the entry of a group of short links, as `status` has it, with commands that can be run as they are.

    They name the campaign (`campaign` is what commands take for it), and of links through Rucio the RSE, both ends
    of a single one, and of their `live` rules the one with most stuck files, or else the oldest. Rucio is left out
    where there are none.
    """
    found, names = entry(group["cause"]), {"CAMPAIGN": campaign}
    links = [link for link in group["links"] if not SERVICES[link["service"]].ends_are_urls]
    own = {tuple(link.values()) for link in links}
    rules = [e for e in live if e.external_id and tuple(e.injection.flow.names().values()) in own]
    if links:
        names["RSE"] = links[0]["source" if "{source}" in found["call"] else "destination"]
    elif group["links"]:
        found["rucio"] = ""
    if len(links) == len(group["links"]) == 1:
        names |= {"SRC": links[0]["source"], "DST": links[0]["destination"]}
    if rules:
        names["ID"] = max(rules, key=lambda e: e.files_stuck).external_id

    def name_all(command: re.Match[str]) -> str:
        return re.sub(r"\b[A-Z]+\b", lambda word: names.get(word[0], word[0]), command[0])

    return found | {key: re.sub("`[^`]*`", name_all, found[key]) for key in ("do", *PLACES)}


def whom(entry: Mapping[str, Any]) -> str:
    """Return whom to call where no link is known."""
    return str(entry["call"]).format(
        operators="the service's operators", source="the source's site", destination="the site"
    )
