"""How far off a grid is: what it predicts of a link, beside what the link moved, and where that is no forecast.

A grid predicts twice: the cycles held out, knowing what was injected in them, and all of a campaign from its menus
alone (`apps/twin/own_menus.py`). If either is off by more than 10 %, something happened to the link that the
grid does not have. What the link moves in a simulation is inconclusive then, above all if it is all that was due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid.replay import Ends, Past, Replay
from dc_inject.model import units

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


def held_out_errors(past: Past, predicted: Replay, since: int) -> list[LinkError]:
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
