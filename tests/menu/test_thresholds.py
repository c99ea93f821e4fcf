"""Thresholds in menus: what is wrong in one has its place, and they are read back from the text alone."""

from __future__ import annotations

import pytest

from dc_inject import menu
from dc_inject.menu import thresholds_of
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
    ("line", "column", "message", "hint"),
    [
        ("ratoi >= 0.9", 5, "'ratoi' at character 1 is no metric of a threshold", "did you mean ratio?"),
        ("rate >= 10", 5, "'10' has no unit", "10 Gb/s"),
        ('ratio{scenario="two"} >= 0.9', 5, "no scenario two in this menu", "known: one"),
    ],
)
def test_what_is_wrong_has_its_place(line: str, column: int, message: str, hint: str) -> None:
    """And a hint."""
    (problem,) = problems(text(x=f"{TWO}\n  - {line}"))
    assert (problem.line, problem.column) == (text(x=TWO).count("\n") + 1, column)
    assert message in problem.message
    assert hint in problem.hint


def test_they_stand_in_the_menu_itself() -> None:
    """The ledger keeps its text, but not that of its includes."""
    (problem,) = problems(text(x="include: parts.yaml"), {"parts.yaml": TWO.replace("  - failed_files < 100", "")})
    assert (problem.file, problem.line) == ("parts.yaml", 2)
    assert "move it to m.yaml" in problem.hint


def test_editors_know_them() -> None:
    """By an example."""
    assert "0.9 over 6h" in str(menu.schema()["properties"]["thresholds"])
