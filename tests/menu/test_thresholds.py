"""Thresholds in menus: what is wrong in one has its place, and they are read back from the text alone."""

from __future__ import annotations

import pytest

from dc_inject.menu import thresholds_of
from dc_inject.menu.schema import json_schema
from tests.menu.texts import draft, problems, text

GOOD = 'ratio{scenario="one"} >= 0.9 over 6h'
TWO = f"thresholds:\n  - {GOOD}\n  - failed_files < 100"


def test_they_are_read_with_the_menu_and_from_its_text_alone() -> None:
    """One, or a list; as the ledger has them."""
    for content, count in ((text(x=TWO), 2), (text(x=f"thresholds: {GOOD}"), 1), (text(), 0)):
        made = draft(content).document.thresholds
        assert len(made) == count
        assert thresholds_of(content) == made


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("ratoi >= 0.9", 5),
        ("rate >= 10", 5),
        ('ratio{scenario="two"} >= 0.9', 5),
    ],
)
def test_what_is_wrong_has_its_place(line: str, column: int, wording) -> None:
    """And a hint."""
    (problem,) = problems(text(x=f"{TWO}\n  - {line}"))
    assert (problem.line, problem.column) == (text(x=TWO).count("\n") + 1, column)
    wording(problem)


@pytest.mark.parametrize(
    ("labels", "right"),
    [
        ('destination="B"', True),
        ('source="A", link="A->B"', True),
        ('destination="Bb"', False),
        ('link="B:A"', False),
        ('source="Site"', False),  # of A: links have RSEs
        ('scenario="one", source="C"', False),
    ],
)
def test_the_links_of_a_threshold_are_there(labels: str, right: bool) -> None:
    """Each label alone, and all together; a misspelt one would be inconclusive on the last day."""
    other = "  two: {from: C, to: D, rate: 1 Gb/s}\nsites: {Site: {rses: {A: {}}}}"
    found = problems(text(x=f"{other}\nthresholds:\n  - ratio{{{labels}}} >= 0.9"))
    assert [problem.line for problem in found] == ([] if right else [17])
    assert all(problem.hint for problem in found)


def test_they_stand_in_the_menu_itself(wording) -> None:
    """The ledger keeps its text, but not that of its includes."""
    (problem,) = problems(text(x="include: parts.yaml"), {"parts.yaml": TWO.replace("  - failed_files < 100", "")})
    assert (problem.file, problem.line) == ("parts.yaml", 2)
    wording(problem.hint)


def test_editors_know_them() -> None:
    """By an example."""
    assert "0.9 over 6h" in str(json_schema()["properties"]["thresholds"])
