"""Source lists of menus: files without a size, and files that no link takes."""

from __future__ import annotations

from collections.abc import Iterator

from dc_inject.analysis.lint.capacity import Finding
from dc_inject.menu import source_lists
from dc_inject.model import Campaign, FileFilter, Flow, Listing, units, urls
from dc_inject.model.errors import Problem


def findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    for menu in campaign.menus:
        used: dict[Listing, list[Flow]] = {}
        for flow in menu.flows:
            if isinstance(flow.datasets, FileFilter) and flow.datasets.listing is not None:
                used.setdefault(flow.datasets.listing, []).append(flow)
        for listing, flows in used.items():
            yield from ((menu, problem) for problem in (*_unsized(listing, flows[0]), *_unused(listing, flows)))


def _unsized(listing: Listing, flow: Flow) -> Iterator[Problem]:
    if number := source_lists.unsized(listing):
        message = f"{listing.name} has no size for {number} of its {units.counted(len(listing.files), 'files')}"
        hint = "each is asked for at the storage; list sizes, or `accept: [unsized-files]`"
        yield Problem(flow.menu, flow.line, message, hint, "unsized-files")


def _unused(listing: Listing, flows: list[Flow]) -> Iterator[Problem]:
    """Find URLs below no source: a typo in a host leaves files out without a word."""
    below = tuple({f"{flow.link.source}/" for flow in flows})
    left = [file.name for file in listing.files if urls.is_url(file.name) and not file.name.startswith(below)]
    if left:
        count = f"{len(left)} of its {units.counted(len(listing.files), 'files')}"
        message = f"{listing.name}: below no source: {count}, such as {left[0]}"
        hint = "is there a typo in host or path? if they are for another menu: `accept: [unused-files]`"
        yield Problem(flows[0].menu, flows[0].line, message, hint, "unused-files")
