"""Findings from menus alone.

- dates: gaps, overlaps, a target that differs from the sum of rates, scenarios that share a link;
- exclusions that exclude nothing, often because of a wrong date or name;
- rates above the WAN of a site or above our own limits;
- likely mistakes: a rate far from its neighbours', small datasets first, rules that live for days, a `catch_up`
  without control;
- source lists: files without a size, and files that no link takes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from dc_inject.analysis.lint.capacity import Finding
from dc_inject.menu import source_lists, values
from dc_inject.model import (
    Campaign,
    Exclusion,
    FileFilter,
    Flow,
    Link,
    Listing,
    Menu,
    Mode,
    Order,
    rates,
    units,
    urls,
)
from dc_inject.model.control import UNCONTROLLED
from dc_inject.model.errors import Problem
from dc_inject.model.groups import grouped
from dc_inject.model.rates import site_of
from dc_inject.model.units import format_minute
from dc_inject.planning import pace

TARGET_TOLERANCE = 0.01
LONGEST_GAP = timedelta(days=30)  # between menus; after a longer one `run` wants the menu accepted
FAR_AHEAD = timedelta(days=300)  # a menu that begins later may name a wrong year


def date_findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    for menu in campaign.menus:
        yield from _target(menu)
    ordered = sorted(campaign.menus, key=lambda menu: (menu.start, menu.end, menu.name))
    yield from _gaps(ordered)
    yield from _overlaps(ordered)
    yield from _scenarios(campaign)


def find_late_starts(campaign: Campaign, now: datetime) -> tuple[Problem, ...]:
    """Return a finding for each menu that begins so long after `now` that its year may be wrong."""
    hint = "is the year right? if it is meant: `accept: [far-ahead]`"
    return tuple(
        Problem(
            menu.name,
            1,
            f"it begins on {menu.start:%Y-%m-%d}, in {(menu.start - now).days} days",
            hint,
            "far-ahead",
        )
        for menu in campaign.menus
        if menu.start - now > FAR_AHEAD and "far-ahead" not in menu.accept
    )


def _target(menu: Menu) -> Iterator[Finding]:
    total = rates.peak(menu.flows).rate
    if menu.target is not None and abs(total - menu.target) > TARGET_TOLERANCE * menu.target:
        message = (
            f"the rates sum to {units.format_rate(total)}, not to the target of {units.format_rate(menu.target)}, "
            f"{100 * (total / menu.target - 1):+.1f} %"
        )
        hint = "correct a rate, or the target; if it is intended: `accept: [target-differs]`"
        yield menu, Problem(menu.name, menu.target_line, message, hint, "target-differs", needs_accepting=True)


def _gaps(menus: Sequence[Menu]) -> Iterator[Finding]:
    """Find times between the first start and the last end in which no menu is in force."""
    last = menus[0]
    for menu in menus[1:]:
        if menu.start > last.end:
            gap, start = units.format_duration(menu.start - last.end), format_minute(menu.start)
            message = f"no menu is in force for {gap} before {start}, from the end of {last.name}"
            hint = "move `start`, or the other's `end`; if the pause is intended: `accept: [window-gap]`"
            is_long = menu.start - last.end > LONGEST_GAP
            yield menu, Problem(menu.name, 1, message, hint, "window-gap", needs_accepting=is_long)
        last = max(last, menu, key=lambda either: either.end)


def _overlaps(menus: Sequence[Menu]) -> Iterator[Finding]:
    """Find windows that reach into the next one; one that lies inside of another is meant to add to it."""
    for before, menu in pairwise(menus):
        if before.start < menu.start < before.end < menu.end:
            span, end = units.format_duration(before.end - menu.start), format_minute(before.end)
            message = f"it begins {span} before {before.name} ends at {end}: their rates add up until then"
            hint = "move `start`, or the other's `end`; if they should add up: `accept: [window-overlap]`"
            yield menu, Problem(menu.name, 1, message, hint, "window-overlap")


def _scenarios(campaign: Campaign) -> Iterator[Finding]:
    """Find scenarios that share links at one time; one finding for the links that the same scenarios share."""
    on = grouped((flow.link, (menu, flow)) for menu in campaign.menus for flow in menu.flows)
    shared: dict[frozenset[str], list[tuple[Menu, Flow]]] = {}
    for uses in on.values():
        for together in _at_one_time(sorted(uses, key=_place)):
            first = together[0][1].scenario
            other = next((use for use in together if use[1].scenario != first), None)
            if other is not None:
                shared.setdefault(frozenset(flow.scenario for _, flow in together), []).append(other)
    for scenarios, places in shared.items():
        menu, flow = min(places, key=_place)
        links = len({flow.link for _, flow in places})
        where = f"{flow.link.shown}" + (f" and {units.counted(links - 1, 'more links')}" if links > 1 else "")
        message = f"{_named(sorted(scenarios))} use {where} at the same time"
        message += ": network monitoring cannot distinguish their traffic"
        hint = "the ledger can; use different times, or `accept: [scenarios-overlap]`"
        yield menu, Problem(flow.menu, flow.line, message, hint, "scenarios-overlap")


def _at_one_time(uses: Sequence[tuple[Menu, Flow]]) -> Iterator[list[tuple[Menu, Flow]]]:
    """Split the uses of a link, in order of start, where none is in force; in a part each overlaps another."""
    part: list[tuple[Menu, Flow]] = []
    end = uses[0][1].start
    for use in uses:
        if part and use[1].start >= end:
            yield part
            part = []
        part.append(use)
        end = max(end, use[1].end)
    yield part


def _named(names: Sequence[str]) -> str:
    """Return two names, and how many more there are."""
    more = len(names) - 2
    return f"{names[0]}, {names[1]} and {more} more" if more else f"{names[0]} and {names[1]}"


def _place(use: tuple[Menu, Flow]) -> tuple[datetime, str, int, Link]:
    return use[1].start, use[1].menu, use[1].line, use[1].link


IDLE = "idle-exclusion"


def exclusion_findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each.

    An exclusion counts for all menus that are in force at its time. One that stands in a file that menus include
    may be meant for another of them, so it is judged only where several menus are looked at together.
    """
    sites = site_of(campaign)
    for menu in campaign.menus:
        for exclusion in menu.exclusions:
            if exclusion.file and exclusion.file != menu.name and len(campaign.menus) == 1:
                continue
            covered = [
                flow
                for flow in campaign.flows
                if pace.covers(exclusion, flow.scenario, flow.link, sites) or _may_be_any(exclusion, flow)
            ]
            if message := _why_idle(exclusion, menu, campaign, covered):
                hint = "traffic continues then; correct the exclusion, or remove it"
                yield menu, Problem(exclusion.file or menu.name, exclusion.line, message, hint, IDLE)


