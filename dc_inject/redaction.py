"""Taking secrets out of what others wrote: servers echo tokens in reasons, bodies and redirects."""

from __future__ import annotations

import re
import traceback
from collections import deque
from collections.abc import Collection, Iterator

LONGEST = 300  # characters of a message: servers have answered with whole pages
PART = 16  # characters of a known secret in a row that are as good as the secret
KNOWN = 64  # secrets that are remembered

_SECRETS = (
    (re.compile(r"//[^/@\s]+@"), "//***@"),
    (re.compile(r"((?:https?:/)?/[^\s?'\"]*)\?[^\s'\")]+"), r"\1?***"),
    (re.compile(r"eyJ[\w-]{3,}\.[\w-]+\.?[\w-]*"), "***"),  # a JWT
    (re.compile(r"[^\s'\"=:]+-[^\s'\"]+-[0-9a-f]{32}\b"), "***"),  # one of Rucio's own tokens
    (re.compile(r"(?:\b|(?<=%[0-9A-F]{2}))(bearer)(?:\s|%20|\+)+[^\s'\",]+", re.IGNORECASE), r"\1 ***"),
    (re.compile(r"(\bauthorization['\"]?\s*[:=]\s*['\"]?)(?:basic|digest|negotiate)\s[^\s'\",]+", re.I), r"\1***"),
    (
        re.compile(
            r"\b([\w-]*(?:token|passw(?:or)?d|secret|passphrase|signature|authorization|authz|macaroon))"
            r"(['\"]?\s*[:=]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,;}&]+)",
            re.IGNORECASE,
        ),
        r"\1\2***",
    ),
)


_met: deque[str] = deque(maxlen=KNOWN)  # from any thread: to append one and to copy all are one step each


def remember(secret: str) -> None:
    """Know a secret from now on, wherever it may turn up; one that is short would stand in many a word."""
    if len(secret) >= PART and secret not in tuple(_met):
        _met.append(secret)


def scrub(text: str, secrets: Collection[str] = ()) -> str:
    """Return a text of one bounded line without these secrets, those remembered, or anything that looks like one.

    Nor has it what would move a terminal's cursor, or could not be written as UTF-8.
    """
    text = clean(text, secrets)
    text = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def trace(error: BaseException) -> str:
    """Return an error's traceback without secrets: what libraries raise may hold headers and whole URLs."""
    text = clean("".join(traceback.format_exception(error)))
    return text.encode("utf-8", "backslashreplace").decode()


def clean(text: str, secrets: Collection[str] = ()) -> str:
    """Return a text, of however many lines, without these secrets, those remembered, or what looks like one."""
    for secret in sorted({*secrets, *tuple(_met)}, key=len, reverse=True):
        text = text.replace(secret, "***") if secret else text
        for part in _parts(text, secret):
            text = text.replace(part, "***")
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _parts(text: str, secret: str) -> Iterator[str]:
    """Give what stands in a text of a secret that was cut off, as far as it goes each time."""
    if len(secret) < PART:
        return
    at = 0
    while at + PART <= len(text):
        length = PART
        if text[at : at + length] not in secret:
            at += 1
            continue
        while at + length < len(text) and text[at : at + length + 1] in secret:
            length += 1
        yield text[at : at + length]
        at += length
