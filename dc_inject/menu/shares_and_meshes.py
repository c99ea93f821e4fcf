"""From a scenario to links: shares, meshes, both ways and lists of links become flows, one for each link.

A scenario is written in one of three ways. `from` and `to` make every pair but self-pairs, each with the product
of its ends' shares; `mesh` makes every ordered pair, in equal shares; `links` names each link with its own rate.
The demand of a scenario (a rate with its shape, and a goal) is divided by the shares, and the bytes of a
goal sum exactly. An expression divides its share among its RSEs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dc_inject.menu import second_hops
from dc_inject.menu.endpoints import EndpointResolver
from dc_inject.menu.fields import LinkEnds
from dc_inject.menu.nodes import Complain, Place
from dc_inject.menu.schema import Document, LinkEntry, Scenario
from dc_inject.menu.terms import Terms, build_shape, terms
from dc_inject.model import Flow, FlowKey, Link, units
from dc_inject.model.goals import Goal, Keep, Recycle, Volume
from dc_inject.model.services import Service
from dc_inject.model.shape import Shape

MOST_LINKS = 100_000  # of one menu
Pairs = dict[tuple[str, str], float]  # (source, destination) -> share of the rate


class _Ask(NamedTuple):
    """What links share: a rate (bytes per second, NaN if it was not understood), its shape, and a goal."""

    rate: float
    shape: Shape | None
    goal: Goal | None

    def shared(self, shares: Sequence[float], total: float) -> Iterator[_Ask]:
        """Yield what each of some shares of a total gets; the bytes of a goal sum exactly."""
        before = 0.0
        for share in shares:
            after = before + share
            goal = self.goal
            if isinstance(goal, Volume | Keep):
                first, last = (round(goal.bytes * edge / total) for edge in (before, after))
                goal = replace(goal, bytes=last - first)
            yield _Ask(self.rate * share / total, self.shape, goal)
            before = after


class FlowWriter:
    """Writes the flows of a menu out; what is wrong with a scenario or link is complained of at its place."""

    def __init__(self, document: Document, endpoints: EndpointResolver, complain: Complain) -> None:
        """Take the menu, the resolver of ends, and where to complain."""
        self._document = document
        self._endpoints = endpoints
        self._complain = complain
        self.tape_agreed: dict[str, str] = {rse: str(who) for rse, who in document.tape.items()}

    def flows(self) -> tuple[Flow, ...]:
        """Return the flows of all scenarios, in the menu's order."""
        flows: list[Flow] = []
        for name, scenario in self._document.scenarios.items():
            named = [one for one in (scenario, self._document.defaults) if one and one.written("through")]
            if named and named[0].has_refused("through"):
                continue  # whatever else is wrong may follow from it
            first_hops = list(self._scenario(name, scenario))
            if scenario.then is not None and any(flow.slices for flow in first_hops):
                hint = "second hops need whole datasets: write `datasets: {slices: no}` there"
                self._complain(scenario.at("then"), "`slices` cannot go with `then`", hint)
            onward = second_hops.second(name, scenario, first_hops, self._endpoints, self._complain)
            if scenario.then is not None and scenario.then.tape_agreed is not None:
                self.tape_agreed |= {flow.link.destination: scenario.then.tape_agreed for flow in onward}
            for flow in (*first_hops, *onward):
                if len(flows) == MOST_LINKS:
                    message = f"the menu has more than {MOST_LINKS} links"
                    self._complain(scenario.place, message, "split it into several menus")
                    return tuple(flows)
                flows.append(flow)
        return tuple(flows)

    def _scenario(self, name: str, scenario: Scenario) -> Iterator[Flow]:
        ways = [way for way, keys in _WAYS.items() if any(map(scenario.written, keys))]
        if len(ways) != 1:
            message = f"the scenario has {' and '.join(ways)}" if ways else "the scenario has no links"
            hint = "write `from`, `to` and `rate`, or `mesh` and `rate`, or `links`"
            self._complain(scenario.place, message, hint)
        elif scenario.written("links"):
            yield from self._links(name, scenario)
        else:
            yield from self._shared(name, scenario)

    def _shared(self, name: str, scenario: Scenario) -> Iterator[Flow]:
        """Write out a scenario with one rate for all its links."""
        mesh = scenario.written("mesh")
        for key in ("from", "to") if not mesh else ():
            if not scenario.written(key):
                hint = f"add `{key}: ...`, one RSE, a list or shares"
                self._complain(scenario.place, f"`{key}` is missing", hint)
        turned = scenario.both_ways and not mesh
        if scenario.both_ways and not turned:
            self._complain(scenario.at("both_ways"), "a mesh goes both ways already", "remove `both_ways`")
        terms = self._terms(scenario)
        pairs: Pairs = {}
        if scenario.mesh:
            pairs = self._mesh(scenario.mesh, terms.service)
        elif scenario.from_ and scenario.to:
            pairs = self._products(scenario.from_, scenario.to, terms.service, scenario.at("to"))
        total = sum(pairs.values())
        if turned:
            pairs = self._both_ways(pairs, scenario.at("both_ways"))
        ask = self._ask(scenario, terms)
        if ask is not None:
            for pair, part in zip(pairs, ask.shared(list(pairs.values()), total), strict=True):
                yield _flow(name, pair, part, terms, scenario.place)

    def _links(self, name: str, scenario: Scenario) -> Iterator[Flow]:
        """Write out a scenario whose links have their own rates."""
        for key in ("rate", "volume", "keep", "again", "both_ways"):
            if scenario.written(key):
                self._complain(scenario.at(key), f"`{key}` cannot go with `links`", "write it on each link")
        common = None  # the terms of links without terms of their own
        for link in scenario.links or ():
            if link.keys <= _PLAIN:
                terms = common = common or self._terms(scenario)
            else:
                terms = self._terms(link, scenario)
            yield from self._link(name, link, terms)

    def _link(self, name: str, link: LinkEntry, terms: Terms) -> Iterator[Flow]:
        if link.from_ is None or link.to is None:
            return
        sources = self._endpoints.rses(link.from_, terms.service)
        destinations = self._endpoints.rses(link.to, terms.service, destination=True)
        pairs: Pairs = {(a, b): 1.0 for a in sources for b in destinations if a != b or self._endpoints.is_open(a)}
        if sources and destinations and not pairs:
            message = f"{sources[0]} is both source and destination"
            self._complain(link.place, message, "source and destination must differ")
        total = sum(pairs.values())
        if link.both_ways:
            pairs = self._both_ways(pairs, link.at("both_ways"))
        if link.tape_agreed is not None:
            self.tape_agreed.update(dict.fromkeys((*sources, *destinations), link.tape_agreed))
        ask = self._ask(link, terms)
        if ask is not None:
            stated = total == 1 and link.rate is not None
            for pair, part in zip(pairs, ask.shared(list(pairs.values()), total), strict=True):
                yield _flow(name, pair, part, terms, link.place, stated=stated)

    def _ask(self, entry: Scenario | LinkEntry, terms: Terms) -> _Ask | None:
        ask = _asked(entry, terms, ZoneInfo(self._document.timezone), self._complain)
        if terms.flow.slices and ask is not None and ask.goal is not None and not isinstance(ask.goal, Keep):
            hint = "slices are for rates and `keep`: write `datasets: {slices: no}` there"
            self._complain(entry.place, f"`slices` cannot go with `{ask.goal.kind}`", hint)
        return ask

    def _terms(self, *levels: Scenario | LinkEntry) -> Terms:
        defaults = self._document.defaults
        above = () if defaults is None else (defaults,)
        return terms(self._document, (*levels, *above), levels[0].place, self._complain)

    def _weights(self, ends: LinkEnds, service: Service, *, destination: bool = False) -> dict[str, float]:
        """Return RSEs with their shares: those of a map, divided among the RSEs of an expression; else 1 each."""
        weights: dict[str, float] = {}
        written: set[str] = set()
        for end in ends:
            names = self._endpoints.rses(end, service, destination=destination)
            for name in names:
                if name in weights and (
                    service.ends_are_urls or end.share is not None or end.text in written or end.text == name
                ):
                    hint = "name it once; `expression\\NAME` leaves it out"
                    self._complain(end.place, f"{name} is named twice", hint)
                weights[name] = 1.0 if end.share is None else end.share / len(names)
            written.add(end.text)
        return weights

    def _products(self, sources: LinkEnds, destinations: LinkEnds, service: Service, place: Place) -> Pairs:
        """Return all pairs but self-pairs, with the products of their shares."""
        left, right = self._weights(sources, service), self._weights(destinations, service, destination=True)
        if self._too_many(len(left) * len(right), place):
            return {}
        pairs = {
            (a, b): left[a] * right[b]
            for a in left
            for b in right
            if (a != b or self._endpoints.is_open(a)) and left[a] * right[b] != 0
        }
        if left and right and not pairs:
            end = next(iter(left))
            is_same = set(left) == set(right)
            message = f"{end} is both source and destination" if is_same else "the shares leave no link"
            self._complain(place, message, "source and destination must differ, with a share above 0")
        return pairs

    def _mesh(self, ends: LinkEnds, service: Service) -> Pairs:
        """Return every ordered pair, in equal shares."""
        names = list(self._weights(ends, service))
        if self._too_many(len(names) ** 2, ends[0].place):
            return {}
        if len(names) == 1 and not self._endpoints.is_open(names[0]):
            self._complain(ends[0].place, f"a mesh of one, {names[0]}, has no link", "name two RSEs or more")
        return {(a, b): 1.0 for a in names for b in names if a != b or self._endpoints.is_open(a)}

    def _both_ways(self, pairs: Pairs, place: Place) -> Pairs:
        """Return pairs with their reverses, which have the same shares."""
        turned = {(b, a): share for (a, b), share in pairs.items()}
        twice = [f"{a}:{b}" for a, b in turned if (a, b) in pairs and not self._endpoints.is_open(a)]
        if twice:
            message = f"`both_ways` makes {units.some(twice, 3)} a second time"
            self._complain(place, message, "remove `both_ways`, or write a `mesh`")
        return pairs | turned

    def _too_many(self, links: int, place: Place) -> bool:
        if links > MOST_LINKS:
            self._complain(place, f"this makes {links} links", f"a menu has at most {MOST_LINKS}")
        return links > MOST_LINKS


