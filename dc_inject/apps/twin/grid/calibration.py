"""Calibration: the figures of a grid, fitted to a past campaign's ledger.

- *Capacity.* A link is *full* in a cycle when at every look some rule had waited far longer than rules of it
  have to, or when it was held for a backlog. What moved in full cycles, and failed attempts, is its capacity; else
  that is a lower bound. Where the sum over all links of a storage or site varies much less than the link alone,
  that storage or site is full. Means over four cycles are compared, since transfers that began together end
  together; if they differ much, as in an incident, there is no capacity.
- *Time of a file.* When little is under way, a rule takes as long as its slowest file (`rule_times.py`).
- *Failures.* A file that failed for good has failed in all its attempts: the part of attempts that fails is the
  fourth root of the part of files. The files of a link are parted in five, by their end, and the middle part
  counts, since an incident is in one or two of them. With few failed files there is only a bound.
- *Deletion.* That files are gone is seen once a cycle, so a lag is known to about a cycle. The rate shows where
  files wait for it for cycles, unless more is deleted in others.

The time of daemons and looks, and what a full link wastes on cancelled transfers, is simulated: the rules are
sent again in the fitted grid (`replay.py`), and its capacities and times of files are corrected by the
difference, a few times. The error is that of the last third of the cycles, held out; the result is fitted to all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid.arrays import Flags, Floats, summed
from dc_inject.apps.twin.grid.description import Grid
from dc_inject.apps.twin.grid.description import Rucio as Daemons
from dc_inject.apps.twin.grid.replay import Ends, LinkError, Past, Replay, Sent, compute_held_out_errors, replay
from dc_inject.apps.twin.grid.rule_times import RETRIES, FileFit, Measured, RuleTimes

HELD_OUT = 3  # the last one of so many parts
LEAST_FULL = 3  # cycles
STEADIER = 0.7  # times the spread of a link alone: then all links of a storage together are what is full
MORE = 1.3  # times what was moved while full: a link that moves so much at other times has another limit
STEADY = MORE**2  # times the least that was moved while full: where more moved at times, it was not one capacity
SMOOTH = 4  # cycles
MOST_WASTED = 2  # times what ever moved: where a replay moves too little for other reasons, no capacity is enough
PARTS = 5  # of a link's files, by when they were over: what failed in the middle one counts
MOST_BY_CHANCE = 1.66, 3.07, 4.37, 5.61  # files a part, if 0, 1, 2 or 3 failed in the middle one: with 95 %
LEAST_FAILED = len(MOST_BY_CHANCE)  # files, in a part: fewer are chance
ATTEMPT = 1 / (RETRIES + 1)  # the exponent of files that failed in all attempts, which gives that of one
MOST_FAILING = 0.99  # of attempts: where all fail, nothing else shows
ROUNDS = 4  # of corrections by replays
PARALLEL = 10
Passed = Callable[[float], None]


class Resource(NamedTuple):
    """What links share: `read` or `write` of a storage, `wan_in` or `wan_out` of a site."""

    kind: str
    name: str


class FailureFit(NamedTuple):
    """The part of attempts that fails most of the time, and how many files failed for good at any time."""

    rate: Measured
    files: int


@dataclass(frozen=True, slots=True)
class LinkFit:
    """A link: what it carries, which shared thing is full in its place, the time of its files, and failures."""

    rate: Measured
    full: Resource | None
    files: FileFit
    failures: FailureFit

    @property
    def is_full_at_times(self) -> bool:
        """Whether files waited for several cycles and it carried more in others, and no shared thing was full."""
        return self.full is None and self.rate.value is None and self.rate.count > 0


@dataclass(frozen=True, slots=True)
class DeletionFit:
    """Deletions at a storage: the lag in seconds, and files per second."""

    lag: Measured
    pace: Measured

    @property
    def is_behind_at_times(self) -> bool:
        """Whether files waited for it for several cycles, and it deleted more in others."""
        return self.pace.value is None and self.pace.count >= LEAST_FULL


@dataclass(frozen=True, slots=True)
class Fit:
    """All that was found.

    `daemons` is how rarely Rucio's daemons can have worked at most, in seconds. `transfers` is how many FTS must
    have had at a time on the busiest link, as far as the speed of files is known.
    """

    past: Past
    daemons: float
    transfers: int
    links: Mapping[Ends, LinkFit]
    shared: Mapping[Resource, Measured]
    deletions: Mapping[str, DeletionFit]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The fit to all cycles; the errors of the fit to the others, in the cycles held out."""

    fit: Fit
    held_out: int
    errors: Sequence[LinkError]


