"""Menus: YAML text becomes a Menu, or a list of all that is wrong with it, each with file, line and hint."""

from __future__ import annotations

from dc_inject.menu.campaigns import campaign
from dc_inject.menu.draft import MenuDraft, read
from dc_inject.menu.findings import CODES, findings
from dc_inject.menu.json_schema import schema
from dc_inject.menu.sums import peak

__all__ = ["CODES", "MenuDraft", "campaign", "findings", "peak", "read", "schema"]
