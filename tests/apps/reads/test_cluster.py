"""The workers' cluster: how it is reached and configured, without one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from dc_inject.apps.reads import records
from dc_inject.apps.reads.cluster import AtSite, Here, cluster, configure
from dc_inject.model.errors import NeedsOperator, Temporary, UsageError


@pytest.mark.parametrize(
    ("address", "works"),
    [
        ("tls://scheduler:8786", True),
        ("tls://[::1]:8786", True),
        ("tcp://scheduler:8786", False),
        ("scheduler:8786", False),
        ("inproc://x", False),
        ("tls://scheduler", False),
        ("tls://scheduler:port", False),
        ("tls://scheduler:99999", False),
    ],
)
def test_workers_are_reached_with_tls_at_a_port_only(address, works, monkeypatch):
    monkeypatch.setattr("dc_inject.apps.reads.cluster._require", lambda: None)
    with nullcontext() if works else pytest.raises(UsageError):
        assert isinstance(cluster(address), AtSite)
    assert isinstance(cluster(""), Here)


@pytest.mark.parametrize(
    ("error", "tls"),
    [(OSError("timed out"), False), (ConnectionResetError(), True), (TypeError("no context"), True)],
)
def test_a_scheduler_that_does_not_answer_is_no_fault_of_certificates(error, tls, monkeypatch):
    """Dask raises OSError itself where nothing listens, and one of its kinds where TLS was refused."""
    distributed = pytest.importorskip("distributed")

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(NeedsOperator) as refused:
        AtSite("tls://scheduler:8786").check()
    assert ("~/.config/dask/distributed.yaml" in str(refused.value.hint)) == tls
    assert type(error).__name__ not in str(refused.value)


def test_a_worker_that_hangs_is_waited_for_within_bounds(monkeypatch):
    """As `Client.run` of Dask: without `callback_timeout` it waits for ever."""

    class Hanging:
        def run(self, *_: object, on_error: str, callback_timeout: float) -> None:
            assert 0 < callback_timeout <= 60
            raise TimeoutError

    site = AtSite("tls://scheduler:8786")
    monkeypatch.setattr(site, "client", Hanging)
    with pytest.raises(Temporary):
        site.ask(records.load, ["key"])


@pytest.mark.parametrize("kind", [Here, lambda: AtSite("tls://scheduler:8786")])
def test_who_leaves_a_cluster_closes_its_client_and_ends_workers_of_its_own_only(kind):
    """A client that is open at the end of the process would log a traceback for each reader that goes on."""
    workers, client = kind(), Mock()
    workers._client = client
    workers.close()
    client.close.assert_called_once_with()
    assert client.cluster.close.called == client.cluster.sync.called == isinstance(workers, Here)
    assert workers._client is None
    workers.close()  # nothing is left


def test_workers_that_are_being_started_at_the_end_are_ended(monkeypatch):
    """Starting them takes seconds."""
    workers, client, awaited = Here(), Mock(), threading.Event()

    class Lock:
        """A lock that tells when somebody has to wait for it."""

        real = threading.Lock()

        def __enter__(self) -> None:
            if not self.real.acquire(blocking=False):
                awaited.set()
                self.real.acquire()

        def __exit__(self, *_: object) -> None:
            self.real.release()

    began = threading.Event()

    def join() -> Mock:
        began.set()
        awaited.wait(60)
        return client

    workers._lock = Lock()
    monkeypatch.setattr(workers, "_joined", join)
    starting = threading.Thread(target=workers.client)
    starting.start()
    began.wait(60)
    workers.close()
    awaited.set()
    starting.join()
    client.close.assert_called_once_with()


LEVEL = "import distributed, logging; print(logging.getLogger('distributed.worker').getEffectiveLevel())"


def test_workers_whose_scheduler_dies_print_no_traceback():
    """A new process of a worker logs as its environment says, not as the configuration of its parent."""
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    configure()
    environment = dask.config.get("distributed.nanny.pre-spawn-environ")
    done = subprocess.run(
        [sys.executable, "-c", LEVEL],
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) == logging.CRITICAL


@pytest.mark.parametrize("kind", [Here, lambda: AtSite("tls://scheduler:8786")])
def test_a_record_that_cannot_be_read_now_is_a_service_to_ask_again(kind, monkeypatch):
    """As while its reader writes it, or where a worker may open no more files."""
    workers, client = kind(), Mock()
    workers._client, client.status = client, "running"
    client.run.side_effect = lambda question, *keys, **_: {"worker": question(*keys)}

    def load(_keys: list[str]) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(Temporary, match="Input/output error"):
        workers.ask(load, ["key"])
