"""The menu of a mini-challenge: one link, within limits that are just above the most that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dc_inject.cli.shared import common, params, tables
from dc_inject.menu.writing import scalar
from dc_inject.model import Cycle, FlowKey, Limits, Link, units
from dc_inject.planning.steps import Ladder
from dc_inject.summary import readings

SCENARIO = "link"
ROOM = 1.25  # of the highest rate: the limits, so that a coarse dataset or a debt of a cycle may go out
CYCLES = 6  # in a step, so that its second half has three
IN_A_TRIAL = 3
LONGEST = timedelta(minutes=15)
SHORTEST = timedelta(seconds=5)
PATIENCE = 2  # cycles after the last step, in which what is on its way may arrive
STAYS = timedelta(minutes=5)  # how long bytes stay at least, as long as nobody has measured it


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options of `dc-inject link`: rates in bytes per second, sizes in bytes, None where one was not given.

    `lasting` is --for, `highest` --max, `saturate` --until-saturated, and `judged` the campaign of --verdict.
    """

    rate: float | None = common.option(
        "--rate", type=params.RATE, help="The rate of the first step, such as 5Gb/s."
    )
    lasting: timedelta | None = common.option(
        "--for",
        "lasting",
        type=params.DURATION,
        help="The total duration, such as 2h; with --until-saturated, the longest.",
    )
    step: float | None = common.option(
        "--step",
        type=params.RATE,
        help="The increase from one step to the next, such as 1Gb/s; with --until-saturated, the first one.",
    )
    every: timedelta | None = common.option(
        "--every",
        type=params.DURATION,
        help="The duration of a step; with --until-saturated, five times that of a trial [default: 30m].",
    )
    saturate: bool = common.option(
        "--until-saturated",
        "saturate",
        is_flag=True,
        help="Search for the rate at which throughput stops following, and repeat that; needs --max.",
    )
    highest: float | None = common.option(
        "--max", "highest", type=params.RATE, help="The highest rate to try [default: ask above 10Gb/s]."
    )
    space: int | None = common.option(
        "--space",
        type=params.SIZE,
        help="The most space to use at DST at a time [default: half of the free space].",
    )
    rules_per_hour: int | None = common.option(
        "--rules-per-hour",
        type=params.COUNT,
        metavar="N",
        help=f"The most rules or jobs in any hour [default: {Limits().rules_per_hour}].",
    )
    yes: bool = common.option("--yes", is_flag=True, help="Do not ask for confirmation of a high rate.")
    campaign: str | None = common.option(
        "--campaign", type=params.NAME, help="The campaign's name [default: made from DST and the time]."
    )
    contact: str | None = common.option(
        "--contact", type=params.LINE, help="The contact that rules name [default: your account here]."
    )
    datasets: tuple[str, ...] = common.option(
        "--did",
        "datasets",
        type=params.DID,
        multiple=True,
        metavar="PATTERN",
        help="Datasets to inject, scope:name with wildcards (may be repeated) [default: *:*].",
    )
    mean_file: str = common.option(
        "--mean-file", default="0.1..20 GB", show_default=True, help="Bounds on the mean file size of a dataset."
    )
    folder: str | None = common.option(
        "--folder", type=params.FOLDER, help="Through FTS: files of this folder below SRC [default: .]."
    )
    endpoint: str | None = common.option("--fts", "endpoint", type=params.ENDPOINT, help="The address of FTS.")
    accept: tuple[str, ...] = common.option(
        "--accept",
        multiple=True,
        metavar="CODE",
        help="Accept a finding of `check` with this code (may be repeated).",
    )
    cycle: timedelta | None = common.option(
        "--cycle",
        type=params.DURATION,
        help="The length of a cycle [default: a sixth of a step, or a third of a trial; 5s to 15m].",
    )
    cancel_rate: float = common.option(
        "--cancel-rate",
        type=params.PER_HOUR,
        default="600/h",
        show_default=True,
        help="The most unfinished rules or jobs to end per hour or minute, afterwards.",
    )
    resume: str | None = common.option(
        "--resume", type=params.NAME, metavar="NAME", help="Continue a test that was stopped."
    )
    judged: str | None = common.option(
        "--verdict", "judged", type=params.NAME, metavar="NAME", help="Print the verdict of a test again."
    )
    allow_admin: bool = common.given(common.ALLOW_ADMIN)
    timeout: float = common.given(common.TIMEOUT)
    fmt: str = common.given(common.FORMAT)


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
        span = "by" if self.ladder.saturate else f"between {tables.moment(self.until)} and"
        return f"{span} about {tables.moment(self.latest)}"

    @property
    def selection(self) -> str:
        """The options that say what is injected, as hints name them."""
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
            *([f"sites: {{destination: {{rses: {space}}}}}"] if self.space else []),
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

    def for_ledger(self) -> dict[str, Any]:
        """Return it as the ledger keeps it."""
        chosen = {name: getattr(self.options, name) or empty for name, empty in _CHOSEN.items()}
        asked = {name: getattr(self, name) for name in ("campaign", "contact", "highest", "volume", "space")}
        times = {"cycle": self.cycle.total_seconds(), "start": self.start.isoformat()}
        menu = {**asked, **chosen, **times, "link": list(self.link)}
        return {**readings.settings(self.ladder, self.until), "menu": menu}


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


def cycle_for(ladder: Ladder) -> timedelta:
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
