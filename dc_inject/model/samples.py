"""Sets of test files: their number, sizes, and the names by which they are recognised as ours.

The names hold all of it, so that nothing is kept elsewhere: a set that was begun can be continued, listed and
dropped by what the service has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dc_inject.model import urls
from dc_inject.model.content import Content
from dc_inject.model.units import format_size

MARK = "dc_inject-data"
MOST_FILES = 100_000  # of a set: its folder has to be listed in one answer
LONGEST = 250  # characters of a name in Rucio

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SHAPE = re.compile(r"(?P<files>[1-9]\d{0,5})x(?P<bytes>[1-9]\d{0,17})(by(?P<per>[1-9]\d{0,5}))?")
_DATASET = re.compile(rf"{MARK}\.(?P<name>[^.]+)\.(?P<shape>[^.]+)\.(?P<number>\d{{6}})")


@dataclass(frozen=True, slots=True, order=True)
class FileSet:
    """A set of test files: `files` of `bytes` each, numbered from 1; in Rucio `per` of them make a dataset."""

    name: str
    files: int
    bytes: int
    per: int = 0  # 0: there are no datasets
    before: str = ""  # what every name in Rucio begins with, where the experiment's policy wants something

    def __post_init__(self) -> None:
        """Raise ValueError with a sentence for a set that cannot be."""
        if not is_name(self.name):
            raise ValueError(f"{self.name!r} is no name of a set: letters, digits, - and _, at most 40 of them")
        if not 1 <= self.files <= MOST_FILES:
            raise ValueError(f"a set has from 1 to {MOST_FILES} files")
        if not 1 <= self.bytes < 10**18:
            raise ValueError("a file has at least one byte, and less than 1 EB")
        if len(self.file(self.files)) > LONGEST:
            raise ValueError(f"names would be longer than {LONGEST} characters")

    @property
    def total(self) -> int:
        """The bytes of all files."""
        return self.files * self.bytes

    @property
    def shape(self) -> str:
        """What it is, for names: `100x1000000000by10`."""
        return f"{self.files}x{self.bytes}" + (f"by{self.per}" if self.per else "")

    @property
    def datasets(self) -> dict[str, range]:
        """The names of its datasets in Rucio, and the numbers of the files in each."""
        starts = range(1, self.files + 1, self.per) if self.per else ()
        return {
            self._name(number): range(start, min(start + self.per, self.files + 1))
            for number, start in enumerate(starts, 1)
        }

    def dataset_of(self, number: int) -> str:
        """Return the name of the dataset that a file is in."""
        return self._name((number - 1) // self.per + 1)

    def file(self, number: int) -> str:
        """Return the name of a file in Rucio."""
        return f"{self._name(number)}.dat"

    def number_of(self, file: str) -> int:
        """Return the number of a file by its name in Rucio, or 0 if it is none of ours."""
        digits = file[-10:-4]
        number = int(digits) if digits.isascii() and digits.isdigit() else 0
        return number if 1 <= number <= self.files and self.file(number) == file else 0

    def folder(self, prefix: str) -> str:
        """Return the folder of its files below a storage's prefix."""
        return urls.join(prefix, f"{MARK}/{self.name}/{self.shape}")

    def url(self, prefix: str, number: int) -> str:
        """Return the URL of a file below a storage's prefix."""
        return f"{self.folder(prefix)}/{number:06}.dat"

    def content(self, number: int) -> Content:
        """Return what is in a file."""
        return Content(f"{self.name}/{self.shape}/{number}", self.bytes)

    def _name(self, number: int) -> str:
        return f"{self.before}{MARK}.{self.name}.{self.shape}.{number:06}"

    def __str__(self) -> str:
        return f"{self.name} ({self.files} files of {format_size(self.bytes)})"


def is_name(name: str) -> bool:
    """Return whether a set can have this name."""
    return _NAME.fullmatch(name) is not None


def from_folder(name: str, shape: str) -> FileSet | None:
    """Return the set that two folders below the mark are of, or None if they are not ours."""
    match = _SHAPE.fullmatch(shape)
    if match is None:
        return None
    try:
        return FileSet(name, int(match["files"]), int(match["bytes"]), int(match["per"] or 0))
    except ValueError:
        return None


def from_dataset(dataset: str, before: str = "") -> FileSet | None:
    """Return the set that a dataset in Rucio is of, or None if it is not ours."""
    match = _DATASET.fullmatch(dataset.removeprefix(before))
    plain = from_folder(match["name"], match["shape"]) if match else None
    if plain is None or not plain.per:
        return None
    sample_set = FileSet(plain.name, plain.files, plain.bytes, plain.per, before)
    return sample_set if dataset in sample_set.datasets else None