def check_twice(flows: tuple[Flow, ...], complain: Complain) -> None:
    """Complain of a link that is in one scenario twice at the same time."""
    flows_of: dict[FlowKey, list[Flow]] = {}
    for flow in flows:
        others = flows_of.setdefault(flow.key, [])
        first = next((other for other in others if other.start < flow.end and flow.start < other.end), None)
        if first is not None:
            place = f"line {first.line}" if first.menu == flow.menu else f"{first.menu}:{first.line}"
            complain(
                Place(flow.menu, flow.line),
                f"{flow.link.shown} is in the scenario {flow.scenario} twice at the same time, first in {place}",
                "add up their rates, or give them windows that do not overlap",
            )
        others.append(flow)


_WAYS = {"`from` and `to`": ("from", "to"), "`mesh`": ("mesh",), "`links`": ("links",)}
_PLAIN = {"from", "to", "rate", "volume", "keep", "again", "both_ways", "tape_agreed"}


def _flow(
    scenario: str, pair: tuple[str, str], ask: _Ask, terms: Terms, place: Place, *, stated: bool = False
) -> Flow:
    return replace(
        terms.flow,
        scenario=scenario,
        link=Link(*pair, terms.service.name),
        rate=ask.rate,
        shape=ask.shape,
        goal=ask.goal,
        overhead=0.0 if ask.goal else terms.flow.overhead,  # a goal is what is to arrive
        menu=place.file,
        line=place.line,
        stated=stated,
    )


