"""Times as Rucio's client gives them."""

from __future__ import annotations

from datetime import UTC, datetime

BORN = datetime(2027, 2, 8, 9, 0)  # noqa: DTZ001  Rucio's client gives times without a zone


def naive(moment: datetime | None) -> datetime | None:
    """Return a moment in UTC without its zone."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)
