"""The engine: observe, plan, record, act, cycle after cycle."""

from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine

__all__ = ["Engine", "Settings"]
