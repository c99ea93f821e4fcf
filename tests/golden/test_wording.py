"""Sentences that users see stand in one place: in golden files, not in tests, and no two tests keep the same."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tests import pinned
from tests import wording as golden

MOST = tomllib.loads((pinned.ROOT / "pyproject.toml").read_text())["tool"]["dc_inject"]["wording"]
FILES = sorted(golden.FOLDER.rglob("*.txt"))


def test_tests_repeat_no_more_sentences_than_they_did():
    """Where there are more: show the sentence with `wording`, or assert a code, a field or a value instead."""
    assert pinned.count(pinned.pinned()) <= MOST["pinned"], "`python -m tests.pinned -v tests/FILE` lists them"


def test_the_package_has_no_more_unclear_words_than_it_had():
    """Name the thing: who answers, what a file has, which user."""
    found = pinned.unclear_words()
    assert sum(found.values()) <= MOST["unclear"], found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('x = "one two"\n', []),
        ('x = "one two three"  # four five six\n', ["one two three"]),
        ("x = f'the rate {rate!r} is not  a rate' 'so long'\n", ["is not a rateso long"]),
        ('def f():\n    """One two three."""\n    return ("one two "\n        "three")\n', ["one two three"]),
        (r'x = r"a\.b is no name"', ["a.b is no name"]),
        ('x = "SELECT all FROM the table"\n', []),
    ],
    ids=["short", "comment", "gap", "docstring", "pattern", "sql"],
)
def test_sentences_of_a_source(source, found):
    assert [one.text for one in pinned.sentences(source)] == found


def test_golden_files_of_tests_that_are_no_more_are_found():
    assert golden.forgotten() == [], "make golden"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(golden.FOLDER)))
def test_each_entry_has_its_test(path: Path):
    source = (golden.TESTS / path.relative_to(golden.FOLDER)).with_suffix(".py").read_text()
    entries = golden.parsed(path.read_text())
    assert entries, "make golden"
    names = {golden.function(name).rpartition("::")[2] for name in entries}
    assert [name for name in sorted(names) if f"def {name}(" not in source] == [], "make golden"


def test_no_two_tests_show_the_same():
    """Cases of one test may."""
    where = defaultdict(set)
    for path in FILES:
        for name, text in golden.parsed(path.read_text()).items():
            where[text].add(f"{path.relative_to(golden.FOLDER)}: {golden.function(name)}")
    assert {text: names for text, names in where.items() if len(names) > 1} == {}


def test_a_golden_file_is_read_as_it_was_written():
    entries = {"test_b[x]": "one\n\n  two", "test_a": "three", "test_a (2)": "four", "test_b[y]": "one\n\n  two"}
    assert golden.parsed(golden.dumped(entries)) == entries


def test_a_long_id_is_shortened_and_stays_its_own():
    long, other = (f"test_x[{'y' * 200}{end}]" for end in "ab")
    assert golden.head(long) != golden.head(other)
    assert len(golden.head(long)) < 120
