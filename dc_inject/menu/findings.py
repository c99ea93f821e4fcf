"""Findings: what can work, but looks wrong. Each has a code, which a menu accepts when it means it."""

from __future__ import annotations

from collections.abc import Iterator

from dc_inject.menu import source_lists
from dc_inject.model import Campaign, FileFilter, Flow, Listing, Menu, Order, rates, units
from dc_inject.model.errors import Problem

CODES = {
    "site-over-wan": "the rates at a site sum to more than its WAN",
    "site-over-limit": "the rates at a site sum to more than our own limit there, so that some are held",
    "rate-outlier": "a link has a rate far above its neighbours in the scenario",
    "smallest-first": "small datasets are taken first, which makes many small files",
    "space-overfilled": "an RSE has too little space even for the shortest lifetime",
    "coarse-datasets": "a link moves less than the smallest dataset that it may take in an hour",
    "fts-link-limit": "a link needs more transfers at a time than FTS allows on it",
    "scenarios-overlap": "two scenarios use a link at one time, so that monitoring cannot tell them apart",
    "window-gap": "between two menus of a campaign nothing is in force",
    "window-overlap": "a menu begins before the one before it ends",
    "target-differs": "the rates of a menu do not sum to its target",
    "idle-exclusion": "an exclusion takes nothing out: it is outside of the menu's dates, or no link is meant",
    "unsized-files": "a source list has files without a size, which has to be asked for at the storage",
    "unused-files": "a source list has files that are below no source of the menu",
    # Those below need answers of services: `check --online` finds them.
    "fts-storage-limit": "the links of a storage need more transfers at a time than FTS allows into or out of it",
    "storage-unreachable": "a storage does not answer, or Rucio says that its RSE is not available",
    "storage-verbs": "a storage does not allow what copies, or their deletion, need",
    "wrong-size": "a source file that is listed has another size at the storage",
    "no-distance": "Rucio has no distance for a link, so that it moves nothing there",
    "no-third-party-copy": "the ends of a link have no protocols for third-party copy that go together",
    "unknown-activity": "an activity is not in the schema of the Rucio client",
    "account-limit": "the account's limit at an RSE is too small",
    "free-space": "an RSE has too little free space even for the shortest lifetime",
    "expired-data": "an RSE has much that has expired and is not deleted yet",
    "pool-small": "a source has too few different datasets for a link",
    "credentials-expire": "credentials expire before the menus end",
    "no-source-files": "a source has no file that may be injected",
    "nothing-usable": "a last look finds no dataset of a source that can be injected",
}
# As long as the menu does not accept them, nothing can work.
ERRORS = frozenset({"no-source-files", "nothing-usable"})
OUTLIER = 5.0  # times the median of the other links
NEIGHBOURS = 3  # fewest other links that a rate is compared with
ROUNDING = 1e-6


def findings(campaign: Campaign) -> tuple[Problem, ...]:
    """Return the findings of a campaign, but for those that their menu accepts."""
    problems = [*_sites(campaign)]
    for menu in campaign.menus:
        problems += [(menu, problem) for problem in (*_outliers(menu), *_smallest_first(menu), *_lists(menu))]
    return tuple(sorted({problem for menu, problem in problems if problem.code not in menu.accept}))


def _finding(flow: Flow, code: str, message: str, hint: str, *, outlier: bool = False) -> Problem:
    return Problem(flow.menu, flow.line, message, hint, code, outlier)


