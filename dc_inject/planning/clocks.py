"""Whether the clocks of this machine and of services agree, and a sentence on how they differ."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from dc_inject.model import units

AGREED = timedelta(minutes=1)  # up to which clocks agree
HINT = "set this machine's clock (`timedatectl` shows whether it is synchronised)"

Ahead = Mapping[str, timedelta]  # how far this machine's clock is ahead of each service's


def differ(ahead: Ahead) -> bool:
    """Return whether the clock of a service differs from this machine's."""
    return any(abs(one) > AGREED for one in ahead.values())


def distance(ahead: Ahead) -> timedelta:
    """Return how far this machine's clock is from the nearest service's."""
    return min((abs(one) for one in ahead.values()), default=timedelta(0))


def is_confirmed(leap: timedelta, ahead: Ahead) -> bool:
    """Return whether a leap of this machine's clock brought it nearer to the services' time."""
    return bool(ahead) and distance(ahead) < min(abs(one - leap) for one in ahead.values())


def sentence(ahead: Ahead) -> str:
    """Return how the clocks differ; whose is wrong is known only where two others agree."""
    far = {service: one for service, one in sorted(ahead.items()) if abs(one) > AGREED}
    near = [service for service in sorted(ahead) if service not in far]
    words = "this machine's clock is " + " and ".join(f"{_by(one)} {service}'s" for service, one in far.items())
    if near:
        return f"{words}, and agrees with that of {' and '.join(near)}"
    if far and max(far.values()) - min(far.values()) > 2 * AGREED:
        return f"{words}; all of them differ, so it is unknown which one is right"
    return words


def _by(ahead: timedelta) -> str:
    duration = units.format_duration(timedelta(seconds=round(abs(ahead).total_seconds())))
    return f"{duration} {'ahead of' if ahead > timedelta(0) else 'behind'}"
