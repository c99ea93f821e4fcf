"""How many calls a service is given at once: as many as it answers without letting them queue.

The limit follows what answers take, as TCP Vegas follows round trips. What a call takes for each piece of work,
against the least that it took of late, tells how many of those under way only wait their turn: under two, the
service bears more; over four, fewer do the same. Trouble halves the limit. So that the least does not age, it is
measured anew now and then, with half of the calls under way. Pure: samples in, another limit out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FEW, MANY = 2.0, 4.0  # calls that only wait their turn: below the one more go out, above the other fewer
BEGIN = 4.0
MEASURED_FOR = 100  # answers, after which the least time is measured anew


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of calls at once, and what it follows from: seconds for a piece of work, and answers counted."""

    most: int
    calls: float = BEGIN
    least: float | None = None
    answers: int = 0

    @property
    def whole(self) -> int:
        """How many calls may be under way."""
        return max(1, min(int(self.calls), self.most))

    def answered(self, seconds: float, work: int, under_way: int) -> Limit:
        """Return the limit after an answer for so many pieces of work, with so many calls under way till then.

        A call costs something by itself: it counts as a piece of work more.
        """
        each = max(seconds, 0.0) / (work + 1)
        if self.answers >= MEASURED_FOR:
            return replace(self, calls=max(self.calls / 2, 1.0), least=each, answers=0)
        least = each if self.least is None else min(self.least, each)
        queue = under_way * (1 - least / each) if each else 0.0
        calls = self.calls
        if queue < FEW and under_way + 1 >= self.whole:  # one that is not used tells nothing of a higher one
            calls = min(calls + 1 / self.whole, float(self.most))
        elif queue > MANY:
            calls = max(calls - queue / MANY / self.whole, 1.0)
        return replace(self, calls=calls, least=least, answers=self.answers + 1)

    def failed(self) -> Limit:
        """Return the limit after a call that the service did not answer: half of it."""
        return replace(self, calls=max(self.calls / 2, 1.0))
