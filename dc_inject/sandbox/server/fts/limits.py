"""How many copies there may be at a time: on a link, into and out of a storage."""

from __future__ import annotations

import sqlite3
from typing import Any

from .refusals import Refused
from .settings import Json, Settings

_MIN = 2  # what FTS3 starts a link with
_OF_STORAGE = ("inbound_max_active", "outbound_max_active")


class Limits:
    """What /config/links and /config/se report, on top of the settings."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._links: dict[tuple[str, str], tuple[int, int]] = {}
        self._storages: dict[str, sqlite3.Row] = {}
        self._read()

    def of_link(self, source: str, destination: str, settings: Settings) -> tuple[int, int]:
        """Return the least and the most copies of a link; '*' stands for any storage."""
        for pair in ((source, destination), (source, "*"), ("*", destination), ("*", "*")):
            if pair in self._links:
                return self._links[pair]
        return min(_MIN, settings.link_active), settings.link_active

    def of_storage(self, storage: str, key: str, settings: Settings) -> int:
        """Return the limit of copies into a storage, or out of it, by one of the keys that /config/se has."""
        row = self._storages.get(storage) or self._storages.get("*")
        limit = row[key] if row else None
        return settings.storage_active if limit is None else int(limit)

    def links(self, settings: Settings, name: str | None = None) -> list[dict[str, Any]]:
        """Return the links that have limits, and the one of all others (`*`); or the one of that name."""
        rows = [dict(row) for row in self._database.execute("SELECT * FROM link_config ORDER BY symbolicname")]
        if not any(row["source"] == row["destination"] == "*" for row in rows):
            default = {"symbolicname": "*", "source": "*", "destination": "*", "min_active": _MIN}
            rows.insert(0, default | {"max_active": settings.link_active})
        rows = [row for row in rows if name in (None, row["symbolicname"])]
        return [row | {"optimizer_mode": 2, "tcp_buffer_size": 0, "nostreams": 0} for row in rows]

    def set_link(self, wanted: Json, settings: Settings) -> dict[str, Any]:
        """Set a link's limits; raises Refused."""
        if not isinstance(wanted, dict) or not wanted.get("symbolicname"):
            raise Refused(400, "Missing symbolicname")
        try:
            low, high = int(wanted.get("min_active", _MIN)), int(wanted.get("max_active", _MIN))
        except (TypeError, ValueError) as error:
            raise Refused(400, f"Active must be an integer ({error})") from None
        if low > high:
            raise Refused(400, "max_active is lower than min_active")
        source, destination = wanted.get("source", "*"), wanted.get("destination", "*")
        if not source or not destination:
            raise Refused(400, "Missing source and/or destination")
        self._database.execute(
            "INSERT OR REPLACE INTO link_config (symbolicname, source, destination, min_active, max_active) "
            "VALUES (?, ?, ?, ?, ?)",
            (str(wanted["symbolicname"]), str(source), str(destination), low, high),
        )
        self._read()
        return self.links(settings, str(wanted["symbolicname"]))[0]

    def drop_link(self, name: str) -> None:
        """Forget a link's limits."""
        self._database.execute("DELETE FROM link_config WHERE symbolicname = ?", (name,))
        self._read()

    def storages(self, settings: Settings, name: str | None = None) -> dict[str, Any]:
        """Return the storages that have limits, and what holds for all others (`*`); or the one of that name."""
        default = dict.fromkeys(_OF_STORAGE, settings.storage_active)
        limits = {"*": default} | {
            storage: {key: row[key] for key in _OF_STORAGE} for storage, row in sorted(self._storages.items())
        }
        return {
            storage: {"se_info": of, "operations": {}} for storage, of in limits.items() if name in (None, storage)
        }

    def set_storages(self, wanted: Json, settings: Settings) -> dict[str, Any]:
        """Set limits of storages; raises Refused."""
        try:
            for storage, content in wanted.items():
                if not storage.strip():
                    raise ValueError("no storage")  # noqa: TRY301 (as every other that is malformed)
                limits = dict(self._storages.get(storage, dict.fromkeys(_OF_STORAGE)))
                limits |= {key: int(value) for key, value in content["se_info"].items() if key in _OF_STORAGE}
                self._database.execute(
                    "INSERT OR REPLACE INTO storage_config (storage, inbound_max_active, outbound_max_active) "
                    "VALUES (?, ?, ?)",
                    (storage, limits["inbound_max_active"], limits["outbound_max_active"]),
                )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Refused(400, "Malformed configuration") from None
        self._read()
        return self.storages(settings)

    def drop_storage(self, name: str) -> None:
        """Forget a storage's limits."""
        self._database.execute("DELETE FROM storage_config WHERE storage = ?", (name,))
        self._read()

    def _read(self) -> None:
        links = self._database.execute("SELECT * FROM link_config")
        self._links = {
            (row["source"], row["destination"]): (row["min_active"], row["max_active"]) for row in links
        }
        self._storages = {row["storage"]: row for row in self._database.execute("SELECT * FROM storage_config")}
