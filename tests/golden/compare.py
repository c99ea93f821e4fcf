"""Comparing with golden files, and writing them anew."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
RENEW = "DC_INJECT_GOLDEN"  # set by `make golden`
SHOWN, WIDE = 60, 200  # lines of a difference, characters of each


def check(name: str, text: str) -> None:
    """Compare with a golden file; `make golden` writes it instead."""
    path = DATA / name
    text = text if text.endswith("\n") else text + "\n"
    if os.environ.get(RENEW):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return
    before = path.read_text() if path.exists() else ""
    if text != before:
        pytest.fail(difference(name, before, text), pytrace=False)


def difference(name: str, before: str, after: str) -> str:
    """Return a short difference, and what to do about it; lines that change alike are told once."""
    old, new = before.splitlines(), after.splitlines()
    alike: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    other: list[str] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "replace" and b - a == d - c:
            for one, two in zip(old[a:b], new[c:d], strict=True):
                words = _changed(one, two)
                alike[words] += 1
                first.setdefault(words, one)
        elif kind != "equal":
            other += [f"- {line[:WIDE]}" for line in old[a:b]] + [f"+ {line[:WIDE]}" for line in new[c:d]]
    lines = [f"--- {name} (golden)", f"+++ {name} (now)"]
    for words, count in alike.most_common():
        lines += [
            f"@@ {count} x, first in: {first[words][:80]}",
            *(f"{sign} {w}" for sign, w in zip("-+", words, strict=True)),
        ]
    lines += other
    more = f"\n... and {len(lines) - SHOWN} more lines" if len(lines) > SHOWN else ""
    shown = "\n".join(lines[:SHOWN])
    return (
        f"{shown}{more}\n\nIf this is wanted: run `make golden`, and look at what git says of tests/golden/data."
    )


def _changed(one: str, two: str) -> tuple[str, str]:
    """Return what of two lines differs, as whole words."""
    before, after = one.split(" "), two.split(" ")
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    ends = zip(reversed(before[start:]), reversed(after[start:]), strict=False)
    end = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    near = max(0, start - 1)
    return tuple(" ".join(words[near : len(words) - end])[:WIDE] for words in (before, after))  # type: ignore[return-value]


def digest(text: str) -> str:
    """Return what stands for a text that is too long to keep."""
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:32]}, {text.count(chr(10))} lines"
