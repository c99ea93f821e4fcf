"""Pages and docstrings name only what exists: files, functions, exceptions, and the numbers behind a hold."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from dc_inject.model import Hold
from dc_inject.summary.criteria import ENOUGH, GRADES, JUDGED
from tests.docs import DOCS, ROOT

FILES = [path.relative_to(ROOT) for folder in ("dc_inject", "tests") for path in (ROOT / folder).rglob("*.py")]
PAGES = [
    page
    for page in [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    if "\nReplaced by" not in page.read_text() and page.name != "changelog.md"
]
OTHERS = (".toml", ".json", ".cfg", ".conf", ".pem", ".key", ".md", ".yaml", ".done")  # files that are not code


def tails(dotted: str) -> Iterator[str]:
    """Yield a dotted name, and what is left of it without its first parts."""
    parts = dotted.split(".")
    return (".".join(parts[first:]) for first in range(len(parts)))


def defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module or class has, with the attributes of its classes."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                for inner in ("", *(f".{attribute}" for attribute in defined(node.body))):
                    yield from (name + inner, name.lower() + inner)  # `Limits.total`, and `limits.total` in prose
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)


@cache
def sources() -> dict[Path, ast.Module]:
    """Return the modules of the package; they are parsed once, and only where a test here runs."""
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "dc_inject").rglob("*.py"))}


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Return all parts of the modules; to walk through them takes a second."""
    return [(path, node) for path, tree in sources().items() for node in ast.walk(tree)]


@cache
def known_names() -> set[str]:
    """Return the modules of dc_inject and what they define, by the full dotted name and each end of it."""
    names = set()
    for path, tree in sources().items():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names |= set(tails(module)).union(*(tails(f"{module}.{name}") for name in defined(tree.body)))
    return names


@cache
def classes() -> set[str]:
    """Return the names of the classes of the package."""
    return {node.name for _, node in nodes() if isinstance(node, ast.ClassDef)}


def exists(name: str) -> bool:
    """Tell whether a file (`planning/pace.py`) or a dotted name (`planning.pace.due`) is in the project."""
    if name.endswith(".py"):
        wanted = Path(name).parts
        return any(path.parts[-len(wanted) :] == wanted for path in FILES)
    return name in known_names()


def named(text: str) -> Iterator[str]:
    """Yield the names of files and functions between backticks, and whatever begins as ours does."""
    for quoted in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[a-z_0-9/.]+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w+)+", quoted) and not quoted.endswith(OTHERS):
            yield quoted  # and `cli/NAME.py` stands for any
    yield from (name for name in re.findall(r"\bdc_inject(?:\.\w+)+", text) if not name.endswith(OTHERS))


def docstrings() -> Iterator[tuple[Path, str]]:
    """Yield every docstring of the code, with its file."""
    for path, node in nodes():
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield path.relative_to(ROOT), ast.get_docstring(node) or ""


def test_a_name_of_nothing_is_seen():
    assert list(named("`planning/pace.py`, `pace.due`, `dc_inject.toml`, `a.b c` and dc_inject.units.")) == [
        "planning/pace.py",
        "pace.due",
        "dc_inject.units",
    ]
    assert exists("planning/pace.py")
    assert exists("pace.due")
    assert exists("limits.total")
    assert not exists("plan/pace.py")
    assert not exists("pace.dues")


def test_pages_of_the_explanation_name_what_exists():
    """The other pages are for users: dotted names there are keys and files of theirs, so only ours are read."""
    wrong = []
    for page in PAGES:
        names = set(named(page.read_text()))
        if "explanation" not in page.parts:
            names = {name for name in names if name.endswith(".py") or name.startswith("dc_inject.")}
        wrong += [f"{page.relative_to(ROOT)}: {name}" for name in sorted(names) if not exists(name)]
    assert wrong == []


def test_docstrings_name_what_exists():
    elsewhere = {"concurrent.futures", "jsonschema.validate"}
    wrong = [
        f"{path}: {name}"
        for path, text in docstrings()
        for name in [*named(text), *re.findall(r"\b[a-z_/]+/[a-z_]+\.py\b", text)]
        if name not in elsewhere and not exists(name)
    ]
    assert wrong == []


def test_docstrings_name_exceptions_that_exist():
    wrong = [
        f"{path}: {name}"
        for path, text in docstrings()
        for name in re.findall(r"\b[Rr]aises? ([A-Z]\w+)", text)
        if name.removesuffix("s") not in classes() and name not in classes() and not hasattr(builtins, name)
    ]
    assert wrong == []


# The numbers behind a hold


def quoted_numbers() -> set[str]:
    """Return the words between backticks on the page about holds, in the sections of holds."""
    text = (DOCS / "reference" / "holds.md").read_text()
    sections = re.findall(r"^## (\S+)\n(.+?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    about = "".join(section for name, section in sections if name in {hold.value for hold in Hold})
    return set(re.findall(r"`([a-z_]+)`", about))


def test_the_page_about_holds_names_numbers_that_exist():
    """A number is a key of a dictionary, a key of a menu is a field of its schema."""
    words = {node.value for _, node in nodes() if isinstance(node, ast.Constant)}
    fields = (node.target for _, node in nodes() if isinstance(node, ast.AnnAssign))
    words |= {field.id for field in fields if isinstance(field, ast.Name)}
    assert quoted_numbers() - words == set()


def test_every_number_behind_a_hold_is_explained():
    emitted = set()
    for _, node in nodes():
        match node:
            case ast.Call(func=ast.Name(id="Held" | "Constraint")):
                dictionaries = [inner for inner in ast.walk(node) if isinstance(inner, ast.Dict)]
            case ast.Assign(targets=[ast.Name(id="numbers"), *_], value=ast.Dict() as value):
                dictionaries = [value]
            case _:
                continue
        emitted |= {key.value for inner in dictionaries for key in inner.keys if isinstance(key, ast.Constant)}
    page = (DOCS / "reference" / "holds.md").read_text()
    assert len(emitted) > 20
    assert [name for name in sorted(emitted) if f"`{name}" not in page] == []


SHORT = r"moved under (\d+) % of what \w+ \w+ due in the last (\w+) closed cycles"


@pytest.mark.parametrize("page", ["how-to/run-a-day.md", "reference/status.md"])
def test_pages_have_the_limits_below_which_a_link_is_short(page):
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight")
    assert re.findall(SHORT, (DOCS / page).read_text()) == [(f"{100 * ENOUGH:.0f}", words[JUDGED - 1])]


def test_the_page_about_reports_has_the_colours_and_their_limits():
    found = re.findall(r"(\w+) `([+!]+)` (?:from ([\d.]+)|below)", (DOCS / "reference" / "report.md").read_text())
    assert [(float(least or "-inf"), colour, sign) for colour, sign, least in found] == [*GRADES]
