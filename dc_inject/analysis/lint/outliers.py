"""Likely mistakes: a rate far above its neighbours, small datasets first, rules that live for days."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from dc_inject.analysis.lint.capacity import Finding
from dc_inject.model import Campaign, Flow, Menu, Order, units
from dc_inject.model.errors import Problem

DAY = timedelta(days=1)  # a rule that lives longer is reported
WEEK = timedelta(days=7)  # `run` wants one that lives longer accepted; DC24 used 1 to 3 h
OUTLIER = 5.0  # times the median of the other links
NEIGHBOURS = 3  # fewest other links that a rate is compared with


def findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each."""
    for menu in campaign.menus:
        yield from ((menu, problem) for problem in (*_outliers(menu), *_smallest_first(menu), *_long_lives(menu)))


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
            yield _problem(
                flow,
                "rate-outlier",
                f"{flow.link.shown} has {units.format_rate(flow.rate)}, {flow.rate / median:.1f} times the median "
                f"of its neighbours in {flow.scenario}, {units.format_rate(median)}",
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


def _median_without(ordered: list[float], index: int) -> float:
    """Return the median of sorted numbers, one of them left out."""

    def other(place: int) -> float:
        return ordered[place if place < index else place + 1]

    rest = len(ordered) - 1
    return (other((rest - 1) // 2) + other(rest // 2)) / 2
