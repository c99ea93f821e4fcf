"""Tokens and proxies go to hosts that a person has named, whatever a menu says."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.fts.sites import may_open
from dc_inject.cli.root import root
from dc_inject.credentials.trust import Destinations
from dc_inject.model import Link
from dc_inject.model.errors import DcInjectError, Permanent, UsageError
from dc_inject.storage import AccessDenied
from dc_inject.system.clock import SystemClock
from tests.backends.fts.conftest import bundle
from tests.backends.fts.keys import TOKEN, Keys, Opens
from tests.backends.support import Heard

MENU = """menu: 1
campaign: trust
contact: me@example.org
start: 2027-02-08 10:00
end: 2027-02-09 10:00
timezone: UTC
fts: {endpoint: "https://evil.example.org:8446"}
defaults: {through: fts}
scenarios:
  s: {from: "davs://a.example.org/x", to: "davs://b.example.org/dc", rate: 1 Gb/s, files: {folder: data}}
"""


@pytest.mark.parametrize(
    ("named", "url", "allowed"),
    [
        ([], "https://fts.example.org:8446", False),
        (["fts.example.org"], "https://fts.example.org:8446", True),
        (["https://fts.example.org:8446/x"], "https://FTS.example.org:1", True),
        (["fts.example.org"], "https://fts.example.org.evil.org", False),
        (["fts.example.org"], "https://fts.example.org@evil.org/", False),
        (["fts.example.org"], "https://x.fts.example.org", False),
        (["*.example.org"], "davs://se.example.org/x", True),
        (["*.example.org"], "davs://example.org/x", False),
        (["*.example.org"], "davs://evilexample.org/x", False),
        ([""], "davs:///x", False),
        ([], "http://127.0.0.2:1", False),
        ([], "https://localhost:1", False),
        (["localhost"], "https://localhost:1", True),
        (["localhost"], "http://localhost:1", False),
        (["127.0.0.1"], "http://127.0.0.1:80", False),
        (["127.0.0.1:31339"], "http://127.0.0.1:31339", True),
        (["127.0.0.1:31339"], "dav://127.0.0.1:31339/x", True),
        (["http://127.0.0.1:31339"], "http://127.0.0.1:31339/x", True),
        (["http://127.0.0.1"], "http://127.0.0.1", True),
        (["http://127.0.0.1"], "http://127.0.0.1:81", False),
        (["127.0.0.1:31339"], "https://127.0.0.1:31339", True),
        (["127.0.0.1:31339"], "https://127.0.0.1:31340", False),
        (["127.0.0.1:31339"], "http://127.0.0.2:31339", False),
        (["localhost:31339"], "http://127.0.0.1:31339", False),
        (["https://127.0.0.1:31339"], "http://127.0.0.1:31339", False),
        (["[::1]:31339"], "http://[::1]:31339", True),
        (["[::1]:31339"], "http://[::1]:31338", False),
        (["*.example.org"], "http://127.0.0.1:31339", False),
        ([], "https://localhost.evil.org", False),
    ],
)
def test_who_is_named(named, url, allowed):
    assert Destinations(named).allow(url) is allowed


def test_our_own_sandbox_needs_no_naming_at_its_addresses():
    trusted = Destinations([], lambda: {"127.0.0.2:1094"})
    urls = ["http://127.0.0.2:1094/x", "https://127.0.0.2:1094", "http://127.0.0.2:1095", "http://127.0.0.1:1094"]
    assert [trusted.allow(url) for url in urls] == [True, True, False, False]


@pytest.mark.parametrize("everybody", ["*", "*.*", "*.org", "a*.example.org", "*.*.org"])
def test_nobody_names_everybody(everybody):
    with pytest.raises(UsageError):
        Destinations([everybody])


def test_the_environment_names_hosts():
    environ = {
        "DC_INJECT_TRUST": "a.example.org, b.example.org",
        "DC_INJECT_FTS_ENDPOINT": "https://f.example.org:1",
    }
    told = Destinations.of(environ, ["c.example.org"])
    assert [host for host in "abcdf" if told.allow(f"https://{host}.example.org")] == list("abcf")


@pytest.mark.parametrize("command", [["run", "--once"], ["ping"], ["check", "--online"]])
@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("https://evil.example.org:8446", "evil.example.org"),
        ("https://localhost:31339", "localhost"),
        ("http://127.0.0.1:31339", "127.0.0.1:31339"),
    ],
)
def test_the_endpoint_of_a_menu_gets_nothing_until_it_is_named(command, endpoint, host, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("dc_inject.backends.fts.FtsBackend", lambda *args, **_: made.append(args) or 1 / 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("DC_INJECT_TRUST", "DC_INJECT_FTS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    menu = tmp_path / "menu.yaml"
    menu.write_text(MENU.replace("https://evil.example.org:8446", endpoint))
    refused = CliRunner().invoke(root, [*command, str(menu)])
    error = refused.exception
    code, said = refused.exit_code, refused.output
    if isinstance(error, UsageError):  # the entry point prints it; `check` lists it with the menu's problems
        code, said = error.exit_code, f"{error.message} {error.hint}"
    assert code == 2, said
    assert f"--trust-host {host} " in said
    assert made == []
    CliRunner().invoke(root, ["--trust-host", host, *command, str(menu)])
    assert made


@pytest.fixture
def backend() -> FtsBackend:
    trusted = Destinations(["a.example.org"]).allow
    return FtsBackend(
        "http://127.0.0.1:1",
        campaign="test",
        clock=SystemClock(),
        observer=Heard(),
        credentials=Keys({purpose: Opens(TOKEN) for purpose in ("fts", "source", "destination")}),
        trusted=trusted,
    )


def test_a_storage_that_only_a_menu_names_gets_no_token(backend: FtsBackend):
    with pytest.raises(DcInjectError) as caught:
        list(backend.sweep("davs://b.example.org/dc", "test"))
    assert isinstance(caught.value, AccessDenied)
    assert "--trust-host b.example.org" in str(caught.value.hint)


def test_no_job_with_tokens_is_made_for_it(backend: FtsBackend, wording):
    link = Link("davs://a.example.org/x", "davs://b.example.org/dc", "fts")
    (outcome,) = backend.submit([bundle(0, link=link)])
    assert isinstance(outcome.error, Permanent)
    wording(outcome.error.message)


def test_a_proxy_is_shown_to_any_storage_as_it_gives_nothing_away():
    keys = Keys({"source": Opens(certificate="/proxy", key="/proxy")})
    may_open(keys, lambda _url: False, "source", "davs://b.example.org/dc")
