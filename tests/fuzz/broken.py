"""Answers that were right, with a few things wrong: keys missing, other types, huge numbers, half of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

# None of it may come back in a message of ours: a JWT, and what stands behind a question mark of a URL.
SECRET = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.c2VjcmV0aHVudGVyMg"
SECRETS = (SECRET, "hunter2")
ECHO = f"davs://user:hunter2@a.b/c?authz=hunter2 Bearer {SECRET} token={SECRET}"

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**63 - 1, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e300,
    float("inf"), float("nan"), "", " ", "x", "7", "-1", "1e3", "\x00", "\x1b[31m", "a\nb", "\ud800", "\u2028",
    "é" * 300, "x" * 100_000, "OK", "STUCK", "FINISHED", "FAILED", "ACTIVE", "404 Not Found", "500", "AVAILABLE",
    "davs://a:1094/data/f1", "davs://a.b/../c", "://", "cms:/data/RAW#1", ECHO, SECRET,
    "2027-02-08T10:01:00", "2027-13-45T99:00:00", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59+23:59",
    datetime(2027, 2, 8, 9, 0), datetime(2027, 2, 8, 9, 0, tzinfo=UTC), datetime.max, datetime.min,  # noqa: DTZ001, DTZ901  so does Rucio's client
    [], {}, [None], ["x"], [[]], {"a": 1}, {"x": None}, b"x",
]  # fmt: skip
HOW = ("replace", "all", "all", "remove", "repeat", "empty", "rename", "cut")


@dataclass
class Mutation:
    """Breaks one answer: which of them, where in it, how, and what comes in its place."""

    call: int
    where: int
    how: str
    value: Any

    def apply(self, answer: Any) -> Any:
        """Return the answer, broken; it stays as it was itself."""
        answer = copy.deepcopy(answer)
        places = list(_places(answer))
        if not places or self.where % (len(places) + 1) == len(places):
            return self.value
        holder, key = places[self.where % (len(places) + 1)]
        if self.how == "all":  # wherever something has that name
            for other, name in places:
                if isinstance(other, dict) and name == key:
                    other[name] = self.value
        elif self.how == "remove":
            del holder[key]
        elif self.how == "repeat" and isinstance(holder, list):
            holder += [holder[key]] * 3
        elif self.how == "empty":
            holder[key] = type(holder[key])() if isinstance(holder[key], (list, dict, str, int)) else None
        elif self.how == "rename" and isinstance(holder, dict):
            holder[str(self.value)[:50]] = holder.pop(key)
        elif self.how == "cut" and isinstance(holder, list):
            del holder[key:]
        else:
            holder[key] = self.value
        return answer


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(inside):
        yield node, key
        yield from _places(value)


MUTATIONS = st.lists(
    st.builds(
        Mutation,
        call=st.integers(0, 5),
        where=st.integers(0, 60),
        how=st.sampled_from(HOW),
        value=st.sampled_from(VALUES) | st.sampled_from(VALUES) | st.integers() | st.text(max_size=20),
    ),
    min_size=1,
    max_size=3,
)


@dataclass
class Breaker:
    """Hands answers on, and breaks some: the n-th for a mutation with call n."""

    mutations: list[Mutation] = field(default_factory=list)
    number: int = 0

    def __call__(self, answer: Any) -> Any:
        """Return the next answer as it is to be told."""
        for mutation in self.mutations:
            if mutation.call == self.number:
                answer = mutation.apply(answer)
        self.number += 1
        return answer


def no_secret(*told: object) -> None:
    """Fail when a secret is in anything that we would say or write down."""
    for one in told:
        text = str(one)
        for secret in SECRETS:
            assert secret not in text, "a secret is shown"
