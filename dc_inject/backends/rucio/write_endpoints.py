"""Where the files of an RSE are: the endpoint at which they can be written, and their URLs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from rucio.common.exception import RSEProtocolNotSupported

from dc_inject.backends.answers import count, name
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.errors import tolerated
from dc_inject.model import urls
from dc_inject.model.errors import Permanent, UsageError
from dc_inject.model.ports import Endpoint

SCHEMES = ("davs", "https", "http", "dav")  # those that we write by; http on this machine only
AT_ONCE = 50  # names in one question, which is a URL
_LONG = timedelta(hours=12)  # protocols hardly ever change


@dataclass(frozen=True, slots=True)
class WriteEndpoint:
    """A protocol of an RSE by which we can write."""

    rse: str
    scheme: str
    top: str  # the storage's own root, of which everything is below
    prefix: str  # the RSE's own one, below which all its files are


def write_endpoint(connection: Connection, rse: str) -> WriteEndpoint:
    """Return how to write to an RSE; raises UsageError, with what there is, for one that we cannot write to."""
    row: Row = connection.call("get_rse", rse)
    if not row.get("deterministic", True):
        raise UsageError(
            f"{rse} has no rule that makes paths of names (it is not deterministic)",
            "make the files by its storage's URL prefix instead, for menus through FTS",
        )
    all_protocols = protocols(connection, rse)
    usable = [
        protocol
        for protocol in all_protocols
        if protocol["scheme"] in SCHEMES and (protocol.get("domains") or {}).get("wan", {}).get("write")
    ]
    for protocol in sorted(usable, key=lambda protocol: SCHEMES.index(protocol["scheme"])):
        try:
            prefix = urls.parse(_prefix(protocol))
        except ValueError:
            continue  # http, and not on this machine
        return WriteEndpoint(rse, protocol["scheme"], str(prefix._replace(path="")), str(prefix))
    schemes = ", ".join(sorted({str(protocol["scheme"]) for protocol in all_protocols})) or "none"
    raise UsageError(
        f"{rse} cannot be written to by WebDAV: its protocols are {schemes}",
        "take an RSE with davs or https; an RSE without storage (mock) has no bytes to give",
    )


def endpoints(connection: Connection, rse: str) -> list[Endpoint]:
    """Return where the protocols of an RSE are served, each place once; those without a port are left out."""
    all_protocols = protocols(connection, rse)
    places = [
        (name(protocol["hostname"]), count(protocol.get("port") or 0))
        for protocol in all_protocols
        if protocol.get("hostname")
    ]
    return list(dict.fromkeys((host, port) for host, port in places if 0 < port < 65536))


def places(
    connection: Connection, through: WriteEndpoint, scope: str, names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Give for each name the URL at which its replica has to lie, as Rucio answers: nothing is proved yet."""
    waiting = iter(names)
    while batch := list(islice(waiting, AT_ONCE)):
        pfns = _pfns(connection, through.rse, through.scheme, [f"{scope}:{file}" for file in batch])
        for file in batch:
            pfn = pfns[f"{scope}:{file}"]
            try:
                yield file, urls.normal(pfn)
            except ValueError as error:
                raise Permanent(f"Rucio gives {file} a place at {through.rse} that is no URL: {error}") from None


def protocols(connection: Connection, rse: str) -> list[Row]:
    """Return the protocols of an RSE, read at most twelve hours ago."""
    return connection.kept(("protocols", rse), _LONG, lambda: read_protocols(connection, rse))


def read_protocols(connection: Connection, rse: str) -> list[Row]:
    """Return the protocols of an RSE as they are now, none where it has none."""
    with tolerated(RSEProtocolNotSupported):
        answer = connection.call("get_protocols", rse)
        return [answer] if isinstance(answer, dict) else list(answer)
    return []


def _prefix(protocol: Row) -> str:
    """Return the URL below which a protocol of an RSE has its files, put together as Rucio does it."""
    more = protocol.get("extended_attributes")
    service = str(more.get("web_service_path") or "") if isinstance(more, dict) else ""
    port = f":{protocol['port']}" if protocol.get("port") else ""
    return f"{protocol['scheme']}://{protocol['hostname']}{port}/{service}/{protocol['prefix']}"


def _pfns(connection: Connection, rse: str, scheme: str, lfns: Sequence[str]) -> dict[str, str]:
    answer: dict[str, str] = connection.call(
        "lfns2pfns", rse, lfns, protocol_domain="wan", operation="write", scheme=scheme
    )
    return answer
