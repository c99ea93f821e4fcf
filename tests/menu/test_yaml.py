"""YAML is read as text with places: nothing is guessed, nothing can blow up."""

from __future__ import annotations

import pytest

from dc_inject.menu import nodes
from dc_inject.menu.nodes import Map, Place, Seq, Text, compose
from dc_inject.model.errors import Problem
from tests.menu import texts


def composed(text: str | bytes) -> tuple[Map | None, list[tuple[int, str]]]:
    complaints: list[tuple[int, str]] = []
    data = text.encode() if isinstance(text, str) else text
    found = compose(data, "m.yaml", lambda place, message, hint: complaints.append((place.line, message)))
    return found, complaints


def plain(node: object) -> object:
    if isinstance(node, Map):
        return {str(key): plain(value) for key, value in node.items()}
    return [plain(item) for item in node] if isinstance(node, Seq) else str(node)


def test_scalars_stay_text() -> None:
    """10:00 is not 600, no is not false, 1_0 is not 10, an empty value is empty text."""
    found, complaints = composed("a: 10:00\nb: no\nc: 1_0\nd:\ne: ~\nf: 2027-02-08\n")
    assert not complaints
    assert plain(found) == {"a": "10:00", "b": "no", "c": "1_0", "d": "", "e": "~", "f": "2027-02-08"}


def test_places() -> None:
    """Every value, key, mapping and list knows its line; what has a key is looked for at its key."""
    found, _ = composed("a: 1\nb:\n  c: 2\n  d:\n    - 3\n    - {e: 4}\n")
    assert found is not None
    b = found["b"]
    assert isinstance(b, Map)
    d = b["d"]
    assert isinstance(d, Seq)
    lines = [
        found["a"].place.line,
        b.place.line,
        b["c"].place.line,
        d.place.line,
        d[0].place.line,
        d[1].place.line,
    ]
    assert lines == [1, 2, 3, 4, 5, 6]
    assert all(isinstance(key, Text) and key.place == Place("m.yaml", 1 + i, 1) for i, key in enumerate(found))


def test_merges() -> None:
    """A mapping's own keys win over merged ones, and the earlier merge over the later."""
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {<<: [*x, *y], a: 3}\nw: {<<: *x}\nv: *x\n"
    found, complaints = composed(text)
    assert not complaints
    assert found is not None
    assert [plain(found[key]) for key in "zwv"] == [
        {"a": "3", "b": "1", "c": "2"},
        {"a": "1", "b": "1"},
        {"a": "1", "b": "1"},
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("# only a comment\n", 1),
        ("- a\n- b\n", 1),
        ("menu\n", 1),
        ("a: 1\nb: 2\na: 3\n", 3),
        ("a: 1\nb: !!str 2\n", 2),
        ("a: 1\nb: !!python/object:os.system {}\n", 2),
        ("a: *x\n", 1),
        ("a: &x\n  b: *x\n", 2),
        ("a: 1\n<<: 2\n", 2),
        ("a: 1\n? [b]\n: 2\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: 1\nb: 'x\n", 3),
        ("a: 1\n\tb: 2\n", 2),
        ("a: 1\nb: [" + "[" * 50 + "\n", 2),
        (b"a: 1\nb: \xff\n", 2),
        ("a: ü\n".encode("latin-1"), 1),
        ("a: 1\n".encode("utf-16"), 1),
        (b"\x7fELF\x01\x00\x00", 1),
        (b"a: 1\nb: \x1b[31m\n", 2),
    ],
)
def test_refused(text: str | bytes, line: int, wording) -> None:
    """What is no plain mapping is refused with one message at its line."""
    _, complaints = composed(text)
    assert [at for at, _ in complaints] == [line]
    wording(complaints[0][1])


def test_a_byte_order_mark_is_no_matter() -> None:
    """UTF-8 with a byte order mark, as some editors write it, is read."""
    assert composed(b"\xef\xbb\xbfa: 1\n")[0] == {"a": "1"}


def test_all_problems_of_a_document_are_told() -> None:
    """One wrong thing does not hide the next."""
    _, complaints = composed("a: 1\na: 2\nb: !x 3\nc: *none\n")
    assert [line for line, _ in complaints] == [2, 3, 4]


def test_an_anchor_bomb_is_refused_before_it_expands() -> None:
    """Nine levels of nine aliases each would be 387 million values; the line tells where it got too much."""
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
    )
    found, complaints = composed(bomb)
    assert found is None
    ((line, words),) = complaints
    assert line == 7
    assert str(nodes.MOST_NODES) in words


def test_too_large_a_file_is_not_parsed() -> None:
    """A file of more than 20 MB is refused as a whole."""
    _, complaints = composed(b"#" * (nodes.LARGEST_FILE + 1))
    ((line, words),) = complaints
    assert line == 1
    assert "20 MB" in words


def test_what_a_problem_says_is_safe_on_a_terminal() -> None:
    """Escapes in a menu do not reach the terminal through an error."""
    (problem,) = texts.problems(texts.text(x='"\\e[31m\\n": 1'))
    assert isinstance(problem, Problem)
    assert str(problem).isprintable()
