"""Names that make our traffic recognisable and our calls repeatable: keys, rule comments, metadata."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime

from dc_inject.model import Cycle, Link

# A name space of our own, so that nobody else's uuid5 can be one of our keys.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "dc_inject/1")
_COMMENT = re.compile(
    r"dc_inject/1 (?P<campaign>\S+) (?P<scenario>\S+) (?P<cycle>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"
)

COMMENT_LIMIT = 255  # characters that Rucio keeps of a rule's comment
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # campaigns, scenarios: safe in comments and URLs


def key(campaign: str, scenario: str, cycle: datetime, link: Link, item: str) -> str:
    """Return the key of an injection: the same five things give the same key, on any machine at any time."""
    parts = (campaign, scenario, _stamp(cycle), link.source, link.destination, link.through, item)
    return str(uuid.uuid5(_NAMESPACE, "\n".join(parts)))


def comment(campaign: str, scenario: str, cycle: datetime) -> str:
    """Return the comment of a rule; with the rule's source, destination and DID it gives back the key."""
    return f"dc_inject/1 {campaign} {scenario} {_stamp(cycle)}"


def read_comment(text: str | None) -> tuple[str, str, datetime] | None:
    """Return campaign, scenario and cycle start of a rule's comment, or None if the rule is not ours."""
    match = _COMMENT.fullmatch(text or "")
    if match is None:
        return None
    cycle = datetime.strptime(match["cycle"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return match["campaign"], match["scenario"], cycle


def _stamp(cycle: datetime) -> str:
    return Cycle(cycle, cycle - cycle).name
