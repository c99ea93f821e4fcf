"""Names that make our traffic recognisable and our calls repeatable: keys, rule comments, metadata."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from dc_inject.model.items import Range, Slice, SliceId, Slicing
from dc_inject.model.redaction import scrub
from dc_inject.model.types import Cycle, Injection, Link

# A name space of our own, so that no other program's uuid5 can be one of our keys.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "dc_inject/1")
_JOBS = uuid.UUID("01874efb-4735-4595-bc9c-591aef8240c9")  # FTS's name space of job ids
_COMMENT = re.compile(
    r"dc_inject/1 (?P<campaign>\S+) (?P<scenario>\S+) (?P<cycle>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # no campaign was before

COMMENT_LIMIT = 255  # characters that Rucio keeps of a rule's comment
METADATA_LIMIT = 1024  # bytes of a job's metadata that FTS takes unless configured otherwise
_START = re.compile(r"[0-9a-f]{32}")
_SHARD = re.compile(r"[0-9]{1,3}/[0-9]{1,3}")
_WHO = 100  # characters of a name that go into metadata
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
    try:
        cycle = datetime.strptime(match["cycle"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    claims = match["campaign"], match["scenario"], cycle
    if cycle < _EPOCH or comment(*claims) != text:  # else the key would not come out
        return None
    return claims


def job_id(vo: str, key: str) -> str:
    """Return the id that FTS gives to the job with this key, for a member of a virtual organisation."""
    return str(uuid.uuid5(uuid.uuid5(_JOBS, vo), key))


_MARK = re.compile(r"dc_inject-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def build_slice(item: Slice, options: Slicing, campaign: str, scenario: str, cycle: datetime, link: Link) -> Slice:
    """Return a planned slice with the temporary dataset that it is in a cycle."""
    mark = slice_mark(item.range, campaign, scenario, cycle, link)
    return replace(item, id=SliceId(item.range, options.did(campaign, scenario, mark)))


def slice_mark(files: Range, campaign: str, scenario: str, cycle: datetime, link: Link) -> str:
    """Return what marks the temporary dataset of a slice as ours, in its name."""
    return f"dc_inject-{key(campaign, scenario, cycle, link, str(files))}"


def is_slice(did: str) -> bool:
    """Whether a dataset is a temporary one of ours, by its name."""
    return _MARK.search(did) is not None


@dataclass(frozen=True, slots=True)
class Origin:
    """Which start of which injector made a rule or job: a random id, user and host, and its shard."""

    start: str
    who: str
    shard: str = ""

    def metadata(self) -> dict[str, object]:
        """Return what rules and jobs carry of it."""
        who = self.who.encode("ascii", "replace").decode()[:_WHO]
        shard = {"shard": self.shard} if self.shard else {}
        return {"start": self.start, "by": who, **shard}


def read_origin(metadata: Mapping[str, object]) -> Origin | None:
    """Return the origin in the metadata of a rule or job; None where an older version has made it."""
    start, who, shard = (metadata.get(key) for key in ("start", "by", "shard"))
    if not isinstance(start, str) or not _START.fullmatch(start):
        return None
    known = isinstance(shard, str) and _SHARD.fullmatch(shard)
    return Origin(start, scrub(who)[:_WHO] if isinstance(who, str) else "", str(shard) if known else "")


def metadata(injection: Injection, origin: Origin | None = None) -> dict[str, object]:
    """Return the metadata of an FTS job, at most METADATA_LIMIT bytes of JSON: a long contact is cut short."""
    values: dict[str, object] = {
        "dc_inject": 1,
        "campaign": injection.campaign,
        "scenario": injection.scenario,
        "cycle": _stamp(injection.cycle.start),
        "key": injection.key,
        **(origin.metadata() if origin else {}),
    }
    room = METADATA_LIMIT - len(json.dumps(values | {"contact": ""}))
    contact = injection.contact
    while len(json.dumps(contact)) - 2 > room:
        contact = contact[:-1]
    return values | {"contact": contact}


# --------------------------------------------------------------------------- files of ours at a destination

TOP = "dc_inject"  # the folder below a destination prefix in which everything of ours is
_CYCLE = r"[0-9]{8}T[0-9]{6}Z"
_KEY = r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_COPY = re.compile(
    rf"{TOP}/(?P<campaign>[^/]+)/(?P<scenario>[^/]+)/(?P<cycle>{_CYCLE})/(?P<key>{_KEY})"
    r"/(?P<number>[0-9]{4}|[1-9][0-9]{4,5})-(?P<mark>[0-9a-f]{12})"
)
_FOLDER = re.compile(rf"{TOP}/[^/]+/{NAME.pattern}(?:/{_CYCLE}(?:/{_KEY})?)?")


class Copy(NamedTuple):
    """The contents of a path of ours: the owner of the file, and which member of its injection it is."""

    campaign: str
    scenario: str
    cycle: datetime
    key: str
    number: int


def folder(injection: Injection) -> str:
    """Return the URL of the folder that the files of an injection go to, one folder each."""
    cycle = injection.cycle.start.strftime("%Y%m%dT%H%M%SZ")
    return f"{injection.link.destination}/{TOP}/{injection.campaign}/{injection.scenario}/{cycle}/{injection.key}"


def copies(injection: Injection) -> list[str]:
    """Return the URLs that the files of an injection are copied to, in order; only we give such names."""
    place = folder(injection)
    return [
        f"{place}/{number:04}-{_mark(injection.campaign, injection.key, number)}"
        for number in range(injection.item.files)
    ]


def read_copy(prefix: str, url: str) -> Copy | None:
    """Parse the URL of a file below a destination prefix; None if the file is not ours.

    Its whole path has to be of our form, and its mark has to be that of its campaign, key and number.
    """
    if not url.startswith(f"{prefix}/"):
        return None
    match = _COPY.fullmatch(url[len(prefix) + 1 :])
    if match is None or match["mark"] != _mark(match["campaign"], match["key"], int(match["number"])):
        return None
    try:
        cycle = datetime.strptime(match["cycle"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return Copy(match["campaign"], match["scenario"], cycle, match["key"], int(match["number"]))


def is_folder(prefix: str, url: str) -> bool:
    """Return whether a URL is that of a scenario's, cycle's or injection's folder of ours below a prefix."""
    return url.startswith(f"{prefix}/") and _FOLDER.fullmatch(url[len(prefix) + 1 :]) is not None


def _mark(campaign: str, key: str, number: int) -> str:
    """Return the mark of our files, which no name has by chance."""
    return hashlib.blake2b(f"{campaign} {key} {number}".encode(), digest_size=6, person=b"dc_inject/1").hexdigest()


def _stamp(cycle: datetime) -> str:
    return Cycle(cycle, cycle - cycle).name
