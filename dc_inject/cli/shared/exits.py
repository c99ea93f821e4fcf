"""How a command that failed ends: a sentence and a hint on stderr, and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from typing import TextIO

import click

from dc_inject.cli.shared import log_output
from dc_inject.model import faults, redaction
from dc_inject.model.causes import Cause, Peer
from dc_inject.model.errors import DcInjectError, UsageError

INTERRUPTED = 130
UNEXPECTED = 1
CLOSED_PIPE = 128 + signal.SIGPIPE  # as shells report a process that the signal has ended
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})  # of a stream

_OF_THE_MACHINE = frozenset({Cause.DESCRIPTORS, Cause.THREADS, Cause.MEMORY})
_UNUSABLE = _UNWRITABLE | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


def report_interruption(state: str) -> None:
    """Report that Ctrl-C, or another signal, has interrupted a command, and how things are left."""
    click.echo(f"interrupted: {state}", err=True)


def explain(error: BaseException) -> int:
    """Report what has ended a command, and return its exit code; the trace of a bug goes to a private file.

    Where whoever read our output has gone, nothing is printed any more.
    """
    try:
        return _explained(error)
    except BrokenPipeError:
        return _mute()


def _explained(error: BaseException) -> int:
    match error:
        case click.exceptions.Abort() | KeyboardInterrupt():
            return _report("interrupted", None, INTERRUPTED)
        case click.ClickException():
            error.show()
            log_output.keep_error(error.format_message(), None, error.exit_code)
            return error.exit_code
        case DcInjectError():
            return _report(error.message, error.hint, error.exit_code)
        case BrokenPipeError():
            return _mute()
        case OSError() if error.filename is None and error.errno in _UNWRITABLE:
            _silence(sys.stdout)
            return _report(f"the output cannot be written: {error.strerror}", "write it elsewhere", UNEXPECTED)
        case OSError() if error.filename is not None and error.errno in _UNUSABLE:
            hint = "use a place with room that you may write to; HOME, XDG_STATE_HOME and TMPDIR name some"
            return _report(f"{os.fsdecode(error.filename)}: {error.strerror}", hint, UsageError.exit_code)
        case _:
            fault = faults.judge(faults.Facts.of(error, Peer.FTS))  # the peer is in no word about this machine
            if fault.cause in _OF_THE_MACHINE:
                return _report(fault.message(), fault.hint, UNEXPECTED)
            with tempfile.NamedTemporaryFile("w", prefix="dc_inject-", suffix=".trace", delete=False) as file:
                file.write(redaction.trace(error))
            hint = f"this is a bug; please report it with the trace in {file.name}"
            return _report(f"unexpected {type(error).__name__}", hint, UNEXPECTED)


def _mute() -> int:
    """Print nothing more, not even at the exit."""
    _silence(sys.stdout)
    _silence(sys.stderr)
    return CLOSED_PIPE


def _silence(stream: TextIO) -> None:
    """Let what is still buffered for a stream go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(message: str, hint: str | None, code: int) -> int:
    log_output.keep_error(message, hint, code)
    click.echo(f"dc-inject: {redaction.visible(message)}", err=True)
    if hint:
        click.echo(f"hint: {redaction.visible(hint)}", err=True)
    return code
