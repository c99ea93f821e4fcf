"""Remove secrets from foreign texts: servers echo tokens in reasons, bodies and redirects.

Whoever writes such a text chooses what the patterns meet. So texts are cut before a pattern sees them, and each
pattern takes time in proportion to the text: no run of characters is read again from another start.
"""

from __future__ import annotations

import re
import traceback
from collections import deque
from collections.abc import Collection
from functools import lru_cache

READ = 1024  # characters of a foreign text that are looked at; what comes behind them never reaches a pattern
LONGEST = 300  # characters of a message: servers have answered with whole pages
PART = 16  # characters of a known secret in a row that are as good as the secret
KNOWN = 64  # secrets that are remembered
LENGTH = 65_536  # characters of all secrets together that are looked for, the latest secrets first

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001  with these a formula begins
_LINE, _LINES = 2048, 400  # what is kept of a text of many lines: characters of a line, and lines

_SECRETS = (
    (re.compile(r"//[^/@\s]++@"), "//***@"),
    (re.compile(r"(?<![^\s?'\"])([^\s?'\"/]*+/[^\s?'\"]*+)\?[^\s'\")]++"), r"\1?***"),
    # A JWT: from a length on it needs no dot, so that one that was cut is known, and no text is read twice.
    (re.compile(r"eyJ(?:[\w-]{13,}+|[\w-]{3,12}(?=\.[\w-]))(?:\.[\w-]*+){0,4}"), "***"),
    # One of Rucio's own tokens, ACCOUNT-IDENTITY-APPLICATION-HEX.
    (re.compile(r"(?<![^\s'\"=:])(?:[^\s'\"=:-]*+-){2,}?[0-9a-f]{32}\b"), "***"),
    (re.compile(r"(?:\b|(?<=%[0-9A-F]{2}))(bearer)(?:\s|%20|\+)++[^\s'\",]++", re.IGNORECASE), r"\1 ***"),
    (
        re.compile(r"(\bauthorization['\"]?\s*+[:=]\s*+['\"]?)(?:basic|digest|negotiate)\s[^\s'\",]++", re.I),
        r"\1***",
    ),
    # A quote that is not closed reaches to the end: the text may have been cut inside.
    (
        re.compile(
            r"(token|passw(?:or)?d|secret|passphrase|signature|authorization|authz|macaroon)"
            r"(['\"]?\s*+[:=]\s*+)(?:'[^']*+(?:'|\Z)|\"[^\"]*+(?:\"|\Z)|[^\s,;}&]++)",
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
    text = " ".join(_clean(cut(text, READ), secrets).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def trace(error: BaseException) -> str:
    """Return an error's traceback without secrets: what libraries raise may hold headers and whole URLs."""
    return clean("".join(traceback.format_exception(error)))


def clean(text: str, secrets: Collection[str] = ()) -> str:
    """Return a text, of however many lines, without these secrets, those remembered, or what looks like one.

    Long lines are cut, and of very many lines the first and last ones stay; nothing in it moves a cursor.
    """
    lines = text.split("\n")
    if len(lines) > _LINES:
        half = _LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]
    return _clean("\n".join(cut(line, _LINE) for line in lines), secrets)


def cut(text: str, longest: int) -> str:
    """Return the beginning of a text; a word that the cut broke loses what would be as good as a secret.

    The patterns know a secret by its whole, and less than PART characters of it may stay.
    """
    if len(text) <= longest:
        return text
    short = text[:longest]
    *_, broken = short.rsplit(maxsplit=1) if not short[-1:].isspace() else ("",)
    return short[: len(short) - max(0, len(broken) - PART + 1)] + "..."


def _clean(text: str, secrets: Collection[str]) -> str:
    text = _without(text, _known(secrets))
    for secret in secrets:
        text = text.replace(secret, "***") if 0 < len(secret) < PART else text
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return visible(text)


def visible(text: str) -> str:
    """Return a text, of however many lines, without what would move a terminal's cursor."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)


def no_formula(text: str) -> str:
    """Return a text of others for a CSV: where a spreadsheet would compute it, with an apostrophe before it."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _known(secrets: Collection[str]) -> frozenset[str]:
    """Return the secrets to look for; there is a bound, since services choose how long their tokens are."""
    values: list[str] = []
    room = LENGTH
    for secret in (*secrets, *reversed(tuple(_met))):
        values.append(secret[:room])
        room -= len(values[-1])
    return frozenset(values)


@lru_cache(maxsize=2)
def _parts(secrets: frozenset[str]) -> frozenset[str]:
    """Return every part of secrets that is as good as one."""
    return frozenset(secret[at : at + PART] for secret in secrets for at in range(len(secret) - PART + 1))


def _without(text: str, secrets: frozenset[str]) -> str:
    """Return a text without what stands in it of secrets, also of one that was cut off."""
    parts = _parts(secrets)
    if not parts:
        return text
    remaining: list[str] = []
    end = 0  # of the last part that was found
    for at in range(len(text) - PART + 1):
        if text[at : at + PART] not in parts:
            continue
        if not remaining or at > end:
            remaining += [text[end:at], "***"]
        end = at + PART
    return "".join([*remaining, text[end:]])
