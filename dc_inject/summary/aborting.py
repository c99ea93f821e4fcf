"""Thresholds of a run: those of its menus are judged at its end, and `--abort-on` may end it before.

`--abort-on 'ratio < 0.5 over 1h'` names what ends the run, as it is read: it is judged whenever a cycle has been
closed, and if it holds, the run stops in good order, as at Ctrl-C. What is inconclusive aborts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dc_inject.ledger import Reader
from dc_inject.menu.values import WrongError
from dc_inject.model import thresholds as grammar
from dc_inject.model.errors import ThresholdMissed, UsageError
from dc_inject.model.events import CycleClosed, Event, Observer
from dc_inject.model.thresholds import Judgement, Threshold, ThresholdOutcome
from dc_inject.model.types import FlowKey
from dc_inject.summary import thresholds
from dc_inject.summary.figures import ReportScope, period

log = logging.getLogger(__name__)


def parse_condition(text: str) -> Threshold:
    """Read a condition that ends a run; raises WrongError for one that a good run fulfils."""
    threshold = grammar.parse(text)
    if threshold.is_praise:
        turned = {">=": "<", ">": "<=", "<=": ">", "<": ">="}[threshold.comparison]
        raise WrongError(f"{text!r} holds while all is well", f"name what ends the run: write {turned} instead")
    if threshold.over is None and threshold.metric != grammar.TIMELESS:
        hint = "add a time, such as `over 1h`: what is injected first takes its time to move"
        raise WrongError(f"{text!r} has no time", hint)
    return threshold


def refuse_without_links(conditions: Sequence[Threshold], keys: Sequence[FlowKey]) -> None:
    """Refuse a condition that is about none of these links: with a wrong name it would never end anything."""
    for condition in conditions:
        if not any(map(condition.matches, keys)):
            message = f"--abort-on {condition.text!r}: no link of the menus has these labels"
            raise UsageError(message, "write names as the menus have them")


class AbortOn:
    """An observer that calls `stop` once a condition holds after a cycle; another one hears everything too."""

    def __init__(self, conditions: Sequence[Threshold], ledger: Reader, observer: Observer) -> None:
        """Take the conditions, the ledger of the engine's thread, and who is notified, too."""
        self.stop: Callable[[], None] | None = None  # stops the engine, once there is one
        self._conditions = conditions
        self._ledger = ledger
        self._observer = observer
        self._held: list[Judgement] = []

    def event(self, event: Event) -> None:
        """Pass an event on; after the close of a cycle, look whether a condition holds."""
        self._observer.event(event)
        if not isinstance(event, CycleClosed) or self.stop is None or self._held:
            return
        chosen = period(self._ledger, ReportScope())
        judgements = thresholds.judge_thresholds(self._ledger, chosen, self._conditions)
        self._held = [judgement for judgement in judgements if judgement.outcome is ThresholdOutcome.MET]
        for judgement in self._held:
            log.warning("stopping, because %s: %s", judgement.threshold.text, judgement.reason)
            self.stop()

    def judge(self, *, menus_too: bool) -> None:
        """Raise ThresholdMissed if a condition has stopped the engine; then judge the thresholds of the menus.

        Raises ThresholdMissed for one that was missed, UsageError for one that is inconclusive.
        """
        if self._held:
            lines = "".join(f"\n  {judgement.threshold.text}: {judgement.reason}" for judgement in self._held)
            hint = "what is live stays until its lifetime ends; the next `run` continues"
            raise ThresholdMissed(f"the run was stopped by --abort-on:{lines}", hint)
        judgements = thresholds.figures(self._ledger, period(self._ledger, ReportScope())) if menus_too else []
        if (failed := thresholds.error(judgements)) is not None:
            raise failed
