"""Thresholds: what they may say, and how they are judged."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.model import FlowKey, Link
from dc_inject.model.thresholds import Amounts, ThresholdOutcome, judge, parse

TB = 10**12
EXPORT = FlowKey("t0-export", Link("CERN", "FNAL"))


def amounts(**more: float) -> Amounts:
    base = {"due": 10 * TB, "injected": 9 * TB, "moved": 8 * TB, "forgiven": 0, "rules": 7, "failed_files": 3}
    return Amounts(**{"links": 2, "seconds": 1000, **base, **more})


@pytest.mark.parametrize(
    ("text", "metric", "labels", "comparison", "bound", "over"),
    [
        ('ratio{scenario="t0-export"} >= 0.9 over 6h', "ratio", {"scenario": "t0-export"}, ">=", 0.9, 6.0),
        ("ratio<90 %", "ratio", {}, "<", 0.9, None),
        ("rate > 10 Gb/s\n over 1 h 30 min", "rate", {}, ">", 1.25e9, 1.5),
        ('moved{source="A", destination="B"}<=1TB', "moved", {"source": "A", "destination": "B"}, "<=", TB, None),
        ('failed_files{link="A:B"} < 100', "failed_files", {"link": "A:B"}, "<", 100, None),
        ("rules{ } >= 5", "rules", {}, ">=", 5, None),
    ],
)
def test_what_it_may_say(
    text: str, metric: str, labels: dict[str, str], comparison: str, bound: float, over: float | None
) -> None:
    """A metric, labels, a comparison, a value with its unit, and a time."""
    made = parse(text)
    assert (made.metric, dict(made.labels), made.comparison, made.bound) == (metric, labels, comparison, bound)
    assert made.over == (None if over is None else timedelta(hours=over))
    assert made.text == " ".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ratoi >= 1",
        'ratio{scenarios="x"} > 1',
        'ratio{scenario="x", scenario="y"} > 1',
        "ratio{scenario=x} > 1",
        'ratio{scenario="x" > 1',
        "ratio = 1",
        "ratio >=",
        "ratio >= much",
        "ratio >= -1",
        "rate >= 11",
        "moved >= 10 Gb/s",
        "rules >= 1.5",
        "ratio >= 1 over night",
        "ratio >= 1 over 0 s",
        "failed_files < 1 over 2h",
        "ratio >= 1" + " " * 600,
        "failed_files < 1 by day",
        "ratio >= 1 by day over 2h",
    ],
)
def test_what_it_may_not_say(text: str, wording) -> None:
    """With the place, and what to write instead."""
    with pytest.raises(ValueError, match=r"; ") as caught:
        parse(text)
    wording(caught.value)


def test_labels_choose_links() -> None:
    """A link in each of its spellings."""
    for text in ("", '{scenario="t0-export"}', '{source="CERN",destination="FNAL"}', '{link="CERN:FNAL"}'):
        assert parse(f"ratio{text} > 1").matches(EXPORT)
    assert parse('ratio{link="CERN->FNAL"} > 1').matches(EXPORT)
    assert not parse('ratio{scenario="t0-export",source="FNAL"} > 1').matches(EXPORT)


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ("ratio >= 0.8", ThresholdOutcome.MET, "it is 0.8"),
        ("ratio > 0.8", ThresholdOutcome.MISSED, "it is 0.8"),
        ("ratio >= 0.9", ThresholdOutcome.MISSED, "it is 0.8, missed by 0.1"),
        ("injected_ratio >= 0.9", ThresholdOutcome.MET, "it is 0.9"),
        ("rate >= 80 Gb/s", ThresholdOutcome.MISSED, "it is 64 Gb/s, missed by 16 Gb/s"),
        ("moved >= 9 TB", ThresholdOutcome.MISSED, "it is 8 TB, missed by 1 TB"),
        ("forgiven <= 0 B", ThresholdOutcome.MET, "it is 0 B"),
        ("rules >= 10", ThresholdOutcome.MISSED, "it is 7, missed by 3"),
        ("failed_files < 3", ThresholdOutcome.MISSED, "it is 3"),
    ],
)
def test_what_is_missed_is_missed_by_so_much(text: str, outcome: ThresholdOutcome, reason: str) -> None:
    """In the unit of the metric."""
    found = judge(parse(text), amounts())
    assert (found.outcome, found.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("ratio >= 0", amounts(due=0)),
        ("ratio >= 0", amounts(links=0)),
        ("moved >= 0 B", amounts(links=0)),
        ("rate >= 0 b/s", amounts(seconds=0)),
    ],
)
def test_without_anything_to_compare_it_is_inconclusive(text: str, given: Amounts, wording) -> None:
    """That is no pass."""
    found = judge(parse(text), given)
    assert (found.outcome, found.value) == (ThresholdOutcome.INCONCLUSIVE, None)
    wording(found.reason)
