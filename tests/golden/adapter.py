"""All that the golden tests know of the tool's inside: when modules move, only this file has to follow."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import datetime
from functools import partial
from typing import NamedTuple, Protocol
from unittest import mock

import yaml

import dc_inject
from dc_inject.__main__ import main
from dc_inject.apps.rebuild import new_ledger
from dc_inject.assembly import ending, running
from dc_inject.backends.sim import InlineExecutor
from dc_inject.ledger import Ledger
from dc_inject.system import transport
from dc_inject.system.clock import SystemClock

VERSION = dc_inject.__version__
RENAMED: dict[str, str] = {}  # new name -> name in golden files, of tables and columns of the ledger
ACCOUNTS = "SELECT id, scenario || '/' || source || '->' || destination FROM account"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Time(Protocol):
    """A clock of the tests' own; what waits on it moves it."""

    def now(self) -> datetime: ...

    def advance(self, moment: datetime) -> None: ...


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> Done:
    """Run `dc-inject` in this process, as its entry point does; also from within another command that waits."""
    out, err = io.StringIO(), io.StringIO()
    log = logging.getLogger()
    handlers, level = log.handlers[:], log.level
    signals = {number: signal.getsignal(number) for number in _SIGNALS}
    argv = ["dc-inject", *map(str, arguments)]
    code: object = 0
    try:
        with (
            mock.patch.object(sys, "argv", argv),
            mock.patch.dict(os.environ),  # the entry point sets a variable for its children
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            main()
    except SystemExit as left:
        code = left.code
    finally:
        log.handlers[:], log.level = handlers, level
        for number, handler in signals.items():
            signal.signal(number, handler)
    assert isinstance(code, int)
    return Done(code, out.getvalue(), err.getvalue())


@contextmanager
def simulated(time: Time) -> Iterator[None]:
    """Let the tool's clock be this one, and let it do inline what it would give to threads while it waits."""

    class Inline(InlineExecutor):
        def __init__(self, *_: object, **__: object) -> None:
            super().__init__(time)  # type: ignore[arg-type]  # it takes whatever has `now` and `advance`

        def close(self) -> None: ...

    def now(_clock: object) -> datetime:
        return time.now()

    opened = partial(Ledger.open, synchronous="OFF")  # nobody pulls the plug: all else is as it is
    with (
        mock.patch.object(Ledger, "open", opened),
        mock.patch.object(SystemClock, "now", now),
        mock.patch.object(running, "ThreadExecutor", Inline),
        mock.patch.object(ending, "ThreadExecutor", Inline),
        mock.patch.object(new_ledger, "ThreadExecutor", Inline),
        mock.patch.object(os, "uname", return_value=os.uname_result(("Linux", "host", "1", "1", "x86_64"))),
    ):
        yield


def answered_within_bounds() -> None:
    """Tell the transport that the answer to what this thread sends just now came over a connection with bounds."""
    transport._here.exchange.gated = True


def read_yaml(text: str) -> dict[str, object]:
    """Return what a menu's text says, without its comments; all that is not a list or mapping is a string."""
    value = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    assert isinstance(value, dict)
    return value
