"""A part of the hostile suite, each mode and service; `make hostile` has all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dc_inject.sandbox import Sandbox
from tests.backends.support import fts3_or_skip
from tests.hostile.lab import CASES, ROLES, Lab, lab, play, stock
from tests.hostile.modes import MODES

pytestmark = pytest.mark.sandbox

SOME = [  # what takes a second or two each; injecting ones take half a minute, and are in the full suite only
    ("fts", "drip", "ping"),  # as long as such an answer may take
    ("rucio", "endless", "ping"),
    ("fts", "endless-lines", "ping"),
    ("storage", "headers", "data"),
    ("login", "bomb", "ping"),
    ("rucio", "redirect-host", "ping"),
    ("storage", "redirect-path", "data"),
    ("fts", "redirect-loop", "ping"),
    ("rucio", "cut", "data"),
    ("rucio", "types", "check"),
    ("fts", "numbers", "check"),
    ("rucio", "duplicates", "data"),
    ("storage", "control", "check"),
    ("storage", "patterns", "data"),
]


@pytest.fixture(scope="module")
def hostile(storage_grid: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    (label,) = stock(storage_grid, 1, 2)
    with lab(storage_grid, tmp_path_factory.mktemp("hostile"), label) as made:
        yield made


@pytest.mark.parametrize(("role", "mode", "command"), SOME)
def test_a_hostile_answer_does_no_harm(hostile: Lab, role: str, mode: str, command: str) -> None:
    """Bounded memory, a clear end, no secret to anybody, nothing of others touched."""
    if role == "fts":
        fts3_or_skip()
    play(hostile, role, mode, command)


def test_every_mode_and_service_is_among_them() -> None:
    """A mode that is added is tried."""
    assert {mode for _, mode, _ in SOME} == set(MODES)
    assert {role for role, _, _ in SOME} == set(ROLES)
    assert {(role, command) for role, _, command in SOME} <= set(CASES)
