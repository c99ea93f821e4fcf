"""Lets commits of SQLite not wait for the disk, in each process of Rucio: each policy package imports it.

A sandbox survives the end of its processes, not that of its machine; PostgreSQL has `fsync = off`.
"""

from __future__ import annotations

from rucio.common.config import config_get
from sqlalchemy import Engine, event

if config_get("database", "default", check_config_table=False).startswith("sqlite"):
    event.listen(Engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
