"""Menus: YAML text becomes a Menu, or a list of all that is wrong with it, each with file, line and hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dc_inject.menu.checks import campaign, gather_campaigns, narrowed
    from dc_inject.menu.draft import (
        MenuDraft,
        endpoint_of,
        names_of_sites,
        one_campaign,
        read,
        read_kept,
        sites_of,
        thresholds_of,
        window_of,
    )

__all__ = [
    "MenuDraft",
    "campaign",
    "endpoint_of",
    "gather_campaigns",
    "names_of_sites",
    "narrowed",
    "one_campaign",
    "read",
    "read_kept",
    "sites_of",
    "thresholds_of",
    "window_of",
]

_CHECKED = {"campaign", "gather_campaigns", "narrowed"}  # the others are in `draft`


def __getattr__(name: str) -> object:
    """Import a name on its first use: the schema takes half of the time of a command without menus."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dc_inject.menu import checks, draft  # noqa: PLC0415  see above

    value = globals()[name] = getattr(checks if name in _CHECKED else draft, name)
    return value
