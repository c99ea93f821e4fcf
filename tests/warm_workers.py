"""Workers of pytest-xdist that are forked once all tests are imported: each would take seconds of CPU for it."""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from execnet import XSpec, gateway_io
from execnet.gateway_base import ExecModel, Popen2IO
from hypothesis.internal.conjecture import providers

HERE = Path(__file__).parent


class _Worker(Popen2IO):
    """What execnet wants to know of the process of a worker: its pipes and its end."""

    def __init__(self) -> None:
        """Fork it."""
        (requests, to_worker), (from_worker, answers) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _work(requests, answers)
        for end in (requests, answers):
            os.close(end)
        self._ends = to_worker, from_worker

    def connect(self, execmodel: ExecModel) -> _Worker:
        """Open its pipes."""
        write, read = self._ends
        super().__init__(os.fdopen(write, "wb"), os.fdopen(read, "rb"), execmodel)
        return self

    def wait(self) -> int | None:
        """Wait for its end, and return its exit code."""
        with suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return None

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _work(requests: int, answers: int) -> None:
    """Be what execnet starts: take a line of Python from standard input, run it, and end."""
    code = 1
    try:
        os.dup2(requests, 0)
        os.dup2(answers, 1)
        os.closerange(3, max(requests, answers, *(int(one.name) for one in Path("/proc/self/fd").iterdir())) + 1)
        logging.getLogger().handlers.clear()  # those of pytest write to files that are closed here
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        exec(eval(sys.stdin.readline()), {})
        code = 0
    finally:  # and never go on as the process that was forked
        if code:
            traceback.print_exc()
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(code)


def fork(config: pytest.Config, specs: Iterable[XSpec]) -> None:
    """Import the tests of a run, and fork its workers before execnet starts a thread.

    The workers themselves report what cannot be imported. Coverage wants to see imports: its workers start cold.
    """
    if config.getoption("cov_source", None):
        return
    ignored = {Path(path).resolve() for path in config.getoption("ignore") or ()}
    for argument in config.args:
        place = Path(config.invocation_params.dir, argument.partition("::")[0]).resolve()
        for file in sorted(place.rglob("test_*.py")) if place.is_dir() else [place]:
            if file.is_relative_to(HERE) and file not in ignored:
                with suppress(Exception, pytest.skip.Exception):
                    importlib.import_module(".".join(file.relative_to(HERE.parent).with_suffix("").parts))
    with suppress(AttributeError):  # of hypothesis before 6.131
        providers._get_local_constants()  # it reads all sources of the package for them
    gc.collect()
    gc.freeze()  # so that no worker writes into the pages that all share
    sys.stdout.flush()
    sys.stderr.flush()
    workers = iter([_Worker() for spec in specs if spec.popen and not spec.python])
    make = gateway_io.create_io

    def take(spec: XSpec, execmodel: ExecModel) -> Popen2IO:
        """Take a forked one for a worker, while there are any."""
        worker = next(workers, None) if spec.popen and not spec.python else None
        return worker.connect(execmodel) if worker else make(spec, execmodel)

    gateway_io.create_io = take
