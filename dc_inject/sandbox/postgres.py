"""The catalogue in PostgreSQL instead of SQLite: its settings, where it listens, whether it is ready.

It listens on no port at all, but on a socket in the kernel's abstract namespace: that has no path that could be
too long or be left behind. Clients find it by libpq's service file, as psycopg takes such a name for a host's.
The kernel identifies who connects (`peer`), so there is no password: only who runs the sandbox gets in.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from dc_inject.model.errors import ServiceError

from .settings import POSTGRES
from .state import State, write_private

FOLDER = "postgres"
ADDRESS = "postgresql+psycopg:///?service=rucio"  # for SQLAlchemy, in an environment that names the service file
_SERVICE = """\
[rucio]
host={socket}
user=rucio
dbname=postgres
"""
_ALLOWED = "local all rucio peer map=owner\n"
_STATUS_LINE = 7  # of postmaster.pid, from 0; `pg_ctl` waits for it too


def prepare(folder: Path, state: State) -> None:
    """Write its settings; it makes its data folder itself."""
    own, socket = folder / FOLDER, f"@dc_inject-{state.marker[:16]}"
    own.mkdir(mode=0o700)
    write_private(own / "postgresql.conf", POSTGRES.format(socket=socket))
    write_private(own / "service.conf", _SERVICE.format(socket=socket))
    write_private(own / "hba.conf", _ALLOWED)
    write_private(own / "ident.conf", f'owner "{account()}" rucio\n')


def environment(folder: Path) -> dict[str, str]:
    """What a client's environment needs besides."""
    return {"PGSERVICEFILE": str(folder / FOLDER / "service.conf")}


def ready(folder: Path) -> bool:
    """Return whether it takes connections, by what it writes itself."""
    try:
        lines = (folder / FOLDER / "data" / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"


def account() -> str:
    """Name who runs the sandbox, as the kernel does for PostgreSQL; raises ServiceError for one without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise ServiceError(
            f"user {os.geteuid()} has no name here, without which PostgreSQL does not run", "use --db sqlite"
        ) from None
