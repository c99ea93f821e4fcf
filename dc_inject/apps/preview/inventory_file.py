"""The inventory of `plan --inventory` and `footprint --inventory`: a CSV file of datasets."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path

from dc_inject.menu import nodes
from dc_inject.model import Dataset, File, Item, urls
from dc_inject.model.errors import MenuError, Problem
from dc_inject.system import files

_COLUMNS, _MORE = ("source", "name", "bytes", "files"), "more"
LARGEST = 256_000_000  # bytes of an inventory


def read_inventory(path: Path) -> dict[str, list[Item]]:
    """Read an inventory: a CSV with the heads source, name, bytes (a bare number of bytes) and files.

    Raises MenuError with every line that cannot be used.
    """
    items: dict[str, list[Item]] = defaultdict(list)
    problems = []
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), restkey=_MORE)
    try:
        heads = sorted(reader.fieldnames or ())
        if sorted(_COLUMNS) != [head for head in heads if not head.startswith("x-")]:
            message = f"the column names are not {','.join(_COLUMNS)}"
            hint = "write them as the first line; a column whose name begins with x- is left out"
            raise MenuError([Problem(str(path), 1, message, hint)])
        for row in reader:
            if row.pop(_MORE, None):
                message = f"the line has more cells than the {len(heads)} columns"
                problems.append(Problem(str(path), reader.line_num, message, "quote cells with commas"))
            try:
                size, count = int(row["bytes"]), int(row["files"])
            except (TypeError, ValueError):
                size = count = 0
            if size > 0 and count > 0 and row["source"] and row["name"]:
                items[row["source"]].append(_item(row["name"], size, count))
            else:
                message = "a dataset needs a source, a name, and bytes and files that are whole numbers above 0"
                problems.append(Problem(str(path), reader.line_num, message))
    except csv.Error as error:
        problems.append(Problem(str(path), reader.line_num, f"this is not CSV: {error}", "fix the syntax"))
    if problems:
        raise MenuError(problems)
    return dict(items)


def _item(name: str, size: int, files: int) -> Item:
    """Return a source file, which a URL names, or a dataset."""
    return File(name, size) if urls.is_url(name) else Dataset(name, size, files)


def _text(path: Path) -> str:
    """Return the text of a regular file of bounded size; raises MenuError."""
    problems: list[Problem] = []

    def complain(place: nodes.Place, message: str, hint: str) -> None:
        problems.append(Problem(place.file, place.line, message, hint))

    try:
        text = nodes.decode(files.load(str(path), LARGEST + 1), str(path), complain, LARGEST)
    except OSError as error:
        raise MenuError([Problem(str(path), 0, f"cannot be read: {error.strerror or error}")]) from None
    if text is None:
        raise MenuError(problems)
    return text
