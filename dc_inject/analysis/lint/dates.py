"""How the menus of a campaign follow each other, what each sums to, and what cannot be told apart in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from dc_inject.analysis.lint.capacity import Finding
from dc_inject.model import Campaign, Flow, Link, Menu, rates, units
from dc_inject.model.errors import Problem

TARGET_TOLERANCE = 0.01
LONGEST_GAP = timedelta(days=30)  # between menus; after a longer one `run` wants the menu accepted
FAR_AHEAD = timedelta(days=300)  # a menu that begins later may name a wrong year


def findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    for menu in campaign.menus:
        yield from _target(menu)
    ordered = sorted(campaign.menus, key=lambda menu: (menu.start, menu.end, menu.name))
    yield from _gaps(ordered)
    yield from _overlaps(ordered)
    yield from _scenarios(campaign)


def far_ahead(campaign: Campaign, now: datetime) -> tuple[Problem, ...]:
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
        yield menu, Problem(menu.name, menu.target_line, message, hint, "target-differs", outlier=True)


def _gaps(menus: Sequence[Menu]) -> Iterator[Finding]:
    """Find times between the first start and the last end in which no menu is in force."""
    last = menus[0]
    for menu in menus[1:]:
        if menu.start > last.end:
            gap = units.format_duration(menu.start - last.end)
            message = f"no menu is in force for {gap} before {_at(menu.start)}, from the end of {last.name}"
            hint = "move `start`, or the other's `end`; if the pause is intended: `accept: [window-gap]`"
            yield (
                menu,
                Problem(menu.name, 1, message, hint, "window-gap", outlier=menu.start - last.end > LONGEST_GAP),
            )
        last = max(last, menu, key=lambda either: either.end)


def _overlaps(menus: Sequence[Menu]) -> Iterator[Finding]:
    """Find windows that reach into the next one; one that lies inside of another is meant to add to it."""
    for before, menu in pairwise(menus):
        if before.start < menu.start < before.end < menu.end:
            span = units.format_duration(before.end - menu.start)
            message = (
                f"it begins {span} before {before.name} ends at {_at(before.end)}: their rates add up until then"
            )
            hint = "move `start`, or the other's `end`; if they should add up: `accept: [window-overlap]`"
            yield menu, Problem(menu.name, 1, message, hint, "window-overlap")


def _scenarios(campaign: Campaign) -> Iterator[Finding]:
    """Find scenarios that share links at one time; one finding for the links that the same scenarios share."""
    on: dict[Link, list[tuple[Menu, Flow]]] = {}
    for menu in campaign.menus:
        for flow in menu.flows:
            on.setdefault(flow.link, []).append((menu, flow))
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
        message += ": network monitoring cannot tell their traffic apart"
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


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%MZ")
