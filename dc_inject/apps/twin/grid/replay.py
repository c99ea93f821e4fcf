"""What a past campaign injected, once more in the twin: the same rules at the same moments, in a given grid.

Neither planning nor the engine takes part. So a difference between what moved then and what moves here is the
grid's: that is how a grid is fitted (`calibration.py`), and how its error is known.

A ledger knows what our account could see. A rule is complete when a look, a few times in a cycle, found it so; the
same looks are made here. Bytes count in the cycle in which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid.arrays import Flags, Floats
from dc_inject.apps.twin.grid.description import Grid
from dc_inject.apps.twin.grid.jobs import Job
from dc_inject.apps.twin.grid.rucio import Rule
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World, choose_step_length
from dc_inject.model import units

SEED = 1
Ends = tuple[str, str]  # source and destination, as the grid calls its storages


@dataclass(frozen=True, slots=True)
class Sent:
    """A rule or job that was accepted: what it was to move, and when; times in seconds, None if never seen.

    `expires` is when it ended if it was not complete, or would have. `done` and `failed` are files, as they were
    seen last. `direct` is a job that FTS got without Rucio.
    """

    link: Ends
    activity: str
    priority: int
    bytes: int
    files: int
    accepted: float
    expires: float
    completed: float | None = None
    ended: float | None = None
    gone: float | None = None
    done: int = 0
    failed: int = 0
    direct: bool = False

    def known_by(self, moment: float) -> Sent:
        """Return what was known of it at a moment; files are counted at its end only."""

        def seen(when: float | None) -> float | None:
            return when if when is not None and when <= moment else None

        over = seen(self.completed) is not None or seen(self.ended) is not None
        return replace(
            self,
            completed=seen(self.completed),
            ended=seen(self.ended),
            gone=seen(self.gone),
            done=self.done if over else 0,
            failed=self.failed if over else 0,
        )


@dataclass(frozen=True, slots=True)
class Past:
    """A campaign that was: its cycles from second 0 on, all equally long, and what was sent, by its moment.

    `moved` has the bytes of each link by cycle. `sites` has the site of storages, where it is known. `stocks`
    has the files and bytes of the datasets at each source. `hosts` are those of storages that have URLs.
    `storages` are all ends of links, also of those on which nothing was sent. `held` has the cycles in which links
    were held for a backlog.
    """

    name: str
    cycle: float
    cycles: int
    look: float
    sent: Sequence[Sent]
    moved: Mapping[Ends, Floats]
    sites: Mapping[str, str] = field(default_factory=dict)
    stocks: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    may_end: bool = True
    storages: frozenset[str] = frozenset()
    held: Mapping[Ends, Flags] = field(default_factory=dict)

    def until(self, cycles: int) -> Past:
        """Return what was known when so many cycles were over."""
        moment = cycles * self.cycle
        return replace(
            self,
            cycles=cycles,
            sent=[rule.known_by(moment) for rule in self.sent if rule.accepted < moment],
            moved={link: moved[:cycles] for link, moved in self.moved.items()},
            held={link: held[:cycles] for link, held in self.held.items()},
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of the past in a grid: bytes moved by link and cycle, and when each rule was seen complete."""

    moved: Mapping[Ends, Floats]
    completed: Sequence[float | None]


