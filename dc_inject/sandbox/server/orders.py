"""What is ordered for the catalogue: built between two passes, as this process has all of Rucio loaded.

An order is a file `ID.json`, which holds what build.py takes; the answer is a file `ID.done` beside it:
`{"said": [lines], "error": null}`.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from .build import build

log = logging.getLogger("sandbox")


class Orders:
    """The orders in a folder."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; it need not be there before the first order."""
        self._folder = folder

    def waiting(self) -> list[Path]:
        """Return those not yet fulfilled."""
        return sorted(self._folder.glob("*.json"))

    def fulfil(self) -> None:
        """Build what was ordered; who ordered is told what came of it, also when that is an error."""
        for order in self.waiting():
            answer = _build(order)
            order.unlink(missing_ok=True)
            new = order.with_suffix(".new")
            new.write_text(json.dumps(answer))
            new.replace(order.with_suffix(".done"))


def _build(order: Path) -> dict[str, Any]:
    messages: list[str] = []
    try:
        build(json.loads(order.read_text()), messages.append)
    except Exception as error:
        log.exception("what was ordered was not built")
        return {"said": messages, "error": f"{type(error).__name__}: {error}"}
    return {"said": messages, "error": None}
