"""Storage URLs: prefixes and files as a menu and FTS name them, read strictly and written in one canonical form.

Canonical: scheme and host in small letters, root for xroot and roots for xroots, no default port, no trailing
slash, no empty segment, percent-encoding only where it is needed, and `root://host//path`. So two URLs of one
file are equal as text.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

PORTS = {"davs": 443, "https": 443, "root": 1094, "roots": 1094, "dav": 80, "http": 80}  # their default ports
LOOPBACK_ONLY = frozenset({"dav", "http"})
XROOTD = frozenset({"root", "roots"})  # roots is root over TLS, which tokens need

BETWEEN = re.compile(r":(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # two URLs, the ends of a link

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SHAPE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<place>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(?::(?P<port>\d*))?")
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_CODE = re.compile(rb"%([0-9A-Fa-f]{2})")
_BROKEN_CODE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/")


class Url(NamedTuple):
    """A storage URL in its canonical parts; `str` gives it back as text.

    `host` has no brackets; `port` is None when it is the scheme's own; `path` is empty, or begins with a
    slash and does not end with one, percent-encoded (but for root:// and roots://, which have no encoding).
    """

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def place(self) -> str:
        """The host, in brackets if it is an IPv6 address, and the port where it is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def __str__(self) -> str:
        slash = "/" if self.scheme in XROOTD and self.path else ""  # XRootD's own way: root://host//path
        return f"{self.scheme}://{self.place}{slash}{self.path}"


def host_of(name: str) -> str:
    """Return the host of a URL in its canonical form, without its port; of anything else the name itself.

    So that two prefixes, ports or protocols of one storage are one place.
    """
    shape = _SHAPE.fullmatch(name)
    place = None if shape is None else _PLACE.fullmatch(shape["place"])
    return name if place is None else place["host"].strip("[]")


def parse(text: str) -> Url:
    """Read a URL, or raise ValueError with a sentence on what is wrong, which never shows a secret."""
    if not text.isprintable() or " " in text:
        raise ValueError("a URL has no spaces or control characters; write a space in a name as %20")
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError("not a URL; it has to be like davs://host:port/path")
    scheme = shape["scheme"].lower()
    scheme = scheme[1:] if scheme[1:] in XROOTD else scheme  # xroot, xroots
    if scheme not in PORTS:
        known = "davs, https, root and roots (dav and http on loopback)"
        raise ValueError(f"unknown scheme {scheme}://; known are {known}")
    host, port = _parse_place(shape["place"], PORTS[scheme])
    if scheme in LOOPBACK_ONLY and not is_loopback(host):
        raise ValueError(
            f"{scheme}:// is not encrypted and works only for this machine (127.0.0.1, localhost); "
            f"use {'davs' if scheme == 'dav' else 'https'}://"
        )
    return Url(scheme, host, port, _parse_path(shape["rest"], encoded=scheme not in XROOTD))


def _parse_place(place: str, default_port: int) -> tuple[str, int | None]:
    if "@" in place:
        raise ValueError("a URL may not carry a user or password; credentials come from X509 or token files")
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ValueError("the host of the URL cannot be read; an IPv6 address stands in brackets, https://[::1]/")
    if not match["host"]:
        raise ValueError("the URL has no host; it has to be like davs://host:port/path")
    port = int(match["port"][:6]) if match["port"] else default_port
    if not 0 < port < 65536:
        raise ValueError("the port of the URL is not between 1 and 65535")
    return _parse_host(match["host"].lower()), None if port == default_port else port


def _parse_host(host: str) -> str:
    try:
        if host.startswith("["):
            return str(IPv6Address(host[1:-1]))
        if host.replace(".", "").isdigit():
            return str(IPv4Address(host))
    except AddressValueError:
        raise ValueError(f"{host} is not an IP address") from None
    if not _HOST.fullmatch(host):
        raise ValueError("the URL's host is no host name: letters, digits, hyphens and dots")
    return host


def _parse_path(rest: str, *, encoded: bool) -> str:
    if "?" in rest:
        raise ValueError("a URL may not have a query (?...), which may carry a secret; write ? in a name as %3F")
    if "#" in rest:
        raise ValueError("a URL may not have a fragment (#...); write # in a name as %23")
    segments = [_parse_segment(part, encoded=encoded) for part in rest.split("/") if part not in {"", "."}]
    return "".join(f"/{segment}" for segment in segments if segment != ".")


def _parse_segment(text: str, *, encoded: bool) -> str:
    if encoded and _BROKEN_CODE.search(text):
        raise ValueError("% in a URL begins a code of two hexadecimal digits; write % in a name as %25")
    name = unquote(text) if encoded else text.encode()
    if name == b"..":
        raise ValueError("a URL may not go up with ..")
    if b"/" in name or min(name) < 32 or 127 in name:
        raise ValueError("a name in the URL has an encoded slash or control character")
    return quote(name) if encoded else text


def quote(path: str | bytes) -> str:
    """Return a path with codes for what may not stand in a URL; slashes stay."""
    raw = path.encode() if isinstance(path, str) else path
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)


