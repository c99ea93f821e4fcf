"""The fixture `wording` compares what a user reads with a golden file, so that no test repeats it.

    wording(error)                           # an error with its class and its hint; a list has a line for each
    wording(done.stderr)                     # the whole text, below the test's own id
    wording(lines(done.stderr, "fts"))       # the lines of it with that word
    wording(error.message, NODE=node)        # a value that varies becomes <NODE>; `tmp_path` and ports always do

The entries of tests/X/test_y.py are in tests/golden/data/wording/X/test_y.txt; `make golden` writes them.
No two tests keep the same text: one does, the others assert a class, code, field or name of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from dc_inject.model.errors import DcInjectError
from tests.golden.compare import DATA, RENEW, difference

TESTS = Path(__file__).parent
FOLDER = DATA / "wording"
FIXTURE = "wording"
LONGEST = 80  # characters of a test's parameters that head an entry
INDENT = "    "
PORT = re.compile(r"\b(127\.0\.0\.1:|localhost:)\d{4,5}\b")
# Colours, the time before a line of the log, and the usage that click prints before its errors.
LEFT_OUT = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|^\d{4}-\d\d-\d\dT[\d:]+Z (?=[A-Z]+ )|^Usage: .*\nTry .*\n", re.MULTILINE
)

WRITING = bool(os.environ.get(RENEW))  # now: tests change the environment

# Of this process, by test file: the texts that its tests have shown, by the heads of their entries.
_SHOWN: dict[str, dict[str, str]] = {}
# The heads of all tests that were collected, by test file.
_COLLECTED: dict[str, set[str]] = {}


def head(test: str) -> str:
    """Return what heads the entries of a test, by its name with parameters; of long ones the end differs most."""
    if len(test) <= LONGEST + 30:
        return test
    name = test.partition("[")[0]
    return f"{name}[...{test[-LONGEST:]}~{sha256(test.encode()).hexdigest()[:6]}"


def golden_file(test_file: str) -> Path:
    """Return where the entries of a test file are, which is named from tests/ on."""
    return (FOLDER / test_file).with_suffix(".txt")


def dumped(entries: Mapping[str, str]) -> str:
    """Return the text of a golden file: tests in the order of their ids, each text indented below its tests."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name in sorted(entries, key=_natural):
        alike.setdefault((function(name), entries[name]), []).append(name)
    return "\n".join(
        "".join(f"{name}\n" for name in names)
        + "".join(f"{INDENT}{line}".rstrip() + "\n" for line in text.split("\n"))
        for (_, text), names in alike.items()
    )


def parsed(content: str) -> dict[str, str]:
    """Return the entries of a golden file."""
    entries: dict[str, list[str]] = {}
    heads: list[list[str]] = []
    for line in content.split("\n"):
        if line and not line.startswith(INDENT):
            if any(heads):
                heads = []
            entries[line] = []
            heads.append(entries[line])
        else:
            for lines in heads:
                lines.append(line.removeprefix(INDENT))
    return {name: "\n".join(some).strip("\n") for name, some in entries.items()}


def function(name: str) -> str:
    """Return the function of a test by the head of its entry."""
    return re.split(r"[\[ ]", name, maxsplit=1)[0]


def _natural(name: str) -> list[tuple[str, int]]:
    return [(words, int(number or 0)) for words, number in re.findall(r"(\D*)(\d*)", name)]


def lines(text: str, *words: str) -> list[str]:
    """Return the lines of a text that have these words: what a test is about, where commands print more."""
    return [line for line in text.splitlines() if all(word in line for word in words)]


@cache
def _entries(test_file: str) -> dict[str, str]:
    path = golden_file(test_file)
    return parsed(path.read_text("utf-8")) if path.exists() else {}


@pytest.fixture
def wording(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Compare a text with the golden entry of this test; a second one has `(2)` behind its head."""
    file, test = _place(request.node)
    varying = {"REPO": str(TESTS.parent)}
    if "tmp_path" in request.fixturenames:
        varying["TMP"] = str(request.getfixturevalue("tmp_path"))
    shown: list[str] = []

    def compare(text: object, **values: object) -> None:
        clean = PORT.sub(r"\1<PORT>", LEFT_OUT.sub("", _readable(text))).strip("\n")
        for name, value in sorted((varying | values).items(), key=lambda pair: -len(str(pair[1]))):
            clean = clean.replace(str(value), f"<{name}>")
        clean = "\n".join(line.rstrip() for line in clean.split("\n"))
        assert clean, "there is no text"
        name = f"{test} ({len(shown) + 1})" if shown else test
        shown.append(name)
        if WRITING:
            _SHOWN.setdefault(file, {})[name] = clean
        elif clean != (before := _entries(file).get(name, "")):
            pytest.fail(difference(f"{golden_file(file).name}: {name}", before, clean), pytrace=False)

    yield compare
    if not WRITING and not hasattr(request.node, "failed"):
        left = [name for name in _entries(file) if _owner(name) == test and name not in shown]
        assert not left or not shown, f"`make golden`: this test no longer shows {left}"


def _readable(text: object) -> str:
    if isinstance(text, DcInjectError):
        hint = f"\nhint: {text.hint}" if text.hint else ""
        return f"{type(text).__name__}: {text}{hint}"
    return "\n".join(str(one) for one in text) if isinstance(text, list | tuple) else str(text)


def _place(node: pytest.Item) -> tuple[str, str]:
    return str(node.path.relative_to(TESTS)), head(node.nodeid.partition("::")[2])


def _owner(name: str) -> str:
    return re.sub(r" \(\d+\)$", "", name)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """When golden files are written leave out tests that write none, and remember which tests there are."""
    if not WRITING:
        return
    if getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        raise pytest.UsageError("golden files are written by one process: -n 0")
    whole = not any("::" in word for word in config.args)
    wanted, others = [], []
    for item in items:
        uses = FIXTURE in getattr(item, "fixturenames", ())
        (wanted if uses or DATA.parent in item.path.parents else others).append(item)
        if uses and whole:
            file, test = _place(item)
            _COLLECTED.setdefault(file, set()).add(test)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = wanted


def write() -> None:
    """Write what the tests of this process have shown; entries of tests that are no more go, files too."""
    for file, shown in _SHOWN.items():
        tests = {_owner(name) for name in shown}
        known = _COLLECTED.get(file)
        kept = {
            name: text
            for name, text in _entries(file).items()
            if _owner(name) not in tests and (known is None or _owner(name) in known)
        }
        path = golden_file(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dumped(kept | shown), "utf-8")
    for path in forgotten() if _SHOWN else ():
        path.unlink()


def forgotten() -> list[Path]:
    """Return golden files of test files that are no more, or that show no wording."""
    files = {path: (TESTS / path.relative_to(FOLDER)).with_suffix(".py") for path in sorted(FOLDER.rglob("*.txt"))}
    return [path for path, test in files.items() if not test.exists() or FIXTURE not in test.read_text("utf-8")]
