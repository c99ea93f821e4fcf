"""The workers: processes of a Dask cluster, on this machine or at a site. The only place that knows Dask.

Dask never repeats a task: the engine's loop decides what is due again.
"""

# ruff: noqa: PLC0415  Dask costs a second, and only readers need it

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from dc_inject.apps.reads import reader, records
from dc_inject.apps.reads.reader import Task
from dc_inject.model.errors import NeedsOperator, Temporary, UsageError

T = TypeVar("T")

HERE = "this machine"
THREADS = 64  # readers of one process, which wait for most of the time
PROCESSES = 4
ANSWERS_WITHIN = 20  # seconds
ENDS_WITHIN = 1  # the same
# Ctrl-C and a closed terminal reach all processes of a terminal; `run` ends its workers.
_DEAF = "import signal as s\ns.signal(s.SIGINT, s.SIG_IGN)\ns.signal(s.SIGHUP, s.SIG_IGN)"
_INSTALL = "pip install 'dc-inject[reads]'"
_ALLOWED = "start the scheduler with DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0"


class Cluster(Protocol):
    """Where tasks run; every method may be called from any thread, and raises ServiceError."""

    address: str

    def check(self) -> datetime | None:
        """Return when credentials of workers expire; raises NeedsOperator if there can be no workers."""

    def start(self, task: Task, done: Callable[[], None]) -> None:
        """Read a bundle as soon as a worker is free; `done` is called at the end, whatever it is."""

    def cancel(self, key: str) -> None:
        """Drop a task that has not begun."""

    def ask(self, question: Callable[..., T], keys: Sequence[str]) -> list[T]:
        """Call a function of `records` wherever there are records, and return all answers."""

    def close(self) -> None:
        """End the workers that would end with this process; those of a site go on."""


def cluster(address: str) -> Cluster:
    """Return the workers at an address, or those of this machine where it is empty.

    Raises UsageError for an address without TLS or port, NeedsOperator where Dask or XRootD is not installed.
    """
    _require()
    if not address:
        return Here()
    named = re.fullmatch(r"tls://(?:\[[\da-fA-F:.]+\]|[\w.-]+):(\d{1,5})", address)
    if named is None or int(named[1]) >= 2**16:
        message = f"workers are reached with TLS at a port only, not at {address!r}"
        raise UsageError(message, "such as tls://scheduler:8786")
    return AtSite(address)


