"""Reports to a service manager, such as systemd, that the injector is ready and alive (sd_notify(3)).

A manager that has started us names its address in the environment. The watchdog of the unit in docs/deploy
restarts an injector that hangs. What is sent is one datagram without an answer, for which no library is worth a
dependency; the protocol is stable by promise.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping


class ServiceManager:
    """The service manager of a process; without one, nothing is sent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Take the environment, in which `NOTIFY_SOCKET` is the manager's address: a path, or `@` and a name."""
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def ready(self) -> None:
        """Report that the injection has started."""
        self._send(b"READY=1")

    def alive(self) -> None:
        """Report that we are alive; the manager restarts us after a silence as long as in its unit."""
        self._send(b"WATCHDOG=1")

    def _send(self, words: bytes) -> None:
        if not self._address:
            return
        # A manager that is gone or busy must not stop an injection; the next message repeats it.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(words, self._address)
