"""Menus: YAML text becomes a Menu, or a list of all that is wrong with it, each with file, line and hint."""

from __future__ import annotations

from dc_inject.menu.campaigns import campaign, gather_campaigns, narrowed
from dc_inject.menu.draft import (
    MenuDraft,
    endpoint_of,
    names_of_sites,
    one_campaign,
    read,
    sites_of,
    thresholds_of,
)
from dc_inject.menu.schema import json_schema as schema

__all__ = [
    "MenuDraft",
    "campaign",
    "endpoint_of",
    "gather_campaigns",
    "names_of_sites",
    "narrowed",
    "one_campaign",
    "read",
    "schema",
    "sites_of",
    "thresholds_of",
]
