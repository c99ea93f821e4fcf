"""Scenarios written out: each becomes flows, one for each link, with the rate shared among them."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from dc_inject.menu import asks, hops
from dc_inject.menu.asks import Ask
from dc_inject.menu.ends import MOST_LINKS, Naming, Pairs
from dc_inject.menu.nodes import Complain, Place
from dc_inject.menu.schema import Document, LinkEntry, Scenario
from dc_inject.menu.terms import Terms, terms
from dc_inject.model import Flow, FlowKey, Link, Order
from dc_inject.model.goals import Keep


class Writer:
    """Writes the flows of a menu out; what is wrong with a scenario or link is complained of at its place."""

    def __init__(self, document: Document, naming: Naming, complain: Complain) -> None:
        """Take the menu, what tells RSEs, and where to complain."""
        self._document = document
        self._naming = naming
        self._complain = complain
        self.tape_agreed: dict[str, str] = {rse: str(who) for rse, who in document.tape.items()}

    def flows(self) -> tuple[Flow, ...]:
        """Return the flows of all scenarios, in the menu's order."""
        flows: list[Flow] = []
        for name, scenario in self._document.scenarios.items():
            made = list(self._scenario(name, scenario))
            if scenario.then is not None and any(flow.slices for flow in made):
                hint = "whole datasets go on: write `datasets: {slices: no}` there"
                self._complain(scenario.at("then"), "`slices` cannot go with `then`", hint)
            onward = hops.second(name, scenario, made, self._naming, self._complain)
            if scenario.then is not None and scenario.then.tape_agreed is not None:
                self.tape_agreed |= {flow.link.destination: scenario.then.tape_agreed for flow in onward}
            for flow in (*made, *onward):
                if len(flows) == MOST_LINKS:
                    what = f"the menu has more than {MOST_LINKS} links"
                    self._complain(scenario.place, what, "split it into several menus")
                    return tuple(flows)
                flows.append(flow)
        return tuple(flows)

    def _scenario(self, name: str, scenario: Scenario) -> Iterator[Flow]:
        ways = [way for way, keys in _WAYS.items() if any(map(scenario.written, keys))]
        if len(ways) != 1:
            what = f"the scenario has {' and '.join(ways)}" if ways else "the scenario has no links"
            self._complain(scenario.place, what, "write `from`, `to` and `rate`, or `mesh` and `rate`, or `links`")
        elif scenario.written("links"):
            yield from self._links(name, scenario)
        else:
            yield from self._shared(name, scenario)

    def _shared(self, name: str, scenario: Scenario) -> Iterator[Flow]:
        """Write out a scenario with one rate for all its links."""
        mesh = scenario.written("mesh")
        for key in ("from", "to") if not mesh else ():
            if not scenario.written(key):
                self._complain(
                    scenario.place, f"`{key}` is missing", f"add `{key}: ...`, one RSE, a list or shares"
                )
        turned = scenario.both_ways and not mesh
        if scenario.both_ways and not turned:
            self._complain(scenario.at("both_ways"), "a mesh goes both ways already", "remove `both_ways`")
        said = self._terms(scenario)
        pairs: Pairs = {}
        if scenario.mesh:
            pairs = self._naming.mesh(scenario.mesh, said.through)
        elif scenario.from_ and scenario.to:
            pairs = self._naming.products(scenario.from_, scenario.to, said.through, scenario.at("to"))
        total = sum(pairs.values())
        if turned:
            pairs = self._naming.both_ways(pairs, scenario.at("both_ways"))
        ask = self._ask(scenario, said)
        if ask is not None:
            for pair, part in zip(pairs, ask.shared(list(pairs.values()), total), strict=True):
                yield _flow(name, pair, part, said, scenario.place)

    def _links(self, name: str, scenario: Scenario) -> Iterator[Flow]:
        """Write out a scenario whose links have their own rates."""
        for key in ("rate", "volume", "keep", "again", "both_ways"):
            if scenario.written(key):
                self._complain(scenario.at(key), f"`{key}` stands beside `links`", "write it on each link")
        common = None  # the terms of links that say nothing themselves
        for link in scenario.links or ():
            if link.keys <= _PLAIN:
                said = common = common or self._terms(scenario)
            else:
                said = self._terms(link, scenario)
            yield from self._link(name, link, said)

    def _link(self, name: str, link: LinkEntry, said: Terms) -> Iterator[Flow]:
        if link.from_ is None or link.to is None:
            return
        sources, destinations = (self._naming.rses(end, said.through) for end in (link.from_, link.to))
        pairs: Pairs = {(a, b): 1.0 for a in sources for b in destinations if a != b or self._naming.open(a)}
        if sources and destinations and not pairs:
            self._complain(link.place, f"{sources[0]} is source and destination", "a link has two different ends")
        total = sum(pairs.values())
        if link.both_ways:
            pairs = self._naming.both_ways(pairs, link.at("both_ways"))
        if link.tape_agreed is not None:
            self.tape_agreed.update(dict.fromkeys((*sources, *destinations), link.tape_agreed))
        ask = self._ask(link, said)
        if ask is not None:
            stated = total == 1 and link.rate is not None
            for pair, part in zip(pairs, ask.shared(list(pairs.values()), total), strict=True):
                yield _flow(name, pair, part, said, link.place, stated=stated)

    def _ask(self, entry: Scenario | LinkEntry, said: Terms) -> Ask | None:
        ask = asks.asked(entry, said, ZoneInfo(self._document.timezone), self._complain)
        if said.slices and ask is not None and ask.goal is not None and not isinstance(ask.goal, Keep):
            hint = "slices are for rates and `keep`: write `datasets: {slices: no}` there"
            self._complain(entry.place, f"`slices` cannot go with `{ask.goal.kind}`", hint)
        return ask

    def _terms(self, *levels: Scenario | LinkEntry) -> Terms:
        defaults = self._document.defaults
        found = (*levels, defaults) if defaults is not None else levels
        return terms(self._document, found, levels[0].place, self._complain)