def calibrated(past: Past, made: Callable[[Fit], Grid], passed: Passed = lambda _: None) -> Calibrated:
    """Fit a grid, and try it on the last third of the cycles; `made` returns the grid of a fit."""
    held_out = past.cycles // HELD_OUT
    before = past.until(past.cycles - held_out)
    first = fitted(before, made, _part(passed, 0.0, 0.35))
    predicted = replay(past, made(first), _part(passed, 0.35, 0.1))
    errors = compute_held_out_errors(past, predicted, before.cycles)
    fit = fitted(past, made, _part(passed, 0.45, 0.55))
    return Calibrated(fit, held_out, errors)


def _part(passed: Passed, begin: float, length: float) -> Passed:
    return lambda part: passed(begin + length * part)


def fitted(
    past: Past, made: Callable[[Fit], Grid], passed: Passed = lambda _: None, *, rounds: int = ROUNDS
) -> Fit:
    """Fit, then correct it so many times by what differs in a replay in the grid that `made` returns."""
    numbers: dict[Ends, list[int]] = defaultdict(list)
    for number, rule in enumerate(past.sent):
        numbers[rule.link].append(number)
    times = {link: RuleTimes(past, of_link) for link, of_link in sorted(numbers.items())}
    fit = _fit(past, times)
    for number in range(rounds):
        replayed = replay(past, made(fit), _part(passed, number / rounds, 1 / rounds))
        links = {
            link: replace(of_link, files=times[link].corrected(of_link.files, replayed.completed))
            for link, of_link in fit.links.items()
        }
        fit = _with_capacities(
            replace(fit, links=links), {k: rule_times.full(past) for k, rule_times in times.items()}, replayed
        )
    return fit


def _with_capacities(fit: Fit, full: Mapping[Ends, Flags], replayed: Replay) -> Fit:
    """Return a fit whose capacities are corrected by what moved in full cycles, and what a replay moved."""

    def corrected(rate: Measured, links: Sequence[Ends], cycles: Flags) -> Measured:
        if rate.value is None:
            return rate
        true, seen = (
            sum(moved[link][cycles].sum() for link in links) for moved in (fit.past.moved, replayed.moved)
        )
        # By half of it: what a link wastes grows fast when it carries a little less than is injected.
        value = rate.value * float(np.sqrt(np.clip(true / max(seen, 1.0), 0.25, 4.0)))
        return rate.moved_to(min(value, MOST_WASTED * rate.bound))

    links = {
        link: replace(fitted, rate=corrected(fitted.rate, [link], full[link]))
        for link, fitted in fit.links.items()
    }
    shared = {}
    for resource, rate in fit.shared.items():
        cycles = np.any([full[link] for link, fitted in fit.links.items() if fitted.full == resource], axis=0)
        members = [link for link in fit.links if resource in _shared(fit.past, link)]
        shared[resource] = corrected(rate, members, cycles)
    return replace(fit, links=links, shared=shared)


