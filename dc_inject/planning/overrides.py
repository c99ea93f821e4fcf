"""Overrides: what a person sets over the menus while they run, another rate for a subject or a part of its own.

    flows in force  =  overlaid(flows of the menus, overrides)

An override is for a subject: `*` (the campaign), a scenario, or a link `SRC:DST`. A rate is what the flows of
the subject sum to at most in each menu, shared as the menu shares; it is constant, whatever the menu's shape.
Rates are taken from the widest subject to the narrowest, so that a link's own rate holds also where its scenario
has one. Scales multiply what is left, goals included, each with all others. Nothing depends on the order in which
overrides were made, and without overrides the flows are those of the menus.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dc_inject.model import Campaign, Flow, Menu, rates
from dc_inject.model.goals import Goal, SecondHop, Volume
from dc_inject.model.overrides import EVERYTHING, Kind, Override, covers


def apply_overrides(campaign: Campaign, overrides: Iterable[Override]) -> Campaign:
    """Return a campaign as it is with these overrides."""
    in_force = tuple(overrides)
    if not in_force:
        return campaign
    return replace(campaign, menus=tuple(_over(menu, in_force) for menu in campaign.menus))


def _over(menu: Menu, overrides: Iterable[Override]) -> Menu:
    """Return a menu with overrides; a rate is shared with the links that other shards have."""
    count, flows = len(menu.flows), changed((*menu.flows, *menu.elsewhere), overrides)
    return replace(menu, flows=flows[:count], elsewhere=flows[count:])


def changed(flows: Sequence[Flow], overrides: Iterable[Override]) -> tuple[Flow, ...]:
    """Return the flows of one menu as they are with these overrides, in their order."""
    in_order = sorted(overrides, key=lambda override: (override.subject, override.kind))
    result = list(flows)
    for override in sorted((o for o in in_order if o.kind is Kind.RATE), key=lambda o: _width(o.subject, flows)):
        ours = [number for number, flow in enumerate(flows) if covers(override.subject, flow.key)]
        for number, flow in zip(ours, _sharing([result[number] for number in ours], override.value), strict=True):
            result[number] = flow
    scales = [override for override in in_order if override.kind is Kind.SCALE]
    return tuple(
        rates.scaled(flow, math.prod(o.value for o in scales if covers(o.subject, flow.key))) for flow in result
    )


def _width(subject: str, flows: Iterable[Flow]) -> int:
    """Return how wide a subject is: everything before a scenario before a link."""
    if subject == EVERYTHING:
        return 0
    return 1 if any(flow.scenario == subject for flow in flows) else 2


def _sharing(flows: Iterable[Flow], rate: float) -> list[Flow]:
    """Return flows that sum to a rate at most, in the proportion of their own highest rates.

    Second hops follow their first ones, whose rate alone a scenario has.
    """
    even = [replace(flow, shape=None, goal=_paced(flow)) for flow in flows]
    first_hops = [flow for flow in even if not isinstance(flow.goal, SecondHop)]
    total = rates.peak(first_hops or even).rate
    return [replace(flow, rate=rate * (flow.rate / total)) for flow in even]


def _paced(flow: Flow) -> Goal | None:
    """Return the goal of a flow that has a rate of its own now."""
    return replace(flow.goal, steady=False) if isinstance(flow.goal, Volume) else flow.goal
