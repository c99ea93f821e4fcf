"""Files on tape, as FTS3 treats them: they are staged before their copy, and released or given up after it."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby

from .failures import CopyFailed
from .jobs import Jobs
from .settings import Knobs
from .storages import Storages, address

log = logging.getLogger("fts")
Work = Callable[[list[sqlite3.Row], float], Awaitable[None]]
_LEAST = 0.25  # seconds between two looks, however fast the time of this service runs
_END = "TAPE"
_STAGED, _ARCHIVED = "source_se, source_token, uri, request, file_state", "dest_se, destination_token"


class Tapes(Jobs):
    """Speaks to the tape systems of sources."""

    def __init__(
        self,
        database: sqlite3.Connection,
        knobs: Knobs,
        storages: Storages,
        submit: Callable[[Iterable[int]], None],
    ) -> None:
        """Take where files are kept, and what lets them wait for their copies."""
        super().__init__(database)
        self._knobs, self._storages, self._submit = knobs, storages, submit

    async def run(self) -> None:
        """Look after files until cancelled."""
        while True:
            settings = self._knobs.now
            if not (settings.standstill or settings.database_down):
                await self._for_each("file_state = 'STAGING'", self._stage)
                await self._for_each("file_state = 'STARTED'", self._poll)
                await self._for_each("file_state = 'ARCHIVING'", self._look, "archive", _ARCHIVED)
                await self._for_each(
                    "file_state IN ('CANCELED', 'FINISHED', 'FAILED') AND request <> ''", self._end
                )
            await asyncio.sleep(max(settings.scheduler_interval * settings.time_scale, _LEAST))

    async def _for_each(self, condition: str, work: Work, table: str = "tape", keys: str = _STAGED) -> None:
        """Do something with the files of each request, or of each storage before there is one."""
        rows = self._all(
            f"SELECT * FROM {table} JOIN file USING (file_id) WHERE {condition} ORDER BY {keys}, file_id"  # noqa: S608 (ours)
        )
        for _, group in groupby(rows, lambda row: [row[key] for key in keys.split(", ")]):
            files, now = list(group), time.time()
            try:
                await work(files, now)
            except CopyFailed as failure:
                log.warning("a tape system failed: %s", failure.reason)
                if work == self._stage:
                    self._fail(files, now, failure.text)

    def _fail(self, files: Iterable[sqlite3.Row], now: float, why: str) -> None:
        for row in files:
            self.fail(row["file_id"], now, f"STAGING [{errno.EIO}] {why}")

    async def _find(self, url: str, token: str | None) -> str:
        """Return where the API of the tape system of a file is."""
        origin = address(_END, url).origin()
        about = await self._storages.ask(_END, f"{origin}/.well-known/wlcg-tape-rest-api", token)
        return str(next(one["uri"] for one in about["endpoints"] if one["version"] == "v1"))

    async def _look(self, files: list[sqlite3.Row], now: float) -> None:
        """Ask whether files that were copied are on tape."""
        token, scale = files[0]["destination_token"], self._knobs.now.time_scale
        uri = await self._find(files[0]["dest_surl"], token)
        paths = [address(_END, row["dest_surl"]).path for row in files]
        shown = await self._storages.ask(_END, f"{uri}/archiveinfo", token, {"paths": paths})
        on_tape = {file["path"] for file in shown if "TAPE" in file.get("locality", "")}
        for row, path in zip(files, paths, strict=True):
            if path in on_tape:
                self.archived(row["file_id"], now)
            elif row["archive_start_time"] + row["archive_timeout"] * scale < now:
                self.fail(row["file_id"], now, f"ARCHIVING [{errno.ETIMEDOUT}] archive_timeout is over")

    async def _stage(self, files: list[sqlite3.Row], now: float) -> None:
        token = files[0]["source_token"]
        uri = await self._find(files[0]["source_surl"], token)
        asked = [{"path": _path(row), "diskLifetime": f"PT{row['pin']}S"} for row in files]
        request = (await self._storages.ask(_END, f"{uri}/stage", token, {"files": asked}))["requestId"]
        for row in files:
            values = uri, request, now, row["file_id"]
            self._run("UPDATE tape SET uri = ?, request = ?, staging_start = ? WHERE file_id = ?", *values)
            self._run("UPDATE file SET file_state = 'STARTED' WHERE file_id = ?", row["file_id"])

    async def _poll(self, files: list[sqlite3.Row], now: float) -> None:
        place, token, scale = f"{files[0]['uri']}/stage/", files[0]["source_token"], self._knobs.now.time_scale
        shown = (await self._storages.ask(_END, place + files[0]["request"], token))["files"]
        seen = [(row, file) for row in files for file in shown if file["path"] == _path(row)]
        self._fail((row for row, file in seen if file.get("error")), now, "the tape system cannot read the file")
        staged = [row["file_id"] for row, file in seen if file.get("onDisk")]
        late = (row for row in files if row["staging_start"] + row["bring_online"] * scale < now)
        self._fail((row for row in late if row["file_id"] not in staged), now, "bring_online is over")
        for file_id in staged:
            self._run("UPDATE tape SET staging_finished = ? WHERE file_id = ?", now, file_id)
            self._run(
                "UPDATE file SET file_state = 'SUBMITTED' WHERE file_id = ? AND file_state = 'STARTED'", file_id
            )
        self._submit(staged)

    async def _end(self, files: list[sqlite3.Row], _now: float) -> None:
        """Release what was copied, and cancel the rest."""
        for row in files:
            self._run("UPDATE tape SET request = '' WHERE file_id = ?", row["file_id"])
        uri, request = files[0]["uri"], files[0]["request"]
        place = f"release/{request}" if files[0]["file_state"] == "FINISHED" else f"stage/{request}/cancel"
        paths = {"paths": [_path(row) for row in files]}
        await self._storages.ask(_END, f"{uri}/{place}", files[0]["source_token"], paths)


def _path(row: sqlite3.Row) -> str:
    return str(address(_END, row["source_surl"]).path)
