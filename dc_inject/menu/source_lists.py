"""Source lists: the files that a menu names for links through FTS, with sizes and checksums where they are known.

A list is YAML (JSON, too), CSV with a first line of heads, or one URL or path a line; its file name decides which.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from dc_inject.menu import addresses, cells, nodes, values
from dc_inject.menu.nodes import Complain, FirstComplaints, Node, Place, Seq, Text
from dc_inject.menu.values import WrongError
from dc_inject.model import File, Listing, units
from dc_inject.model.items import LARGEST_FILE

LARGEST = 256_000_000  # bytes of a list
MOST = 1_000_000  # files of a list
MOST_FOLDERS = 10_000  # that are remembered while a list is read

_PLAIN = re.compile(r"\w[\w.-]*", re.ASCII)
_NAMES, _KEYS = ("url", "path"), ("url", "path", "size", "checksum")
_STRUCTURED = {"{", "[", '"', "}", "]"}  # beginnings of a line that no list of plain names has
_BYTES = re.compile(r"-?[0-9]{1,19}")
_CHECKSUM = re.compile(r"(?:adler32:)?(?P<adler>[0-9a-f]{8})|(?P<md5>md5:[0-9a-f]{32})")
_Key = tuple[str, str, str]
# A menu is read again in every cycle: files of the menu in force are not read again, and no others are kept.
_kept: WeakValueDictionary[_Key, Listing] = WeakValueDictionary()
_unsized: WeakKeyDictionary[Listing, int] = WeakKeyDictionary()
_ordered: WeakKeyDictionary[Listing, tuple[bool, list[str]]] = WeakKeyDictionary()


class ListedFile(NamedTuple):
    """One file as a list has it, all as text."""

    line: int
    name: str
    size: str = ""
    checksum: str = ""


def read(data: bytes, file: str, name: str, complain: Complain) -> Listing | None:
    """Return the files of a list, or None after complaints; `file` is its path, `name` what the menu calls it."""
    digest = hashlib.sha256(data).hexdigest()
    _, dot, ending = file.lower().rpartition(".")
    kind = ending if dot else ""
    key = digest, kind, name
    listing = _kept.get(key) or _Reader(file, complain).listing(data, kind, name, digest)
    if listing is not None:
        _kept[key] = listing
    return listing


def unsized(listing: Listing) -> int:
    """Return how many files of a list have no size there."""
    if listing not in _unsized:
        _unsized[listing] = sum(1 for file in listing.files if not file.bytes)
    return _unsized[listing]


def has_any_below(listing: Listing, source: str) -> bool:
    """Return whether a list names a file below a source: by its URL, or by a path, which is below every source."""
    paths, urls = _names(listing)
    first = f"{source}/"
    at = bisect_left(urls, first)
    return paths or (at < len(urls) and urls[at].startswith(first))


def _names(listing: Listing) -> tuple[bool, list[str]]:
    """Return whether a list names paths, and its URLs in order."""
    if listing not in _ordered:
        urls = sorted(file.name for file in listing.files if addresses.meant_as_url(file.name))
        _ordered[listing] = len(urls) < len(listing.files), urls
    return _ordered[listing]


class _Reader:
    """Reads one list."""

    def __init__(self, file: str, complain: Complain) -> None:
        self._file = file
        self._note = FirstComplaints(complain)
        self._folders: set[str] = set()  # whose URLs are canonical as they stand

    def listing(self, data: bytes, kind: str, name: str, digest: str) -> Listing | None:
        if kind in {"yaml", "yml", "json"}:
            entries = self._yaml(data)
        else:
            text = nodes.decode(data, self._file, self._note, LARGEST)
            if text is None:
                return None
            entries = self._csv(text) if kind == "csv" else self._plain(text)
        files = self._files(entries)
        if not files and not self._note:
            self._note(Place(self._file, 1), "the list names no file", "write one URL or path a line")
        self._note.close()
        return None if self._note else Listing(name, digest, tuple(files))

    def _files(self, entries: Iterator[ListedFile]) -> list[File]:
        files: list[File] = []
        lines: dict[str, int] = {}
        for entry in entries:
            place = Place(self._file, entry.line)
            if len(lines) == MOST:
                self._note(place, f"the list has more than {MOST} files", "split it into several lists")
                break
            try:
                file = File(self._name(entry.name), _size(entry.size), _checksum(entry.checksum))
            except ValueError as error:
                self._note(place, *values.explain(error))
                continue
            if file.name in lines:
                message = f"the file appears twice, first in line {lines[file.name]}"
                self._note(place, message, "keep one of them")
            else:
                lines[file.name] = entry.line
                files.append(file)
        return files

    def _name(self, text: str) -> str:
        """Return the canonical name of a file; what differs from one before it in its last part only is quick."""
        folder, _, last = text.rpartition("/")
        if folder in self._folders and len(text) <= addresses.LONGEST and _PLAIN.fullmatch(last):
            return text
        name = addresses.file(text)
        if name == text and len(self._folders) < MOST_FOLDERS:
            self._folders.add(folder)
        return name

    def _plain(self, text: str) -> Iterator[ListedFile]:
        for number, line in enumerate(text.split("\n"), start=1):
            name = line.strip()
            if name[:1] in _STRUCTURED or name.startswith("- "):
                hint = "give its file a name that ends in .yaml or .json; one URL or path a line is read here"
                self._note(Place(self._file, number), "the list looks like YAML or JSON", hint)
                return
            if number == 1 and set(_NAMES) & set(_heads(name.split(_separator(name)))[:-1]):
                hint = "give its file a name that ends in .csv"
                self._note(Place(self._file, 1), "the list looks like CSV", hint)
                return
            if name and name[0] != "#":
                yield ListedFile(number, name)

    def _csv(self, text: str) -> Iterator[ListedFile]:
        first = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
        lines, separator = io.StringIO(text, newline=""), _separator(first)
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        heads: list[str] = []
        try:
            for row in rows:
                if not any(row) or row[0].startswith("#"):
                    continue
                place = Place(self._file, rows.line_num)
                if len(row) > len(heads) > 0:
                    self._note(place, cells.too_wide(len(row), len(heads)), f"quote cells with {separator!r}")
                elif "" in heads and any(cell.strip() for cell, head in zip(row, heads, strict=False) if not head):
                    self._note(place, "a cell stands in a column with no head", "remove it, or name the column")
                elif heads:
                    yield _read_cells(place.line, {k: cell.strip() for k, cell in zip(heads, row, strict=False)})
                else:
                    heads = _heads(row)
                    if len(set(heads) & set(_NAMES)) != 1 or any(heads.count(key) > 1 for key in _KEYS):
                        message = f"the columns are {values.shown(', '.join(heads))}"
                        self._note(place, message, "begin with a line `url,size,checksum`")
                        return
                    other = [head for head in heads if head and head not in _KEYS and not head.startswith("x-")]
                    if other:
                        hint = f"{units.did_you_mean(other[0], _KEYS, '`')}; call it x-... to leave it out"
                        self._note(place, f"the column {values.shown(other[0])!r} is unknown here", hint)
                        return
        except csv.Error as error:
            self._note(Place(self._file, rows.line_num), f"this is not CSV: {error}", "fix the syntax")

    def _yaml(self, data: bytes) -> Iterator[ListedFile]:
        for node in nodes.compose_list(data, self._file, self._note) or ():
            try:
                yield _listed(node)
            except WrongError as error:
                self._note(Place(self._file, node.place.line), error.message, error.hint)


def _separator(line: str) -> str:
    """Return what separates the cells of a table with this first line."""
    return next((separator for separator in cells.SEPARATORS[::-1] if separator in line), ",")


def _heads(titles: list[str]) -> list[str]:
    return [cell.strip().lower() for cell in titles]


def _read_cells(line: int, by_head: Mapping[str, str]) -> ListedFile:
    name = by_head.get("url", by_head.get("path", ""))
    return ListedFile(line, name, by_head.get("size", ""), by_head.get("checksum", ""))


def _listed(node: Node) -> ListedFile:
    """Read an item of a list in YAML; raises WrongError."""
    line = node.place.line
    if isinstance(node, Text):
        return ListedFile(line, node.strip())
    if isinstance(node, Seq):
        raise WrongError("expected a file, got a list", "write a URL, or {url: ..., size: ...}")
    for key, value in node.entries():
        if key not in _KEYS:
            hint = units.did_you_mean(key, _KEYS, "`")
            raise WrongError(f"the key `{values.shown(key)}` is unknown here", hint)
        if not isinstance(value, Text):
            raise WrongError(f"`{key}`: expected one value", "write one value")
    if len(node.keys() & set(_NAMES)) != 1:
        raise WrongError("a file has either `url` or `path`", "write {url: ..., size: ..., checksum: ...}")
    return _read_cells(line, {key: str(value).strip() for key, value in node.items()})


def _size(text: str) -> int:
    """Read a size, in bytes or with a unit; 0 stands for an unknown one."""
    if not text:
        return 0
    size = int(text) if _BYTES.fullmatch(text) else units.parse_size(text)
    if not 0 < size <= LARGEST_FILE:
        raise WrongError(
            f"{values.shown(text)!r} is not the size of a file", "bytes from 1 to 10 TB, or nothing if not known"
        )
    return size


def _checksum(text: str) -> str:
    """Read a checksum as FTS writes it; eight hexadecimal digits alone are adler32."""
    if not text:
        return ""
    match = _CHECKSUM.fullmatch(text.lower())
    if match is None:
        raise WrongError(
            f"{values.shown(text)!r} is not a checksum",
            "adler32:0cc737eb with eight digits, md5:... with 32, or nothing",
        )
    return match["md5"] or f"adler32:{match['adler']}"
