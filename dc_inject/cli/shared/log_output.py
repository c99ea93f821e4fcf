"""The log of `run` and `link`: lines for people on stderr, JSON lines for programs, and a file that is kept.

What is logged are sentences. Some of them also carry typed fields for programs: whoever logs such a sentence gives
`extra={"event": NAME, "fields": {...}}` with plain values: bytes, bytes per second, and times as texts. A line of
JSON has them after its `time`, `level` and `message`; docs/reference/log.md lists all events.

Every line goes through one gate, `redaction.clean`: the message, each text among the fields, and a traceback.
A log that cannot be written, as on a full disk, never stops an injection: that is reported once, on stderr.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from dc_inject.model.errors import UsageError
from dc_inject.model.redaction import clean
from dc_inject.system import disk

F = TypeVar("F", bound=Callable[..., object])
FORMATS = ("text", "json")
_LIBRARIES = ("urllib3", "rucio", "user", "dogpile", "fts3")

_FILE = click.option(
    "--log-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Append the log to this file, too; only you can read a new one. --quiet does not shorten it.",
)
_FORMAT = click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="The format of the --log-file, or without one of the log on stderr.",
)


_PLAIN = click.option(
    "--plain", is_flag=True, help="On a terminal, print only the log, and not how the campaign stands below it."
)


def OPTIONS(command: F) -> F:  # noqa: N802  it stands among the options
    """Give a command --plain, --log-format and --log-file."""
    return _PLAIN(_FORMAT(_FILE(command)))


class TextFormatter(logging.Formatter):
    """A line for people, its time in UTC, without secrets, also not in a traceback or a library's message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback below it."""
        return clean(super().format(record))


class BriefFormatter(TextFormatter):
    """A line above the live view: its time is written as that of events, and its level only if it is a warning.

    It has no traceback, which files and notes keep.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        record = copy.copy(record)
        record.exc_info = record.exc_text = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  a method of logging
        """Return the line."""
        level = f"{record.levelname} " if record.levelno >= logging.WARNING else ""
        return f"{record.asctime[5:10]} {record.asctime[11:]} {level}{record.message}"


class JsonFormatter(logging.Formatter):
    """A JSON object in one line; texts are cleaned before they are quoted, as patterns know no escaped quotes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback is its field `trace`."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": at.replace("+00:00", "Z"), "level": record.levelname, "message": record.getMessage()}
        if hasattr(record, "event"):
            line |= {"event": record.event, **getattr(record, "fields", {})}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(_clean(line), default=str)


def _clean(value: Any) -> Any:  # noqa: ANN401  any value of a field
    """Return a value in which no text holds a secret."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _clean(part) for key, part in value.items()}
    return [_clean(part) for part in value] if isinstance(value, list | tuple) else value


class Handler(logging.StreamHandler[TextIO]):
    """Writes lines to a file, or to stderr as it is at that moment: a view of a run may take it for a while."""

    def __init__(self, formatter: logging.Formatter, level: int, path: Path | None = None) -> None:
        """Take how lines look, the least level that is written, and the file; raises UsageError for a bad one."""
        self._path, self.file = path, None if path is None else _opened(path)
        super().__init__(self.file or sys.stderr)
        self._failed = False
        self.setLevel(level)
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if self._path is not None and self.file is not None and not _is_at(self._path, self.file):
            try:
                renewed = _opened(self._path)
            except UsageError:
                self.handleError(record)  # the old file gets the line
            else:
                self.file.close()
                self.file = renewed
        self.stream = self.file or sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  a method of logging
        """Report once that a file cannot be written; logging would print the message before it is cleaned."""
        del record
        if not self._failed and self.file is not None:
            self._failed = True
            with contextlib.suppress(OSError, ValueError):
                click.echo(f"the log file cannot be written any more: {sys.exception()}", err=True)

    def close(self) -> None:
        """Close the file; stderr stays open."""
        super().close()
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.close()


def talk(
    *, verbose: bool = False, quiet: bool = False, plain: bool = False, fmt: str = "text", file: Path | None = None
) -> bool:
    """Send the log to stderr, and to a file if one is named; messages of libraries only from warnings on.

    With `quiet`, stderr gets warnings and errors only. Returns whether stderr is a terminal on which a person may
    want to see more than these lines (not `plain`). Raises UsageError for a file that cannot be written.
    """
    can_renew = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb"}
    is_live = can_renew and not plain and not quiet and (fmt == "text" or file is not None)
    usual = logging.DEBUG if verbose else logging.INFO
    formatters: Mapping[str, Callable[[], logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}
    shown = logging.WARNING if quiet and not verbose else usual
    handlers = [Handler(BriefFormatter() if is_live else formatters["text" if file else fmt](), shown)]
    if file is not None:
        handlers.append(Handler(formatters[fmt](), usual, file))
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)
    logging.getLogger("dc_inject").setLevel(min(handler.level for handler in handlers))
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.ERROR)
    return is_live


def keep_error(message: str, hint: str | None, code: int) -> None:
    """Write what ends a command to its log file, if it has one; stderr gets it in any case."""
    text = f"{message} (hint: {hint})" if hint else message
    keep(text, "failed", {"error": message, "hint": hint, "exit_code": code}, logging.ERROR)


def keep(text: str, event: str, fields: Mapping[str, Any], level: int = logging.WARNING) -> None:
    """Write what stderr gets in any case to the log file, if there is one: a terminal may be gone."""
    record = logging.LogRecord("dc_inject", level, __file__, 0, "%s", (text,), None)
    vars(record).update({"event": event, "fields": fields})
    for handler in logging.root.handlers:
        if isinstance(handler, Handler) and handler.file is not None:
            handler.handle(record)


def _is_at(path: Path, file: TextIO) -> bool:
    """Whether a file that is open still has its name: a rotation renames it."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _opened(path: Path) -> TextIO:
    """Open a file to append to: a regular file, no link, private when it is made here."""
    try:
        handle = disk.opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, follow=False)
    except OSError as error:
        raise UsageError(
            f"the log file {path} cannot be written: {error.strerror or error}",
            "name a regular file in a folder that you may write to",
        ) from None
    return os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace")