def replay(past: Past, grid: Grid, passed: Callable[[float], None] = lambda _: None) -> Replay:
    """Send in a grid what a past campaign sent; `passed` is called with the fraction of the cycles done."""
    world = World(grid, SEED, choose_step_length(past.cycle))
    moved = {link: np.zeros(past.cycles) for link in past.moved}
    completed: list[float | None] = [None] * len(past.sent)
    open_: dict[
        int, tuple[Rule | Job, int]
    ] = {}  # number -> the rule or job, and the bytes of it that were counted
    number, looks = 0, round(past.cycle / past.look)
    for look in range(past.cycles * looks):
        now = (look + 1) * past.look
        while number < len(past.sent) and past.sent[number].accepted < now:
            world.advance(past.sent[number].accepted)
            open_[number] = _send(world, str(number), past.sent[number]), 0
            number += 1
        world.advance(now)
        for key, (transfer, before) in list(open_.items()):
            arrived, is_complete, is_over = _seen(world, transfer, past.sent[key].expires <= now)
            moved[past.sent[key].link][look // looks] += arrived - before
            open_[key] = transfer, arrived
            if is_complete:
                completed[key] = now
            if is_complete or is_over:
                del open_[key]
        passed((look + 1) / (past.cycles * looks))
    return Replay(moved, completed)


def _send(world: World, name: str, sent: Sent) -> Rule | Job:
    queue = Queue(*sent.link, sent.activity, sent.priority)
    if sent.direct:
        job = Job(queue, sent.files, sent.bytes)
        world.jobs.submit(name, job)
        return job
    rule = Rule(name, name, queue, sent.files, sent.bytes, sent.accepted, sent.expires)
    world.rucio.add(rule)
    return rule


def _seen(world: World, transfer: Rule | Job, expired: bool) -> tuple[int, bool, bool]:
    """Return the bytes of a rule or job that have arrived, whether it is complete, and whether it has ended."""
    if isinstance(transfer, Rule):
        world.rucio.look(transfer)
        return transfer.arrived, transfer.completed is not None, transfer.ended is not None
    world.jobs.look(transfer)
    arrived, is_complete = transfer.size(transfer.done), transfer.done == transfer.files
    if expired or transfer.is_over:  # only the injector ends a job
        world.jobs.end(transfer)
        world.jobs.delete(transfer, world.now)
    return arrived, is_complete, expired or transfer.is_over


MOST_MISSED = 0.1  # of what moved


class Prediction(NamedTuple):
    """What a link moved, and what a grid predicted, in bytes."""

    moved: float
    predicted: float

    @property
    def error(self) -> float | None:
        """The part by which what moved was missed; None where nothing moved."""
        return abs(self.predicted - self.moved) / self.moved if self.moved else None

    def __str__(self) -> str:
        sizes = f"{units.format_size(round(self.predicted))} instead of {units.format_size(round(self.moved))}"
        more = "more" if self.predicted > self.moved else "less"
        return sizes if self.error is None else f"{sizes}, {units.percent(self.error)} {more}"

    def misses(self, of_all: float) -> bool:
        """Whether it is off by more than 10 %: if nothing moved, by so much of all that the link moved."""
        return abs(self.predicted - self.moved) > MOST_MISSED * (self.moved or of_all)


@dataclass(frozen=True, slots=True)
class LinkError:
    """What a grid predicted of a link in held-out cycles, and how far off single ones were, if anything moved."""

    link: Ends
    prediction: Prediction
    by_cycle: float | None


def compute_held_out_errors(past: Past, predicted: Replay, since: int) -> list[LinkError]:
    """Compare what moved from a cycle on with what a replay moved, for links with either of them."""
    errors = []
    for link, moved in sorted(past.moved.items()):
        true, replayed = moved[since:], predicted.moved[link][since:]
        prediction = Prediction(float(true.sum()), float(replayed.sum()))
        if any(prediction):
            by_cycle = float(np.abs(true - replayed).mean() / true.mean()) if prediction.moved else None
            errors.append(LinkError(link, prediction, by_cycle))
    return errors


class Summary(NamedTuple):
    """The errors of so many links: the median, the worst, and the link of that."""

    links: int
    median: float
    worst: float
    link: Ends


def summary(errors: Sequence[LinkError]) -> Summary | None:
    """Return the errors of all links on which something moved; None if there is no such link."""
    known = [(error, of.link) for of in errors if (error := of.prediction.error) is not None]
    if not known:
        return None
    worst, link = max(known)
    return Summary(len(known), median(error for error, _ in known), worst, link)


def inconclusive(
    past: Past,
    errors: Sequence[LinkError],
    forecasts: Mapping[Ends, Prediction],
    at_times: Mapping[Ends, Sequence[str]],
) -> dict[Ends, str]:
    """Return the links of which a simulation in the grid is inconclusive, and why.

    `forecasts` has what the campaign's own menus move, where it can be compared; `at_times` has what happened to
    links at times for no reason that the grid has, which counts unless a forecast is good all the same.
    """
    held_out = {error.link: error.prediction for error in errors}
    reasons = {
        link: "; ".join(_reasons(held_out.get(link), forecasts.get(link), moved.sum(), at_times.get(link, ())))
        for link, moved in sorted(past.moved.items())
    }
    return {link: reason for link, reason in reasons.items() if reason}


def _reasons(
    held_out: Prediction | None, forecast: Prediction | None, moved: float, at_times: Sequence[str]
) -> Iterator[str]:
    if held_out is None and forecast is None:
        yield "nothing to compare it with: it had no traffic in the cycles held out, and no comparable forecast"
    if held_out is not None and held_out.misses(moved):
        yield f"in cycles held out the grid moves {held_out}"
    if forecast is not None and forecast.misses(moved):
        yield f"in a forecast the grid moves {forecast}"
    if forecast is None or forecast.misses(moved):
        for what in at_times:
            yield f"{what}, and the grid does not have the reason"
