"""Thresholds: what a campaign has to reach, such as `ratio{scenario="t0-export"} >= 0.9 over 6h`.

One grammar serves menus (`thresholds:`), `report --fail-under` and `run --abort-on`:

    METRIC [ {LABEL="NAME", ...} ] COMPARISON VALUE [ over DURATION | by day ]

A threshold is about all links that its labels choose, taken together, and without labels about all links of the
campaign. With `over` it is about the newest cycles that make up that time, and with `by day` about each day of the
challenge by itself. Only cycles that count in averages are
taken: closed ones, outside of excluded windows.

There are three outcomes, as of k6's thresholds two: met, missed, and inconclusive where there is nothing to
compare. That is no pass: the threshold is inconclusive, as when its scenario does not exist or its time is not
over.

What links got is added up elsewhere (`Amounts`); here it is only compared.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from dc_inject.model import units
from dc_inject.model.types import FlowKey

EXAMPLE = 'ratio{scenario="t0-export"} >= 0.9 over 6h'
LONGEST = 500  # characters
BY_DAY = " by day"
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
LABELS: Mapping[str, Callable[[FlowKey], tuple[str, ...]]] = {
    "scenario": lambda key: (key.scenario,),
    "source": lambda key: (key.link.source,),
    "destination": lambda key: (key.link.destination,),
    "link": lambda key: (str(key.link), f"{key.link.source}->{key.link.destination}", key.link.shown),
}


class ThresholdOutcome(StrEnum):
    """Whether what a threshold asks for was reached; inconclusive where that is not known."""

    MET = "met"
    MISSED = "missed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Amounts:
    """What links got together in a time: bytes, rules and jobs, failed files; `links` is how many there are."""

    links: int
    seconds: float
    due: int
    injected: int
    moved: int
    forgiven: int
    rules: int
    failed_files: int


class Metric(NamedTuple):
    """What can be compared: how its values are read and written, and what it is of amounts (None: nothing).

    `more_is` is "better" or "worse", where more of it always is one of them.
    """

    parse: Callable[[str], float]
    shown: Callable[[float], str]
    value: Callable[[Amounts], float | None]
    more_is: str = ""


def _part(text: str) -> float:
    number, scale = (text[:-1].strip(), 100) if text.endswith("%") else (text, 1)
    if not re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,9})?", number):
        raise ValueError(f"{text!r} is not a part; write 0.9 or 90 %")
    return float(number) / scale


def _count(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise ValueError(f"{text!r} is not a number; write a whole number, such as 100")
    return float(text)


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1 else f"{value:.10g}"


_PART = (_part, lambda value: f"{value:.4g}")
_BYTES = (units.parse_size, units.format_size)
METRICS: Mapping[str, Metric] = {
    "ratio": Metric(*_PART, lambda of: of.moved / of.due if of.due else None, "better"),
    "injected_ratio": Metric(*_PART, lambda of: of.injected / of.due if of.due else None, "better"),
    "rate": Metric(
        units.parse_rate,
        units.format_rate,
        lambda of: of.moved / of.seconds if of.seconds else None,
        "better",
    ),
    "due": Metric(*_BYTES, lambda of: of.due),
    "injected": Metric(*_BYTES, lambda of: of.injected),
    "moved": Metric(*_BYTES, lambda of: of.moved),
    "forgiven": Metric(*_BYTES, lambda of: of.forgiven, "worse"),
    "rules": Metric(_count, _number, lambda of: of.rules),
    "failed_files": Metric(_count, _number, lambda of: of.failed_files, "worse"),
}
TIMELESS = "failed_files"  # the ledger has no times of them


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on what links got; `bound` is in bytes, bytes per second, a part or a number."""

    text: str
    metric: str
    labels: tuple[tuple[str, str], ...]
    comparison: str
    bound: float
    over: timedelta | None = None
    by_day: bool = False

    def matches(self, key: FlowKey) -> bool:
        """Whether it is about a link."""
        return all(name in LABELS[label](key) for label, name in self.labels)

    @property
    def is_praise(self) -> bool:
        """Whether it holds where everything is well, as `ratio >= 0.9` does."""
        return METRICS[self.metric].more_is == ("better" if self.comparison.startswith(">") else "worse")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a threshold: the value that was compared, how far it is off, and both in words."""

    threshold: Threshold
    outcome: ThresholdOutcome
    reason: str
    value: float | None = None
    missed_by: float | None = None


def parse(text: str) -> Threshold:
    """Read a threshold; raises ValueError (`what is wrong; what is right`)."""
    if len(text) > LONGEST:
        raise ValueError(f"a threshold of {len(text)} characters is too long; write at most {LONGEST}")
    scanner = _Scanner(text)
    metric = scanner.one_of(METRICS, "metric")
    labels = tuple(scanner.labels())
    comparison = scanner.take(_COMPARISON, "a comparison", "write >=, >, <= or <")
    value, over = scanner.rest()
    by_day = value.endswith(BY_DAY)
    value = value.removesuffix(BY_DAY).strip()
    bound = METRICS[metric].parse(value)
    if by_day and over is not None:
        raise ValueError(f"a threshold is `by day` or `over {over}`, not both; leave one out")
    if metric == TIMELESS and (over is not None or by_day):
        unwanted = "by day" if over is None else f"over {over}"
        raise ValueError(f"`{metric}` has no times, so that it cannot be `{unwanted}`; leave that out")
    duration = None if over is None else units.parse_duration(over)
    if duration is not None and duration < timedelta(seconds=1):
        raise ValueError(f"{over!r} is shorter than a second; write a longer time, such as 6 h")
    return Threshold(" ".join(text.split()), metric, labels, comparison, bound, duration, by_day)


def judge(threshold: Threshold, amounts: Amounts) -> Judgement:
    """Compare what links got with a threshold that is about them."""
    if not amounts.links:
        return inconclusive(threshold, "no link of the campaign has these labels")
    metric = METRICS[threshold.metric]
    value = metric.value(amounts)
    if value is None:
        return inconclusive(threshold, "nothing was due" if not amounts.due else "no time has passed")
    shown = f"it is {metric.shown(value)}"
    if COMPARISONS[threshold.comparison](value, threshold.bound):
        return Judgement(threshold, ThresholdOutcome.MET, shown, value)
    off = abs(value - threshold.bound)
    words = f"{shown}, missed by {metric.shown(off)}" if off else shown
    return Judgement(threshold, ThresholdOutcome.MISSED, words, value, off)


def inconclusive(threshold: Threshold, why: str) -> Judgement:
    """Return that a threshold cannot be judged."""
    return Judgement(threshold, ThresholdOutcome.INCONCLUSIVE, why)


_WORD = re.compile(r"\w{1,100}")
_COMPARISON = re.compile(r">=|<=|>|<")
_OPEN = re.compile(r"\{")
_CLOSE = re.compile(r"\}")
_COMMA = re.compile(r",")
_EQUALS = re.compile(r"=")
_NAME = re.compile(r'"[^"]{0,1000}"')
_NOTHING = re.compile(r"(?!)")


class _Scanner:
    """Reads a threshold from left to right; errors name the wrong character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def take(self, pattern: re.Pattern[str], noun: str, hint: str) -> str:
        """Return what comes next, which has to be a `noun`."""
        text = self.maybe(pattern)
        if text is None:
            rest = self._text[self._at :].strip()
            got = f"not {rest[:20]!r}" if rest else "but the text ends"
            place = f"at character {len(self._text) - len(self._text[self._at :].lstrip()) + 1}"
            raise ValueError(f"{noun} is expected {place}, {got}; {hint}, as in `{EXAMPLE}`")
        return text

    def maybe(self, pattern: re.Pattern[str]) -> str | None:
        """Return what comes next, after blanks, if it is of a form."""
        start = len(self._text) - len(self._text[self._at :].lstrip())
        match = pattern.match(self._text, start)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def one_of(self, names: Mapping[str, object], noun: str) -> str:
        """Return a word that must be one of these names."""
        word = self.take(_WORD, f"a {noun}", f"write one of {', '.join(names)}")
        if word not in names:
            place = f"at character {self._at - len(word) + 1}"
            hint = units.did_you_mean(word, names)
            raise ValueError(f"{word[:40]!r} {place} is no {noun} of a threshold; {hint}")
        return word

    def labels(self) -> list[tuple[str, str]]:
        """Return what stands in braces."""
        labels: list[tuple[str, str]] = []
        if self.maybe(_OPEN) is None:
            return labels
        while self.maybe(_CLOSE) is None:
            if labels:
                self.take(_COMMA, "a comma or }", "close the braces")
            label = self.one_of(LABELS, "label")
            if label in dict(labels):
                raise ValueError(f"the label `{label}` stands there twice; write one threshold for each name")
            self.take(_EQUALS, "=", 'write LABEL="NAME"')
            name = self.take(_NAME, "a name in double quotes", 'write LABEL="NAME"')
            labels.append((label, name[1:-1]))
        return labels

    def rest(self) -> tuple[str, str | None]:
        """Return the value and, if there is one, the time."""
        value, word, over = re.sub(r"\s+", " ", self._text[self._at :]).strip().partition(" over ")
        if not value or value == "over":
            self.take(_NOTHING, "a value", "write a number, with its unit")
        return value.strip(), over.strip() if word else None
