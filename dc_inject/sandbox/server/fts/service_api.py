"""The part of the REST interface that is about the service itself: version, user, optimizer, limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from .answers import moment
from .frontend import Frontend
from .limits import Limits
from .optimizer import Optimizer
from .refusals import Refused
from .settings import Knobs

_VERSION = {"major": 3, "minor": 14, "patch": 2}


class ServiceApi:
    """Handlers; each answers one kind of request."""

    def __init__(self, frontend: Frontend, knobs: Knobs, limits: Limits, optimizer: Optimizer) -> None:
        self._frontend, self._knobs, self._limits, self._optimizer = frontend, knobs, limits, optimizer

    def routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        """Name method, path and handler of each."""
        return [
            ("GET", "/", self.version),
            ("GET", "/whoami", self.whoami),
            ("GET", "/optimizer", self.optimizer),
            ("GET", "/optimizer/current", self.current),
            ("GET", "/optimizer/evolution", self.evolution),
            ("GET", "/config/links", self.links),
            ("POST", "/config/links", self.set_link),
            ("GET", "/config/links/{name}", self.link),
            ("DELETE", "/config/links/{name}", self.drop_link),
            ("GET", "/config/se", self.storages),
            ("POST", "/config/se", self.set_storages),
            ("DELETE", "/config/se", self.drop_storage),
        ]

    async def version(self, request: web.Request) -> web.Response:
        """Return which interface this is; anybody may ask who may ask at all."""
        self._frontend.who(request)
        return web.json_response(
            {
                "api": _VERSION,
                "core": _VERSION | {"patch": "2"},
                "delegation": {"major": 1, "minor": 0, "patch": 0},
                "schema": {"major": 9, "minor": 0, "patch": 0},
                "_links": {
                    "curies": [],
                    "fts:whoami": {"href": "/whoami"},
                    "fts:submissionSchema": {"href": "/jobs"},
                },
            }
        )

    async def whoami(self, request: web.Request) -> web.Response:
        """Return who asks."""
        return web.json_response(self._frontend.who(request).plain())

    async def optimizer(self, request: web.Request) -> web.Response:
        """Return whether there is an optimizer."""
        self._frontend.who(request)
        return web.json_response(data=True)

    async def current(self, request: web.Request) -> web.Response:
        """Return how many copies at a time links may have."""
        self._frontend.who(request)
        rows = self._optimizer.current(request.query.get("source_se"), request.query.get("dest_se"))
        return web.json_response([row | {"datetime": moment(row["datetime"])} for row in rows])

    async def evolution(self, request: web.Request) -> web.Response:
        """Return how links went, newest first."""
        self._frontend.who(request)
        rows = self._optimizer.evolution(request.query.get("source_se"), request.query.get("dest_se"))
        return web.json_response([row | {"datetime": moment(row["datetime"])} for row in rows])

    async def links(self, request: web.Request) -> web.Response:
        """Return the limits of links."""
        self._frontend.configurer(request)
        return web.json_response(self._limits.links(self._knobs.now))

    async def link(self, request: web.Request) -> web.Response:
        """Answer the limits of one link."""
        self._frontend.configurer(request)
        links = self._limits.links(self._knobs.now, request.match_info["name"])
        if not links:
            raise Refused(404, f"Link {request.match_info['name']} does not exist")
        return web.json_response(links[0])

    async def set_link(self, request: web.Request) -> web.Response:
        """Set a link's limits."""
        self._frontend.configurer(request)
        return web.json_response(self._limits.set_link(await self._frontend.json(request), self._knobs.now))

    async def drop_link(self, request: web.Request) -> web.Response:
        """Forget a link's limits."""
        self._frontend.configurer(request)
        self._limits.drop_link(request.match_info["name"])
        return web.Response(status=204)

    async def storages(self, request: web.Request) -> web.Response:
        """Return the limits of storages."""
        self._frontend.configurer(request)
        return web.json_response(self._limits.storages(self._knobs.now, request.query.get("se")))

    async def set_storages(self, request: web.Request) -> web.Response:
        """Set storages' limits."""
        self._frontend.configurer(request)
        return web.json_response(self._limits.set_storages(await self._frontend.json(request), self._knobs.now))

    async def drop_storage(self, request: web.Request) -> web.Response:
        """Forget a storage's limits."""
        self._frontend.configurer(request)
        if not request.query.get("se"):
            raise Refused(400, "Missing storage (se)")
        self._limits.drop_storage(request.query["se"])
        return web.Response(status=204)
