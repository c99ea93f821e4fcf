"""Likely mistakes: a rate far from its neighbours', small datasets first, rules that live for days."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from dc_inject.analysis.lint.capacity import Finding
from dc_inject.model import Campaign, Flow, Menu, Order, units
from dc_inject.model.errors import Problem

DAY = timedelta(days=1)  # a rule that lives longer is reported
WEEK = timedelta(days=7)  # `run` wants one that lives longer accepted; DC24 used 1 to 3 h
TOO_HIGH, TOO_LOW = 5.0, 20.0  # times above or below the median of the scenario's links; small sites are usual
FAR = 100.0  # the same of all links of the menu, for a scenario of few links
SPREAD = 3.0  # times the median distance from the median
NEAR = 1e-9  # what logarithms may lose
NEIGHBOURS = 3  # fewest other links that a rate is compared with


def findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    for menu in campaign.menus:
        yield from ((menu, problem) for problem in (*_outliers(menu), *_smallest_first(menu), *_long_lives(menu)))


def _outliers(menu: Menu) -> Iterator[Problem]:
    """Find rates far from those of the scenario, or for a scenario of few links from those of the whole menu."""
    scenarios: dict[str, list[Flow]] = {}
    for flow in menu.flows:
        if flow.stated:
            scenarios.setdefault(flow.scenario, []).append(flow)
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
            yield _problem(
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
            yield _problem(
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
        problem = _problem(
            flow,
            "long-lifetime",
            f"rules and jobs of {flow.scenario} may live {lives}: so long traffic goes on if the injector dies",
            "lower `lifetime: {max: ...}`; hours are usual; if it is meant: `accept: [long-lifetime]`",
        )
        yield replace(problem, outlier=flow.lifetime_max > WEEK)


def _problem(flow: Flow, code: str, message: str, hint: str) -> Problem:
    return Problem(flow.menu, flow.line, message, hint, code, outlier=True)
