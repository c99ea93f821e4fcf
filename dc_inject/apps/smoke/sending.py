"""One file over each link of menus: the engine injects as always, from shortened menus, with a plan of its own.

The menus keep their links, selection, limits and services; their rates, shapes, goals and windows go, and a link
that several of them have is tested once. The plan gives each link a debt of one file (of Rucio's datasets that
have more, a slice of one file) until one has gone out. Second hops are left out: nothing has landed for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from dc_inject import menu
from dc_inject.apps.smoke import results
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger
from dc_inject.menu import writing
from dc_inject.model import Campaign, Cycle, Flow, FlowKey, Injection, Link, Menu, units
from dc_inject.model.control import UNCONTROLLED
from dc_inject.model.goals import SecondHop
from dc_inject.model.items import Slicing
from dc_inject.model.plan import Plan
from dc_inject.model.ports import Clock
from dc_inject.planning import plan
from dc_inject.planning.link_plan import LinkPlans
from dc_inject.planning.plan import Account, Situation
from dc_inject.system import account, files

RATE = 1000.0  # bytes per second: less than any file, which goes out for its debt
ANY = "files: 1..1000000, mean_file: 1 B..1 PB"  # the bounds of datasets without a menu: one file is enough
CYCLES = 20  # in the time of a test
SECOND, SHORTEST, LONGEST = timedelta(seconds=1), timedelta(seconds=5), timedelta(minutes=1)  # cycles


def _pairs(rses: Sequence[str], now: datetime) -> str:
    """Return a menu with all pairs of some RSEs."""
    start, end = (f"{at:%Y-%m-%d %H:%M}Z" for at in (now, now + timedelta(hours=1)))
    heading = writing.Heading("pairs", account.who(), start, end, datasets=("*:*",), bounds=ANY)
    mesh = f"[{', '.join(map(writing.scalar, rses))}]"
    return writing.menu(heading, (), "1 Mb/s", writing.shared("pairs", (("mesh", mesh), ("rate", "1 Mb/s"))))


class OneFileEach:
    """The menus and the planner of a test, which is a campaign of its own."""

    def __init__(
        self,
        paths: Sequence[Path],
        rses: Sequence[str],
        now: datetime,
        within: timedelta,
        notify: Callable[[str], None],
    ) -> None:
        """Read menus, or make one of all pairs of `rses`; `within` is the longest time. Raises MenuError.

        `notify` gets a sentence at the start, and one about the progress at each cycle.
        """
        self._notify, self._within = notify, within
        self._start = now.replace(microsecond=0)
        self.keys: Sequence[FlowKey] = ()  # of all links, known once the services have resolved expressions
        drafts = [menu.read(_pairs(rses, now), "--among")] if rses else files.read_menus(paths)
        name = menu.one_campaign(drafts)
        links = sorted({str(flow.link) for draft in drafts for flow in draft.preview.flows})
        same = hashlib.sha256("\n".join((name, *links)).encode()).hexdigest()[:6]  # in all tests of these links
        self.campaign = f"smoke-{name[:33]}-{same}-{self._start:%Y%m%dT%H%M%S}"
        owners: dict[Link, str] = {}
        self.drafts = [draft.reshaped(partial(self._shortened, owners)) for draft in drafts]

    def _shortened(self, owners: dict[Link, str], one: Menu) -> Menu:
        """Return a menu with the links that no menu before it owns, on which next to nothing is due."""
        time = self._within
        window: dict[str, Any] = {"start": self._start, "end": self._start + time}
        changes = {**window, "rate": RATE, "goal": None, "shape": None, "overhead": 0.0, "control": UNCONTROLLED}
        flows: dict[Link, Flow] = {}
        for flow in one.flows:
            if owners.setdefault(flow.link, one.name) == one.name and not isinstance(flow.goal, SecondHop):
                flows.setdefault(flow.link, replace(flow, dwell=time, **changes))  # its rules end with the test
        window["cycle"] = min(max(time / CYCLES, SHORTEST), LONGEST) // SECOND * SECOND
        return replace(one, campaign=self.campaign, flows=(*flows.values(),), target=None, exclusions=(), **window)

    def over(self, menus: Menus, ledger: Ledger, clock: Clock) -> Callable[[], Campaign]:
        """Return what the engine asks for its menus; the time of the test begins now, after a slow start."""
        self.keys = [flow.key for flow in menus.take_up(self.drafts).flows]
        until = clock.now().replace(microsecond=0) + self._within
        self._notify(f"campaign {self.campaign}, until {units.format_time(until)} at the latest")
        return partial(self._now, menus, ledger, clock, until)

    def _now(self, menus: Menus, ledger: Ledger, clock: Clock, until: datetime) -> Campaign:
        """Return the campaign, with slices of one file; it is at its end once all links have a result.

        Nothing more is due on a link whose file has gone out.
        """
        campaign, found = menus.take_up(self.drafts), results.read(ledger)
        now = Cycle.at(clock.now(), campaign.cycle).start
        if found:
            self._notify(results.words(found))
        is_over = found and all(one.outcome != results.OPEN for one in found)
        sent = {entry.injection.flow for entry in ledger.entries() if results.is_sent(entry)}
        accounts = {identity.service: identity.account for identity in ledger.identities()}

        def left(flow: Flow) -> Flow:
            slices = flow.slices
            if flow.link.service.has_slices:
                slices = slices or Slicing(f"user.{accounts[flow.link.through]}")  # its debt is one file
            return replace(flow, slices=slices, end=max(now, flow.start) if flow.key in sent else until)

        def rest(one: Menu) -> Menu:
            end = max(now, one.start) if is_over else until
            return replace(one, end=end, flows=tuple(map(left, one.flows)))

        return replace(campaign, menus=tuple(map(rest, campaign.menus)))

    def plan(self, situation: Situation) -> Plan:
        """Plan one file for each link."""
        return plan.plan(_one_each(situation))

    def refill(
        self, situation: Situation, room: Mapping[FlowKey, int], standing: Sequence[Injection] = ()
    ) -> tuple[Injection, ...]:
        """Return other files in place of those that could not be used."""
        return plan.refill(_one_each(situation), room, standing)


def _one_each(situation: Situation) -> Situation:
    """Return a situation in which each link owes its smallest file."""
    lines = LinkPlans(situation, situation.demands).lines
    owing = (replace(line.demand, account=Account(due=line.smallest)) for line in lines)
    return replace(situation, demands=tuple(owing))
