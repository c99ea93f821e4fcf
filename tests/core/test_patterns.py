"""No regular expression takes longer than its text is long, whatever the text.

Services, storages and other people's menus write what these patterns read. A pattern that reads the same
characters again and again needs the square of a text's length, or worse, and holds the interpreter meanwhile.
"""

from __future__ import annotations

import re
import time
from itertools import islice

import pytest

from tests import cpu

from .patterns import Pattern, files, of_file, worst

SHORT, TIMES = 3000, 8  # characters, and how many times as many where that took long
SUSPECT, SLOW = 0.002, 0.05  # seconds of a processor for these: in proportion to the text it is a fiftieth


def _exceeds(pattern: Pattern, text: str | bytes, seconds: float) -> bool:
    """Return whether it takes longer, each of three times."""
    compiled = re.compile(pattern.text, pattern.flags)
    for _ in range(3):
        begin = time.thread_time()
        try:
            with cpu.budget(0.3, pattern.place):
                if pattern.anchored:
                    compiled.match(text)
                    compiled.fullmatch(text)
                else:
                    compiled.sub(text[:0], text)
        except cpu.Exceeded:
            return True
        if time.thread_time() - begin <= seconds:
            return False
    return True


def slow_for(pattern: Pattern) -> str | bytes | None:
    """Return the beginning of a text for which a pattern takes too long, if there is one."""
    for n, text in enumerate(worst(pattern, SHORT)):
        if _exceeds(pattern, text, SUSPECT):
            longer = next(islice(worst(pattern, SHORT * TIMES), n, None))
            if _exceeds(pattern, longer, SLOW):
                return text[:60]
    return None


def test_a_pattern_takes_time_in_proportion_to_its_text() -> None:
    patterns = [pattern for name in files() for pattern in of_file(name)]
    assert len(patterns) > 50
    slow = {pattern.place: text for pattern in patterns if (text := slow_for(pattern)) is not None}
    assert slow == {}


@pytest.mark.parametrize(
    ("text", "anchored"),
    [
        (r"[^\s'\"=:]+-[^\s'\"]+-[0-9a-f]{32}\b", False),
        (r"((?:https?:/)?/[^\s?'\"]*)\?[^\s'\")]+", False),
        (r"\b([\w-]*(?:token|secret))=", False),
        (r"SOURCE.*user.*file ?size", True),
        (r"[a-z0-9]([a-z0-9-]*[a-z0-9])?x", False),
        (r"\s*\s*x", True),
    ],
)
def test_what_is_slow_is_found(text: str, anchored: bool) -> None:
    """This test could pass for want of the right texts: these are patterns that it has to refuse."""
    assert slow_for(Pattern("here", text, 0, anchored)) is not None