def _why_idle(exclusion: Exclusion, menu: Menu, campaign: Campaign, covered: Sequence[Flow]) -> str:
    """Return why an exclusion takes nothing out; empty where it takes something out."""
    subject = exclusion.site or exclusion.rse or urls.arrow(exclusion.link) or exclusion.scenario
    menus = [menu] if exclusion.file in {"", menu.name} else campaign.menus
    if not any(of.start < exclusion.end and exclusion.start < of.end for of in menus):
        dates = f"{format_minute(min(of.start for of in menus))} to {format_minute(max(of.end for of in menus))}"
        excluded = f"{format_minute(exclusion.start)} to {format_minute(exclusion.end)}"
        return f"{subject} is excluded from {excluded}, which is outside of the menu's dates, {dates}"
    if not covered:
        return f"{subject} is excluded, but has no link here"
    if not any(flow.start < exclusion.end and exclusion.start < flow.end for flow in covered):
        return f"{subject} is excluded when none of its links has any traffic planned"
    return ""


def _may_be_any(exclusion: Exclusion, flow: Flow) -> bool:
    """Whether an end is an RSE expression that is not resolved yet, so that it may mean what is excluded."""
    if exclusion.scenario or not flow.link.service.knows_ends:
        return False
    return not all(values.is_name(end) for end in flow.link.ends)


