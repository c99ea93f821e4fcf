"""The system's clock; the only place that reads it for decisions."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """The time of this machine, in aware UTC."""

    def now(self) -> datetime:
        """Return the present instant."""
        return datetime.now(UTC)
