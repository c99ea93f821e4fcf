"""Second hops: the flow that `then:` of a menu makes, from where first hops end to where what has landed goes on.

What goes on, and when, is in `planning/second_hops.py`: a dataset once; of a job also, later on, what failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dc_inject.menu.endpoints import EndpointResolver
from dc_inject.menu.nodes import Complain, Place
from dc_inject.menu.schema import Scenario, ThenEntry
from dc_inject.model import DatasetFilter, FileFilter, Flow, Link, units
from dc_inject.model.goals import SecondHop
from dc_inject.model.groups import grouped
from dc_inject.model.services import SERVICES, Service, titles


def second(
    name: str, scenario: Scenario, flows: Sequence[Flow], endpoints: EndpointResolver, complain: Complain
) -> list[Flow]:
    """Return the links from where a scenario's first hops end; `flows` are those first hops.

    Without a rate of its own a second hop may have that of all that goes to where it begins.
    """
    entry = scenario.then
    if entry is None or not flows:
        return []
    services = {flow.link.through for flow in flows}
    if len(services) > 1:
        names = titles(service for service in SERVICES.values() if service.name in services)
        message = f"`then`: what lands comes through {names}"
        complain(entry.place, message, "write a scenario for each service")
        return []
    service = SERVICES[services.pop()]
    into = grouped((flow.link.destination, flow) for flow in flows)
    targets = dict(_targets(entry, into, service, endpoints, complain))
    whole = sum(flow.rate for place in targets for flow in into[place])
    return [
        _onward(
            name, entry, Link(place, end, service.name), into[place], whole if entry.rate is not None else None
        )
        for place, end in targets.items()
    ]


def check_one_way(flows: Iterable[Flow], complain: Complain) -> None:
    """Complain where what lands in a scenario would go on to two places at one time: each copy goes on once."""
    flows_from: dict[tuple[str, str, str], list[Flow]] = {}
    for flow in flows:
        if not isinstance(flow.goal, SecondHop):
            continue
        others = flows_from.setdefault((flow.scenario, flow.link.source, flow.link.through), [])
        for other in others:
            if other.link != flow.link and other.start < flow.end and flow.start < other.end:
                message = f"`then`: what lands at {flow.link.source} in the scenario {flow.scenario} goes on to "
                message += f"{other.link.destination} at the same time, by {other.menu}:{other.line}"
                hint = "give the scenarios two names, or the menus windows that do not overlap"
                complain(Place(flow.menu, flow.line), message, hint)
        others.append(flow)


def _targets(
    entry: ThenEntry,
    into: Mapping[str, Sequence[Flow]],
    service: Service,
    endpoints: EndpointResolver,
    complain: Complain,
) -> Iterator[tuple[str, str]]:
    """Yield where what lands at a place goes on to; what cannot be is complained of."""
    for first, last in entry.to or ():
        ends = endpoints.rses(last, service)
        if len(ends) > 1 or any(endpoints.is_open(end) for end in ends):
            complain(last.place, f"`then`: {last.text} is not a single RSE", "name the one RSE that it goes on to")
            continue
        landing = list(into) if first is None else endpoints.rses(first, service)
        for place in landing if ends else ():
            if place == ends[0]:
                complain(last.place, f"`then`: {place} is where the first hop ends", "name another RSE")
            elif place in into:
                yield place, ends[0]
            elif first is not None and not any(endpoints.is_open(destination) for destination in into):
                hint = f"destinations: {units.some(sorted(into))}"
                complain(first.place, f"`then`: {place} is not a destination of the scenario", hint)


def _onward(name: str, entry: ThenEntry, link: Link, first: Iterable[Flow], whole: float | None) -> Flow:
    first_hops = list(first)
    rate = sum(flow.rate for flow in first_hops)
    return replace(
        first_hops[0],
        scenario=name,
        link=link,
        rate=rate if whole is None or entry.rate is None else entry.rate * rate / whole,
        shape=None,
        goal=SecondHop(),
        start=min(flow.start for flow in first_hops),
        end=max(flow.end for flow in first_hops),
        datasets=FileFilter(landed=name) if link.service.takes_files else DatasetFilter((), landed=name),
        activity=entry.activity or first_hops[0].activity,
        lifetime_min=min(flow.lifetime_min for flow in first_hops),
        lifetime_max=max(flow.lifetime_max for flow in first_hops),
        dwell=max(flow.dwell for flow in first_hops),
        overhead=0.0,
        slices=None,
        menu=entry.place.file,
        line=entry.place.line,
        stated=False,
    )
