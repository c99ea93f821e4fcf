"""Items: what a service takes in one piece, typed by what it is.

A `Dataset` goes out whole through Rucio. Where datasets are too coarse for a link, a `Slice` goes out: some of the
files of a dataset, its parent, as a temporary dataset of its own. Through FTS files go out, many in a `Bundle`,
which is one job; those of a second hop are the copies that one earlier job made.

A dataset's files are counted in the order of their names, so that a slice is named by a range of numbers, and two
slices have a file in common just when their ranges overlap. How many files the dataset has belongs to it: with
another number, the same range may mean other files.

The name of an item is what the ledger, the log and the injection's key (`naming.key`) have of it:

    file, dataset    davs://se.example.org/dc/f1, cms:/Primary/Era-v1/RAW#1
    slice, planned   cms:/Primary/Era-v1/RAW#1 files 1-20 of 100
    slice, made      user.dcops:dc_inject-KEY (cms:/Primary/Era-v1/RAW#1 files 1-20 of 100)
    bundle           20 files HASH
    of a second hop  20 files HASH copied by KEY

Names are made here and nowhere else, and read only here: `read`, `read_id` and `read_bundle` are for names that
come from outside, which are the ledger's rows and Rucio's rules. All other code asks the item.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

# Sizes above are mistakes, or lies: no storage of the field takes a file of 10 TB, no experiment has a dataset of
# 10 PB. Sums of a million of them would be beyond the integers of a ledger.
LARGEST_FILE = 10**13  # bytes
LARGEST_DATASET = 10**16  # bytes
MARK = "{mark}"
_FILES, _COPIED_BY = " files ", " copied by "
_SLICE = re.compile(
    r"(?:(?P<did>\S+) \()?(?P<parent>\S+) files (?P<first>\d+)-(?P<last>\d+) of (?P<of>\d+)(?(did)\))"
)


class Range(NamedTuple):
    """The files `first` to `last` of the `of` files that a dataset, the parent, has; counted from 1."""

    parent: str
    first: int
    last: int
    of: int

    @property
    def files(self) -> int:
        """How many files it has."""
        return self.last - self.first + 1

    def overlaps(self, other: Range) -> bool:
        """Whether the two may have a file in common."""
        if self.parent != other.parent:
            return False
        return self.of != other.of or (self.first <= other.last and other.first <= self.last)

    def __str__(self) -> str:
        return f"{self.parent}{_FILES}{self.first}-{self.last} of {self.of}"


class SliceId(NamedTuple):
    """What a slice is at a place: its files, and the temporary dataset that has them; empty while only planned."""

    range: Range
    did: str = ""

    def __str__(self) -> str:
        return f"{self.did} ({self.range})" if self.did else str(self.range)


ItemId = str | SliceId  # an item without its size: its name, or the range that the name of a slice has


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset (`scope:name`) with all of its files, as Rucio injects it."""

    name: str
    bytes: int
    files: int

    @property
    def id(self) -> str:
        """What it is, without its size."""
        return self.name


@dataclass(frozen=True, slots=True)
class File:
    """A source file, named by its URL; `checksum` as FTS writes it (`adler32:0cc737eb`), empty if not known."""

    name: str
    bytes: int
    checksum: str = ""

    @property
    def files(self) -> int:
        """How many files it is: 1."""
        return 1

    @property
    def id(self) -> str:
        """What it is, without its size."""
        return self.name


