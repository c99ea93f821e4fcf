"""Planned flows: what menus will send from site to site: when, how fast and how much.

This is for those who prepare for it: sites, and networks that reserve paths (SENSE), move traffic to other paths
(NOTED), or want to know what they see. The flows of all links between two sites for one purpose (a scenario and an
activity) are one. It goes on as long as its rate is constant; where the rate rises or falls, each straight piece
of it is a flow of its own, with its mean and its highest rate.

Volumes end when they have arrived, and second hops when all that lands has gone on, if all goes well. An RSE that
no menu gives a site is a site of its own, and so is the host of a URL prefix. Inside of a site, source and
destination are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dc_inject.analysis.footprint.adding import Span, Stream, spans, streams
from dc_inject.model import Campaign, Link
from dc_inject.model.rates import site_of
from dc_inject.model.urls import host_of


class Purpose(NamedTuple):
    """What the links of one planned flow have in common; `scitag` is that of their menu."""

    campaign: str
    scenario: str
    service: str
    activity: str
    scitag: int | None
    source_site: str
    destination_site: str


class PlannedFlow(NamedTuple):
    """A flow between two sites: its mean and its highest rate in bytes per second, and its volume in bytes."""

    purpose: Purpose
    start: datetime
    end: datetime
    links: frozenset[Link]
    rate: float
    peak: float
    bytes: float


def planned_flows(
    campaign: Campaign, since: datetime | None = None, until: datetime | None = None
) -> list[PlannedFlow]:
    """Return what flows in a campaign, by time and purpose; of a time, all that flows at any moment of it."""
    flowing = streams([campaign])
    parts = [_parts(stream) for stream in flowing]
    done: list[PlannedFlow] = []
    current: dict[Purpose, PlannedFlow] = {}
    for span in spans([campaign], flowing):
        flows = _flows(span, parts)
        done += (flow for purpose, flow in current.items() if not _goes_on(flow, flows.get(purpose)))
        current = {
            purpose: _joined(current[purpose], flow) if _goes_on(current.get(purpose), flow) else flow
            for purpose, flow in flows.items()
        }
    done += current.values()
    wanted = (f for f in done if (until is None or f.start < until) and (since is None or since < f.end))
    return sorted(
        wanted, key=lambda flow: (flow.start, *("" if part is None else str(part) for part in flow.purpose))
    )


Parts = Mapping[Purpose, tuple[float, frozenset[Link]]]  # rates by purpose, and the links that have them


def _flows(span: Span, parts: Sequence[Parts]) -> dict[Purpose, PlannedFlow]:
    """Return what flows in a span; `parts` are the full rates of each stream."""
    ends: dict[Purpose, list[float]] = {}
    links: dict[Purpose, frozenset[Link]] = {}
    for place, levels in enumerate(span.moments):
        for number, level in levels:
            for purpose, (rate, links_of_rate) in parts[number].items() if level else ():
                ends.setdefault(purpose, [0.0] * len(span.moments))[place] += rate * level
                links[purpose] = links.get(purpose, links_of_rate) | links_of_rate
    seconds = (span.end - span.start).total_seconds()
    means = {purpose: sum(rates) / len(rates) for purpose, rates in ends.items()}
    return {
        purpose: PlannedFlow(
            purpose, span.start, span.end, links[purpose], mean, max(ends[purpose]), mean * seconds
        )
        for purpose, mean in means.items()
    }


def _parts(stream: Stream) -> Parts:
    """Return the full rates of a stream."""
    sites = site_of(stream.campaign)
    rates: dict[Purpose, float] = defaultdict(float)
    links: dict[Purpose, set[Link]] = defaultdict(set)
    for flow in stream.flows:
        source, destination, through = flow.link
        purpose = Purpose(
            stream.campaign.name,
            flow.scenario,
            through,
            flow.activity,
            None if flow.job is None else flow.job.scitag,
            sites.get(source) or host_of(source),
            sites.get(destination) or host_of(destination),
        )
        rates[purpose] += flow.rate
        links[purpose].add(flow.link)
    return {purpose: (rate, frozenset(links[purpose])) for purpose, rate in rates.items()}


def _goes_on(flow: PlannedFlow | None, later: PlannedFlow | None) -> bool:
    """Whether a flow just goes on as the later one, at the same constant rate."""
    if flow is None or later is None:
        return False
    return (flow.end, flow.links, flow.peak) == (later.start, later.links, later.peak) and all(
        planned.rate == planned.peak for planned in (flow, later)
    )


def _joined(flow: PlannedFlow, later: PlannedFlow) -> PlannedFlow:
    return flow._replace(end=later.end, bytes=flow.bytes + later.bytes)
