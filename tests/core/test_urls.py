"""A storage URL is read strictly, has one canonical form, and what is refused shows no secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model import urls

CANONICAL = {
    "davs://se.example.org:8443/dc27/": "davs://se.example.org:8443/dc27",
    "DAVS://SE.Example.org/Store": "davs://se.example.org/Store",
    "https://se.example.org:443/a//b/./c": "https://se.example.org/a/b/c",
    "davs://se.example.org:/a": "davs://se.example.org/a",
    "https://se.example.org/": "https://se.example.org",
    "https://se.example.org": "https://se.example.org",
    "https://h/%7euser/%2b+@:x": "https://h/~user/++@:x",
    "https://h/a%20b%23%3f%25c": "https://h/a%20b%23%3F%25c",
    "https://h/\u00e9": "https://h/%C3%A9",
    "https://h/%2e/x": "https://h/x",
    "https://h/...": "https://h/...",
    "https://h/a\\b": "https://h/a%5Cb",
    "root://eos.example.org//eos/dc": "root://eos.example.org//eos/dc",
    "root://eos.example.org:1094/eos/dc": "root://eos.example.org//eos/dc",
    "root://eos.example.org//a%20b": "root://eos.example.org//a%20b",
    "root://eos.example.org:1095": "root://eos.example.org:1095",
    "xroot://eos.example.org:1094/eos": "root://eos.example.org//eos",
    "roots://eos.example.org//eos/": "roots://eos.example.org//eos",
    "XRootS://eos.example.org:1095/a%20b": "roots://eos.example.org:1095//a%20b",
    "http://127.0.0.1:8080/x": "http://127.0.0.1:8080/x",
    "http://127.8.9.10/x": "http://127.8.9.10/x",
    "dav://LOCALHOST:80/x": "dav://localhost/x",
    "http://[::1]:1080/x": "http://[::1]:1080/x",
    "https://[2001:DB8::0:1]/x": "https://[2001:db8::1]/x",
}

REFUSED = {
    "gsiftp://h/x": "unknown scheme gsiftp://",
    "xrootd://h//x": "unknown scheme xrootd://",
    "file:///etc/passwd": "unknown scheme file://",
    "/store/x": "not a URL",
    "": "not a URL",
    "davs:/h/x": "not a URL",
    "davs:///x": "no host",
    "davs://:8443/x": "no host",
    "davs://h:0/x": "between 1 and 65535",
    "davs://h:70000/x": "between 1 and 65535",
    "davs://h:" + "9" * 5000 + "/x": "between 1 and 65535",
    "davs://h:84a/x": "cannot be read",
    "davs://::1/x": "cannot be read",
    "davs://[::g]/x": "cannot be read",
    "davs://[1::2::3]/x": "not an IP address",
    "davs://[fe80::1%eth0]/x": "cannot be read",
    "davs://300.1.1.1/x": "not an IP address",
    "davs://2130706433/x": "not an IP address",
    "davs://-h/x": "no host name",
    "davs://h_.-x./x": "no host name",
    "davs://\u00e9/x": "no host name",
    "davs://me:hunter2@h/x": "user or password",
    "davs://hunter2@h/x": "user or password",
    "davs://h/x?token=hunter2": "query",
    "davs://h?hunter2": "query",
    "davs://h/x#hunter2": "fragment",
    "davs://h/a/../b": "go up",
    "davs://h/a/%2e%2E": "go up",
    "root://h//a/..": "go up",
    "davs://h/a%2Fb": "encoded slash",
    "davs://h/a%00b": "encoded slash or control",
    "davs://h/a%7Fb": "encoded slash or control",
    "davs://h/a%zz": "two hexadecimal digits",
    "davs://h/a%2": "two hexadecimal digits",
    "davs://h/a b": "spaces",
    " davs://h/a": "spaces",
    "davs://h/a\nb": "spaces or control",
    "davs://h/a\x7f": "spaces or control",
    "davs://h/a\u2028b": "spaces or control",
    "http://se.example.org/x": "use https://",
    "dav://192.0.2.1/x": "use davs://",
    "http://localhost.example.org/x": "not encrypted",
    "http://127.0.0.1.example.org/x": "not encrypted",
    "http://[::ffff:127.0.0.1]/x": "not encrypted",
    "http://0.0.0.0/x": "not encrypted",
}


@pytest.mark.parametrize("text", CANONICAL)
def test_the_canonical_form(text):
    assert urls.normal(text) == CANONICAL[text]
    assert urls.normal(CANONICAL[text]) == CANONICAL[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_said_without_secrets(text):
    with pytest.raises(ValueError, match=REFUSED[text].replace("?", r"\?")) as caught:
        urls.parse(text)
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_parts():
    assert urls.parse("davs://SE:8443/a/") == urls.Url("davs", "se", 8443, "/a")
    assert urls.parse("https://[::1]:443") == urls.Url("https", "::1", None, "")


@pytest.mark.parametrize(
    ("prefix", "relative", "whole"),
    [
        ("davs://h/a", "b/c", "davs://h/a/b/c"),
        ("davs://h/a/", "/b", "davs://h/a/b"),
        ("davs://h", "b", "davs://h/b"),
        ("davs://h/a", "", "davs://h/a"),
        ("root://h", "b", "root://h//b"),
        ("root://h//a", "b", "root://h//a/b"),
    ],
)
def test_joining(prefix, relative, whole):
    assert urls.join(prefix, relative) == whole


@pytest.mark.parametrize("relative", ["../b", "x?y", "x#y", "https://other/x", "a b", "%2e%2e/x"])
def test_what_is_joined_stays_below(relative):
    with pytest.raises(ValueError, match="URL"):
        urls.join("davs://h/a", relative)


@pytest.mark.parametrize(
    ("prefix", "url", "below"),
    [
        ("davs://h/a", "davs://h/a/b", True),
        ("davs://h/a/", "davs://H:443//a/b", True),
        ("davs://h", "davs://h/a", True),
        ("davs://h/a%7E", "davs://h/a~/b", True),
        ("davs://h/a", "davs://h/a", False),
        ("davs://h/a", "davs://h/ab", False),
        ("davs://h/a", "https://h/a/b", False),
        ("davs://h/a", "davs://h:8443/a/b", False),
        ("davs://h/a", "davs://g/a/b", False),
        ("davs://h/a/b", "davs://h/a", False),
    ],
)
def test_below(prefix, url, below):
    assert urls.is_below(prefix, url) is below


def test_parents_end_at_the_root():
    assert urls.parent("davs://h:1/a/b/") == "davs://h:1/a"
    assert urls.parent("davs://h/a") == "davs://h"
    assert urls.parent("davs://h") == "davs://h"
    assert urls.parent("root://h//a/b") == "root://h//a"


def test_fts_calls_a_storage_by_scheme_and_host():
    assert urls.host_key("davs://SE:8443/a/b") == "davs://se"
    assert urls.host_key("https://[::1]:8443/a/b") == "https://[::1]"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.255.0.3", True),
        ("::1", True),
        ("0:0::1", True),
        ("128.0.0.1", False),
        ("127.1", False),
        ("localhost.example.org", False),
        ("::", False),
        ("", False),
        ("se.example.org", False),
    ],
)
def test_loopback(host, loopback):
    assert urls.is_loopback(host) is loopback


names = st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name and name not in {".", ".."})


@given(st.lists(st.binary(min_size=1, max_size=12).filter(lambda raw: raw not in {b".", b".."}), max_size=4))
def test_any_printable_name_survives_quoting(parts):
    """Whatever bytes a file is called, but slashes and control characters, its URL means these bytes."""
    parts = [bytes(byte for byte in part if byte > 31 and byte not in {47, 127}) for part in parts]
    parts = [part for part in parts if part not in {b"", b".", b".."}]
    path = b"".join(b"/" + part for part in parts)
    url = urls.parse("davs://h" + urls.quote(path))
    assert urls.unquote(url.path) == path
    assert urls.normal(str(url)) == str(url)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    """Nothing but ValueError comes out, and what is read is canonical after one pass."""
    for whole in (text, f"davs://{text}", f"davs://h/{text}", f"root://h/{text}"):
        try:
            once = urls.normal(whole)
        except ValueError:
            continue
        assert urls.normal(once) == once
        assert ".." not in urls.unquote(urls.parse(once).path).split(b"/")
