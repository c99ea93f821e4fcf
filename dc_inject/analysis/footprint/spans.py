"""The time line of several campaigns: spans in which no rate jumps or turns, and what flows in each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from dc_inject.model import Campaign, Flow, FlowKey, rates
from dc_inject.model.rates import site_of
from dc_inject.planning import pace

_MICROSECOND, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)


class Stream(NamedTuple):
    """Flows of one scenario whose rates go up and down together: with one window, shape, and exclusions."""

    campaign: Campaign
    flows: tuple[Flow, ...]

    @property
    def first(self) -> Flow:
        """A flow that has the rates of all together, for what is the same for each of them."""
        return replace(self.flows[0], rate=math.fsum(flow.rate for flow in self.flows))


Levels = tuple[tuple[int, float], ...]  # the number of a stream, and the part of its rates that flows


class Span(NamedTuple):
    """A span of time, and the streams that flow in it.

    `moments` are their levels at its begin and just before its end: between them they go in straight lines. There
    is only one where nothing changes.
    """

    start: datetime
    end: datetime
    moments: tuple[Levels, ...]


def streams(campaigns: Sequence[Campaign]) -> list[Stream]:
    """Return what flows in campaigns; volumes end when they are there, to the second: shares of one at once.

    Second hops end when all that lands has gone on, at their rates.
    """
    together: dict[tuple[object, ...], list[Flow]] = {}
    campaign_of: dict[tuple[object, ...], Campaign] = {}
    for number, campaign in enumerate(campaigns):
        sites = _sites(campaign)
        exclusions = list(enumerate(exclusion for menu in campaign.menus for exclusion in menu.exclusions))
        for flow, bounded in zip(campaign.flows, rates.with_landed(campaign.flows), strict=True):
            ended = flow if flow.goal is None else replace(flow, end=_second(rates.until_done(bounded).end))
            out = tuple(
                n for n, exclusion in exclusions if pace.covers(exclusion, flow.scenario, flow.link, sites)
            )
            key = number, flow.scenario, ended.start, ended.end, flow.shape, out
            together.setdefault(key, []).append(ended)
            campaign_of[key] = campaign
    return [Stream(campaign_of[key], tuple(flows)) for key, flows in together.items()]


def spans(campaigns: Sequence[Campaign], flowing: Sequence[Stream]) -> Iterator[Span]:
    """Yield the spans between the first start and the last end of all campaigns, whose streams are `flowing`."""
    firsts = [stream.first for stream in flowing]
    borders = {moment for first in firsts for moment in (first.start, first.end)}
    for shape, start, end in {(first.shape, first.start, first.end) for first in firsts}:
        borders |= set() if shape is None else set(shape.corners(start, end))
    for campaign in campaigns:
        ends = {
            moment
            for menu in campaign.menus
            for exclusion in menu.exclusions
            for moment in (exclusion.start, exclusion.end)
        }
        borders |= {moment for moment in ends if campaign.start < moment < campaign.end}
    for start, end in pairwise(sorted(borders)):
        now = [n for n, first in enumerate(firsts) if first.start < end and start < first.end]
        moments = [start] if all(firsts[n].shape is None for n in now) else [start, end - _MICROSECOND]
        levels = [
            _levels(campaigns, flowing, {n: firsts[n] for n in now}, (start, end), moment) for moment in moments
        ]
        yield Span(start, end, tuple(levels))


def _levels(
    campaigns: Sequence[Campaign],
    flowing: Sequence[Stream],
    firsts: Mapping[int, Flow],
    span: tuple[datetime, datetime],
    moment: datetime,
) -> Levels:
    """Return the levels of streams at a moment of a span in which none begins or ends."""
    levels: list[tuple[int, float]] = []
    for campaign in campaigns:
        own = {n: first for n, first in firsts.items() if flowing[n].campaign is campaign and first.rate > 0}
        exclusions = [exclusion for menu in campaign.in_force(*span) for exclusion in menu.exclusions]
        rate_of: Mapping[FlowKey, float] = pace.rate(own.values(), exclusions, _sites(campaign), moment)
        levels += [(n, rate_of[first.key] / first.rate) for n, first in own.items()]
    return tuple((n, float(f"{level:.12g}")) for n, level in levels)


def _sites(campaign: Campaign) -> dict[str, str]:
    return site_of(site for menu in campaign.menus for site in menu.sites)


def _second(moment: datetime) -> datetime:
    return (moment + _SECOND / 2).replace(microsecond=0)
