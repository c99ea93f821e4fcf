"""What every request has in common: who asks, how long the body may be, how refusals are answered."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from .people import Person, recognise
from .refusals import REASONS, Refused
from .settings import Json, Knobs, Token, Watched, parse_tokens

log = logging.getLogger("fts")
_APACHE_414 = """<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML 2.0//EN">
<html><head>
<title>414 Request-URI Too Long</title>
</head><body>
<h1>Request-URI Too Long</h1>
<p>The requested URL's length exceeds the capacity
limit for this server.<br />
</p>
</body></html>
"""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Frontend:
    """Takes requests in and refusals out."""

    def __init__(self, knobs: Knobs, folder: Path) -> None:
        """Take the settings, and the folder of tokens.json."""
        self._knobs = knobs
        self._tokens: Watched[dict[str, Token]] = Watched(folder / "tokens.json", parse_tokens, {})

    async def receive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a handler answer; what it refuses becomes the answer that FTS3 gives (a middleware of aiohttp)."""
        if delay := self._knobs.now.delay:
            await asyncio.sleep(delay)
        if self._knobs.now.database_down:
            return refusal_answer(Refused(500, "Internal Server Error"))
        try:
            return await handler(request)
        except Refused as refusal:
            return refusal_answer(refusal)
        except web.HTTPException as other:  # of aiohttp itself: no such path, no such method
            if other.status not in REASONS:
                raise
            return refusal_answer(Refused(other.status, f"{request.method} {request.path}: {other.reason}"))
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return refusal_answer(Refused(500, "The sandbox's FTS failed; see its log"))

    def who(self, request: web.Request) -> Person:
        """Return who asks; raises Refused."""
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        return recognise(
            request.headers.get("Authorization"),
            certificate,
            request.secure,
            self._tokens.value(),
            self._knobs.now,
        )

    def who_of_jobs(self, request: web.Request) -> Person:
        """Return who asks for jobs by their ids; without credentials FTS3 fails (500) instead of refusing."""
        try:
            return self.who(request)
        except Refused as refusal:
            if refusal.status == 403:
                raise Refused(500, "Internal Server Error") from None
            raise

    def configurer(self, request: web.Request) -> Person:
        """Return who asks, and refuse those without the config right."""
        person = self.who(request)
        if not person.config:
            raise Refused(403, "Not enough permissions")
        return person

    async def body(self, request: web.Request) -> bytes:
        """Read a body of bounded length; raises Refused."""
        most = self._knobs.now.max_body
        if (request.content_length or 0) > most:
            raise Refused(413, f"The body is longer than {most} bytes")
        parts, length = [], 0
        async for part in request.content.iter_any():
            parts.append(part)
            length += len(part)
            if length > most:
                raise Refused(413, f"The body is longer than {most} bytes")
        return b"".join(parts)

    async def json(self, request: web.Request) -> Json:
        """Read a body of JSON; raises Refused."""
        try:
            return json.loads(await self.body(request))
        except ValueError:
            raise Refused(400, "Badly formatted JSON request") from None


def refusal_answer(refusal: Refused) -> web.Response:
    """Write a refusal as FTS3 does; a URI that is too long does not get past Apache, which stands before it."""
    if refusal.status == 414:
        return web.Response(
            text=_APACHE_414, status=414, reason=REASONS[414], content_type="text/html", charset="iso-8859-1"
        )
    body = {"status": refusal.line, "message": refusal.message}
    if refusal.status == 409:
        del body["status"]
    return web.json_response(body, status=refusal.status, reason=REASONS[refusal.status])


def multistatus(answers: list[dict[str, Any]]) -> web.Response:
    """Answer for many at once: 207 when one of them is an error."""
    wrong = any(not answer["http_status"].startswith(("2", "304")) for answer in answers)
    return web.json_response(answers, status=207 if wrong else 200)


def single(answer: dict[str, Any]) -> web.Response:
    """Answer for one: its own status, but what was over already is no error."""
    status = int(answer["http_status"].partition(" ")[0])
    return web.json_response(answer, status=200 if status == 304 else status)