class Dask(ABC):
    """A Dask cluster; it is joined when it is first needed."""

    address = HERE

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None
        self._futures: dict[str, Any] = {}

    def start(self, task: Task, done: Callable[[], None]) -> None:
        """Submit a task, which Dask never repeats."""
        future = self.client().submit(reader.read, task, key=f"dc_inject-{task.key}", pure=False, retries=0)
        self._futures[task.key] = future

        def ended(_: Any) -> None:  # noqa: ANN401  Dask has no types
            self._futures.pop(task.key, None)
            done()

        future.add_done_callback(ended)

    def cancel(self, key: str) -> None:
        """Cancel a task; one that runs goes on until it sees its own request to stop."""
        if future := self._futures.get(key):
            future.cancel()

    def client(self) -> Any:  # noqa: ANN401  as above
        """Return the client; raises NeedsOperator if it cannot join."""
        with self._lock:
            if self._client is None or self._client.status not in {"running", "connecting"}:
                self._client = self._joined()
            return self._client

    def close(self) -> None:
        """Leave the cluster, with all callbacks; a reader that has begun goes on as long as its worker lives."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @abstractmethod
    def _joined(self) -> Any:  # noqa: ANN401  as above
        """Return a new client; raises NeedsOperator if it cannot join."""


class Here(Dask):
    """Workers on this machine, with TLS credentials of their own that are made at the start and never written."""

    def check(self) -> datetime | None:
        """Look for credentials; workers are started with the first bundle."""
        return reader.credentials_until()

    def ask(self, question: Callable[..., T], keys: Sequence[str]) -> list[T]:
        """Call it in this process: all records are on this machine, also those of workers that have died."""
        return [_answer(question, keys)]

    def close(self) -> None:
        """End the workers, which takes a second or two; their records stay."""
        with self._lock:  # also those that are just being started
            client = self._client
        if client is not None:
            client.cluster.sync(_kill, client.cluster.workers.values())
            super().close()
            client.cluster.close()

    def _joined(self) -> Any:  # noqa: ANN401  as above
        configure()
        from distributed import Client, LocalCluster

        workers = LocalCluster(
            n_workers=min(PROCESSES, os.cpu_count() or 1),
            threads_per_worker=THREADS,
            host="127.0.0.1",
            security=True,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            local_directory=str(records.folder()),
        )
        return Client(workers)


class AtSite(Dask):
    """Workers at a site, behind a scheduler that is reached with TLS."""

    def __init__(self, address: str) -> None:
        """Take the address of the scheduler; certificates come from Dask's own configuration."""
        super().__init__()
        self.address = address

    def check(self) -> datetime | None:
        """Ask scheduler and workers."""
        client = self.client()
        if self._bounded(client.run_on_scheduler, _allowed_failures):
            raise NeedsOperator(f"the scheduler at {self.address} repeats tasks whose worker died", _ALLOWED)
        if not client.scheduler_info()["workers"]:
            hint = "start workers, or wait for them, and try again"
            raise NeedsOperator(f"the scheduler at {self.address} has no workers", hint, passing=True)
        return min(filter(None, self._answers(reader.credentials_until)), default=None)

    def ask(self, question: Callable[..., T], keys: Sequence[str]) -> list[T]:
        """Call it at each worker."""
        return self._answers(_answer, question, keys)

    def _answers(self, question: Callable[..., T], *arguments: object) -> list[T]:
        return list(self._bounded(self.client().run, question, *arguments, on_error="raise").values())

    def _bounded(self, call: Callable[..., Any], *arguments: object, **options: object) -> Any:  # noqa: ANN401  as above
        """Make a call of Dask, which itself waits without end for a worker that hangs."""
        try:
            return call(*arguments, callback_timeout=ANSWERS_WITHIN, **options)
        except ImportError as error:
            raise NeedsOperator(f"workers of {self.address} cannot read: {error}", _INSTALL) from None
        except (OSError, TimeoutError) as error:
            raise Temporary(f"workers of {self.address} do not answer: {type(error).__name__}") from None

    def _joined(self) -> Any:  # noqa: ANN401  as above
        configure()
        from distributed import Client, Security

        try:
            return Client(self.address, security=Security(require_encryption=True), timeout=ANSWERS_WITHIN)
        except (OSError, TimeoutError, TypeError) as error:
            wrong = "refused the connection, or a certificate is missing"
            hint = "name ca-file, cert and key of its TLS in ~/.config/dask/distributed.yaml; see the how-to"
            if type(error) in {OSError, TimeoutError}:  # not of TLS: nothing answers
                wrong, hint = "does not answer", "start it, or wait for it"
            raise NeedsOperator(f"the scheduler at {self.address} {wrong}", hint, passing=True) from None


def _answer(question: Callable[..., T], keys: Sequence[str]) -> T:
    """Call a function of `records` where they are; raises Temporary if one cannot be read or written now."""
    try:
        return question(keys)
    except OSError as error:
        message = f"a reader's record on {socket.gethostname()} cannot be read or written: {error}"
        raise Temporary(message) from None


async def _kill(nannies: Iterable[Any]) -> None:
    """End the processes of workers without waiting for their readers, as closing a cluster does."""
    for nanny in nannies:
        nanny.close_gracefully()  # it starts no other one
    await asyncio.gather(*(nanny.kill(timeout=ENDS_WITHIN) for nanny in nannies))


def _allowed_failures(dask_scheduler: Any) -> int:  # noqa: ANN401  Dask looks for an argument of this name
    return int(dask_scheduler.allowed_failures)


def configure() -> None:
    """Set how Dask works before it is imported: it repeats nothing, shows nothing over HTTP, and logs little."""
    import dask

    dask.config.set(
        {
            "distributed.scheduler.allowed-failures": 0,
            "distributed.scheduler.work-stealing": False,
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            "distributed.worker.preload": [_DEAF],
            "distributed.diagnostics.nvml": False,
            "logging": {"distributed": "critical", "distributed.client": "critical"},
            # A new process logs as set in its environment, before it knows this configuration.
            "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
        }
    )


def _require() -> None:
    """Raise NeedsOperator unless Dask and XRootD are installed."""
    missing = [name for name in ("distributed", "cryptography", "XRootD") if find_spec(name) is None]
    if missing:
        raise NeedsOperator(f"streamed reads need {' and '.join(missing)} installed", _INSTALL, hold="local")