@dataclass(frozen=True, slots=True)
class Slice:
    """Some of a dataset's files; `bytes` are estimated from the mean file until its files are listed."""

    id: SliceId
    bytes: int

    @property
    def name(self) -> str:
        """Its name, with its own dataset once that is known."""
        return str(self.id)

    @property
    def range(self) -> Range:
        """Which files of which dataset it has."""
        return self.id.range

    @property
    def files(self) -> int:
        """How many files it has."""
        return self.id.range.files


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of one FTS job. One may be there more than once.

    `label` distinguishes it from other bundles; `members` may not be known any more once the job was made. For a
    second hop, `copied_by` is the key of the injection that made these copies.
    """

    label: str
    bytes: int
    files: int
    members: tuple[File, ...] = ()
    copied_by: str = ""

    @property
    def name(self) -> str:
        """Its label and, for a second hop, whose copies it is made of."""
        return f"{self.label}{_COPIED_BY}{self.copied_by}" if self.copied_by else self.label

    @property
    def id(self) -> str:
        """What it is, without its size."""
        return self.name


Item = Dataset | File | Slice | Bundle


@dataclass(frozen=True, slots=True)
class Slicing:
    """That datasets may be cut for a link, and where the slices are made.

    `scope` is one in which the account may make datasets. `name` is a template: `{mark}` becomes what is different
    for each slice and marks it as ours, `{campaign}` and `{scenario}` their names. `at_most` is the most
    bytes of a slice; 0: a grain of a cycle's worth.
    """

    scope: str
    name: str = MARK
    at_most: int = 0

    def did(self, campaign: str, scenario: str, mark: str) -> str:
        """Return the name of a slice's dataset."""
        name = self.name.replace("{campaign}", campaign).replace("{scenario}", scenario).replace(MARK, mark)
        return f"{self.scope}:{name}"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a worker reads the files of a bundle, one after the other.

    `rate` is the most of one reader, in bytes per second. `block` bytes are asked for at a time, and `fraction` of
    each file is read, in blocks at even distances. `think` are seconds of work after each block. `connections` is
    the most readers that a source has at a time.
    """

    rate: float = 10e6
    block: int = 4_000_000
    fraction: float = 1.0
    think: float = 0.0
    connections: int = 100

    def size(self, whole: int) -> int:
        """Return how many bytes are read of a file of `whole` bytes."""
        last = int(whole * self.fraction / self.block) + 1  # by rounding, at or just behind the last one
        while last and self._offset(last) >= whole:
            last -= 1
        return last * self.block + min(self.block, whole - self._offset(last)) if whole else 0

    def blocks(self, whole: int) -> Iterator[tuple[int, int]]:
        """Give offset and length of each block that is read of a file, in order."""
        number = 0
        while (offset := self._offset(number)) < whole:
            yield offset, min(self.block, whole - offset)
            number += 1

    def _offset(self, number: int) -> int:
        return int(number * self.block / self.fraction)


# --------------------------------------------------------------------------- what is asked of items


def bundled(members: Sequence[File], copied_by: str = "") -> Bundle:
    """Return a bundle of these files, which gets its label when it is known when it goes out."""
    return Bundle("", sum(file.bytes for file in members), len(members), tuple(members), copied_by)


def label(members: Sequence[File], moment: datetime, number: int) -> str:
    """Return the label of a bundle that is made as number so and so of a link, at a moment.

    The same files may go out to the same place in one cycle again, as another bundle.
    """
    names = [member.name for member in members]
    text = "\n".join((moment.astimezone(UTC).isoformat(), str(number), *names))
    return f"{len(names)}{_FILES}{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


def label_of_job(files: int, job: str) -> str:
    """Return the label of a bundle that was found as a job of FTS, which does not keep the first label."""
    return f"{files}{_FILES}of job {job}"


def blocked(item: ItemId) -> tuple[str, ...]:
    """Return what cannot go to a place where this is, by name: itself and, of a slice, its parent as a whole."""
    return (str(item), item.range.parent) if isinstance(item, SliceId) else (item,)


def sized(item: ItemId, size: int, files: int) -> Dataset | Slice:
    """Return a dataset with its size in bytes and number of files, or a slice, which has its number already."""
    return Dataset(item, size, files) if isinstance(item, str) else Slice(item, size)


def units_of(item: Item) -> tuple[str, ...]:
    """Return the names of what goes out once where a scenario gives everything once: of a bundle its files."""
    return tuple(file.name for file in item.members) if isinstance(item, Bundle) and item.members else (item.name,)


# --------------------------------------------------------------------------- names that come from outside


def read_id(name: str) -> ItemId:
    """Parse the name of an item, with or without the dataset that a slice was made as."""
    if _FILES not in name:
        return name
    match = _SLICE.fullmatch(name)
    if match is None:
        return name
    files = Range(match["parent"], int(match["first"]), int(match["last"]), int(match["of"]))
    return SliceId(files, match["did"] or "") if 1 <= files.first <= files.last <= files.of else name


def read(name: str, size: int, files: int) -> Dataset | Slice:
    """Return the dataset or slice of this name and size in bytes; a slice has as many files as its name has."""
    return sized(read_id(name), size, files)


def read_bundle(name: str, size: int, files: int, members: tuple[File, ...] = ()) -> Bundle:
    """Return the bundle of this name, size in bytes and number of files."""
    text, _, key = name.partition(_COPIED_BY)
    return Bundle(text, size, files, members, key)
