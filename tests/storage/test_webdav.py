"""What is done at a storage over WebDAV; a folder goes only when it was seen to be empty."""

from __future__ import annotations

import threading
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.storage import DirEntry, FileStatus, NotFound, Reach, listing
from tests.storage.conftest import TOKEN
from tests.storage.ours import FILE, JOB, copy, folder
from tests.storage.server import propfind, row, rows, status

FOLDER = "<D:resourcetype><D:collection/></D:resourcetype>"


# Listing


def test_a_listing_tells_files_and_folders_of_all_levels(server, storage):
    server.put("/dc/a", b"hello")
    server.put("/dc/sub/deep/b", b"")
    server.put("/elsewhere/c")
    found = {one.url.removeprefix(server.url): one for one in storage.list(f"{server.url}/dc/")}
    assert set(found) == {"/dc/a", "/dc/sub", "/dc/sub/deep", "/dc/sub/deep/b"}
    when = datetime(2026, 11, 21, 15, 28, 29, tzinfo=UTC)
    assert found["/dc/a"] == DirEntry(f"{server.url}/dc/a", False, 5, f"{zlib.adler32(b'hello'):08x}", when)
    assert found["/dc/sub"] == DirEntry(f"{server.url}/dc/sub", True)
    assert found["/dc/sub/deep/b"].bytes == 0


def test_a_listing_goes_as_deep_as_asked(server, storage):
    server.put("/dc/a/b/c")
    for depth, names in [(1, ["a"]), (2, ["a", "a/b"]), (3, ["a", "a/b", "a/b/c"])]:
        listed = [one.url.removeprefix(f"{server.url}/dc/") for one in storage.list(f"{server.url}/dc", depth)]
        assert listed == names


@pytest.mark.parametrize(
    "href",
    [
        quote,
        lambda path: path,  # XRootD 5.5 has no codes at all
        lambda path: f"https://127.0.0.1:1234{quote(path)}",  # behind a proxy that ends TLS
        lambda path: "".join(f"%{byte:02x}" if byte != 47 else "/" for byte in path.encode()),
        lambda path: f"{path}/" if path == "/dc" else quote(path),
        lambda path: quote(path).replace("/", "//"),
    ],
    ids=["path", "raw", "whole URL", "all codes", "slash", "slashes"],
)
def test_hrefs_of_all_manners_are_understood(server, storage, href):
    server.href = href
    server.put("/dc/a b#c%+\u00e9?&<~")
    listed = [one.url for one in storage.list(f"{server.url}/dc")]
    assert listed == [f"{server.url}/dc/a%20b%23c%25+%C3%A9%3F&%3C~"]


def test_names_found_can_be_looked_at(server, storage):
    server.put("/dc/a b#c%+\u00e9?&<~", b"12")
    (found,) = storage.list(f"{server.url}/dc")
    assert storage.stat(found.url) == FileStatus(True, 2)


@pytest.mark.parametrize(
    "href",
    [
        "/other/file",
        "/dcx/file",
        "/",
        "",
        "file",
        "../file",
        "/dc/../other/file",
        "/dc/%2e%2e/other",
        "/dc/.",
        "/dc/a/b",
        "https://evil.example.org/dc/file",
        "//evil.example.org/dc/file",
        "https://[/dc/file",
        "/dc/a%2Fb",
        "/dc/a%0Ab",
    ],
)
def test_only_entries_right_below_the_folder_are_believed(server, storage, href, caplog):
    server.tricks["PROPFIND"] = rows(row("/dc", FOLDER), row("/dc/good"), row(href))
    assert [one.url for one in storage.list(f"{server.url}/dc")] == [f"{server.url}/dc/good"]
    assert "ignored" in caplog.text


