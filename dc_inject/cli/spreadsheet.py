"""Spreadsheets as .xlsx files: the cells of a sheet as text that is separated by tabs, a line for each row."""

from __future__ import annotations

import io
import zipfile

from dc_inject.model.errors import UsageError

LARGEST = 200_000_000  # bytes of all parts of a file, unpacked
MAGIC = b"PK\x03\x04"
OLD = b"\xd0\xcf\x11\xe0"  # .xls
AS_CSV = "or save the sheet as CSV (UTF-8), which is read as it is"
INSTALL = "install it with `pip install '.[xlsx]'` in the clone"


def is_one(data: bytes) -> bool:
    """Whether a file is a spreadsheet, of a form that is read here or not."""
    return data.startswith((MAGIC, OLD))


def text(data: bytes, name: str, sheet: str = "") -> bytes:
    """Return a sheet (the one that was open when it was saved, unless named) as lines with tabs, in UTF-8.

    Of formulas the value counts that was saved. Raises UsageError for a file that cannot be read, or without the
    library that reads it.
    """
    try:
        import openpyxl  # noqa: PLC0415  an extra, and slow
    except ImportError:
        raise UsageError(
            f"{name} is a spreadsheet, and openpyxl is not installed", f"{INSTALL}, {AS_CSV}"
        ) from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as parts:
            if sum(part.file_size for part in parts.infolist()) > LARGEST:
                raise UsageError(f"{name} holds more than {LARGEST // 10**6} MB", f"use a smaller one, {AS_CSV}")
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError, openpyxl.utils.exceptions.InvalidFileException):
        raise UsageError(f"{name} is not a readable .xlsx file", f"save it as .xlsx, {AS_CSV}") from None
    if sheet and sheet not in book.sheetnames:
        raise UsageError(f"{name} has no sheet {sheet!r}", f"known: {', '.join(book.sheetnames)}")
    rows = (book[sheet] if sheet else book.active).iter_rows(values_only=True)
    return "".join("\t".join(map(_cell, row)).rstrip("\t") + "\n" for row in rows).encode()


def _cell(value: object) -> str:
    """Return what stands in a cell as CSV has it; a number as exactly as it is kept."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    words = "" if value is None else " ".join(str(value).split())
    return '"' + words.replace('"', '""') + '"' if '"' in words or "#" in words else words
