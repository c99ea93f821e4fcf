"""Whatever a storage answers has its class, and no secret that it echoes gets into a message."""

from __future__ import annotations

import re
import traceback
from functools import partial

import pytest

from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.storage import AccessDenied, Storages, WebDav, trust
from dc_inject.storage import http_transport as wire_module
from dc_inject.system.transport import ExchangeLimits
from tests.storage.conftest import TOKEN
from tests.storage.ours import FILE as OURS
from tests.storage.ours import JOB, copy, folder
from tests.storage.server import drip, hang, hang_up, propfind, status


def everything(storage, url):
    """All calls that a storage takes, by name."""
    return {
        "list": lambda: list(storage.list(url)),
        "stat": lambda: storage.stat(url),
        "delete": lambda: storage.delete(copy(url)),
        "delete folder": lambda: storage.delete_folder_if_empty(folder(url)),
        "make folders": lambda: storage.make_folders(f"{url}/x", url),
        "reachable": lambda: storage.reachable(url),
        "verbs": lambda: storage.verbs(url),
    }


CALLS = tuple(everything(None, "davs://a"))
VERB = dict(
    zip(CALLS, ("PROPFIND", "HEAD", "DELETE", "PROPFIND", "MKCOL", "PROPFIND", "OPTIONS"), strict=True),
)


def error_of(call) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("code", "kind", "hold"),
    [
        (400, Permanent, ""),
        (401, AccessDenied, "credentials"),
        (408, Temporary, ""),
        (412, Permanent, ""),
        (423, Temporary, ""),
        (429, Temporary, ""),
        (500, Temporary, ""),
        (501, Permanent, ""),
        (502, Temporary, ""),
        (503, Temporary, ""),
        (507, Permanent, ""),
        (206, Permanent, ""),
        (304, Permanent, ""),
    ],
)
def test_every_status_has_its_class(server, storage, call, code, kind, hold):
    server.tricks[VERB[call]] = status(code, f"it said {TOKEN}".encode())
    error = error_of(everything(storage, f"{server.url}/dc/a")[call])
    assert type(error) is kind
    assert str(code) in error.message
    assert f"{server.url}/dc/a" in error.message
    assert TOKEN not in f"{error}{error.hint}"
    assert getattr(error, "hold", "") in {hold, "api-errors"}
    assert not getattr(error, "lost", False)


@pytest.mark.parametrize("call", CALLS)
def test_forbidden_is_for_a_person_but_one_file_that_may_not_be_deleted_is_set_aside(server, storage, call):
    server.tricks[VERB[call]] = status(403)
    error = error_of(everything(storage, f"{server.url}/dc/a")[call])
    if call == "delete":
        assert type(error) is Permanent
        assert "delete" in error.hint
    else:
        assert isinstance(error, AccessDenied)
        assert error.hold == "credentials"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("trick", [hang, hang_up])
def test_no_answer_is_for_later(server, hasty, call, trick):
    server.tricks[VERB[call]] = trick
    error = error_of(everything(hasty, f"{server.url}/dc/a")[call])
    assert type(error) is Temporary
    assert not error.lost


def test_nobody_there_is_for_later(server, storage):
    server.shutdown()
    server.server_close()
    error = error_of(lambda: storage.delete(copy(f"{server.url}/dc")))
    assert isinstance(error, Temporary)
    assert "Connection refused" in error.message


def test_an_unknown_host_is_for_later(storage):
    error = error_of(lambda: storage.delete(copy("davs://no-such-host.invalid")))
    assert type(error) is Temporary
    assert error.message.startswith(f"DELETE davs://no-such-host.invalid{OURS}: ")
    assert error.fault.cause == "name"


@pytest.mark.parametrize(("length", "sent"), [("100", b"<D:multi"), ("7", b"<D:mult")])
def test_an_answer_that_is_cut_is_for_later(server, hasty, length, sent):
    def cut(handler):
        handler.answer(207, sent, Content_Length=length)
        handler.close_connection = True

    server.tricks["PROPFIND"] = cut
    assert type(error_of(lambda: list(hasty.list(f"{server.url}/dc")))) is Temporary