def test_what_was_not_found_has_no_value(server, storage):
    """Properties of another status than 200, sizes that cannot be and dates that are none are not told."""
    odd = (
        "<D:response><D:href>/dc/a</D:href><D:propstat><D:prop><D:getcontentlength>7</D:getcontentlength>"
        "<D:resourcetype><D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 403 No</D:status>"
        "</D:propstat></D:response>"
    )
    wrong = "<D:getcontentlength>-1</D:getcontentlength><D:getlastmodified>never</D:getlastmodified>"
    server.tricks["PROPFIND"] = rows(row("/dc", FOLDER), odd, row("/dc/b", wrong))
    found = list(storage.list(f"{server.url}/dc"))
    assert found == [DirEntry(f"{server.url}/dc/a", False), DirEntry(f"{server.url}/dc/b", False)]


def test_a_checksum_is_read_as_owncloud_and_others_write_it(server, storage):
    several = "<c:checksums><c:checksum>SHA1:00 MD5:11 ADLER32:1A2B</c:checksum></c:checksums>"
    server.tricks["PROPFIND"] = rows(row("/dc", FOLDER), row("/dc/a", several))
    (found,) = storage.list(f"{server.url}/dc")
    assert found.adler32 == "00001a2b"


def test_of_an_answer_only_known_properties_are_kept(server, storage):
    unknown = "".join(f"<c:p{number}>{'x' * 100}</c:p{number}>" for number in range(500))
    server.tricks["PROPFIND"] = rows(row("/dc/a", f"<D:getcontentlength>7</D:getcontentlength>{unknown}"))
    with storage.ask("PROPFIND", f"{server.url}/dc", {"Depth": "1"}) as answer:
        (found,) = listing.rows(answer.body())
    assert found.values == {"getcontentlength": "7"}


def test_a_listing_is_bounded(server, storage, wording):
    for number in range(6):
        server.put(f"/dc/{number % 2}/{number}")
    assert len(list(storage.list(f"{server.url}/dc", limit=8))) == 8
    with pytest.raises(Permanent) as refused:
        list(storage.list(f"{server.url}/dc", limit=7))
    wording(refused.value)


def test_folders_that_lead_back_to_themselves_come_to_an_end(server, storage):
    def endless(handler):
        handler.multistatus(row(handler.path, FOLDER) + row(f"{handler.path}/x", FOLDER))

    server.tricks["PROPFIND"] = endless
    with pytest.raises(Permanent, match="64 deep"):
        list(storage.list(f"{server.url}/dc"))


def test_a_folder_that_goes_meanwhile_is_left_out(server, storage):
    server.put("/dc/a/b")
    server.put("/dc/c")
    server.tricks["PROPFIND /dc/a"] = status(404)
    assert [one.url for one in storage.list(f"{server.url}/dc")] == [f"{server.url}/dc/{name}" for name in "ac"]


def test_listing_nothing_or_a_file_is_an_error(server, storage, wording):
    server.put("/dc/a")
    with pytest.raises(NotFound):
        list(storage.list(f"{server.url}/nope"))
    with pytest.raises(Permanent) as refused:
        list(storage.list(f"{server.url}/dc/a"))
    wording(refused.value)


ROW = '<D:multistatus xmlns:D="DAV:"><D:response><D:propstat><D:prop>'
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f'<?xml version="1.0"?>{BOMB}<D:multistatus xmlns:D="DAV:">&b;</D:multistatus>', Permanent),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', Permanent),
        ('<D:multistatus xmlns:D="DAV:"><D:response>', Temporary),
        ("", Temporary),
        ('<D:multistatus xmlns:D="DAV:">&nbsp;</D:multistatus>', Permanent),
        ("<html><body>Log in</body></html>", Permanent),
        ("Log in", Permanent),
        (f'<D:multistatus xmlns:D="DAV:">{"<x>" * 40}', Permanent),
        (f'<D:multistatus xmlns:D="DAV:"><D:response><D:href>/{"a" * 20000}', Permanent),
        (ROW + "".join(f"<p{n}/>" for n in range(2000)), Permanent),
        (ROW + "<p " + " ".join(f"a{n}=''" for n in range(2000)) + "/>", Permanent),
        (ROW + "".join(f'<x{n}:p xmlns:x{n}="u"/>' for n in range(2000)), Permanent),
    ],
)
def test_an_answer_that_is_abused_or_broken_is_refused(server, storage, text, kind, wording):
    server.tricks["PROPFIND"] = propfind(text)
    with pytest.raises(kind) as refused:
        list(storage.list(f"{server.url}/dc"))
    wording(str(refused.value).partition(" (")[0])  # what expat says differs from one to the next


