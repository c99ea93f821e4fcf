"""Where the files of an RSE lie: the door through which they can be written, and their URLs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from dc_inject import urls
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.errors import Permanent, UsageError

SCHEMES = ("davs", "https", "http", "dav")  # those that we write by; http on this machine only
AT_ONCE = 50  # names in one question, which is a URL
_LONG = timedelta(hours=12)  # protocols hardly ever change


@dataclass(frozen=True, slots=True)
class Door:
    """A protocol of an RSE by which we can write."""

    rse: str
    scheme: str
    top: str  # the storage's own root, of which everything is below


def door(connection: Connection, rse: str) -> Door:
    """Return how to write to an RSE; raises UsageError, with what there is, for one that we cannot write to."""
    row: Row = connection.call("get_rse", rse)
    if not row.get("deterministic", True):
        raise UsageError(
            f"{rse} has no rule that makes paths of names (it is not deterministic)",
            "make the files by its storage's URL prefix instead, for menus through FTS",
        )
    told = connection.kept(("protocols", rse), _LONG, lambda: connection.call("get_protocols", rse))
    protocols = [told] if isinstance(told, dict) else list(told)
    usable = sorted(
        (SCHEMES.index(one["scheme"]), one["scheme"])
        for one in protocols
        if one["scheme"] in SCHEMES and (one.get("domains") or {}).get("wan", {}).get("write")
    )
    for _, scheme in usable:
        try:
            url = urls.parse(_pfns(connection, rse, scheme, ["x:x"])["x:x"])
        except ValueError:
            continue  # http, and not on this machine
        return Door(rse, scheme, str(url._replace(path="")))
    schemes = ", ".join(sorted({str(one["scheme"]) for one in protocols})) or "none"
    raise UsageError(
        f"{rse} cannot be written to by WebDAV: its protocols are {schemes}",
        "take an RSE with davs or https; an RSE without storage (mock) has no bytes to give",
    )


def places(connection: Connection, through: Door, scope: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give for each name the URL at which its replica has to lie."""
    waiting = iter(names)
    while some := list(islice(waiting, AT_ONCE)):
        found = _pfns(connection, through.rse, through.scheme, [f"{scope}:{name}" for name in some])
        for name in some:
            pfn = found[f"{scope}:{name}"]
            try:
                yield name, urls.normal(pfn)
            except ValueError as error:
                raise Permanent(f"Rucio gives {name} a place at {through.rse} that is no URL: {error}") from None


def _pfns(connection: Connection, rse: str, scheme: str, lfns: Sequence[str]) -> dict[str, str]:
    answer: dict[str, str] = connection.call(
        "lfns2pfns", rse, lfns, protocol_domain="wan", operation="write", scheme=scheme
    )
    return answer
