"""The types that menus give to links (`type: T1s to T1s`): what tables of days have columns for, as DC24's had."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from dc_inject.engine import kept_menus
from dc_inject.ledger.reading import Reader
from dc_inject.model import FlowKey
from dc_inject.model.errors import MenuError
from dc_inject.summary import active_overrides
from dc_inject.system import files


def types_of(view: Reader) -> Mapping[FlowKey, str]:
    """Return the type of each link that has one in a menu that is or was in force; the last menu counts."""
    types: dict[FlowKey, str] = {}
    for record in view.last_menus():
        if any(b"type" in part for part in (record.text.encode(), *view.menu_parts(record.digest).values())):
            with suppress(MenuError):  # it was read before, but one of its files may be gone
                draft = kept_menus.draft_of(record, view, files.load)
                flows = active_overrides.resolved(draft, view).flows
                types |= {flow.key: flow.type for flow in flows if flow.type}
    return types