def _fit(past: Past, times: Mapping[Ends, RuleTimes]) -> Fit:
    """Fit all that needs no replay."""
    fastest = min((of_link.fastest for of_link in times.values()), default=np.inf)
    daemons = float(np.clip(fastest / 2, 1.0, Daemons().submit_every))  # a rule waits for two of them
    failures = {
        link: _failures(past.sent[number] for number in of_link.numbers) for link, of_link in times.items()
    }
    full = {link: of_link.full(past) for link, of_link in times.items()}
    carried = {  # failed attempts move bytes too
        link: past.moved[link] / past.cycle / (1 - (failures[link].rate.value or 0.0)) for link in times
    }
    groups = {link: _what_is_full(past, link, carried, full[link]) for link in times}
    full_resources = {group for group in groups.values() if group is not None}
    for link, group in groups.items():
        if group is None and full[link].sum() >= LEAST_FULL:  # it may have kept its part of what others show
            groups[link] = next((resource for resource in _shared(past, link) if resource in full_resources), None)
    shared = {}
    for resource in sorted(full_resources):
        members = [link for link in times if resource in _shared(past, link)]
        cycles = np.any([full[link] for link in members if groups[link] == resource], axis=0)
        shared[resource] = _capacity(np.sum([carried[link] for link in members], axis=0), cycles)
    links = {}
    for link, of_link in times.items():
        alone = full[link] if groups[link] is None else np.zeros(past.cycles, dtype=bool)
        fails = failures[link].rate.value
        if fails is None and not failures[link].files:
            fails = 0.0
        files = of_link.of_file(fails, daemons + past.look / 2)
        links[link] = LinkFit(_capacity(carried[link], alone), groups[link], files, failures[link])
    deletions = {}
    for storage in sorted({link[1] for link in times}):
        deletion = _deletion(past, [rule for rule in past.sent if rule.link[1] == storage])
        if deletion is not None:
            deletions[storage] = deletion
    transfers = max(
        (times[link].transfers(fitted.files, carried[link]) for link, fitted in links.items()), default=0
    )
    return Fit(past, daemons, transfers, links, shared, deletions)


# --------------------------------------------------------------------------- capacities


def _shared(past: Past, link: Ends) -> list[Resource]:
    """Return what a link may share with others, the smallest first."""
    source, destination = link
    resources = [Resource("write", destination), Resource("read", source)]
    out, into = past.sites.get(source), past.sites.get(destination)
    if out != into or out is None:
        resources += [Resource(kind, site) for kind, site in (("wan_in", into), ("wan_out", out)) if site]
    return resources


def _what_is_full(past: Past, link: Ends, carried: Mapping[Ends, Floats], full: Flags) -> Resource | None:
    """Return the shared thing, if any, whose sum is much steadier than the link alone while that is full.

    Not relative to the sum: links that have room for all they are given would make any sum steadier.
    """
    if full.sum() < LEAST_FULL:
        return None
    steadiest, least, crossing = None, _spread(carried[link][full]), {link}
    for resource in _shared(past, link):
        others = {other for other in carried if resource in _shared(past, other)}
        if others <= crossing:
            continue  # the same links as something smaller has
        crossing = others
        spread = _spread(np.sum([carried[other] for other in others], axis=0)[full])
        if spread < STEADIER * least:
            steadiest, least = resource, spread
    return steadiest


def _smooth(carried: Floats) -> Floats:
    """Return the means of cycles in a row, of all where there are few."""
    length = min(SMOOTH, len(carried))
    return np.convolve(carried, np.ones(length) / length, mode="valid")


def _spread(carried: Floats) -> float:
    low, high = np.percentile(_smooth(carried), [10, 90])
    return float(high - low)


def _capacity(carried: Floats, full: Flags) -> Measured:
    """Return what is carried in full cycles; a bound, if they are few, or differ, or others carry more."""
    most, count = float(_smooth(carried).max(initial=0.0)), int(full.sum())
    mean = float(carried[full].mean()) if count else 0.0
    if count < LEAST_FULL or not mean:
        return Measured(None, most, count)
    low, high = map(float, np.percentile(_smooth(carried[full]), [10, 90]))
    if most > MORE * max(mean, high):
        return Measured(None, most, count)
    if high > STEADY * low:
        return Measured(None, most, count, low, high)
    return Measured(mean, most, count, min(low, mean), max(high, mean))


