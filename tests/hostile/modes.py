"""What a hostile service answers: each mode takes the place of, or changes, an answer of the real one."""

from __future__ import annotations

import gzip
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.hostile.proxy import Handler

END = 2_000_000_000  # bytes after which even an endless answer ends: for a tool that reads on
PIECE = b"x" * 65536
FOREVER = 600.0  # seconds that a dripping answer goes on, unless the proxy is closed
ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\n\x00\u202e\ud800 \x9b31m"
WORST = ("-" * 5000, "/" * 20_000, "a=" * 5000, "https://" * 2000, "eyJ" + "a." * 4000, "<" * 9000, " " * 9000)

ID = re.compile(rb"\b[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}\b")

Mode = Callable[["Handler", bytes], None]
Answer = tuple[int, list[tuple[str, str]], bytes]


def drip(handler: Handler, body: bytes) -> None:
    """A byte now and then, without end."""
    handler.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
    deadline = time.monotonic() + FOREVER
    while time.monotonic() < deadline and not handler.proxy.over.wait(0.2):
        handler.raw(b"[")


def endless(handler: Handler, body: bytes) -> None:
    """A body without end, as fast as it is taken."""
    handler.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(END // len(PIECE)):
        handler.raw(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))


def endless_lines(handler: Handler, body: bytes) -> None:
    """Rows without end, each of which is one, as Rucio streams them."""
    handler.raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-json-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    rows = b'{"scope": "cms", "name": "x"}\n' * 2000
    for _ in range(END // len(rows)):
        handler.raw(b"%x\r\n%s\r\n" % (len(rows), rows))


def headers(handler: Handler, body: bytes) -> None:
    """Headers without end."""
    handler.raw(b"HTTP/1.1 200 OK\r\n")
    for number in range(END // 4096):
        handler.raw(b"X-%d: %s\r\n" % (number, PIECE[:4000]))


def bomb(handler: Handler, body: bytes) -> None:
    """A megabyte that is a gigabyte when it is unpacked."""
    packed = _packed()
    handler.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n")
    handler.raw(b"Content-Length: %d\r\n\r\n%s" % (len(packed), packed))


@cache
def _packed() -> bytes:
    return gzip.compress(bytes(50_000_000)) * 20  # members of one stream


def elsewhere(handler: Handler, body: bytes) -> None:
    """A redirect to another host."""
    handler.redirect(f"{handler.proxy.trap.url}{handler.path}")


def other_path(handler: Handler, body: bytes) -> None:
    """A redirect to somebody else's file on the same host."""
    handler.redirect(f"{handler.proxy.url}/somebody/elses/{handler.path.rpartition('/')[2]}")


def circle(handler: Handler, body: bytes) -> None:
    """A redirect to itself."""
    handler.redirect(f"{handler.proxy.url}{handler.path}")


def cut(handler: Handler, body: bytes) -> None:
    """Half of the answer, and the connection breaks."""
    status, _, content = handler.carried_out(body)
    handler.raw(f"HTTP/1.1 {status} OK\r\nContent-Length: {len(content) + 100}\r\n\r\n".encode())
    handler.raw(content[: len(content) // 2])
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def ids(handler: Handler, body: bytes) -> None:
    """One and the same id in place of each id in the answer."""
    status, told, content = handler.carried_out(body)

    def other(found: re.Match[bytes]) -> bytes:
        handler.proxy.id = handler.proxy.id or found[0].decode()
        return handler.proxy.id.encode()

    handler.say(status, told, ID.sub(other, content))


def unknown(handler: Handler, body: bytes) -> None:
    """Nothing is known of what has an id, and no dataset has a lock."""
    if handler.path.startswith("/locks/"):
        return handler.say(200, [("Content-Type", "application/x-json-stream")], b"")
    if ID.search(handler.path.encode()) is None:
        return handler.say(*handler.carried_out(body))
    words = {"ExceptionClass": "RuleNotFound", "ExceptionMessage": "No rule with the id found"}
    words |= {"status": "404 Not Found", "message": "No job with the id has been found"}
    told = [*list(words.items())[:2], ("Content-Type", "application/json")]
    return handler.say(404, told, _dump(words))


def changed(value: Callable[[object, int], object], text: Sequence[str] = ()) -> Mode:
    """Return a mode that changes each value of a JSON answer, and texts between tags of an XML one."""

    def mode(handler: Handler, body: bytes) -> None:
        status, told, content = handler.carried_out(body)
        count = iter(range(10**9))
        kind = dict(told).get("Content-Type", "")
        said = [
            (name, _header(str(value(words, next(count))))) if name.startswith("Exception") else (name, words)
            for name, words in told
        ]
        try:
            if "xml" in kind:
                words = re.sub(
                    r">([^<>\s][^<>]*)<", lambda _: f">{text[next(count) % len(text)]}<", content.decode()
                )
                content = words.encode("utf-8", "replace")
            elif "x-json-stream" in kind:
                rows = [json.loads(line) for line in content.splitlines() if line.strip()]
                content = b"\n".join(_dump(_walk(row, value, count)) for row in rows) + b"\n"
            elif content:
                content = _dump(_walk(json.loads(content), value, count))
        except ValueError:
            pass  # it is neither: it goes as it is
        handler.say(status, said, content)

    return mode


def _header(words: str) -> str:
    return "".join(c if 32 <= ord(c) < 127 else "?" for c in words)[:8000]


def _dump(value: object) -> bytes:
    return json.dumps(value).encode()


def _walk(value: Any, change: Callable[[object, int], object], count: Any) -> Any:
    if isinstance(value, dict):
        return {key: _walk(one, change, count) for key, one in value.items()}
    if isinstance(value, list):
        return change([_walk(one, change, count) for one in value], next(count))
    return change(value, next(count))


def _types(value: object, number: int) -> object:
    return value if isinstance(value, list) else ([], {}, "odd", 7, None, True, [[]])[number % 7]


def _numbers(value: object, number: int) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (-1, 10**400, 2**63, float("nan"), float("inf"), 1e308, -0.5)[number % 7]
    return value


def _duplicates(value: object, number: int) -> object:
    return value * 3 if isinstance(value, list) else value


def _control(value: object, number: int) -> object:
    return f"{value}{ESCAPES}" if isinstance(value, str) else value


def _patterns(value: object, number: int) -> object:
    return WORST[number % len(WORST)] if isinstance(value, str) else value


MODES: dict[str, Mode] = {
    "drip": drip,
    "endless": endless,
    "endless-lines": endless_lines,
    "headers": headers,
    "bomb": bomb,
    "redirect-host": elsewhere,
    "redirect-path": other_path,
    "redirect-loop": circle,
    "cut": cut,
    "ids": ids,
    "unknown": unknown,
    "types": changed(_types, ["odd", "", "7", "Z"]),
    "numbers": changed(_numbers, ["-1", "9" * 400, "NaN", "1e308"]),
    "duplicates": changed(_duplicates, ["/dc_inject", "7"]),
    "control": changed(_control, ["a&#7;b", "\u202e", "x\x9by"]),
    "patterns": changed(_patterns, [words.replace("<", "&lt;") for words in WORST]),
}