def _sites(campaign: Campaign) -> Iterator[tuple[Menu, Problem]]:
    sites = {site.name: site for menu in campaign.menus for site in menu.sites}
    menu_of = {id(flow): menu for menu in campaign.menus for flow in menu.flows}
    for (name, direction), flows in rates.by_site(campaign.flows, rates.site_of(sites.values())).items():
        total, largest = rates.peak(flows)
        if largest is None:
            continue
        menu, site = menu_of[id(largest)], sites.get(name)
        said = f"{direction} of {name} sums to {units.format_rate(total)}"
        wan = site.wan if site else None
        if wan is not None and total > wan * (1 + ROUNDING):
            hint = f"lower rates at {name}, or correct sites.{name}.wan"
            yield (
                menu,
                _finding(largest, "site-over-wan", f"{said}, above its WAN, {units.format_rate(wan)}", hint),
            )
        own = (site.max_ingress if direction == "ingress" else site.max_egress) if site else None
        limits = {f"sites.{name}.max_{direction}": own, "limits.per_site": menu.limits.per_site}
        key, limit = min(((k, v) for k, v in limits.items() if v is not None), key=lambda item: item[1])
        if total > limit * (1 + ROUNDING):
            what = f"{said}, above {key}, {units.format_rate(limit)}: the rest will be held (site-limit)"
            yield menu, _finding(largest, "site-over-limit", what, f"if the site agrees, raise {key}")


def _outliers(menu: Menu) -> Iterator[Problem]:
    scenarios: dict[str, list[Flow]] = {}
    for flow in menu.flows:
        if flow.stated:
            scenarios.setdefault(flow.scenario, []).append(flow)
    for flows in scenarios.values():
        if len(flows) <= NEIGHBOURS:
            continue
        flows.sort(key=lambda flow: flow.rate)
        ordered = [flow.rate for flow in flows]
        for index in range(len(ordered) - 1, -1, -1):
            median = _median_without(ordered, index)
            if ordered[index] <= OUTLIER * median:
                break  # those below it are nearer still
            flow = flows[index]
            yield _finding(
                flow,
                "rate-outlier",
                f"{flow.link.shown} has {units.format_rate(flow.rate)}, {flow.rate / median:.1f} times the median "
                f"of its neighbours in {flow.scenario}, {units.format_rate(median)}",
                "is the unit right? if it is meant: `accept: [rate-outlier]`",
                outlier=True,
            )


def _smallest_first(menu: Menu) -> Iterator[Problem]:
    seen = set()
    for flow in menu.flows:
        if flow.order == Order.SMALLEST_FIRST and flow.scenario not in seen:
            seen.add(flow.scenario)
            yield _finding(
                flow,
                "smallest-first",
                f"the scenario {flow.scenario} takes the smallest datasets first",
                "many small files move slowly; if it is meant: `accept: [smallest-first]`",
                outlier=True,
            )


def _lists(menu: Menu) -> Iterator[Problem]:
    yield from _unsized(menu)
    yield from _unused(menu)


def _unused(menu: Menu) -> Iterator[Problem]:
    """A typo in a host leaves files out without a word: one list may serve several sources."""
    used: dict[Listing, list[Flow]] = {}
    for flow in menu.flows:
        if isinstance(flow.datasets, FileFilter) and flow.datasets.listing is not None:
            used.setdefault(flow.datasets.listing, []).append(flow)
    for listing, flows in used.items():
        below = tuple({f"{flow.link.source}/" for flow in flows})
        left = [file.name for file in listing.files if "://" in file.name and not file.name.startswith(below)]
        if left:
            count = f"{len(left)} of its {units.counted(len(listing.files), 'files')}"
            what = f"{listing.name}: below no source: {count}, such as {left[0]}"
            hint = "is there a typo in host or path? if they are for another menu: `accept: [unused-files]`"
            yield _finding(flows[0], "unused-files", what, hint)


def _unsized(menu: Menu) -> Iterator[Problem]:
    seen: set[Listing] = set()
    for flow in menu.flows:
        listing = flow.datasets.listing if isinstance(flow.datasets, FileFilter) else None
        if listing is None or listing in seen:
            continue
        seen.add(listing)
        if number := source_lists.unsized(listing):
            what = f"{listing.name} has no size for {number} of its {units.counted(len(listing.files), 'files')}"
            hint = "each is asked for at the storage; list sizes, or `accept: [unsized-files]`"
            yield _finding(flow, "unsized-files", what, hint)


def _median_without(ordered: list[float], index: int) -> float:
    """Return the median of sorted numbers, one of them left out."""

    def other(place: int) -> float:
        return ordered[place if place < index else place + 1]

    rest = len(ordered) - 1
    return (other((rest - 1) // 2) + other(rest // 2)) / 2
