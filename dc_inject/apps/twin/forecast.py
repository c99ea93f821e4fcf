"""The results of a simulation: closing table, fill of storages, queues, and which links fall short.

A simulation is inconclusive for links of which the grid gives a reason, and for what a link moves beyond the
highest rate that was measured on it: the grid does not predict these.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dc_inject.apps.twin import shortfalls
from dc_inject.apps.twin.shortfalls import Cause, Kind
from dc_inject.ledger import Reader, SummaryLine
from dc_inject.ledger.series import Period
from dc_inject.model import FlowKey, Link, units
from dc_inject.summary import advice, closing, why
from dc_inject.summary.adding import add_up
from dc_inject.summary.thresholds import AT_ONCE

if TYPE_CHECKING:
    from dc_inject.apps.twin.grid.description import Grid
    from dc_inject.apps.twin.grid.world import World
    from dc_inject.apps.twin.simulation import Simulated

MOVED = {"moved_of_due": "moved/due", "moved_of_target": "moved/target"}  # what people call these figures
LOSSES = {
    "failed_bytes": "failed in all attempts",
    "unsent_bytes": "expired before their transfers had begun",
    "interrupted_bytes": "expired unfinished",
}
MOST_NAMED = 5  # storages without space, in one line


def moved_of_due(lines: Sequence[SummaryLine]) -> float:
    """Return what was moved, of all that links were due."""
    due = sum(line.due for line in lines)
    return sum(line.moved for line in lines) / due if due else 1.0


def compute_moved_of_target(ledger: Reader, lines: Sequence[SummaryLine], end: datetime) -> float:
    """Return the part of what links were due that each of them moved in time.

    More than its due does not count for a link, since it makes up for no other link. What has
    arrived a cycle after the menus' end counts, since what is due in the last cycle goes out until then. What
    comes later was left in a queue.
    """
    moved, due = sum_moved_in_time(ledger, end), sum(line.due for line in lines)
    return sum(min(moved[line.key], line.due) for line in lines) / due if due else 1.0


def late_bytes(ledger: Reader, lines: Sequence[SummaryLine], end: datetime) -> int:
    """Return how much of what links were due has moved, but too late for `compute_moved_of_target`."""
    moved = sum_moved_in_time(ledger, end)
    return sum(max(min(line.moved, line.due) - min(moved[line.key], line.due), 0) for line in lines)


def sum_moved_in_time(ledger: Reader, end: datetime) -> Counter[FlowKey]:
    """Return what each link has moved a cycle after the menus' end."""
    first = ledger.first_cycle()
    until = end + timedelta.resolution
    spans = () if first is None else ledger.spans(Period(first.start, until), AT_ONCE)
    return Counter({key: added.total().moved for key, added in add_up(spans, lambda key: key).items()})


def title(subject: str, grid: str, policy: str | None, control: Mapping[str, int]) -> str:
    """Return what a table is of, with the control in force: that of the policy, or else that of the menus."""
    if policy:
        return f"{subject} in {grid}, policy {policy}"
    modes = [f"{mode} for {units.counted(links, 'links')}" for mode, links in control.items()]
    how = ", ".join(modes if len(modes) > 1 else control)
    return f"{subject} in {grid}" + (f", control as in the menus: {how}" if how else "")


def results(ledger: Reader, made: Simulated, seed: int, policy: str | None = None) -> dict[str, Any]:
    """Return all results as JSON has them."""
    campaign, world, start, end = made.campaign, made.world, made.start, made.end
    lines, totals = ledger.summary(), closing.totals(campaign, ledger)
    beyond = find_unmeasured_links(ledger, world.grid)
    unsure = inconclusive_links((line.key for line in lines if line.due), world.grid, beyond)
    short = [link.row for link in shortfalls.short(lines, ledger, made)]
    return {
        "campaign": campaign,
        "grid": world.grid.name,
        "policy": policy,
        "control": dict(made.control),
        "seed": seed,
        "start": units.format_time(start),
        "end": units.format_time(end),
        "links": totals["links"],
        "total": totals["total"],
        "moved_of_due": moved_of_due(lines),
        "moved_of_target": compute_moved_of_target(ledger, lines, end),
        "late_bytes": late_bytes(ledger, lines, end),
        "advice": advice.rows(advice.advised(ledger).held),
        "holds": why.reasons(why.held_links(ledger)),
        "storages": storages(world),
        "queues": queues(world, start),
        "lost": with_unseen(lost(world), totals["total"]),
        "forecast": mark_inconclusive(short, unsure),
        "inconclusive": unsure,
    }


