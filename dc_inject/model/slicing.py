"""Slices: parts of datasets that are too coarse for a link, each a temporary dataset of its own in the service.

A dataset's files are counted in the order of their names, so that a part of it is told by two numbers, and two
parts have a file in common just when their numbers overlap. How many files there are belongs to it: with another
number, the same two numbers may mean other files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

MARK = "{mark}"
_NAME = re.compile(
    r"(?:(?P<did>\S+) \()?(?P<parent>\S+) files (?P<first>\d+)-(?P<last>\d+) of (?P<of>\d+)(?(did)\))"
)


@dataclass(frozen=True, slots=True)
class Slicing:
    """That datasets may be cut for a link, and where the parts are made.

    `scope` is one in which the account may make datasets. `name` is a template: `{mark}` becomes what is different
    for each part and says that it is ours, `{campaign}` and `{scenario}` what they say. `at_most` is the most
    bytes of a part; 0: a grain of a cycle's worth.
    """

    scope: str
    name: str = MARK
    at_most: int = 0

    def did(self, campaign: str, scenario: str, mark: str) -> str:
        """Return the name of a part's dataset."""
        name = self.name.replace("{campaign}", campaign).replace("{scenario}", scenario).replace(MARK, mark)
        return f"{self.scope}:{name}"


class Slice(NamedTuple):
    """The files `first` to `last` of the `of` files that a dataset, its parent, has; counted from 1."""

    parent: str
    first: int
    last: int
    of: int

    @property
    def files(self) -> int:
        """How many files it has."""
        return self.last - self.first + 1

    def overlaps(self, other: Slice) -> bool:
        """Whether the two may have a file in common."""
        if self.parent != other.parent:
            return False
        return self.of != other.of or (self.first <= other.last and other.first <= self.last)

    def __str__(self) -> str:
        return f"{self.parent} files {self.first}-{self.last} of {self.of}"


def read(name: str) -> Slice | None:
    """Return what the name of an item says of a slice, with or without the dataset it was made as; else None."""
    if " files " not in name:
        return None
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    part = Slice(match["parent"], int(match["first"]), int(match["last"]), int(match["of"]))
    return part if 1 <= part.first <= part.last <= part.of else None


def full_name(did: str, part: Slice) -> str:
    """Return the name of the item that a slice is, made as this dataset."""
    return f"{did} ({part})"


def names(item: str) -> tuple[str, ...]:
    """Return what an item keeps from its place, by name: itself and, of a slice, its parent."""
    part = read(item)
    return (item,) if part is None else (item, part.parent)
