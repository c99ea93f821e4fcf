"""Services: what differs between them is told in one table, and nobody else asks which one it is."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import dc_inject
from dc_inject.model.services import DEFAULT, SERVICES, by_end, describe_right, injections

SOURCE = Path(dc_inject.__file__).parent
ALLOWED = {  # file or folder: why it names a service
    "model/services.py": "the table",
    "backends/": "they are the services",
    "sandbox/": "it brings up Rucio and FTS, and knows nothing of links",
    "model/causes.py": "defines who may answer",
    "menu/includes.py": "`fts` is a key of a menu, too",
    "apps/link/hints.py": "writes keys of a menu as options",
    "summary/what_to_do.py": "a place to look at",
    "credentials/__init__.py": "the purpose of a token that is for FTS alone",
    "menu/terms.py": "`reads` is a key of a menu, too",
    "apps/reads/": "it is a service",
    "registry.py": "the table of back ends",
    "apps/twin/backend.py": "is the twin's Rucio",
    "apps/twin/fts_backend.py": "is the twin's FTS",
    "cli/shared/log_output.py": "quietens loggers of libraries",
    "apps/preview/online.py": "asks each back end what only it can be asked",
    "apps/preview/checking.py": "says which menu lacks the address of FTS",
    "assembly/ending.py": "to sweep up files takes that one",
}


COMPARING = (
    "backends/",
    "sandbox/",
    "apps/preview/online.py",
    "apps/preview/checking.py",
)  # of these, what may ask which one it is


def _is_of_peer(node: ast.expr) -> bool:
    """Whether it names who answered, which says nothing about what carries a link."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Peer"


def names_in(*nodes: ast.AST) -> set[str]:
    """The services that code names: by their constants, as text of their own, or inside SQL."""
    found = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {name for name in SERVICES if node.value == name or f"'{name}'" in node.value}
        elif isinstance(node, ast.Name | ast.Attribute) and not _is_of_peer(node):
            name = node.id if isinstance(node, ast.Name) else node.attr
            found |= {one for one in SERVICES if name == one.upper()}
    return found


def test_no_code_but_back_ends_asks_which_service_it_is() -> None:
    """It asks `link.service` what it can do."""
    texts = {p.relative_to(SOURCE).as_posix(): p.read_text() for p in sorted(SOURCE.rglob("*.py"))}
    with_names = {name: text for name, text in texts.items() if any(one in text.lower() for one in SERVICES)}
    trees = {name: ast.parse(text) for name, text in with_names.items()}  # of all it takes seconds
    naming = {name for name, tree in trees.items() if names_in(tree)}
    assert {name for name in naming if not name.startswith(tuple(ALLOWED))} == set()
    assert {allowed for allowed in ALLOWED if not any(name.startswith(allowed) for name in naming)} == set()
    compared = {
        name: [one for one in ast.walk(tree) if isinstance(one, ast.Compare)] for name, tree in trees.items()
    }
    asking = {name for name, nodes in compared.items() if names_in(*nodes)}
    assert {name for name in asking if not name.startswith(COMPARING)} == set()


@pytest.mark.parametrize(
    ("names", "said"),
    [(["rucio"], "rules"), (["fts"], "jobs"), (["fts", "rucio"], "rules and jobs"), ([], "rules and jobs")],
)
def test_injections_have_the_names_that_their_services_give_them(names: list[str], said: str) -> None:
    assert injections(names) == said


def test_ends_tell_the_service() -> None:
    assert by_end(is_url=False) is DEFAULT
    assert by_end(is_url=True).takes_files


def test_the_right_to_end_is_unknown_where_the_service_does_not_show_it(wording: Callable[..., None]) -> None:
    wording([describe_right("fts", right) for right in (True, False, None)])
