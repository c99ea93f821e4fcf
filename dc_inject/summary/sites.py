"""At which site the ends of links are: as the menus say under `sites`, and else the host of a URL.

The ledger keeps the text of each menu that came into force, and of what it included, unless that is large.
"""

from __future__ import annotations

from collections.abc import Mapping

from dc_inject import menu
from dc_inject.ledger.reading import Reader
from dc_inject.model.urls import host_of


def site_of(view: Reader) -> Mapping[str, str]:
    """Return the site of each end that has one; an end without one is its own."""
    sites: dict[str, str] = {}
    for record in view.last_menus():
        for content in view.menu_parts(record.digest).values():
            sites |= menu.sites_of(content.decode(errors="replace"))
        sites |= menu.sites_of(record.text)
    ends = {end for key in view.accounts() for end in key.link[:2]}
    return {end: sites.get(end) or host_of(end) for end in ends if end in sites or host_of(end) != end}
