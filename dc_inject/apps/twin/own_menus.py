"""What a calibrated grid is worth for a forecast: the campaign's own menus, simulated once in that grid.

The error of the fit is that of a replay, which knows what was injected. A forecast knows only the menus, as the
ledger keeps their texts, and the policy that its rows show: so a failure or a limit that is not in the grid shows
at once. What was due then is reported, too, since rates that people set, and pauses, are not in the menus.

A menu that brings in other files can be read only while these are as they were. A mini-challenge has no menu of
its own: its rates follow what it measures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from dc_inject import menu
from dc_inject.apps.twin import simulation
from dc_inject.ledger import MenuInForce, Reader
from dc_inject.ledger.series import CycleKind, Period
from dc_inject.model import Cycle, Link, units, urls
from dc_inject.model.errors import MenuError, ServiceError, UsageError
from dc_inject.summary.figures import get_policy
from dc_inject.summary.thresholds import AT_ONCE
from dc_inject.system import files

MOST = 20_000  # cycles of links that are simulated; of a larger campaign the first ones
SAME = 0.01  # of what was due: a larger difference is reported
Ends = tuple[str, str]  # source and destination, as the grid calls its storages
HOW = {None: "with control as in the menus", simulation.FIXED: "at a fixed rate"}


@dataclass(frozen=True, slots=True)
class LinkForecast:
    """A link: what it was due and moved then, and what it is due and moves in the simulation; bytes."""

    ends: Ends
    due: int
    moved: int
    due_now: int
    forecast: int

    @property
    def error(self) -> float | None:
        """The part by which what moved was missed; None where nothing moved."""
        return abs(self.forecast - self.moved) / self.moved if self.moved else None


@dataclass(frozen=True, slots=True)
class OwnForecast:
    """What the menus of a campaign move in a grid, in the first `cycles` of the campaign's `of`."""

    links: Sequence[LinkForecast]
    policy: str | None
    cycles: int
    of: int

    @property
    def total(self) -> LinkForecast:
        """All links together."""
        return LinkForecast(
            ("total", ""),
            *(sum(getattr(link, name) for link in self.links) for name in ("due", "moved", "due_now", "forecast")),
        )

    @property
    def title(self) -> str:
        """What was simulated."""
        how = HOW.get(self.policy, f"with control: {self.policy}")
        part = units.counted(self.cycles, "cycles")
        part = (
            f"the first {part} of {self.of}, which is enough of so many links" if self.cycles < self.of else part
        )
        return f"forecast: its own menus simulated in the fitted grid, {how}, {part}"

    def sentences(self) -> Iterable[str]:
        """Yield the error, and that something else was due, if it was."""
        total, errors = self.total, [link.error for link in self.links if link.error is not None]
        sizes = f"{units.format_size(total.forecast)} for {units.format_size(total.moved)} moved"
        if total.error is None:
            yield f"forecast error: not known, since nothing moved: {sizes}"
        else:
            by_link = f"by link median {units.percent(median(errors))}, worst {units.percent(max(errors))}"
            yield f"forecast error: {units.percent(total.error)} in all ({sizes}), {by_link}"
        if abs(total.due_now - total.due) > SAME * total.due:
            then, now = units.format_size(total.due), units.format_size(total.due_now)
            yield (
                f"{then} were due then, and {now} by the menus: rates were scaled, set or edited, links paused, "
                "or cycles without a run, which a forecast does not have"
            )

    def compare_links(self) -> dict[Ends, tuple[int, int]]:
        """Return what links moved and what they move in the simulation, where the same was due both times."""
        return {
            link.ends: (link.moved, link.forecast)
            for link in self.links
            if abs(link.due_now - link.due) <= SAME * link.due
        }

    def figures(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        total = self.total
        sums = {"due": total.due, "due_now": total.due_now, "moved": total.moved, "forecast": total.forecast}
        asked = {"policy": self.policy, "cycles": self.cycles}
        return {"why_not": None, **asked, **sums, "error": total.error, "links": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each link, those that are missed most first."""
        return [
            {
                "source": link.ends[0],
                "destination": link.ends[1],
                "due": link.due,
                "due_now": link.due_now,
                "moved": link.moved,
                "forecast": link.forecast,
                "error": link.error,
            }
            for link in sorted(self.links, key=lambda link: (-abs(link.forecast - link.moved), link.ends))
        ]


def grid_ends(link: Link) -> Ends:
    """Return the ends of a link as a fitted grid calls them."""
    return grid_name(link.source), grid_name(link.destination)


def grid_name(end: str) -> str:
    """Return what a fitted grid calls the end of a link: a storage with URLs goes by its host, as FTS knows it."""
    return urls.host_of(end).replace(":", "-")


@dataclass(frozen=True, slots=True)
class OwnMenus:
    """What is needed to simulate a campaign's own menus, once its ledger is closed.

    `names` has what expressions meant, `links` those that it was narrowed to (none: all), and `then` what each
    link was due and moved in the first `cycles` of its cycles, in the time `period`.
    """

    paths: Sequence[Path]
    names: Mapping[tuple[str, str], tuple[str, ...]]
    links: Sequence[str]
    policy: str | None
    start: datetime
    period: Period
    cycles: int
    of: int
    then: Mapping[Ends, Sequence[int]]

    def forecast(self, grid: str, folder: Path, passed: Callable[[float], None]) -> OwnForecast:
        """Simulate them in the grid of a file's text; raises UsageError with the reason where that fails."""
        (folder / "grid.yaml").write_text(grid)
        days = (self.period.until - self.start) / timedelta(days=1)
        request = simulation.Request(
            self.paths, folder / "grid.yaml", days, self.links, policy=self.policy, start=self.start
        )
        with simulation.new_ledger(folder / "forecast.sqlite") as ledger:
            for (service, expression), names in self.names.items():
                ledger.record_resolution(service, expression, names, self.start)
            try:
                simulation.run(request, ledger, passed=passed)
            except (MenuError, ServiceError) as error:
                raise UsageError(str(error).replace(f"{folder}/", "")) from None
            now = _by_ends(ledger, self.period)
        ends = sorted(
            ends for ends in {*self.then, *now} if any(self.then.get(ends, ())) or any(now.get(ends, ()))
        )
        pairs = [(link, self.then.get(link, (0, 0)), now.get(link, (0, 0))) for link in ends]
        links = [LinkForecast(link, *then, *forecast) for link, then, forecast in pairs]
        return OwnForecast(links, self.policy, self.cycles, self.of)


def write_own_menus(view: Reader, closed: Sequence[Cycle], folder: Path) -> OwnMenus:
    """Return the menus of a campaign, by its ledger, as files in a folder, and how it used them.

    Raises UsageError with the reason where they cannot be had.
    """
    if view.challenge():
        raise UsageError("the rates of a mini-challenge follow what it measures, and are in no menu")
    first, accounts = closed[0], view.accounts()
    of = round((closed[-1].end - first.start) / first.length)
    cycles = min(of, max(MOST // len(accounts), 1))
    period = Period(first.start, first.start + cycles * first.length)
    records = {record.digest: record for record in view.last_menus()}.values()
    paths = [_path(record, folder / f"{number}.yaml") for number, record in enumerate(records)]
    try:
        drafts = files.read_menus(paths)
        asked = sorted({pair for draft in drafts for pair in draft.expressions})
        names = {pair: meaning for pair in asked if (meaning := view.resolution(*pair)) is not None}
        meanings = {expression: meaning for (_, expression), meaning in names.items()}
        campaign = menu.campaign([draft.resolve(meanings) for draft in drafts])
    except MenuError as error:
        raise UsageError(str(error)) from None
    links, ours = {str(flow.link) for flow in campaign.flows}, {str(key.link) for key in accounts}
    start = max(min(flow.start for flow in campaign.flows), first.start)
    if not links & ours or start >= period.until:
        raise UsageError("the menus contain none of the links of this campaign")
    narrowed = sorted(links & ours) if links - ours else []
    return OwnMenus(paths, names, narrowed, _policy(view), start, period, cycles, of, _by_ends(view, period))


def _path(record: MenuInForce, copy: Path) -> Path:
    """Return a file with a menu as it was in force; raises UsageError where what it brings in is not the same."""
    copy.write_text(record.text)
    for path in (copy, Path(record.name)):
        with suppress(OSError, MenuError, UsageError):
            if [draft.digest for draft in files.read_menus([path])] == [record.digest]:
                return path
    raise UsageError(f"{record.name} brings in other files, which are not there as they were")


def _policy(view: Reader) -> str | None:
    """Return the policy with which a simulation does what the ledger shows; None: that of the menus."""
    if policy := get_policy(view):
        return policy
    decided = {(decision.key, decision.mode) for decision in view.decisions()}
    modes = {mode for _, mode in decided}
    return modes.pop() if len(modes) == 1 and len(decided) == len(view.accounts()) else None


def _by_ends(view: Reader, period: Period) -> dict[Ends, list[int]]:
    """Return what each link was due, and what it moved, in the closed cycles of a time."""
    sums: dict[Ends, list[int]] = defaultdict(lambda: [0, 0])
    for span in view.spans(period, AT_ONCE):
        if span.kind is CycleKind.COUNTED:
            amounts = sums[grid_ends(span.key.link)]
            amounts[0] += span.sums.due
            amounts[1] += span.sums.moved
    return sums