# Status


def test_stat_tells_size_and_checksum(server, storage):
    server.put("/dc/a", b"\0")
    assert storage.stat(f"{server.url}/dc/a") == FileStatus(True, 1)
    assert storage.stat(f"{server.url}/dc/a", checksum=True) == FileStatus(
        True, 1, f"{zlib.adler32(bytes(1)):08x}"
    )
    assert storage.stat(f"{server.url}/dc/b", checksum=True) == FileStatus(exists=False)


def test_reaching_tells_what_is_there_and_what_is_free(server, storage):
    server.put("/dc/a")
    assert storage.reachable(f"{server.url}/dc") == Reach(True, True)
    server.free = 10**15
    assert storage.reachable(f"{server.url}/dc/") == Reach(True, True, 10**15)
    assert storage.reachable(f"{server.url}/dc/a") == Reach(True, False, 10**15)
    assert storage.reachable(f"{server.url}/nope") == Reach(exists=False)
    assert storage.reachable(server.url).exists


@pytest.mark.parametrize(
    ("locality", "nearline"),
    [("NEARLINE", True), ("ONLINE_AND_NEARLINE", False), ("ONLINE", False), ("NONE", False), ("", None)],
)
def test_a_file_on_tape_is_told_as_dcache_does(server, storage, locality, nearline):
    """An answer made after dCache's: a property of SRM's name space."""
    server.put("/dc/a")
    name = '<srm:FileLocality xmlns:srm="http://srm.lbl.gov/StorageResourceManager">'
    told = f"<D:resourcetype/><D:getcontentlength>1</D:getcontentlength>{name}{locality}</srm:FileLocality>"
    folder = "<D:resourcetype><D:collection/></D:resourcetype>"
    server.tricks["PROPFIND"] = rows(row("/dc/", folder), row("/dc/a", told))
    (entry,) = storage.list(f"{server.url}/dc")
    assert entry.nearline is nearline
    server.tricks["PROPFIND"] = rows(row("/dc/a", told))
    assert storage.reachable(f"{server.url}/dc/a").nearline is nearline


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"Allow": "OPTIONS, propfind,DELETE"}, (True, True, False, False)),
        ({"Allow": "PROPFIND,DELETE", "Server": "XrootD/v5.5.3"}, (True, True, None, None)),
        ({}, (None, None, None, None)),
    ],
)
def test_verbs_are_known_where_they_are_told(server, storage, headers, told):
    server.tricks["OPTIONS"] = status(200, **headers)
    assert tuple(storage.verbs(f"{server.url}/dc").values()) == told


# Deleting


def test_deleting_says_whether_it_went_now(server, storage):
    server.put(f"/dc{FILE}")
    assert storage.delete(copy(f"{server.url}/dc")) is True
    assert storage.delete(copy(f"{server.url}/dc")) is False
    server.tricks["DELETE"] = status(410)
    assert storage.delete(copy(f"{server.url}/dc")) is False


def test_a_deletion_for_later_is_not_done_yet(server, storage):
    server.tricks["DELETE"] = status(202)
    with pytest.raises(Temporary, match="later"):
        storage.delete(copy(f"{server.url}/dc"))


