"""`simulate --seeds`: several seeds at a time, each in its own process, and their medians.

A seed decides which transfers fail, which datasets there are, and when others' files come. What holds for one seed
alone is chance: so each figure is shown as the median of all seeds, with its range.

Ctrl-C reaches the command alone, which then ends its processes and removes their ledgers.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dc_inject.apps.twin import forecast, shortfalls, simulation
from dc_inject.apps.twin.shortfalls import ShortLink
from dc_inject.ledger import Ledger
from dc_inject.model import FlowKey, units
from dc_inject.model.errors import Problem
from dc_inject.summary import advice, closing, why
from dc_inject.summary.advice import Advice
from dc_inject.summary.why import HeldLink

if TYPE_CHECKING:
    from dc_inject.apps.twin.grid.world import World

OF_TOTAL = (  # for programs
    "due", "injected", "moved", "on_its_way", "not_moved", "not_moved_failed", "failed", "forgiven", "held"
)  # fmt: skip
DATASETS = 10  # that a bin is worth, of a link's largest
WITHIN = 0.9  # of its due: an hour that moves less is not as asked
LOOK = 0.5  # seconds between two looks at how far the seeds are


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a simulation: what it is called, and how a person reads it."""

    words: str
    form: Callable[[float], str]


FIGURES: Mapping[str, Figure] = {
    **{key: Figure(words, units.percent) for key, words in forecast.MOVED.items()},
    "hours_within": Figure("hours within 0.9", units.percent),
    "expired_of_due": Figure("expired unsent", lambda part: f"{100 * part:.2f} %"),
    "interrupted_of_due": Figure("expired unfinished", lambda part: f"{100 * part:.2f} %"),
    "cancelled_files": Figure("files cancelled", units.grouped),
    "hours_nearly_full": Figure("hours above 98 %", lambda hours: f"{hours:.1f}"),
    "peak_to_mean": Figure("peak/mean", lambda ratio: f"{ratio:.2f}"),
    "most_to_delete": Figure("most files to delete", units.grouped),
    "links_short": Figure("links short", units.grouped),
}


@dataclass(frozen=True, slots=True)
class SeedRun:
    """What a simulation with one seed gave: its figures, and links that were short, held, or would have been.

    `control` is as in `Simulated`, the same for all seeds; `without_space` are storages that never get full, and
    `nearly_full` has the hours for which others were above 98 %; `inconclusive` are rows of links that the grid
    does not predict. `totals` are sums of all links, and losses, by the names that one seed has for them.
    """

    campaign: str
    grid: str
    seed: int
    figures: Mapping[str, float]
    short: Sequence[ShortLink]
    held: Sequence[HeldLink]
    advice: Advice
    control: Mapping[str, int]
    without_space: Sequence[str]
    inconclusive: Sequence[dict[str, Any]]
    nearly_full: Mapping[str, float] = field(default_factory=dict)
    totals: Mapping[str, Any] = field(default_factory=dict)


def simulate_seed(
    request: simulation.Request,
    seed: int,
    folder: Path,
    passed: simulation.Passed = lambda _: None,
    warn: simulation.Warn = lambda _: None,
) -> SeedRun:
    """Simulate one seed, with its ledger in a folder until it is over."""
    logging.getLogger("dc_inject").setLevel(logging.CRITICAL)
    path = folder / f"{seed}.sqlite"
    with simulation.new_ledger(path) as ledger:
        made = simulation.run(request, ledger, seed, passed, warn)
        lines = ledger.summary()
        total = closing.totals(made.campaign, ledger)["total"]
        gone, world = forecast.with_unseen(forecast.lost(made.world), total), made.world
        short = shortfalls.short(lines, ledger, made)
        figures = _figures(ledger, made, gone, total["due"]) | {"links_short": len(short)}
        totals = {name: total[name] for name in OF_TOTAL}
        totals |= {**gone, "late_bytes": forecast.late_bytes(ledger, lines, made.end)}
        held, advised = why.held_links(ledger), advice.advised(ledger)
        beyond = forecast.find_unmeasured_links(ledger, world.grid)
    path.unlink()
    unsure = forecast.inconclusive_links((line.key for line in lines if line.due), world.grid, beyond)
    disks = {row["storage"]: row["hours_nearly_full"] for row in forecast.storages(world)}
    return SeedRun(
        made.campaign,
        world.grid.name,
        seed,
        figures,
        short,
        held,
        advised,
        made.control,
        forecast.without_space(world),
        unsure,
        {name: hours for name, hours in disks.items() if hours},
        totals,
    )


