"""What is ordered for the catalogue: built between two passes, as this process has all of Rucio loaded.

An order is a file `ID.json`, which holds what build.py takes; it becomes the answer, a file `ID.done`:
`{"messages": [lines], "error": null}`. An order is withdrawn by deleting it; then there is no answer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

log = logging.getLogger("sandbox")


class Orders:
    """The orders in a folder."""

    def __init__(self, folder: Path, build: Callable[[Any, Callable[[str], None]], None]) -> None:
        """Take the folder, which need not be there before the first order, and what builds."""
        self._folder = folder
        self._build = build

    def waiting(self) -> list[Path]:
        """Return those not yet fulfilled."""
        return sorted(self._folder.glob("*.json"))

    def fulfil(self) -> None:
        """Build what was ordered; the answer has the result, or the error."""
        for order in self.waiting():
            with suppress(FileNotFoundError):  # it was withdrawn
                answer = self._answer(order.read_text())
                with order.open("r+") as file:  # which makes no new one
                    file.truncate()
                    json.dump(answer, file)
                order.rename(order.with_suffix(".done"))

    def _answer(self, order: str) -> dict[str, Any]:
        messages: list[str] = []
        try:
            self._build(json.loads(order), messages.append)
        except Exception as error:
            log.exception("what was ordered was not built")
            return {"messages": messages, "error": f"{type(error).__name__}: {error}"}
        return {"messages": messages, "error": None}