def test_an_answer_without_end_is_bounded(server, storage, monkeypatch):
    monkeypatch.setattr(storage, "_limits", ExchangeLimits(60, 100_000))
    server.tricks["PROPFIND"] = propfind('<D:multistatus xmlns:D="DAV:">' + "<a></a>" * 100_000)
    error = error_of(lambda: list(storage.list(f"{server.url}/dc")))
    assert type(error) is Permanent
    assert "larger than" in error.message


STARTS = ("200 OK\r\nX-Slow: ", "500 Oh\r\n\r\n", "207 Multi-Status\r\n\r\n")


@pytest.mark.parametrize(
    ("call", "start"),
    # The answer to a HEAD has no body.
    [(call, start) for call in CALLS for start in STARTS if VERB[call] != "HEAD" or "X-Slow" in start],
)
def test_an_answer_that_drips_is_given_up(server, access, call, start):
    """Every byte comes long before the time-out of the socket."""
    server.tricks[VERB[call]] = drip(f"HTTP/1.1 {start}".encode())
    storage = WebDav(lambda: access, read=30, longest=0.1)
    error = error_of(everything(storage, f"{server.url}/dc/a")[call])
    assert type(error) is Temporary
    assert "0.1 s" in error.message
    storage.close()


def test_in_all_an_answer_may_take_ten_times_the_silence(access):
    storage = WebDav(lambda: access, read=7)
    assert storage._limits.seconds == 70
    storage.close()


def test_a_connection_that_was_cut_is_not_used_again(server, access):
    storage = WebDav(lambda: access, read=30)
    server.put("/dc/a")
    assert storage.stat(f"{server.url}/dc/a").exists
    storage._limits = ExchangeLimits(0.1)
    server.tricks["DELETE"] = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    assert isinstance(error_of(lambda: storage.delete(copy(f"{server.url}/dc"))), Temporary)
    storage._limits = ExchangeLimits(60)
    assert storage.stat(f"{server.url}/dc/a").exists
    assert len(server.connections) == 2
    storage.close()


def test_a_page_of_html_is_not_shown(server, storage):
    server.tricks["HEAD"] = server.tricks["DELETE"] = status(
        500, b"<html>" + b"x" * 10_000 + b"</html>", Content_Type="text/html"
    )
    for call in (lambda: storage.stat(f"{server.url}/dc/a"), lambda: storage.delete(copy(f"{server.url}/dc"))):
        error = error_of(call)
        assert "<html>" not in error.message
        assert len(error.message) < 200


@pytest.mark.parametrize(
    "url", ["gsiftp://h/x", "davs://me:hunter2@h/x", "davs://h/x?authz=hunter2", "davs://h/.."]
)
@pytest.mark.parametrize("call", CALLS)
def test_a_url_that_is_none_is_permanent_and_shows_no_secret(storage, url, call):
    for ask in (everything(storage, url)[call], partial(Storages(storage), url)):
        error = error_of(ask)
        assert isinstance(error, Permanent)
        assert "hunter2" not in error.message


# Secrets

ECHOES = [
    TOKEN,
    f"Authorization: Bearer {TOKEN}",
    f"Bearer%20{TOKEN}",
    f"token {TOKEN[:30]}... is not valid",
    f"see https://pool.example.org/a?authz=Bearer%20{TOKEN}&x=1",
    f"https://me:{TOKEN}@pool.example.org/a",
]


