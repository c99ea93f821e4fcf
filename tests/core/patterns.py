"""Every regular expression of the package, found in its source, and the texts that would hurt it most."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate
from itertools import product
from pathlib import Path
from typing import Any

import dc_inject
from dc_inject.model import faults

PACKAGE = Path(dc_inject.__file__).parent
_TAKES_A_PATTERN = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
_ANCHORED = {"match", "fullmatch"}
# Patterns that are made while it runs: what they may be made of, by file and function.
_MADE: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("menu/cells.py", "_cells"): [{"sep": re.escape(separator)} for separator in ",;\t"],
    ("model/faults.py", "_words"): [
        {"pattern": row.words.pattern.replace("[ _]", " ")} for row in faults._ROWS if row.words
    ],
}
_WILD = ["*", "a*b*c*d*", "*a*a*a*a*", "[!a]*[ab]*?*x", "user.?*.*-*"]


@dataclass(frozen=True)
class Pattern:
    """A pattern, where it stands, and whether it is only tried at a text's beginning."""

    place: str
    text: str | bytes
    flags: int
    anchored: bool


def files() -> list[str]:
    """Return the files of the package that use regular expressions; to parse them all takes seconds."""
    mentions = re.compile(r"\b(re|regex)\b")
    every = sorted(PACKAGE.rglob("*.py"))
    return [str(file.relative_to(PACKAGE)) for file in every if mentions.search(file.read_text())]


def of_file(name: str) -> Iterator[Pattern]:
    """Yield each pattern of a file; raises where one is found that nobody here can evaluate."""
    file = PACKAGE / name
    tree = ast.parse(file.read_text())
    uses = _uses(tree)
    chained = {id(node.value): {node.attr} for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named = {
        id(node.value): node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for scope, call in _calls(tree):
        assert isinstance(call.func, ast.Attribute)
        how = chained.get(id(call)) or uses.get(named.get(id(call), ""), {"search"})
        how = how if call.func.attr == "compile" else {call.func.attr}
        place = f"{file.relative_to(PACKAGE)}:{call.lineno}"
        for text, flags in _values(file, scope, call):
            yield Pattern(place, text, flags, anchored=how <= _ANCHORED)


def _calls(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Give each call that takes a pattern, with the function it stands in."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope
        if isinstance(node, ast.ImportFrom):
            assert node.module not in {"re", "regex"}, "write re.compile: this test looks for that"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in _TAKES_A_PATTERN
        ):
            yield inner, node
        yield from _calls(node, inner)


def _uses(tree: ast.AST) -> dict[str, set[str]]:
    """Return what is done with each name; one that others may import counts as searched with."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr != "pattern":
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


def _values(file: Path, scope: str, call: ast.Call) -> Iterator[tuple[str | bytes, int]]:
    assert isinstance(call.func, ast.Attribute)
    what, at = call.args[0], {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(call.func.attr, 2)
    flags = [*call.args[at : at + 1], *(one.value for one in call.keywords if one.arg == "flags")]
    flag = _evaluated(flags[0], {"re": re}) if flags else 0
    if isinstance(what, ast.Constant):
        yield what.value, flag
        return
    source = ast.unparse(what)
    if "translate(" in source:
        yield from ((translate(wild), flag) for wild in _WILD)
        return
    key = (str(file.relative_to(PACKAGE)), scope)
    known = vars(importlib.import_module(_module(file)))
    for names in _MADE.get(key) or [{}]:
        yield _evaluated(what, {**known, **names}), flag


def _module(file: Path) -> str:
    return ".".join([PACKAGE.name, *file.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def _evaluated(what: ast.expr, names: dict[str, Any]) -> Any:
    try:
        return eval(compile(ast.Expression(what), "pattern", "eval"), dict(names))
    except NameError as error:
        raise AssertionError(f"{ast.unparse(what)}: say in _MADE what it may be made of ({error})") from error


def worst(pattern: Pattern, length: int) -> Iterator[str | bytes]:
    """Give texts of about a length: repetitions of all that a pattern looks for, after what leads to them."""
    tree = re._parser.parse(pattern.text, pattern.flags)  # type: ignore[attr-defined]
    if not _repeats(tree):
        return
    letters, words = set("a0 -/."), set()
    _collect(tree, letters, words)
    ones = sorted(letters)[:16]
    pumps = [*ones, *("".join(two) for two in product(ones, ones) if two[0] != two[1]), *sorted(words)]
    pumps += [word + one for word in sorted(words) for one in ones]
    heads = sorted({"", *_heads(tree)}, key=len)[:4]
    for head, pump in product(heads, pumps):
        text = head + pump * (length // len(pump)) + "\x00"
        yield text.encode() if isinstance(pattern.text, bytes) else text


def _repeats(tree: Any) -> bool:
    """Return whether something in it may be repeated more than a few times."""
    return any("MAXREPEAT" in line or re.search(r"REPEAT \d+ \d{2,}", line) for line in _dumped(tree))


def _dumped(tree: Any) -> Iterator[str]:
    for code, rest in tree:
        if "REPEAT" in str(code):
            yield f"REPEAT {rest[0]} {rest[1]}"
        for part in _subtrees(rest):
            yield from _dumped(part)


def _subtrees(rest: Any) -> Iterator[Any]:
    if isinstance(rest, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield rest
    elif isinstance(rest, tuple | list):
        for one in rest:
            yield from _subtrees(one)


def _collect(tree: Any, letters: set[str], words: set[str]) -> None:
    """Find the characters that tell apart the classes of a pattern, and its words."""
    word = ""
    for code, rest in [*tree, ("END", None)]:
        if str(code) == "LITERAL":
            word += chr(rest)
            letters.add(chr(rest)) if len(word) == 1 else None
            continue
        if len(word) > 1:
            words.add(word)
        word = ""
        if str(code) == "IN":
            letters.update(_members(rest)[:3])
        elif str(code) == "NOT_LITERAL":
            letters.add(chr(rest))
        for part in _subtrees(rest):
            _collect(part, letters, words)


def _members(items: Any) -> list[str]:
    """Return characters that are named in a class, be it negated or not."""
    found = []
    for code, value in items:
        if str(code) == "LITERAL":
            found.append(chr(value))
        elif str(code) == "RANGE":
            found.append(chr(value[0]))
    return found or ["a"]


def _heads(tree: Any, before: str = "") -> Iterator[str]:
    """Give the shortest texts that lead to each repetition."""
    for code, rest in tree:
        if "REPEAT" in str(code):
            yield before
            yield from _heads(rest[2], before)
            before += _shortest(rest[2]) * rest[0]
        elif str(code) == "BRANCH":
            for one in rest[1]:
                yield from _heads(one, before)
            before += _shortest(rest[1][0])
        elif "ASSERT" not in str(code):
            for part in _subtrees(rest):
                yield from _heads(part, before)
            before += _shortest([(code, rest)])


def _shortest(tree: Any) -> str:
    text = ""
    for code, rest in tree:
        name = str(code)
        if name == "LITERAL":
            text += chr(rest)
        elif name == "IN":
            negated = str(rest[0][0]) == "NEGATE"
            named = _members(rest)
            text += next(one for one in "a0~%" if one not in named) if negated else named[0]
        elif name in {"NOT_LITERAL", "ANY"}:
            text += "a"
        elif "REPEAT" in name:
            text += _shortest(rest[2]) * rest[0]
        elif name == "BRANCH":
            text += _shortest(rest[1][0])
        elif "ASSERT" not in name:
            text += "".join(_shortest(part) for part in _subtrees(rest))
    return text
