"""Files under way in FTS, as cohorts: those of one job that started in the same step, and so end together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dc_inject.apps.twin.grid.arrays import Flags, Floats, Ints, none


class Cohorts(NamedTuple):
    """Cohorts, each a column: its queue and job, how often tried, files, bytes left and size of each, start."""

    queue: Ints
    job: Ints
    tries: Ints
    files: Ints
    left: Floats
    size: Floats
    start: Floats

    def chosen(self, which: Flags) -> Cohorts:
        """Return some of them."""
        return Cohorts._make(column[which] for column in self)

    def plus(self, others: list[Cohorts]) -> Cohorts:
        """Return these and others."""
        cohorts = [self, *others]
        return Cohorts._make(np.concatenate(columns) for columns in zip(*cohorts, strict=True)) if others else self


def no_cohorts() -> Cohorts:
    """Return none."""
    return Cohorts(none(), none(), none(), none(), np.zeros(0), np.zeros(0), np.zeros(0))
