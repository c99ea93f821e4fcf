"""Whether storages still accept connections, as far as that can be seen from this machine.

A service that moves files may reach storages that this machine cannot, so nothing follows from a storage that
never accepted a connection from here. One that did, and no longer does, is worth naming. Nothing is sent.

A stop may be over before anybody asks, so storages are probed in between as well; there one failure may be this
machine's, which has much to do, and two in a row count.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from dc_inject.model.ports import Endpoint
from dc_inject.system.transport import connects

MOST = 4  # endpoints of one storage that are tried
IN_A_ROW = 2  # failures between two questions that count


class Reachability:
    """The endpoints of each storage that accepted a connection at the beginning, as addresses."""

    def __init__(
        self,
        storages: Mapping[str, Sequence[Endpoint]],
        *,
        connects: Callable[[Endpoint], Endpoint | None] = connects,
    ) -> None:
        """Try each endpoint once; those that do not accept a connection now are left out for good."""
        self._connects = connects
        self._reached = {
            name: [address for endpoint in endpoints[:MOST] if (address := connects(endpoint))]
            for name, endpoints in storages.items()
        }
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failures: Counter[str] = Counter()  # in a row, of probes in between
        self._was_down = ""  # since the last question

    def down(self) -> str:
        """Return the first storage that accepted connections before and accepts none now, or an empty name.

        Where all accept some, that is one that did not for a while since this was asked before.
        """
        now = next((name for name in self._reached if not self._accepts(name)), "")
        with self._lock:
            before, self._was_down = self._was_down, ""
        return now or before

    def probe(self) -> None:
        """Try each storage once, and remember one that did not accept a connection several times in a row."""
        for name in self._reached:
            if self._stop.is_set():
                return
            accepts = self._accepts(name)
            with self._lock:
                self._failures[name] = 0 if accepts else self._failures[name] + 1
                if self._failures[name] >= IN_A_ROW:
                    self._was_down = self._was_down or name

    @contextlib.contextmanager
    def watched(self, every: timedelta) -> Iterator[None]:
        """Probe every so often, in a thread of its own, until the block is left."""

        def work() -> None:
            while not self._stop.wait(every.total_seconds()):
                self.probe()

        self._stop.clear()
        thread = threading.Thread(target=work, name="reachability", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _accepts(self, name: str) -> bool:
        addresses = self._reached[name]
        return not addresses or any(map(self._connects, addresses))
