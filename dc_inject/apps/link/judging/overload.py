"""An overloaded link: it has more to move than it can, so that what moves is what it carries. Pure.

How much has to wait for that, and in which trials it did.
"""

from __future__ import annotations

from collections.abc import Sequence

from dc_inject.apps.link.judging.steps import Ladder
from dc_inject.apps.link.judging.verdict import StepOutcome, Verdict
from dc_inject.planning import ramp
from dc_inject.planning.ramp import FOLLOWS

TAKES_ALL = 0.985  # part of all that was asked for: when that has moved, the link is not at its limit
FAR = 1.15  # times what moves: more than that is not asked for again
QUEUE = 1.7  # times what a link always has on its way: so much is on its way in an overload
FOR_FTS = 3  # the same, where FTS may have to run more transfers


def overloaded(ladder: Ladder, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the last trials in which the link had more to move than it could, so that all show what it carries.

    The first of them was not reached. What a trial has left is moved in the next, whatever that asks for, so only
    their sums show when all of it has arrived, unless what moves was asked for during a long time: but then enough
    still waits. At some time clearly more was asked for than moved since: where enough waits, one trial that moves
    that much may only have had its turn to, since what starts together arrives together.
    """
    run: list[Verdict] = []
    trials = conclusive(verdicts)
    if any(failing(trial) for trial in trials):
        return []
    for trial in trials:
        if not run and trial.good:
            continue
        run = [*run, trial]
        asked = sum(verdict.asked for verdict in run)
        waits = trial.quickest is not None and enough(ladder, trial)
        arrived = _moved(run) >= TAKES_ALL * asked and not waits
        follows = mean_rate(run[1:] or run) >= FOLLOWS * max(verdict.rate for verdict in run)
        if arrived or (follows and not (waits and len(run) == 2)):
            run = []
    return run


def enough(ladder: Ladder, trial: Verdict) -> bool:
    """Whether so much waits at the end of a trial that FTS adds transfers if it can, or as much as may be."""
    full = trial.rate >= ladder.highest and trial.rate <= FAR * trial.moved_rate  # it would take hours
    return full or trial.waiting >= queue(ladder, trial)


def queue(ladder: Ladder, trial: Verdict) -> float:
    """Return the bytes that shall be on their way after a trial: more where FTS has to grow.

    FTS adds transfers only while as many files wait in it as it runs, and some are not with FTS at a time. What
    takes much longer to complete does not wait for FTS: what a step moves is enough.
    """
    times, always = FOR_FTS if transfers(trial) >= ramp.HALF_WAY else QUEUE, _quickest(trial)
    return trial.moved_rate * (always + min((times - 1) * always, ladder.every.total_seconds()))


def transfers(trial: Verdict) -> float:
    """Return how many transfers a link has at most: a file is moved in less than the least time to completion."""
    return trial.moved_rate * _quickest(trial) / trial.file if trial.file else 0.0


def _quickest(trial: Verdict) -> float:
    """Return the least time in which something was completed, in seconds: what it takes without waiting."""
    return trial.quickest.total_seconds() if trial.quickest else 0.0


def conclusive(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the trials that have a result."""
    return [trial for trial in verdicts if trial.outcome is not StepOutcome.INCONCLUSIVE]


def failing(verdict: Verdict) -> bool:
    """Whether a trial was not reached since transfers failed: what moved is not what the link carries."""
    return not verdict.good and verdict.cause is not None and verdict.cause.code == "failing"


def _moved(trials: Sequence[Verdict]) -> int:
    return sum(trial.moved for trial in trials)


def mean_rate(trials: Sequence[Verdict]) -> float:
    """Return the bytes per second that moved in some trials."""
    return _moved(trials) / sum((trial.end - trial.measured).total_seconds() for trial in trials)