def test_a_folder_is_deleted_only_when_it_is_seen_to_be_empty(server, storage):
    server.put(FILE)
    job, campaign = folder(server.url), folder(server.url, "/dc_inject/rehearsal")
    assert storage.delete_folder_if_empty(job) is False
    assert storage.delete_folder_if_empty(campaign) is False
    assert server.deleted() == []
    storage.delete(copy(server.url))
    assert storage.delete_folder_if_empty(campaign) is False
    assert storage.delete_folder_if_empty(job) is True
    assert storage.delete_folder_if_empty(job) is True
    assert server.deleted() == [f"DELETE {FILE}", f"DELETE {JOB}/"]
    assert JOB.rpartition("/")[0] in server.folders
    assert JOB not in server.folders


@pytest.mark.parametrize(
    "answer",
    [
        rows(row(JOB, FOLDER), row("/elsewhere/a")),
        rows(row(JOB, FOLDER), row(f"{JOB}/a%0Ab")),
        rows(row(JOB, FOLDER), "<D:response/>"),
        rows(
            row(JOB, FOLDER),
            f"<D:response><D:href>{JOB}/a</D:href><D:status>HTTP/1.1 403 No</D:status></D:response>",
        ),
        rows(),
        rows(row(JOB, "<D:resourcetype/>")),
        rows(f"<D:response><D:href>{JOB}</D:href><D:status>HTTP/1.1 403 No</D:status></D:response>"),
        rows(row(f"{JOB}x", FOLDER)),
        propfind('<D:multistatus xmlns:D="DAV:"><D:response>'),
        status(403),
        status(500),
        status(200),
        status(405),
    ],
)
def test_a_folder_that_was_not_listed_as_empty_is_never_deleted(server, storage, answer):
    """Some servers delete all that is in a folder: whatever else the listing says, DELETE is not sent."""
    server.put(f"{JOB}/a")
    server.tricks["PROPFIND"] = answer
    with suppress(ServiceError):  # whichever of them it is
        assert storage.delete_folder_if_empty(folder(server.url)) is False
    assert server.deleted() == []
    assert server.files


# Folders


def test_missing_folders_are_made_from_the_top(server, storage):
    server.folders |= {"/dc"}
    storage.make_folders(f"{server.url}/dc/a/b/c", f"{server.url}/dc")
    assert server.folders == {"", "/dc", "/dc/a", "/dc/a/b", "/dc/a/b/c"}
    server.asked.clear()
    storage.make_folders(f"{server.url}/dc/a/b/c", f"{server.url}/dc")
    assert server.asked == ["MKCOL /dc/a/b/c/"]


def test_nothing_is_made_at_or_above_the_prefix(server, storage, wording):
    with pytest.raises(NotFound) as refused:
        storage.make_folders(f"{server.url}/dc/a/b", f"{server.url}/dc")
    wording(refused.value)
    assert server.asked == ["MKCOL /dc/a/b/", "MKCOL /dc/a/"]
    for url in (f"{server.url}/dc", f"{server.url}/x"):
        with pytest.raises(Permanent, match="not below"):
            storage.make_folders(url, f"{server.url}/dc")
    assert server.folders == {""}


# Connections


def test_each_thread_keeps_its_connection(server, storage):
    server.put("/dc/a")

    def work():
        for _ in range(5):
            storage.stat(f"{server.url}/dc/a")
            storage.reachable(f"{server.url}/dc")
            storage.delete(copy(f"{server.url}/dc"))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(server.connections.values()) == [15, 15, 15]


def test_credentials_are_asked_for_at_each_call(server, storage, access):
    storage.stat(f"{server.url}/a")
    access.token = "another"
    storage.stat(f"{server.url}/a")
    access.token = ""
    storage.stat(f"{server.url}/a")
    sent = [headers.get("Authorization") for headers in server.headers]
    assert sent == [f"Bearer {TOKEN}", "Bearer another", None]


def test_nothing_is_taken_from_netrc_or_kept_as_cookie(server, storage, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.tricks["HEAD"] = status(200, Set_Cookie="a=b; Path=/")
    storage.stat(f"{server.url}/a")
    storage.stat(f"{server.url}/a")
    assert server.headers[1]["Authorization"] == f"Bearer {TOKEN}"
    assert "Cookie" not in server.headers[1]