def check_twice(flows: tuple[Flow, ...], complain: Complain) -> None:
    """Complain of a link that is in one scenario twice at one time."""
    known: dict[FlowKey, list[Flow]] = {}
    for flow in flows:
        others = known.setdefault(flow.key, [])
        first = next((other for other in others if other.start < flow.end and flow.start < other.end), None)
        if first is not None:
            place = f"line {first.line}" if first.menu == flow.menu else f"{first.menu}:{first.line}"
            complain(
                Place(flow.menu, flow.line),
                f"{flow.link.shown} is in the scenario {flow.scenario} twice at one time, first in {place}",
                "add up their rates, or give them windows that do not overlap",
            )
        others.append(flow)


_WAYS = {"`from` and `to`": ("from", "to"), "`mesh`": ("mesh",), "`links`": ("links",)}
_PLAIN = {"from", "to", "rate", "volume", "keep", "again", "both_ways", "tape_agreed"}


def _flow(
    scenario: str, pair: tuple[str, str], ask: Ask, said: Terms, place: Place, *, stated: bool = False
) -> Flow:
    return Flow(
        scenario=scenario,
        link=Link(*pair, said.through),
        rate=ask.rate,
        shape=ask.shape,
        goal=ask.goal,
        start=said.start,
        end=said.end,
        datasets=said.datasets,
        order=Order(said.order),
        grain=said.grain,
        activity=said.activity,
        priority=said.priority,
        service_priority=said.service_priority,
        lifetime_min=said.lifetime_min,
        lifetime_max=said.lifetime_max,
        dwell=said.dwell,
        overhead=0.0 if ask.goal else said.overhead,  # a goal is what is to arrive
        job=said.job,
        slices=said.slices,
        menu=place.file,
        line=place.line,
        stated=stated,
    )
