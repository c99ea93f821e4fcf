"""A tape system in front of a storage, with WLCG's Tape REST API v1: `python -m sandbox_server.tape FOLDER`.

FOLDER/tape.json names the storage's URL, the number of drives, and the seconds that a drive takes for a file.
Descriptor 3 is a listening socket. At the start all files of the storage are on tape only. A drive stages one file
after the other, in the order of the requests; what was staged is on disk until it is released. What is written is
on disk at once, and on tape when a drive has written it.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
from aiohttp import web

_OWN = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "date", "server"})  # are not passed on
_FILE = re.compile(r"<(\w+):href>([^<]*)</\1:href>.*?</\1:prop>", re.S)  # of an answer to PROPFIND
_FOLDER = re.compile(r"collection(/>|>1)")  # XRootD reports `iscollection` 0 for a file
_NEARLINE = '<S:FileLocality xmlns:S="http://srm.lbl.gov/StorageResourceManager">NEARLINE</S:FileLocality>'
_API = "/api/v1"
_WAITING = frozenset({"SUBMITTED", "STARTED"})
Files = dict[str, dict[str, Any]]


class TapeSystem:
    """Drives, requests, and which files are on disk."""

    def __init__(self, storage: str, drives: int, seconds: float) -> None:
        self._storage, self._drives, self._seconds = storage, drives, seconds
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._requests: dict[str, Files] = {}  # files by request and path
        self._online: set[str] = set()
        self._not_on_tape: set[str] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until cancelled."""
        application = web.Application(client_max_size=2**30)
        for method, path, handler in (
            ("GET", "/.well-known/wlcg-tape-rest-api", self.discover),
            ("POST", f"{_API}/stage", self.stage),
            ("GET", f"{_API}/stage/{{id}}", self.progress),
            ("DELETE", f"{_API}/stage/{{id}}", self.cancel),
            ("POST", f"{_API}/stage/{{id}}/cancel", self.cancel),
            ("POST", f"{_API}/release/{{id}}", self.release),
            ("POST", f"{_API}/archiveinfo", self.archive_info),
            ("*", "/{path:.*}", self.pass_on),
        ):
            application.router.add_route(method, path, handler)
        async with aiohttp.ClientSession(
            auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
        ) as session:
            self._session = session
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            await web.SockSite(runner, listener).start()
            await asyncio.gather(*(self._drive() for _ in range(self._drives)))

    async def _drive(self) -> None:
        """Stage one file after the other; a drive is as fast as it is, whatever the loop is late."""
        clock, free = asyncio.get_running_loop().time, 0.0
        while True:
            file = await self._queue.get()
            if file["state"] == "SUBMITTED":
                file["state"] = "STARTED"
                free = max(free, clock() - self._seconds / 2) + self._seconds
                await asyncio.sleep(free - clock())
            if file["state"] == "STARTED":
                self._online.add(file["path"])
                self._not_on_tape.discard(file["path"])
                file |= {"state": "COMPLETED", "onDisk": True}

    async def discover(self, request: web.Request) -> web.Response:
        """Return where the API is."""
        endpoint = {"uri": f"{request.url.origin()}{_API}", "version": "v1", "metadata": {}}
        return web.json_response({"sitename": "sandbox", "description": "tape", "endpoints": [endpoint]})

    async def stage(self, request: web.Request) -> web.Response:
        """Take a request."""
        number, files = str(uuid.uuid4()), Files()
        for path in [file["path"] for file in (await request.json())["files"]]:
            on_disk = path in self._online
            files[path] = {"path": path, "onDisk": on_disk, "state": "COMPLETED" if on_disk else "SUBMITTED"}
            async with self._session.head(self._storage + path) as answer:
                if answer.status == 404:
                    files[path] |= {"state": "FAILED", "error": "unknown path"}
            self._queue.put_nowait(files[path])
        self._requests[number] = files
        location = {"Location": f"{request.url.origin()}{_API}/stage/{number}"}
        return web.json_response({"requestId": number}, status=201, headers=location)

    async def progress(self, request: web.Request) -> web.Response:
        """Return how far a request is."""
        files = self._files(request)
        return web.json_response({"id": request.match_info["id"], "files": list(files.values())})

    async def cancel(self, request: web.Request) -> web.Response:
        """Stage no more of some files, or of all of a request that is deleted."""
        files = self._files(request)
        for path in files if request.method == "DELETE" else (await request.json())["paths"]:
            if files[path]["state"] in _WAITING:
                files[path]["state"] = "CANCELLED"
        return web.Response()

    async def release(self, request: web.Request) -> web.Response:
        """Let files go from the disk."""
        self._online -= self._files(request).keys() & set((await request.json())["paths"])
        return web.Response()

    async def archive_info(self, request: web.Request) -> web.Response:
        """Return where files are."""
        paths = (await request.json())["paths"]
        of = {path: "DISK_AND_TAPE" if path in self._online else "TAPE" for path in paths}
        of |= dict.fromkeys(self._not_on_tape & of.keys(), "DISK")
        return web.json_response([{"path": path, "locality": locality} for path, locality in of.items()])

    def _files(self, request: web.Request) -> Files:
        try:
            return self._requests[request.match_info["id"]]
        except KeyError:
            raise web.HTTPNotFound from None

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Let the storage answer; a file that is on tape only cannot be read."""
        path, method = request.path, request.method
        if method == "GET" and not path.endswith("/") and path not in self._online:
            return web.Response(status=503, text="nearline")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
        body = request.content if request.body_exists else None
        async with self._session.request(
            method, self._storage + request.raw_path, headers=headers, data=body, allow_redirects=False
        ) as answer:
            back = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
            if method in {"PUT", "COPY"} and answer.status < 300:
                self._online.add(path)
                self._not_on_tape.add(path)
                self._queue.put_nowait({"path": path, "state": "SUBMITTED"})
            if method == "PROPFIND":
                back.pop("Content-Length", None)
                text = _FILE.sub(self._with_locality, await answer.text())
                return web.Response(status=answer.status, headers=back, body=text.encode())
            passed = web.StreamResponse(status=answer.status, headers=back)
            await passed.prepare(request)
            async for part in answer.content.iter_any():
                await passed.write(part)
            return passed

    def _with_locality(self, found: re.Match[str]) -> str:
        if _FOLDER.search(found[0]) or unquote(urlsplit(found[2]).path) in self._online:
            return found[0]
        return found[0].removesuffix(end := f"</{found[1]}:prop>") + _NEARLINE + end


if __name__ == "__main__":
    settings = json.loads(Path(sys.argv[1], "tape.json").read_text())
    asyncio.run(TapeSystem(**settings).serve(socket.socket(fileno=3)))