def _asked(entry: Scenario | LinkEntry, terms: Terms, zone: ZoneInfo, complain: Complain) -> _Ask | None:
    """Return what an entry asks for; None when that cannot be understood, which is complained of."""
    goals = [key for key in ("volume", "keep", "again") if getattr(entry, key)]
    if len(goals) > 1:
        message = f"`{goals[1]}` cannot go with `{goals[0]}`"
        complain(entry.at(goals[1]), message, "write one of them together with `rate`")
        return None
    goal: Goal | None = None
    if entry.volume is not None:
        goal = Volume(entry.volume, steady=entry.rate is None)
    elif entry.keep is not None:
        goal = Keep(entry.keep)
    elif entry.again:
        goal = Recycle()
        if not terms.service.unique:
            message = (
                f"`again` has no effect: through {terms.service.title} the same {terms.service.items} may go "
            )
            message += "out again at once"
            complain(entry.at("again"), message, "remove it")
    rate = entry.rate if entry.rate is not None else _even(entry, terms, complain)
    if rate is None:
        return None
    return _Ask(rate, build_shape(terms, rate, zone, complain), goal)


def _even(entry: Scenario | LinkEntry, terms: Terms, complain: Complain) -> float | None:
    """Return the rate of a volume that has none: even over its window."""
    if entry.written("rate"):
        return math.nan  # refused, with a complaint
    if not entry.written("volume"):
        hint = "add `rate: ...`, such as `rate: 10 Gb/s`"
        if entry.again:
            hint = "`again` needs a highest rate: add `rate: ...`"
        elif entry.written("keep"):
            hint = "`keep` needs a highest rate: add `rate: ...`"
        elif isinstance(entry, Scenario):
            hint = "add `rate: ...`, which its links share, such as 10 Gb/s"
        complain(entry.place, "`rate` is missing", hint)
        return None
    if terms.shape is not None and not terms.shape.constant:
        message = "the shape has no `rate`"
        complain(entry.at("volume"), message, "add `rate: ...`, or write `shape: constant`")
    start, end = terms.flow.start, terms.flow.end
    if entry.volume is None or start.year < 2000 or end.year >= 2200 or start >= end:
        return math.nan
    return entry.volume / (end - start).total_seconds()
