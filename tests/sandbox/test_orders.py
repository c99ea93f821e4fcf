"""Orders for the catalogue are answered, and those withdrawn are neither built nor answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dc_inject.sandbox.server.orders import Orders


def write_two(folder: Path) -> None:
    for number in (1, 2):
        (folder / f"{number}.json").write_text(json.dumps({"number": number}))


def test_each_order_is_answered_also_when_it_fails(tmp_path: Path) -> None:
    def build(wanted: Any, say: Callable[[str], None]) -> None:
        say(f"number {wanted['number']}")
        if wanted["number"] == 1:
            raise ValueError("too small")

    write_two(tmp_path)
    Orders(tmp_path, build).fulfil()
    assert {file.name: json.loads(file.read_text()) for file in tmp_path.iterdir()} == {
        "1.done": {"messages": ["number 1"], "error": "ValueError: too small"},
        "2.done": {"messages": ["number 2"], "error": None},
    }


def test_orders_withdrawn_meanwhile_are_not_built_and_leave_nothing(tmp_path: Path) -> None:
    built = []

    def build(wanted: Any, say: Callable[[str], None]) -> None:
        built.append(wanted["number"])
        for file in tmp_path.glob("*.json"):  # as one does whose first order failed, or who was interrupted
            file.unlink()

    write_two(tmp_path)
    Orders(tmp_path, build).fulfil()
    assert built == [1]
    assert list(tmp_path.iterdir()) == []
