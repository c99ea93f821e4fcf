"""Whatever a storage answers to PROPFIND: entries below the folder that was asked for, or a ServiceError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from dc_inject.model import urls
from dc_inject.model.errors import ServiceError
from dc_inject.storage import WebDav
from tests.backends.fts.keys import Opens

from .broken import ECHO, no_secret
from .cases import fuzz

TOP = "davs://a.example.org/dc"
DATES = st.sampled_from(
    ["Mon, 08 Feb 2027 10:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359",
     "31 Dec 99999 23:59:59", "Mon, 99 Feb 2027 99:99:99 +9999999", "now", "", "-", "1e9", "8 Feb 2027 10:00"]
)  # fmt: skip
TEXTS = st.text(max_size=20) | DATES | st.sampled_from(
    ["7", "-1", "9" * 30, "1e3", "٣", "adler32=0cc737eb", "ADLER32:1 md5:zz", "HTTP/1.1 404 Not Found",
     "HTTP/1.1 200 OK", "HTTP/2 abc", "x" * 20_000, ECHO, "/dc/a", "/dc/", "/dc", "/dc/a%2Fb", "/dc/a b",
     "/dc/%zz", "/dc/../x", "/dc//a", "davs://a.example.org/dc/f", "https://a.example.org:1/dc/f", "https://other/dc/f",
     "https://[::1/dc/f", "://", "/dc/a/b"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["D:multistatus", "D:response", "D:href", "D:propstat", "D:status", "D:prop", "D:resourcetype",
     "D:collection", "D:getcontentlength", "D:getlastmodified", "oc:checksums", "oc:checksum",
     "D:quota-available-bytes", "x", "D:x"]
)  # fmt: skip


@dataclass
class _Element:
    """An element of XML, and what is in it."""

    name: str
    inside: list[Any]

    def __str__(self) -> str:
        return f"<{self.name}>{''.join(map(_text, self.inside))}</{self.name}>"


def _text(node: Any) -> str:
    if isinstance(node, _Element):
        return str(node)
    return "".join(c for c in node if c.isprintable()).replace("&", "&amp;").replace("<", "&lt;")


def _one(name: str, text: st.SearchStrategy[str]) -> st.SearchStrategy[_Element]:
    return st.builds(lambda inside: _Element(name, [inside]), text)


STATUS = _one("D:status", st.sampled_from(["HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found", "HTTP/1.1 500 x"]) | TEXTS)
HREF = _one("D:href", st.sampled_from(["/dc/", "/dc/a", "/dc/b/", "/dc/%C3%A9"]) | TEXTS)
PROP = _one("D:getcontentlength", TEXTS) | _one("D:getlastmodified", DATES) | _one("oc:checksums", TEXTS)
FOLDER = st.just(_Element("D:resourcetype", [_Element("D:collection", [])]))
ANY = st.recursive(TEXTS, lambda inner: st.builds(_Element, NAMES, st.lists(inner, max_size=4)), max_leaves=12)
PROPS = st.builds(lambda some: _Element("D:prop", some), st.lists(PROP | FOLDER | ANY, max_size=4))
PROPSTAT = st.builds(lambda prop, status: _Element("D:propstat", [prop, status]), PROPS, STATUS)
RESPONSE = st.builds(
    lambda href, some: _Element("D:response", [href, *some]), HREF, st.lists(PROPSTAT | STATUS | ANY, max_size=3)
)
ITSELF = st.just(
    _Element("D:response", [_Element("D:href", ["/dc/"]), _Element("D:propstat", [
        _Element("D:prop", [_Element("D:resourcetype", [_Element("D:collection", [])])])])])
)  # fmt: skip
BODIES = st.builds(
    lambda itself, some, head: (
        f'{head}<D:multistatus xmlns:D="DAV:" xmlns:oc="x">{"".join(map(_text, [itself, *some]))}</D:multistatus>'
    ),
    ITSELF | ANY,
    st.lists(RESPONSE | ANY, max_size=4),
    st.sampled_from(
        ["", '<?xml version="1.0"?>', "<!DOCTYPE x [<!ENTITY a 'b'>]>", '<?xml version="1.0" encoding="x"?>']
    ),
)


@dataclass
class _Answer:
    """What a storage answered, as `Wire` gives it."""

    status: int
    content: bytes
    path: str = "/dc/"
    host: str = "a.example.org"

    def body(self) -> Iterator[bytes]:
        """Give the body in pieces."""
        yield from (self.content[at : at + 64] for at in range(0, len(self.content), 64))

    @property
    def headers(self) -> Mapping[str, str]:
        """Tell no headers."""
        return {}


@fuzz(
    200,
    body=BODIES.map(lambda text: text.encode("utf-8", "replace")) | st.binary(max_size=200),
    cut=st.none() | st.none() | st.integers(0, 600),
)
def test_whatever_a_storage_answers_to_propfind(body: bytes, cut: int | None) -> None:
    """Every entry is right below the folder, and has a size and a checksum that can be true."""
    dav = WebDav(Opens)

    @contextmanager
    def ask(*_: object, **__: object) -> Iterator[_Answer]:
        yield _Answer(207, body if cut is None else body[:cut])

    with mock.patch.object(dav, "ask", ask):
        try:
            for found in dav.list(TOP, depth=1):
                assert urls.parent(found.url) == TOP
                assert found.bytes is None or 0 <= found.bytes < 10**18
                assert found.adler32 == "" or len(found.adler32) == 8
            assert dav.reachable(TOP).free is None or dav.reachable(TOP).exists
        except ServiceError as error:
            no_secret(error.message, error.hint)


PARTS = st.sampled_from(
    ["davs://", "root://", "http://", "a.b", "a.b:8443", "[::1]", "127.0.0.1", "1.2.3.4.5", ":", "/", "//", "..",
     ".", "%", "%2F", "%00", "%C3%A9", "é", " ", "?t=hunter2", "#x", "u:hunter2@", "x" * 300, "\x00", "\ud800",
     "f1"]
)  # fmt: skip


@fuzz(250, text=st.lists(PARTS | st.text(max_size=6), max_size=6).map("".join))
def test_whatever_is_given_as_a_url(text: str) -> None:
    """A URL has one canonical form, which stays what it is; anything else is a ValueError."""
    try:
        url = urls.parse(text)
    except ValueError as error:
        no_secret(error)
        return
    assert urls.normal(str(url)) == str(url)
    assert urls.parse(str(url)) == url
    assert url.path == "" or urls.is_below(str(url._replace(path="")), str(url))
