"""The time line of several campaigns: spans in which no rate changes, and what flows in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from dc_inject import pace, rates
from dc_inject.menu import site_of
from dc_inject.model import Campaign, Flow

_MICROSECOND, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)

Rate = tuple[Campaign, Flow, float]  # bytes per second, overhead included


class Span(NamedTuple):
    """A span of time, and every flow that has a rate in it.

    `moments` are the rates at its begin and just before its end: between them they go in straight lines. There is
    only one where no rate changes.
    """

    start: datetime
    end: datetime
    moments: tuple[Sequence[Rate], ...]


def spans(campaigns: Sequence[Campaign]) -> Iterator[Span]:
    """Yield the spans between the first start and the last end of all campaigns."""
    known = [_until_done(campaign) for campaign in campaigns]
    borders = {moment for campaign in known for moment in _borders(campaign)}
    for start, end in pairwise(sorted(borders)):
        first = [one for campaign in known for one in _rates(campaign, start, end, start)]
        moments: tuple[Sequence[Rate], ...] = (first,)
        if any(flow.shape is not None for _, flow, _ in first):
            last = [one for campaign in known for one in _rates(campaign, start, end, end - _MICROSECOND)]
            moments = first, last
        yield Span(start, end, moments)


def _until_done(campaign: Campaign) -> Campaign:
    """Return a campaign whose volumes end when they are there, to the second: links that share one end at once."""
    menus = []
    for menu in campaign.menus:
        flows = [rates.until_done(flow) for flow in menu.flows]
        ended = [replace(flow, end=_second(flow.end)) if flow.goal is not None else flow for flow in flows]
        menus.append(replace(menu, flows=tuple(ended)))
    return replace(campaign, menus=tuple(menus))


def _second(moment: datetime) -> datetime:
    return (moment + _SECOND / 2).replace(microsecond=0)


def _borders(campaign: Campaign) -> set[datetime]:
    """Return the moments at which a rate of the campaign may jump, or turn."""
    found: set[datetime] = set()
    for menu in campaign.menus:
        found |= {menu.start, menu.end}
        found |= {moment for flow in menu.flows for moment in (flow.start, flow.end)}
        for shape, start, end in {(flow.shape, flow.start, flow.end) for flow in menu.flows}:
            found |= set() if shape is None else set(shape.corners(start, end))
        limits = (moment for part in menu.exclusions for moment in (part.start, part.end))
        found |= {moment for moment in limits if campaign.start < moment < campaign.end}
    return found


def _rates(campaign: Campaign, start: datetime, end: datetime, moment: datetime) -> Iterator[Rate]:
    """Yield the rates at a moment of a span in which no flow begins or ends."""
    menus = campaign.in_force(start, end)
    flows = [flow for menu in menus for flow in menu.flows if flow.start < end and start < flow.end]
    exclusions = [exclusion for menu in menus for exclusion in menu.exclusions]
    sites = site_of(site for menu in campaign.menus for site in menu.sites)
    speaking = {flow.key: flow for flow in flows}
    for key, rate in pace.rate(flows, exclusions, sites, moment).items():
        if rate > 0 or speaking[key].shape is not None:
            flow = speaking[key]
            yield campaign, flow, rate * (1 + (flow.overhead if flow.goal is None else 0.0))
