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

REFUSED = [
    "gsiftp://h/x",
    "xrootd://h//x",
    "file:///etc/passwd",
    "/store/x",
    "",
    "davs:/h/x",
    "davs:///x",
    "davs://:8443/x",
    "davs://h:0/x",
    "davs://h:70000/x",
    "davs://h:" + "9" * 5000 + "/x",
    "davs://h:84a/x",
    "davs://::1/x",
    "davs://[::g]/x",
    "davs://[1::2::3]/x",
    "davs://[fe80::1%eth0]/x",
    "davs://300.1.1.1/x",
    "davs://2130706433/x",
    "davs://-h/x",
    "davs://h_.-x./x",
    "davs://\u00e9/x",
    "davs://me:hunter2@h/x",
    "davs://hunter2@h/x",
    "davs://h/x?token=hunter2",
    "davs://h?hunter2",
    "davs://h/x#hunter2",
    "davs://h/a/../b",
    "davs://h/a/%2e%2E",
    "root://h//a/..",
    "davs://h/a%2Fb",
    "davs://h/a%00b",
    "davs://h/a%7Fb",
    "davs://h/a%zz",
    "davs://h/a%2",
    "davs://h/a b",
    " davs://h/a",
    "davs://h/a\nb",
    "davs://h/a\x7f",
    "davs://h/a\u2028b",
    "http://se.example.org/x",
    "dav://192.0.2.1/x",
    "http://localhost.example.org/x",
    "http://127.0.0.1.example.org/x",
    "http://[::ffff:127.0.0.1]/x",
    "http://0.0.0.0/x",
]


@pytest.mark.parametrize("text", CANONICAL)
def test_the_canonical_form(text):
    assert urls.normal(text) == CANONICAL[text]
    assert urls.normal(CANONICAL[text]) == CANONICAL[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_said_without_secrets(text, wording):
    with pytest.raises(ValueError) as caught:
        urls.parse(text)
    wording(caught.value)
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
