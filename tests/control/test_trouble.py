"""What the trouble campaign calls harm."""

from __future__ import annotations

from tests.control.trouble import harm


def moved(**parts: float) -> dict[str, dict[str, float]]:
    return {link: {"injected": 1.0, "moved": part} for link, part in parts.items()}


def test_harm_is_less_than_what_the_first_arm_moves_in_all_or_on_a_link():
    off = moved(a=0.8, b=0.0, total=0.8)
    assert harm({"off": off, "act": moved(a=0.73, b=0.0, total=0.776)}) == {}
    act = moved(a=0.7, b=0.1, total=0.72)
    assert harm({"off": off, "act": act}) == {("act", "a"): 0.7 / 0.8, ("act", "total"): 0.72 / 0.8}