# --------------------------------------------------------------------------- failures and deletions


def _failures(rules: Iterable[Sent]) -> FailureFit:
    """Return which part of attempts fails, by files that failed in all of them."""
    over = sorted(
        (at, rule.done, rule.failed)
        for rule in rules
        if (at := rule.ended if rule.completed is None else rule.completed) is not None
    )
    done, failed = np.array([counts for _, *counts in over], dtype=np.float64).reshape(-1, 2).T
    files = done + failed
    count = int(files.sum())
    if not count:
        return FailureFit(Measured(None, 1.0, 0), 0)
    part = ((files.cumsum() - files / 2) * PARTS / count).astype(np.int64).clip(max=PARTS - 1)
    failed_in, files_in = summed(part, failed, PARTS), summed(part, files, PARTS)
    _, least, middle, *_ = np.sort(failed_in)
    low, value, high = np.sort((failed_in / np.maximum(files_in, 1.0)) ** ATTEMPT)[1:-1].clip(max=MOST_FAILING)
    if middle >= LEAST_FAILED and value <= STEADY * low:
        return FailureFit(Measured(float(value), 0.0, count, float(low), float(high)), int(failed.sum()))
    if not failed.any():
        most = 3 / PARTS  # the rule of three: all files count
    elif middle < LEAST_FAILED:
        most = MOST_BY_CHANCE[int(middle)]
    else:
        most = least + 2 * least**0.5 + 3
    return FailureFit(Measured(None, min(most * PARTS / count, 1.0) ** ATTEMPT, count), int(failed.sum()))


def _deletion(past: Past, rules: Sequence[Sent]) -> DeletionFit | None:
    """Return how a storage deletes; None where nothing is known to be gone."""
    seen = [rule for rule in rules if rule.ended is not None and rule.done]
    ended = np.array([rule.ended for rule in seen], dtype=np.float64)
    gone = np.array([np.inf if rule.gone is None else rule.gone for rule in seen])
    files = np.array([rule.done for rule in seen], dtype=np.float64)
    measured = np.isfinite(gone)
    if measured.sum() < LEAST_FULL:
        return None
    soonest = float(np.percentile((gone - ended)[measured], 10))
    lag = Measured(None, soonest, int(measured.sum()))
    if soonest >= 1.5 * past.cycle:
        lag = replace(lag, value=soonest - 0.1 * past.cycle)
    ends = past.cycle * np.arange(past.cycles + 1)
    overdue = ended + (lag.value or 0.0) + 2 * past.cycle
    waits = np.array([((overdue <= at) & (gone > at)).any() for at in ends])
    cycle = np.clip(np.where(measured, gone, 0.0) / past.cycle - 1e-9, 0, past.cycles - 1).astype(np.int64)
    deleted = summed(cycle[measured], files[measured], past.cycles) / past.cycle
    pace = _pace(deleted, waits[:-1] & waits[1:])
    return DeletionFit(lag if pace.value is None else replace(lag, value=None), pace)  # waits hide the lag


def _pace(deleted: Floats, waits: Flags) -> Measured:
    """Return the files deleted in a second while files waited for it all the time; a bound, if others had more."""
    most, count = float(deleted.max(initial=0.0)), int(waits.sum())
    mean = float(deleted[waits].mean()) if count else 0.0
    others = float(_smooth(np.where(waits, 0.0, deleted)).max(initial=0.0))
    if count >= LEAST_FULL and others > MORE * mean:
        return Measured(None, others, count)
    if count < LEAST_FULL or not mean:
        return Measured(None, most, count)
    return Measured(mean, most, count)
