"""Menus to test with: a small one that is right, whose parts a test replaces."""

from __future__ import annotations

from collections.abc import Mapping

from dc_inject import menu
from dc_inject.menu import MenuDraft
from dc_inject.model import Menu
from dc_inject.model.errors import MenuError, Problem

PARTS = {
    "menu": "menu: 1",
    "campaign": "campaign: rehearsal",
    "contact": "contact: dc-ops@example.org",
    "timezone": "timezone: Europe/Zurich",
    "start": "start: 2027-02-08 10:00",
    "end": "end: 2027-02-09 10:00",
    "limits": "limits: {total: 1 Tb/s, per_site: 1 Tb/s}",
    "defaults": 'defaults: {datasets: {did: "cms:*"}}',
    "scenarios": "scenarios:\n  one:\n    from: A\n    to: B\n    rate: 10 Gb/s",
}


def text(**parts: str) -> str:
    """Return the text of a menu with some of its parts replaced ("" removes one); others go to the end."""
    return "\n".join(part for part in (PARTS | parts).values() if part) + "\n"


def scenarios(body: str) -> str:
    """Return a menu with these lines under `scenarios:`, where they are indented by two."""
    return text(scenarios="scenarios:\n" + "\n".join("  " + line for line in body.strip("\n").splitlines()))


def draft(
    menu_text: str | bytes, files: Mapping[str, str | bytes] | None = None, name: str = "m.yaml"
) -> MenuDraft:
    """Read a menu, with other files from a mapping."""

    def load(path: str, most: int) -> bytes:
        try:
            found = (files or {})[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", path) from None
        return (found.encode() if isinstance(found, str) else found)[:most]

    return menu.read(menu_text, name, load)


def read(menu_text: str | bytes, files: Mapping[str, str | bytes] | None = None, name: str = "m.yaml") -> Menu:
    """Read a menu without RSE expressions."""
    made = draft(menu_text, files, name)
    assert not made.expressions
    return made.resolve({})


def problems(menu_text: str | bytes, files: Mapping[str, str | bytes] | None = None) -> tuple[Problem, ...]:
    """Return what is wrong with a menu, nothing if it is right."""
    try:
        draft(menu_text, files)
    except MenuError as error:
        return error.problems
    return ()


def rates(made: Menu) -> dict[str, float]:
    """Return the rate of each link in Gb/s, rounded."""
    return {str(flow.link): round(flow.rate * 8 / 1e9, 6) for flow in made.flows}


# --------------------------------------------------------------------------- through FTS

A, B, C = "davs://a.example.org:8443/dc", "https://b.example.org/dc", "root://c.example.org//eos/dc"
LIST = {"s.csv": f"url,size\n{A}/1,1 GB\n{A}/2,1 GB\n{B}/1,1 GB\n{C}/1,1 GB\n"}
RIGHT = f"{{from: '{A}', to: '{B}', rate: 1 Gb/s}}"
DEFAULTS = "defaults:\n  through: fts\n  files: {list: s.csv}"  # begins in line 8


def fts(scenario: str, defaults: str = DEFAULTS, **parts: str) -> str:
    """Return a menu through FTS whose scenario `one` has this body."""
    return text(defaults=defaults, scenarios=f"scenarios:\n  one: {scenario}", **parts)
