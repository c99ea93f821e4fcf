"""Bearer tokens: what one looks like, and when it expires, as far as it tells."""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime

LONGEST = 32_768  # characters: more does not fit into a request
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


def read_token(content: bytes) -> str:
    """Return the token of a file or variable, white space around it taken away; ValueError never shows it."""
    try:
        text = content.decode("ascii").strip()
    except UnicodeDecodeError:
        text = "?"
    if not text:
        raise ValueError("it is empty")
    if not _TOKEN.fullmatch(text) or len(text) > LONGEST:
        raise ValueError("it contains no bearer token")
    return text


def expiry(token: str) -> datetime | None:
    """Return when a JWT expires, by its own word (nothing is verified); None if it is no JWT or does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(payload["exp"], UTC)
    except (binascii.Error, ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return None
