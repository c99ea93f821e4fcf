"""Pages and pictures with figures from simulations are fresh; `make docs` measures all of them."""

from __future__ import annotations

import pytest

from tests.docs import DOCS
from tests.docs.generated import FILES, MEASURED

pytest.importorskip("numpy")  # an extra

from tests.docs import responses

PANEL = 2  # with a step down and one up; all of them take half a minute


def stored(name: str) -> list[str]:
    return (DOCS / "explanation" / name).read_text().splitlines()


def test_what_is_measured_is_fresh_in_one_panel_and_its_rows():
    assert set(responses.panel(PANEL)) <= set(stored("control.svg")), "run `make docs`"
    assert set(responses.rows(PANEL)) <= set(stored("control.md")), "run `make docs`"


def test_all_but_what_is_measured_is_fresh_everywhere(monkeypatch):
    monkeypatch.setattr(responses, "response", lambda *_: responses.Response([0.0], [0.0], 0.0, 0.0))
    for name in MEASURED:
        made, there = FILES[name](), (DOCS / name).read_text()
        assert fixed(made) == fixed(there), "run `make docs`"


def fixed(text: str) -> list[str]:
    """The lines of a picture or a page without measured points and figures."""
    lines = (line for line in text.splitlines() if not line.startswith("<polyline"))
    return [" | ".join(line.split(" | ")[:2]) if line.endswith(" % |") else line for line in lines]