def _figures(ledger: Ledger, made: simulation.Simulated, gone: Mapping[str, int], due: int) -> dict[str, float]:
    """Return the figures of a seed but for how many links are short; `gone` is what was lost, of what was due."""
    lines, world = ledger.summary(), made.world
    return {
        "moved_of_due": forecast.moved_of_due(lines),
        "moved_of_target": forecast.compute_moved_of_target(ledger, lines, made.end),
        "hours_within": compute_hours_within(ledger, world, made.start, made.end),
        "expired_of_due": gone["unsent_bytes"] / due if due else 0.0,
        "interrupted_of_due": gone["interrupted_bytes"] / due if due else 0.0,
        "cancelled_files": gone["cancelled_files"],
        "hours_nearly_full": float(world.storages.hours_nearly_full.max()),
        "peak_to_mean": max(compute_peaks_to_means(ledger, made.start, made.end).values(), default=0.0),
        "most_to_delete": max((sample.to_delete for sample in world.samples), default=0),
    }


def compute_hours_within(ledger: Ledger, world: World, start: datetime, end: datetime) -> float:
    """Return the part of the hours in which at least 0.9 of what all links were due in them has arrived.

    They count from the begin of the first cycle, which may be before the menus' start.
    """
    at, arrived = [0.0], [0.0]
    for sample in world.samples:
        at.append(sample.at)
        arrived.append(sample.arrived)
    begun = min([start, *(begin for begin, *_ in ledger.sums_of_cycles())])
    dues: dict[int, int] = defaultdict(int)
    for begin, due, _ in ledger.sums_of_cycles():
        dues[(begin - begun) // timedelta(hours=1)] += due
    hours = [hour for hour, due in dues.items() if due and hour < (end - begun) // timedelta(hours=1)]

    def until(hour: int) -> float:
        seconds = 3600.0 * hour - (start - begun).total_seconds()  # of the world, which begins with the menus
        return arrived[max(bisect_right(at, seconds) - 1, 0)]

    good = sum(until(hour + 1) - until(hour) >= WITHIN * dues[hour] for hour in hours)
    return good / len(hours) if hours else 1.0


def compute_peaks_to_means(ledger: Ledger, start: datetime, end: datetime) -> dict[FlowKey, float]:
    """Return peak to mean of each link's releases, in bins worth ten of its largest datasets, if they fill one.

    Releases are read twice, since there may be a million: for the length of bins, and to fill them.
    """
    sums: dict[FlowKey, int] = defaultdict(int)
    largest: dict[FlowKey, int] = defaultdict(int)
    for key, _, size in ledger.releases(end):
        sums[key] += size
        largest[key] = max(largest[key], size)
    whole = (end - start).total_seconds()
    lengths = {key: timedelta(seconds=DATASETS * largest[key] / (sums[key] / whole)) for key in sums}
    bins = {key: [0] * int((end - start) / length) for key, length in lengths.items()}
    for key, moment, size in ledger.releases(end):
        number = int((moment - start) / lengths[key])
        if number < len(bins[key]):
            bins[key][number] += size
    return {key: max(filled) * len(filled) / sum(filled) for key, filled in bins.items() if any(filled)}


# --------------------------------------------------------------------------- in processes


def simulate_seeds(
    request: simulation.Request, seeds: Sequence[int], passed: simulation.Passed, warn: simulation.Warn
) -> list[SeedRun]:
    """Simulate seeds, as many at a time as there are processors; `passed` gets the fraction that is done.

    `warn` gets what the grid lacks once, since it is the same for all seeds.
    """
    context = multiprocessing.get_context("spawn")
    # The last number stops them. It has no lock: a process that ended with a lock would keep all others waiting.
    parts, lacking = context.RawArray("d", len(seeds) + 1), context.SimpleQueue()
    with (
        tempfile.TemporaryDirectory(prefix="dc_inject-") as folder,
        ProcessPoolExecutor(min(len(seeds), os.cpu_count() or 1), context, _begin, (parts, lacking)) as pool,
    ):
        with _without_interrupts():  # which the processes inherit
            runs = [pool.submit(_in_process, request, seed, Path(folder), n) for n, seed in enumerate(seeds)]
        try:
            more = True
            while more:
                more = _some_run(runs)
                while not lacking.empty():
                    warn(lacking.get())
                passed(sum(parts[:-1]) / len(seeds))
            passed(1.0)
            return [run.result() for run in runs]
        except BaseException:
            parts[-1] = 1
            pool.shutdown(cancel_futures=True)
            raise


def _some_run(runs: Sequence[Future[SeedRun]]) -> bool:
    """Wait a moment; returns whether there is more to wait for: nothing is, once one has failed."""
    done, others = wait(runs, LOOK, FIRST_EXCEPTION)
    return bool(others) and all(run.exception() is None for run in done)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# Of each seed that is simulated, which part is done, and whether to stop: shared with the command.
_parts: Any = None
_lacking: Any = None  # what the first one finds that the grid lacks, for the command to print


def _begin(parts: Any, lacking: Any) -> None:  # noqa: ANN401  an array and a queue of multiprocessing
    global _parts, _lacking  # the only way into a process of a pool
    _parts, _lacking = parts, lacking


def _in_process(request: simulation.Request, seed: int, folder: Path, number: int) -> SeedRun:
    def passed(part: float) -> None:
        if _parts[-1]:
            raise KeyboardInterrupt
        _parts[number] = part

    def warn(problem: Problem) -> None:
        if number == 0:
            _lacking.put(problem)

    return simulate_seed(request, seed, folder, passed, warn)


# --------------------------------------------------------------------------- for people and programs


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Return the median, and the range where it has one."""
    middle, low, high = (form(value) for value in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def results(runs: Sequence[SeedRun], policy: str | None) -> dict[str, Any]:
    """Return what the seeds have in common as JSON has it: medians, why links were held, and which are short."""
    unsure = forecast.merge_seeds(run.inconclusive for run in runs)
    return {
        "campaign": runs[0].campaign,
        "grid": runs[0].grid,
        "policy": policy,
        "control": dict(runs[0].control),
        "seeds": rows(runs),
        "median": {key: median(run.figures[key] for run in runs) for key in FIGURES},
        "advice": advice.rows(why.merge_seed_causes([run.advice.held for run in runs])),
        "holds": why.reasons(why.merge_seed_causes([run.held for run in runs])),
        "forecast": forecast.mark_inconclusive(_short(runs), unsure),
        "inconclusive": unsure,
        "nearly_full": _nearly_full(runs),
        "without_space": sorted({name for run in runs for name in run.without_space}),
    }


def rows(runs: Sequence[SeedRun]) -> list[dict[str, Any]]:
    """Return a row for each seed, as CSV has it."""
    return [_row(run) for run in runs]


def summarize_seeds(runs: Sequence[SeedRun]) -> list[dict[str, str]]:
    """Return of each figure the median, the least and the most."""
    return [
        {"figure": figure.words}
        | {
            name: figure.form(of([run.figures[key] for run in runs]))
            for name, of in (("median", median), ("least", min), ("most", max))
        }
        for key, figure in FIGURES.items()
    ]


def _row(run: SeedRun) -> dict[str, Any]:
    """Return what programs get of a seed, in JSON and in CSV."""
    short = forecast.mark_inconclusive([link.row for link in run.short], run.inconclusive)
    return {"seed": run.seed, **run.figures, **run.totals, "forecast": short}


def _nearly_full(runs: Sequence[SeedRun]) -> dict[str, float]:
    """Return for how many hours disks were above 98 %, as medians, without those that mostly never were."""
    names = sorted({name for run in runs for name in run.nearly_full})
    hours = {name: float(median(run.nearly_full.get(name, 0.0) for run in runs)) for name in names}
    return {name: time for name, time in hours.items() if time}


def _short(runs: Sequence[SeedRun]) -> list[dict[str, Any]]:
    """Return the links that were short with any seed, with how many, and medians of what they moved then.

    Those come first that are short with most seeds, and of these those that lack most.
    """
    rows = []
    short: dict[FlowKey, list[ShortLink]] = defaultdict(list)
    for run in runs:
        for link in run.short:
            short[link.key].append(link)
    for key, links in short.items():
        causes = Counter(cause.what for link in links for cause in link.causes)
        kinds = {cause.what: cause.kind.value for link in links for cause in link.causes}
        often = min((len(links) + 1) // 2, max(causes.values()))
        common = {what: seeds for what, seeds in causes.items() if seeds >= often}
        row = {
            "scenario": key.scenario,
            "source": key.link.source,
            "destination": key.link.destination,
            "seeds": len(links),
            "missing": median(link.due - link.moved for link in links),
            "moved_of_due": median(link.moved / link.due for link in links),
            "why": "; ".join(common),
            "causes": [{"kind": kinds[what], "what": what, "seeds": seeds} for what, seeds in common.items()],
        }
        rows.append(row)
    return sorted(rows, key=lambda row: (-row["seeds"], -row["missing"]))