def storages(world: World) -> list[dict[str, Any]]:
    """Return how full each storage was, at most, and what is left to delete."""
    rows = []
    for name, number in world.network.storages.items():
        spec = world.grid.storages[name]
        most = float(world.storages.most_used[number])
        rows.append(
            {
                "storage": name,
                "site": spec.site,
                "space": spec.space,
                "most_used": round(most),
                # What arrives in a step of the world is counted at its end, so that it may seem a little too much.
                "most_filled": min(most / spec.space, 1.0) if spec.space else None,
                "hours_nearly_full": float(world.storages.hours_nearly_full[number]),
                "to_delete": world.storages.backlog(number),
            }
        )
    return rows


def without_space(world: World) -> list[str]:
    """Return the storages at which data arrived, and for which the grid has no space: they never get full."""
    return [row["storage"] for row in storages(world) if row["most_used"] and not row["space"]]


def sentence_without_space(names: Sequence[str]) -> str:
    """Return that no full disk of these storages can be forecast; empty if there is none of them."""
    if not names:
        return ""
    named, more = ", ".join(names[:MOST_NAMED]), len(names) - MOST_NAMED
    who = f"{named} and {more} more" if more > 0 else named
    return f"no forecast of full disks for {who}: the grid gives {'it' if len(names) == 1 else 'them'} no `space`"


def find_full_disks(hours: Mapping[str, float]) -> str:
    """Return which disks were above 98 %, and for how long; empty if none was."""
    full = sorted(((time, name) for name, time in hours.items() if time), key=lambda disk: (-disk[0], disk[1]))
    if not full:
        return ""
    named = [f"{name} for {units.format_duration(timedelta(hours=time))}" for time, name in full[:MOST_NAMED]]
    more = f" and {len(full) - MOST_NAMED} more" if len(full) > MOST_NAMED else ""
    return f"{'disks are' if len(full) > 1 else 'a disk is'} above 98 %: {', '.join(named)}{more}"


def queues(world: World, start: datetime) -> list[dict[str, Any]]:
    """Return how many files waited where, and when it was most; None where none ever did."""
    words = {
        "unsent": "wait for Rucio's submitter",
        "queued": "wait in FTS",
        "active": "FTS moves",
        "cancelling": "FTS has still to cancel",
        "to_delete": "wait for the reaper",
    }
    rows = []
    for key, text in words.items():
        values = [(getattr(sample, key), sample.at) for sample in world.samples]
        most, at = max(values, key=lambda pair: pair[0])
        moment = start.fromtimestamp(start.timestamp() + at, start.tzinfo) if most else None
        mean = sum(value for value, _ in values) / len(values)
        rows.append({"queue": text, "mean": mean, "most": most, "at": units.format_time_or_none(moment)})
    return rows


def lost(world: World) -> dict[str, int]:
    """Return what ended without having arrived."""
    return dataclasses.asdict(world.rucio.lost)


def with_unseen(lost: Mapping[str, int], total: Mapping[str, Any]) -> dict[str, int]:
    """Return what was lost, with what the ledger also counts: what arrived after the last look at its rule."""
    not_arrived = sum(lost[name] for name in LOSSES)
    return {**lost, "unseen_bytes": total["not_moved"] + total["failed"] - not_arrived}


def sentence(report: dict[str, Any]) -> str:
    """Return the results in two lines."""
    parts = [f"{name} {units.percent(report[key])}" for key, name in MOVED.items()]
    figures = ", ".join(parts) if report["total"]["due"] else "nothing was due"
    return f"{figures}; {'; '.join(_verdict(report))}\n{_losses(report['lost'], report['total'])}"


def _losses(lost: Mapping[str, int], total: Mapping[str, Any]) -> str:
    """Return what had not moved, in parts that add up to `not moved` of the closing table and `failed` of jobs."""
    failed = total["failed"]
    again = f"; {units.format_size(failed)} of jobs are due again" if failed else ""
    words = LOSSES | {
        "failed_bytes": f"failed in all attempts ({units.counted(lost['failed_files'], 'files')}{again})",
        "unseen_bytes": "arrived after the last look at their rules",
    }
    parts = [f"{units.format_size(lost[name])} {what}" for name, what in words.items() if lost[name]]
    what = f"not moved{' or failed' if failed else ''} {units.format_size(total['not_moved'] + failed)}"
    cancelled = f"files cancelled: {units.grouped(lost['cancelled_files'])}"
    return f"{what}{': ' if parts else ''}{', '.join(parts)}; {cancelled}"


def _verdict(report: dict[str, Any]) -> Iterator[str]:
    """Yield for how many links the simulation is inconclusive, whether any will be short, and disks above 98 %."""
    links, few, unsure = (len(report[key]) for key in ("links", "forecast", "inconclusive"))
    of_all = f"of {units.counted(links, 'links')}"
    disks = find_full_disks({row["storage"]: row["hours_nearly_full"] for row in report["storages"]})
    if unsure:
        yield f"inconclusive for {units.grouped(unsure)} {of_all}"
    if few:
        yield f"{units.grouped(few)} {of_all} will be short"
    elif unsure < links or not links:
        more = ", and ".join(filter(None, (_late(report), disks)))
        yield f"no {'other ' if unsure else ''}link will be short{f', but {more}' if more else ''}"
        return
    if disks:
        yield disks


