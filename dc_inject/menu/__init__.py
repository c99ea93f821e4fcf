"""Menus: YAML text becomes a Menu, or a list of all that is wrong with it, each with file, line and hint."""

from __future__ import annotations

from dc_inject.menu.campaigns import campaign, narrowed
from dc_inject.menu.draft import MenuDraft, names_of_sites, read
from dc_inject.menu.findings import CODES, ERRORS, findings
from dc_inject.menu.fts_limits import (
    FILE_SPEED,
    LIMITS_OF,
    LINK_LIMIT,
    STORAGE_LIMIT,
    TransferLimit,
    needed,
    throttled,
)
from dc_inject.menu.schema import json_schema as schema
from dc_inject.model.rates import site_of

__all__ = [
    "CODES",
    "ERRORS",
    "FILE_SPEED",
    "LIMITS_OF",
    "LINK_LIMIT",
    "STORAGE_LIMIT",
    "MenuDraft",
    "TransferLimit",
    "campaign",
    "findings",
    "names_of_sites",
    "narrowed",
    "needed",
    "read",
    "schema",
    "site_of",
    "throttled",
]
