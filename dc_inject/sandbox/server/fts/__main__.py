"""Run the service: `python -m sandbox_server.fts FOLDER`, with a listening socket as descriptor 3.

Descriptor 3 is plain http; descriptor 4, when it is a listening socket too, is https with `host.pem`, `host.key`
and `ca.pem` of FOLDER/fts, where client certificates may be given. Ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from functools import partial
from pathlib import Path

from aiohttp import web

from .database import open_database
from .delegation import Delegations
from .frontend import Frontend
from .jobs import Jobs
from .jobs_api import JobsApi
from .limits import Limits
from .optimizer import Optimizer
from .scheduler import Scheduler
from .service_api import ServiceApi
from .settings import Knobs
from .storages import Storages
from .tapes import Tapes

_LONGEST_LINE = 64 * 1024  # of a request, for many job ids in one address
_PATIENCE = 5.0  # seconds for ending copies, and for cleaning up behind them


def inherited(descriptor: int) -> socket.socket | None:
    """Take a listening socket that the parent gave; None when the descriptor is something else."""
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        listens = 0
    if not listens:
        listener.detach()
        return None
    return listener


def encryption(folder: Path) -> ssl.SSLContext:
    """Make the https side; client certificates, proxies too, may be given, and are then checked."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.load_cert_chain(folder / "host.pem", folder / "host.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_ALLOW_PROXY_CERTS
    return context


async def serve(folder: Path, plain: socket.socket, encrypted: socket.socket | None) -> None:
    """Serve until SIGTERM, or until the scheduler fails, which raises."""
    database, knobs = open_database(folder / "fts.db"), Knobs(folder)
    jobs, limits, optimizer = Jobs(database), Limits(database), Optimizer()
    storages = Storages(knobs, folder / "ca.pem")
    scheduler = Scheduler(jobs, limits, knobs, storages, optimizer)
    frontend = Frontend(knobs, folder)
    delegations = Delegations(database, frontend)
    application = web.Application(middlewares=[web.middleware(partial(frontend.receive))])
    for part in (
        ServiceApi(frontend, knobs, limits, optimizer),
        delegations,
        JobsApi(frontend, knobs, jobs, scheduler, delegations),
    ):
        for method, path, handler in part.routes():
            for variant in (path, "/" + path):  # the client writes its endpoint, a slash, and the path
                application.router.add_route(method, variant, handler)
    runner = web.AppRunner(
        application, access_log=None, max_line_size=_LONGEST_LINE, max_field_size=_LONGEST_LINE, shutdown_timeout=2
    )
    await runner.setup()
    await web.SockSite(runner, plain).start()
    if encrypted:
        await web.SockSite(runner, encrypted, ssl_context=encryption(folder)).start()
    tapes = Tapes(database, knobs, storages, scheduler.add)
    working = asyncio.gather(scheduler.run(), tapes.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        pass  # SIGTERM
    finally:
        await scheduler.stop(_PATIENCE)
        await runner.cleanup()
        await storages.close()
        database.close()


def main(folder: Path) -> None:
    """Serve; FOLDER/fts is made when it is not there."""
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    plain = inherited(3)
    if plain is None:
        sys.exit("descriptor 3 is no listening socket")
    place = folder / "fts"
    place.mkdir(mode=0o700, exist_ok=True)
    asyncio.run(serve(place, plain, inherited(4)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