def _late(report: dict[str, Any]) -> str:
    """Return how much arrives after the end, in words, if that makes `moved/target` low; else nothing."""
    late, due = report["late_bytes"], report["total"]["due"]
    if report["moved_of_target"] >= shortfalls.SHORT or not late:
        return ""
    return f"{units.format_size(late)} ({units.percent(late / due)} of what is due) arrives only after the end"


ENDS = ("scenario", "source", "destination")
CYCLES = 4  # whose mean is compared with the highest rate that was measured, as calibration takes it
BEYOND = 1.1  # times that rate: the same menu moves a few percent more or less in a fitted grid
UNMEASURED = "it moves more than {}, the highest rate that was measured on it: what it carries beyond is not known"
Ends = tuple[str, str]  # source and destination, as the grid calls its storages


def inconclusive_links(
    keys: Iterable[FlowKey], grid: Grid, beyond: Mapping[Ends, str] | None = None
) -> list[dict[str, Any]]:
    """Return the links that the grid does not predict, with the reasons, as rows.

    `beyond` has the reasons of those that `find_unmeasured_links` returns.
    """
    rows = []
    for key in sorted(keys):
        ends = _ends(key.link, grid)
        if why := "; ".join(filter(None, (grid.why_inconclusive(*ends), (beyond or {}).get(ends)))):
            names = (key.scenario, key.link.source, key.link.destination)
            rows.append({**dict(zip(ENDS, names, strict=True)), "why": why})
    return rows


def merge_seeds(runs: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of several seeds: each link that is inconclusive with one of them, with all its reasons."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in chain.from_iterable(runs):
        names = tuple(row[key] for key in ENDS)
        rows[names] = max(row, rows.get(names, row), key=lambda row: len(row["why"]))
    return [row for _, row in sorted(rows.items())]


def mark_inconclusive(short: Iterable[dict[str, Any]], unsure: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of links that will be short, with one more cause for those that the grid does not predict."""
    doubtful = {tuple(row[key] for key in ENDS) for row in unsure}
    doubt = Cause("inconclusive: the grid does not predict this link", kind=Kind.INCONCLUSIVE)
    return [
        row | {"why": f"{doubt}; {row['why']}", "causes": [doubt.row, *row["causes"]]}
        if tuple(row[key] for key in ENDS) in doubtful
        else row
        for row in short
    ]


def find_unmeasured_links(ledger: Reader, grid: Grid) -> dict[Ends, str]:
    """Return the links that move more in a simulation than was ever measured on them, and the reason in words.

    A link has to be due more than that, too: what it catches up for some cycles is no higher rate of a menu.
    """
    if not any(traits.highest_measured for traits in (grid.default_link, *grid.links.values())):
        return {}
    reasons = {}
    for ends, seen in _highest_rates(ledger, grid).items():
        traits = grid.traits(*ends)
        most = traits.highest_measured
        # What moves together arrives together, so that some cycles have more than the link carries.
        rate = seen if traits.rate is None else min(seen, traits.rate)
        if most is not None and rate > BEYOND * most * (1 - traits.failures):
            reasons[ends] = UNMEASURED.format(units.format_rate(most))
    return reasons


def _highest_rates(ledger: Reader, grid: Grid) -> dict[Ends, float]:
    """Return the highest rate that each link was due, or that it moved if that is less, in bytes per second."""
    first, last = ledger.first_cycle(), ledger.last_cycle()
    if first is None or last is None:
        return {}
    count = round((last.end - first.start) / first.length)
    by_cycle = add_up(
        ledger.spans(Period(first.start, last.end), first.length),
        lambda key: _ends(key.link, grid),
        count,
        lambda start: round((start - first.start) / first.length),
    )
    time = min(CYCLES, count) * first.length.total_seconds()
    return {
        ends: min(_most(added.series(name)) for name in ("due", "moved")) / time
        for ends, added in by_cycle.items()
    }


def _most(amounts: Sequence[int]) -> int:
    """Return the largest sum over four cycles in a row, or over all if there are fewer."""
    most = total = sum(amounts[:CYCLES])
    for gone, new in zip(amounts, islice(amounts, CYCLES, None), strict=False):
        total += new - gone
        most = max(most, total)
    return most


def _ends(link: Link, grid: Grid) -> Ends:
    """Return the ends of a link as the grid calls them."""
    source, destination = (grid.storage_at(end) or end for end in link.ends)
    return source, destination
