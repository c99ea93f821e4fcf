"""The menu of a mini-challenge: one link, within limits that are just above the most that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dc_inject.apps.link import records
from dc_inject.apps.link.judging.steps import Ladder
from dc_inject.apps.link.options import LinkOptions
from dc_inject.menu.writing import scalar
from dc_inject.model import Cycle, FlowKey, Link, units, urls

SCENARIO = "link"
ROOM = 1.25  # of the highest rate: the limits, so that a coarse dataset or a debt of a cycle may go out
CYCLES = 6  # in a step, so that its second half has three
IN_A_TRIAL = 3
LONGEST = timedelta(minutes=15)
SHORTEST = timedelta(seconds=5)
PATIENCE = 2  # cycles after the last step, in which what is on its way may arrive
STAYS = timedelta(minutes=5)  # how long bytes stay at least, until it has been measured


@dataclass(frozen=True, slots=True)
class MiniChallenge:
    """What is asked of one link; `until` is the end of the last step, at the end of a cycle.

    `options` have what its menu takes as it was given, `volume` is what all steps ask for (bytes), and `space`
    what may be at the destination at a time (bytes; 0: not known yet).
    """

    options: LinkOptions
    campaign: str
    contact: str
    link: Link
    ladder: Ladder
    cycle: timedelta
    start: datetime
    until: datetime
    volume: float = 0.0
    space: int = 0

    @property
    def key(self) -> FlowKey:
        """What its account is kept for."""
        return FlowKey(SCENARIO, self.link)

    @property
    def highest(self) -> float:
        """The most that will be asked for, in bytes per second."""
        return self.ladder.highest

    @property
    def latest(self) -> datetime:
        """The latest end of the injection: after its last step, what is on its way may arrive."""
        return self.until + PATIENCE * self.cycle

    @property
    def expected(self) -> str:
        """When it ends, in words, before its rules or jobs are ended: a search may find out earlier."""
        span = "by" if self.ladder.saturate else f"between {units.format_time(self.until)} and"
        return f"{span} about {units.format_time(self.latest)}"

    @property
    def selection(self) -> str:
        """The options that choose what is injected, as hints name them."""
        if self.link.service.takes_files:
            return "--did" if self.options.datasets else "--folder"
        return "--did, --mean-file"

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names of the datasets to inject, with wildcards."""
        return self.options.datasets or ("*:*",)

    def text(self) -> str:
        """Return the menu."""
        options = self.options
        limit = units.exact_rate(round(ROOM * self.highest))
        ends = f"from: {scalar(self.link.source)}, to: {scalar(self.link.destination)}"
        site = scalar(urls.host_of(self.link.destination))
        space = f"{{{scalar(self.link.destination)}: {{space: {units.exact_size(self.space)}}}}}"
        rules = f", rules_per_hour: {options.rules_per_hour}" if options.rules_per_hour else ""
        shortest = max(STAYS, self.cycle) // timedelta(seconds=1)
        lines = [
            "# Made by `dc-inject link`, which sets the rates of later steps while it runs.",
            "menu: 1",
            f"campaign: {scalar(self.campaign)}",
            f"contact: {scalar(self.contact)}",
            "timezone: UTC",
            f"start: {_time(self.start)}",
            f"end: {_time(self.latest)}  # what is on its way may arrive",
            f"limits: {{total: {limit}, per_site: {limit}{rules}}}",
            *([f"sites: {{{site}: {{rses: {space}}}}}"] if self.space else []),
            *([f"fts: {{endpoint: {scalar(options.endpoint)}}}"] if options.endpoint else []),
            *([f"accept: [{', '.join(options.accept)}]"] if options.accept else []),
            "defaults:",
            f"  through: {self.link.through}",
            f"  cycle: {self.cycle // timedelta(seconds=1)} s",
            f"  lifetime: {{min: {shortest} s, max: {max(shortest, 7200)} s}}",
            f"  {self._what()}",
            "scenarios:",
            f"  {SCENARIO}:",
            "    links:",
            f"      - {{{ends}, rate: {units.exact_rate(self.ladder.first)}, end: {_time(self.until)}}}",
        ]
        return "\n".join(lines) + "\n"

    def _what(self) -> str:
        if self.link.service.takes_files and not self.options.datasets:
            return f"files: {{folder: {scalar(self.options.folder or '.')}}}"
        patterns = ", ".join(map(scalar, self.patterns))
        bounds = (
            ""
            if self.link.service.takes_files
            else f", files: 1..1000, mean_file: {scalar(self.options.mean_file)}"
        )
        return f"datasets: {{did: [{patterns}]{bounds}}}"

    def serialize_challenge(self) -> dict[str, Any]:
        """Return it as the ledger keeps it."""
        chosen = {name: getattr(self.options, name) or empty for name, empty in _CHOSEN.items()}
        asked = {name: getattr(self, name) for name in ("campaign", "contact", "highest", "volume", "space")}
        times = {"cycle": self.cycle.total_seconds(), "start": self.start.isoformat()}
        menu = {**asked, **chosen, **times, "link": list(self.link)}
        return {**records.settings(self.ladder, self.until), "menu": menu}


# The options that the ledger keeps, each as it is kept where it was not given.
_CHOSEN: Mapping[str, Any] = {
    "datasets": (),
    "mean_file": "",
    "folder": "",
    "endpoint": "",
    "accept": (),
    "rules_per_hour": 0,
}


def challenge_from_ledger(values: Mapping[str, Any], ladder: Ladder) -> MiniChallenge:
    """Return a mini-challenge as the ledger has kept it; one of an earlier version has kept fewer options."""
    settings = values["menu"]
    chosen: dict[str, Any] = {
        name: tuple(settings[name]) if isinstance(settings[name], list) else settings[name]
        for name in _CHOSEN
        if name in settings
    }
    return MiniChallenge(
        LinkOptions(**chosen),
        settings["campaign"],
        settings["contact"],
        Link(*settings["link"]),
        ladder,
        timedelta(seconds=settings["cycle"]),
        datetime.fromisoformat(settings["start"]),
        datetime.fromisoformat(values["until"]),
        settings.get("volume", 0.0),
        settings.get("space", 0),
    )


def choose_cycle_length(ladder: Ladder) -> timedelta:
    """Return the length of cycles: so short that a step, or a trial, has several, in whole seconds."""
    part = ladder.shortest / (IN_A_TRIAL if ladder.saturate else CYCLES)
    seconds = min(max(part, SHORTEST), LONGEST) // timedelta(seconds=1)
    return timedelta(seconds=seconds)


def end_of(start: datetime, length: timedelta, cycle: timedelta) -> datetime:
    """Return the end of the cycle in which so much time is over."""
    slot = Cycle.at(start + length, cycle)
    return slot.start if slot.start == start + length else slot.end


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
