"""What the menus of a ledger have on links: their sites, their types, and when they are excluded.

The ledger keeps the text of each menu that came into force, and of what it included, unless that is large. The
last version of a menu counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from dc_inject import menu
from dc_inject.ledger import Reader
from dc_inject.model import Exclusion, FlowKey
from dc_inject.model.errors import MenuError
from dc_inject.model.urls import host_of
from dc_inject.summary import active_overrides


def site_of(view: Reader) -> Mapping[str, str]:
    """Return the site of each end that has one, by `sites` or the host of a URL; an end without one is its own."""
    sites: dict[str, str] = {}
    for record in view.last_menus():
        for content in view.menu_parts(record.digest).values():
            sites |= menu.sites_of(content.decode(errors="replace"))
        sites |= menu.sites_of(record.text)
    ends = {end for key in view.accounts() for end in key.link.ends}
    return {end: sites.get(end) or host_of(end) for end in ends if end in sites or host_of(end) != end}


def list_types(view: Reader) -> Mapping[FlowKey, str]:
    """Return the type of each link that has one in a menu (`type: T1s to T1s`), as columns of DC24's tables."""
    menus = (active_overrides.resolved(draft, view) for draft in _drafts(view, b"type"))
    return {flow.key: flow.type for one in menus for flow in one.flows if flow.type}


def list_exclusions(view: Reader) -> list[Exclusion]:
    """Return what menus exclude, which is due nothing then, by time."""
    found = dict.fromkeys(one for draft in _drafts(view, b"exclude") for one in draft.preview.exclusions)
    return sorted(found, key=lambda one: (one.start, one.end))


def _drafts(view: Reader, word: bytes) -> Iterator[menu.MenuDraft]:
    """Yield the menus that are or were in force and have a word; to read one of many links takes its time."""
    for record in view.last_menus():
        if any(word in part for part in (record.text.encode(), *view.menu_parts(record.digest).values())):
            with suppress(MenuError):  # it was read before, but one of its files may be gone
                yield active_overrides.read_kept(record, view)