def unquote(path: str) -> bytes:
    """Return what a percent-encoded path means; a % that begins no code stays."""
    return _CODE.sub(lambda code: bytes((int(code[1], 16),)), path.encode())


def normal(text: str) -> str:
    """Return the canonical form; raises ValueError as `parse` does."""
    return str(parse(text))


def join(prefix: str, relative: str) -> str:
    """Return the URL of what lies at a relative path (as it stands in URLs) below a prefix."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", relative):
        raise ValueError("a path below a prefix is wanted, not a URL of its own")
    return normal(f"{prefix.rstrip('/')}/{relative}")


def arrow(link: str) -> str:
    """Return a link `SRC:DST`, of RSEs or of URLs, as people read it: `SRC -> DST`; what is no link stays."""
    between = BETWEEN.search(link)
    at = between.start() if between else link.rfind(":")  # a site or an RSE has no colon in its name
    return link if at < 0 or (not between and "/" in link[at:]) else f"{link[:at]} -> {link[at + 1 :]}"


def parent(url: str) -> str:
    """Return the folder that holds a file or folder; the storage's root is its own parent."""
    whole = parse(url)
    return str(whole._replace(path=whole.path.rpartition("/")[0]))


def is_below(prefix: str, url: str) -> bool:
    """Return whether a URL lies below a prefix: same scheme, host and port, longer path; not the prefix itself."""
    above, below = parse(prefix), parse(url)
    return above[:3] == below[:3] and below.path.startswith(f"{above.path}/")


def host_key(url: str) -> str:
    """Return what FTS calls the storage: scheme and host without the port."""
    return str(parse(url)._replace(port=None, path=""))


def is_url(text: str) -> bool:
    """Return whether a text is a URL, and not a path, the name of an RSE or a DID such as `cms:/Cosmics/RAW`."""
    return _URL.match(text) is not None


def proxy(text: str) -> str:
    """Return host and port of an HTTP proxy, without user and password; raises ValueError for what is none."""
    scheme, rest = text.split("://", 1) if "://" in text else ("http", text)
    place = _PLACE.fullmatch(re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2])
    if place is None or not place["host"]:
        raise ValueError("it is not like http://host:port")
    if scheme.lower() not in {"http", "https"}:
        raise ValueError(f"{scheme.lower()}://{place[0]} is no HTTP proxy")
    return place[0]


def is_loopback(host: str) -> bool:
    """Return whether a host, as a name or address without brackets, is this machine for sure."""
    if host == "localhost":
        return True
    try:
        return IPv6Address(host) == IPv6Address("::1") if ":" in host else IPv4Address(host).packed[0] == 127
    except AddressValueError:
        return False