def shown(error: BaseException) -> str:
    """All that could be printed of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(getattr(error, "hint", ""))


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("code", [400, 401, 403, 500])
def test_no_echo_of_a_secret_is_shown(server, storage, echo, code):
    server.tricks["DELETE"] = status(code, echo.encode())
    error = error_of(lambda: storage.delete(copy(f"{server.url}/dc")))
    assert TOKEN[:20] not in shown(error)
    assert str(code) in error.message


@pytest.mark.parametrize(
    "location",
    [
        f"http://se.example.org/dc/a?authz={TOKEN}",
        f"https://me:{TOKEN}@127.0.0.1:1/dc/a",
        f"https://127.0.0.1:1{OURS}?authz=Bearer%20{TOKEN}",
        f"https://127.0.0.1:1/dc/b?authz={TOKEN}",
        f"https://[{TOKEN}/",
        f"https:///dc/a?{TOKEN}",
        f"ftp://127.0.0.1/dc/a?{TOKEN}",
        f"http://127.0.0.1:99999/{TOKEN}",
        "",
    ],
)
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_part_of_a_redirect_is_shown(server, storage, location, code):
    server.tricks["DELETE"] = status(code, TOKEN.encode(), Location=location)
    error = error_of(lambda: storage.delete(copy(f"{server.url}/dc")))
    assert TOKEN not in shown(error)
    assert "authz" not in shown(error)


# Redirects


def refused_elsewhere(call, code):
    """What a redirect asks for is refused because of the host and path that it names."""
    error = error_of(call)
    assert type(error) is Permanent
    assert re.search(rf" {code} .* on 127\.0\.0\.\d", error.message)


def to(server, path="/dc/a", code=307):
    return status(code, Location=f"{server.url}{path}")


def test_a_redirect_is_followed_with_the_same_verb_and_without_our_token(server, other, storage):
    """What stands before our own folder may differ: doors and data servers have different roots."""
    other.put(f"/pool/7{OURS}")
    server.tricks["DELETE"] = to(other, f"/pool/7{OURS}?signed=1")
    assert storage.delete(copy(f"{server.url}/dc"))
    assert other.asked == [f"DELETE /pool/7{OURS}?signed=1"]
    assert "Authorization" in server.headers[0]
    assert "Authorization" not in other.headers[0]


def test_a_token_goes_along_on_the_same_host(server, storage):
    server.put(f"/dc/b{OURS}")
    server.tricks[f"DELETE /dc{OURS}"] = status(308, Location=f"/dc/b{OURS}")
    assert storage.delete(copy(f"{server.url}/dc"))
    assert [headers["Authorization"] for headers in server.headers] == [f"Bearer {TOKEN}"] * 2


def test_once_sent_away_a_token_is_not_used_again(server, other, storage):
    """A stranger must not aim our token at another file of our storage."""
    server.tricks[f"DELETE {OURS}"] = to(other, OURS)
    other.tricks["DELETE"] = to(server, f"/elsewhere{OURS}")
    storage.delete(copy(server.url))
    assert ["Authorization" in headers for headers in server.headers] == [True, False]


def test_a_redirect_with_a_password_is_not_followed(server, other, storage):
    server.tricks["DELETE"] = status(307, Location=other.url.replace("//", "//me:hunter2@") + "/dc/a")
    error = error_of(lambda: storage.delete(copy(f"{server.url}/dc")))
    assert type(error) is Permanent
    assert "hunter2" not in shown(error)
    assert other.asked == []


@pytest.mark.parametrize("code", [303, 300, 305])
def test_a_redirect_that_would_change_the_verb_is_not_followed(server, other, storage, code):
    server.tricks["DELETE"] = to(other, code=code)
    assert isinstance(error_of(lambda: storage.delete(copy(f"{server.url}/dc"))), Permanent)
    assert other.asked == []


@pytest.mark.parametrize("path", ["/dc/b", "/dc", "/", "", "/dc/a/b", "/dc/a%2F", "/other/a", "/dc/a/", "//dc/a"])
def test_a_redirect_never_changes_another_file(server, other, storage, path):
    """Outside of a folder of ours all of the path has to be the same."""
    server.tricks["PUT"] = to(other, path)
    refused_elsewhere(lambda: storage.put(f"{server.url}/dc/a", b"x"), 307)
    assert other.asked == []


@pytest.mark.parametrize(
    "path",
    [
        OURS[:-1],  # the mark
        OURS.replace("rehearsal", "other"),  # the campaign
        OURS.replace("rehearsal", "Rehearsal"),
        OURS.replace("/dc_inject/", "/"),
        OURS.replace("/dc_inject/", "/x_dc_inject/"),
        OURS.replace("/rehearsal", "/%2e%2e/rehearsal"),
        OURS.replace("/rehearsal", "//rehearsal"),
        OURS.replace("/rehearsal/", "%2Frehearsal/"),
        OURS.replace("0000-", "0000%252D"),
        "/x/%2e%2e" + OURS,
        OURS + "/",
        OURS + "/%2e",
        OURS + "/x",
        OURS + ";x=1",
        OURS + "%00",
        "?path=" + OURS,
        "#" + OURS,
    ],
)
@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_of_a_file_of_ours_keeps_our_whole_path(server, other, storage, path, code):
    """The last name alone proves nothing: two folders may have a file of one name."""
    server.tricks["DELETE"] = server.tricks["PUT"] = to(other, path, code)
    url = f"{server.url}/dc{OURS}"
    for call in (lambda: storage.delete(copy(f"{server.url}/dc")), lambda: storage.put(url, b"x")):
        refused_elsewhere(call, code)
    assert other.asked == []


@pytest.mark.parametrize("path", [f"/dc{JOB}/", f"/dc{JOB}", "/datadisk/raw/", f"/datadisk{JOB}/", "/"])
@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_deleting_a_folder_is_never_redirected(server, other, storage, path, code):
    """Most servers delete a folder with all that is in it, and we saw only our own one to be empty."""
    server.folders |= {"/dc", f"/dc{JOB}"}
    other.put(f"/datadisk{JOB}/raw")
    for target in (other, server):
        server.tricks["DELETE"] = to(target, path, code)
        refused_elsewhere(lambda: storage.delete_folder_if_empty(folder(f"{server.url}/dc")), code)
    assert other.asked == []
    assert server.deleted() == [f"DELETE /dc{JOB}/"] * 2


def test_another_folder_that_is_empty_does_not_stand_for_ours(server, other, storage):
    """A listing that comes from elsewhere says nothing of the folder that would be deleted."""
    server.put(f"/dc{JOB}/file")
    other.folders |= {"/dc", f"/dc{JOB}"}
    server.tricks["PROPFIND"] = to(other, f"/dc{JOB}/")
    error = error_of(lambda: storage.delete_folder_if_empty(folder(f"{server.url}/dc")))
    assert "307; not followed" in error.message
    assert server.deleted() == other.asked == []


def test_folders_are_made_only_where_it_was_asked_for(server, other, storage):
    server.folders |= {"/dc"}
    server.tricks["MKCOL"] = to(other, "/dc/a/")
    refused_elsewhere(lambda: storage.make_folders(f"{server.url}/dc/a", f"{server.url}/dc"), 307)
    assert other.asked == []


def test_redirects_come_to_an_end(server, storage):
    server.tricks["DELETE"] = to(server, f"/dc{OURS}")
    assert "redirects" in error_of(lambda: storage.delete(copy(f"{server.url}/dc"))).message
    assert len(server.asked) == 6


def test_nobody_from_outside_leads_us_to_this_machine():
    """What may be plain on loopback may be so only for what began there."""
    first = wire_module.urlsplit("https://se.example.org/dc/a")
    with pytest.raises(Permanent, match="not https"):
        wire_module._redirect_target(
            "DELETE", "davs://se.example.org/dc/a", first, first, 307, "http://127.0.0.1:80/dc/a"
        )


def test_a_listing_that_was_redirected_is_told_under_the_asked_url(server, other, storage):
    other.put("/pool/dc/a")
    server.tricks["PROPFIND"] = to(other, "/pool/dc/")
    assert [found.url for found in storage.list(f"{server.url}/dc")] == [f"{server.url}/dc/a"]


# Credentials and trust


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX: y", "\u00e9", "a\0"])
def test_a_token_that_is_none_is_never_sent_or_shown(server, storage, access, token):
    access.token = token
    error = error_of(lambda: storage.stat(f"{server.url}/a"))
    assert isinstance(error, NeedsOperator)
    assert error.hold == "credentials"
    assert token not in str(error)
    assert server.asked == []


def test_whom_to_trust_is_told_or_in_the_environment(tmp_path, monkeypatch):
    both = {"X509_CERT_DIR": "/grid", "REQUESTS_CA_BUNDLE": "/bundle"}
    assert trust(both, "/told") == "/told"
    assert trust(both) == "/grid"
    assert trust({"REQUESTS_CA_BUNDLE": "/bundle"}) == "/bundle"
    monkeypatch.setattr(wire_module, "GRID", tmp_path)
    assert trust({}) == str(tmp_path)
    monkeypatch.setattr(wire_module, "GRID", tmp_path / "none")
    assert trust({}) is True