def list_exceeded_limits(campaign: Campaign) -> tuple[str, ...]:
    """Return in words each limit, of sites and in total, that the rates of a campaign exceed at some time.

    What menus accept counts too: it is held all the same.
    """
    problems = sorted(problem for _, problem in limit_findings(campaign))
    return tuple(dict.fromkeys(problem.message for problem in problems))


def limit_findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield sites, and sums of menus in force together, that exceed a limit, with the menu that may accept each.

    A menu whose own rates exceed `limits.total` is refused before; `--scale` may bring them there.
    """
    yield from _sites(campaign)
    yield from _totals(campaign)


def _totals(campaign: Campaign) -> Iterator[Finding]:
    for excess in rates.over_total(campaign.menus):
        flows = [flow for menu in excess.together for flow in menu.flows]
        _, largest = rates.peak(flows)
        place = (excess.menu.name, 1) if largest is None else (largest.menu, largest.line)
        message = f"{excess}: the rest will be held (campaign-limit)"
        yield (
            excess.menu,
            Problem(*place, message, "lower --scale, or raise limits.total if that is agreed", "total-over-limit"),
        )


def _sites(campaign: Campaign) -> Iterator[Finding]:
    sites = {site.name: site for menu in campaign.menus for site in menu.sites}
    menu_of = {id(flow): menu for menu in campaign.menus for flow in menu.flows}
    for (name, direction), flows in rates.by_site(campaign.flows, site_of(campaign)).items():
        total, largest = rates.peak(flows)
        if largest is None:
            continue
        menu, site, place = menu_of[id(largest)], sites.get(name), (largest.menu, largest.line)
        sum_here = f"{direction} of {name} sums to {units.format_rate(total)}"
        wan = site.wan if site else None
        if wan is not None and rates.is_above(total, wan):
            message = f"{sum_here}, above its WAN, {units.format_rate(wan)}"
            hint = f"lower rates at {name}, or correct sites.{name}.wan"
            yield menu, Problem(*place, message, hint, "site-over-wan")
        own = (site.max_ingress if direction == "ingress" else site.max_egress) if site else None
        limits = {f"sites.{name}.max_{direction}": own, "limits.per_site": menu.limits.per_site}
        key, limit = min(((k, v) for k, v in limits.items() if v is not None), key=lambda item: item[1])
        if rates.is_above(total, limit):
            message = f"{sum_here}, above {key}, {units.format_rate(limit)}: the rest will be held (site-limit)"
            yield menu, Problem(*place, message, f"if the site agrees, raise {key}", "site-over-limit")


DAY = timedelta(days=1)  # a rule that lives longer is reported
WEEK = timedelta(days=7)  # `run` wants one that lives longer accepted; DC24 used 1 to 3 h
TOO_HIGH, TOO_LOW = 5.0, 20.0  # times above or below the median of the scenario's links; small sites are usual
FAR = 100.0  # the same of all links of the menu, for a scenario of few links
SPREAD = 3.0  # times the median distance from the median
NEAR = 1e-9  # what logarithms may lose
NEIGHBOURS = 3  # fewest other links that a rate is compared with


def outlier_findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    for menu in campaign.menus:
        found = (*_outliers(menu), *_smallest_first(menu), *_long_lives(menu), *_unused_catch_ups(menu))
        yield from ((menu, problem) for problem in found)


def _outliers(menu: Menu) -> Iterator[Problem]:
    """Find rates far from those of the scenario, or for a scenario of few links from those of the whole menu."""
    scenarios = grouped((flow.scenario, flow) for flow in menu.flows if flow.stated)
    every = [flow for flows in scenarios.values() for flow in flows]
    for scenario, flows in scenarios.items():
        few = len(flows) <= NEIGHBOURS
        neighbours, high, low = (every, FAR, FAR) if few else (flows, TOO_HIGH, TOO_LOW)
        if len(neighbours) > NEIGHBOURS:
            yield from _far_from(neighbours, flows, "this menu" if few else scenario, high, low)


def _far_from(neighbours: list[Flow], flows: list[Flow], where: str, high: float, low: float) -> Iterator[Problem]:
    """Find rates far above or below the median, measured in orders of magnitude and against the usual distance.

    A rate is far if its ratio to the median is above `high`, or below 1 / `low`, and if its distance in logarithms
    is also more than SPREAD times the median distance: so one mistake does not move what the others are compared
    with, and a scenario whose rates differ much by intention has no findings.
    """
    logs = [math.log(flow.rate) for flow in neighbours]
    median = statistics.median(logs)
    usual = SPREAD * statistics.median(abs(each - median) for each in logs)
    for flow in flows:
        distance = math.log(flow.rate) - median
        if abs(distance) > max(usual, math.log(high if distance > 0 else low) + NEAR):
            times = f"{math.exp(abs(distance)):.1f} times{'' if distance > 0 else ' below'} the median"
            yield _ask_to_accept(
                flow,
                "rate-outlier",
                f"{flow.link.shown} has {units.format_rate(flow.rate)}, {times} "
                f"of its neighbours in {where}, {units.format_rate(math.exp(median))}",
                "is the unit right? if it is meant: `accept: [rate-outlier]`",
            )


def _smallest_first(menu: Menu) -> Iterator[Problem]:
    scenarios = set()
    for flow in menu.flows:
        if flow.order == Order.SMALLEST_FIRST and flow.scenario not in scenarios:
            scenarios.add(flow.scenario)
            yield _ask_to_accept(
                flow,
                "smallest-first",
                f"the scenario {flow.scenario} takes the smallest datasets first",
                "many small files move slowly; if it is meant: `accept: [smallest-first]`",
            )


def _long_lives(menu: Menu) -> Iterator[Problem]:
    longest: dict[str, Flow] = {}
    for flow in menu.flows:
        if flow.lifetime_max > DAY:
            longest[flow.scenario] = max(longest.get(flow.scenario, flow), flow, key=lambda one: one.lifetime_max)
    for flow in longest.values():
        lives = units.format_duration(flow.lifetime_max)
        problem = _ask_to_accept(
            flow,
            "long-lifetime",
            f"rules and jobs of {flow.scenario} may live {lives}: so long traffic goes on if the injector dies",
            "lower `lifetime: {max: ...}`; hours are usual; if it is meant: `accept: [long-lifetime]`",
        )
        yield replace(problem, needs_accepting=flow.lifetime_max > WEEK)


def _unused_catch_ups(menu: Menu) -> Iterator[Problem]:
    """Find what no link with control has: most likely the `mode` was forgotten."""
    users: dict[timedelta, list[Flow]] = {}
    for flow in menu.flows:
        users.setdefault(flow.control.catch_up, []).append(flow)
    for catch_up, flows in users.items():
        if catch_up != UNCONTROLLED.catch_up and all(flow.control.mode is Mode.OFF for flow in flows):
            yield Problem(
                flows[0].menu,
                flows[0].line,
                f"`catch_up: {units.format_duration(catch_up)}` does nothing, since `control` is off",
                "add `mode: act` to `control`; if it is meant: `accept: [unused-catch-up]`",
                "unused-catch-up",
            )


def _ask_to_accept(flow: Flow, code: str, message: str, hint: str) -> Problem:
    return Problem(flow.menu, flow.line, message, hint, code, needs_accepting=True)


def source_findings(campaign: Campaign) -> Iterator[Finding]:
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
