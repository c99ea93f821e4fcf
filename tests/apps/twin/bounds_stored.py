"""The stored bounds of the scenarios, which `bounds.py` computes; to read them needs neither numpy nor scipy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

STORED = Path(__file__).resolve().parents[3] / "menus" / "twin" / "bounds.yaml"


def stored_bounds() -> dict[str, dict[str, Any]]:
    """Return what is stored of each scenario, in % of what is due: its bound, and the best constant rates."""
    return yaml.safe_load(STORED.read_text()) if STORED.exists() else {}


def in_words(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the bound and the best constant rates of a scenario as tables have them."""
    best = row.get("constant", "not searched")
    return f"{row['bound']:.1f} %", best if isinstance(best, str) else "none" if best is None else f"{best:.1f} %"
