"""`python -m tests.pinned` (`make pinned`) lists the sentences of dc_inject that tests repeat word for word.

A sentence that stands in a test cannot be improved without that test. So tests assert codes, fields and values,
and what a user reads stands in one golden file (see tests/wording.py). How many sentences are still repeated may
only fall: `[tool.dc_inject.wording]` of pyproject.toml has the number.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WORDS = 3  # that make a sentence

# A lexer for strings in a tenth of the time that `ast` takes. In an f-string, {...} is a gap.
TOKEN = re.compile(
    r"""\#[^\n]*|(?P<prefix>(?<!\w)[rRbBfFuU]{0,2})(?:(?P<long>\"{3}|'{3})(?P<text>.*?)(?<!\\)(?P=long)"""
    r"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)')""",
    re.DOTALL,
)
GAP = "\0"
PLACEHOLDER = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
WORD = re.compile(r"[^\W\d_][\w'-]*")
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|PRAGMA|CREATE|FROM|WHERE|SET|ORDER BY|GROUP BY|JOIN) ")
# Words where plain English names the thing: "the service answers", "the menu has", "nobody" is "no user".
UNCLEAR = re.compile(
    r"(?<![a-z])(say|says|said|saying|tell|tells|told|telling|nobody|somebody|beside|anew)(?![a-z])", re.IGNORECASE
)
TEXTS = {".py", ".toml", ".yaml", ".html", ".js", ".sql"}


class Sentence(NamedTuple):
    """A literal part of a string, with single spaces, and where its string begins."""

    text: str
    line: int


def sentences(source: str) -> Iterator[Sentence]:
    """Yield the literal parts of a module's strings that have enough words; no docstrings, comments and SQL."""
    whole, begin, end = "", 0, 0
    for token in TOKEN.finditer(source):
        if token["prefix"] is None:  # a comment
            continue
        if token["long"] and not source[source.rfind("\n", 0, token.start()) + 1 : token.start()].strip():
            continue
        body = re.sub(r"\\n|\\(?=\W)", lambda found: " " if found[0] == "\\n" else "", token[token.lastgroup or 0])
        if "f" in token["prefix"].lower():
            body = PLACEHOLDER.sub(GAP, body.replace("{{", "(").replace("}}", ")"))
        if source[end : token.start()].strip() or not whole:
            yield from _parts(whole, begin)
            whole, begin = "", source.count("\n", 0, token.start()) + 1
        whole, end = whole + body, token.end()
    yield from _parts(whole, begin)


def _parts(whole: str, line: int) -> Iterator[Sentence]:
    for part in whole.split(GAP):
        text = " ".join(part.split())
        if len(WORD.findall(text)) >= WORDS and text.count(" ") >= WORDS - 1 and not SQL.search(text):
            yield Sentence(text, line)


def pinned() -> dict[str, list[Sentence]]:
    """Return, by the path of each test file, its sentences that hold one of dc_inject, or are part of one."""
    index: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for path in sorted((ROOT / "dc_inject").rglob("*.py")):
        for one in sentences(path.read_text("utf-8")):
            for some in _runs(one.text):
                index[some].add(one.text)
    found: dict[str, list[Sentence]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        some = {
            Sentence(own if own in mine.text else mine.text, mine.line)
            for mine in sentences(path.read_text("utf-8"))
            for own in set().union(*(index.get(run, ()) for run in _runs(mine.text)))
            if own in mine.text or mine.text in own
        }
        if some:
            found[str(path.relative_to(ROOT))] = sorted(some, key=lambda one: (one.line, one.text))
    return found


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = WORD.findall(text)
    return zip(*(words[number:] for number in range(WORDS)), strict=False)


def count(found: dict[str, list[Sentence]]) -> int:
    """Return how many different sentences tests repeat."""
    return len({one.text for some in found.values() for one in some})


def unclear_words() -> dict[str, int]:
    """Return how many words of UNCLEAR each file of dc_inject has, in messages, docstrings, comments and names."""
    files = sorted(path for path in (ROOT / "dc_inject").rglob("*") if path.suffix in TEXTS)
    numbers = {str(path.relative_to(ROOT)): len(UNCLEAR.findall(path.read_text("utf-8"))) for path in files}
    return {name: number for name, number in numbers.items() if number}


def main(words: list[str]) -> int:
    """Print their number for each test file, most first; `-v` lists them."""
    found = pinned()
    for name in sorted(found, key=lambda name: (-len({one.text for one in found[name]}), name)):
        if any(word in name for word in words if word != "-v") or not set(words) - {"-v"}:
            print(f"{len({one.text for one in found[name]}):4} {name}")
            for one in found[name] if "-v" in words else ():
                print(f"     {one.line}: {one.text}")
    print(f"{count(found):4} sentences in all")
    print(f"{sum(unclear_words().values()):4} unclear words in dc_inject")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
