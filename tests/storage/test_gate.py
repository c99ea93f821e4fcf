"""What redirects and races can make of deletions at real servers: nothing but what is ours is touched."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import unquote_to_bytes, urlsplit

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dc_inject.backends.fts.removing import CopyDeletion
from dc_inject.model import naming
from dc_inject.model.errors import ServiceError
from dc_inject.model.samples import FileSet
from dc_inject.storage import Storage
from dc_inject.storage.sets import drop
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import Workers
from tests.storage.ours import FILE, JOB, copy, folder
from tests.storage.server import status

EDITS = st.lists(
    st.tuples(
        st.integers(0, len(FILE)),
        st.integers(0, 2),
        st.sampled_from(
            ["", "/", "//", "/../", "/./", "%2e%2e/", "%2F", "%252F", "%252e", "%64", "%00", "?", "?x=/", "#",
             ";a=b", "\\", "\t", "dc_inject", "Dc_inject", "0", "1", "a", "é", "@", ":", "%"]
        ),
    ),
    max_size=4,
)  # fmt: skip
STARTS = st.sampled_from(["", "/dc", "/pool/7", "/x/..", "/%2e%2e", "//", "/dc_inject", "/dc_inject/rehearsal"])
ENDS = st.sampled_from(["", "", "/", "?authz=x", "#", "/..", "/.", "%2F", "/x", "/%2e%2e/%2e%2e"])
CODES = st.sampled_from([301, 302, 303, 307, 308])


def deleting(storage: Storage) -> CopyDeletion:
    """What deletes our copies and folders at a storage, where no job has to be cancelled."""
    return CopyDeletion(lambda _url: storage, lambda _: [], Workers(2, "storage"), SystemClock())


def edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for place, taken, put in edits:
        text = text[:place] + put + text[place + taken :]
    return text


def arrived_at(line: str) -> list[bytes]:
    """The names of the path that a request was for, as a server reads them."""
    return [unquote_to_bytes(name) for name in urlsplit(line.partition(" ")[2]).path.split("/")]


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    verb=st.sampled_from(["DELETE", "PUT", "MKCOL", "FOLDER"]),
    start=STARTS, edits=EDITS, end=ENDS, code=CODES, back=st.booleans(),
)  # fmt: skip
def test_wherever_a_redirect_leads_nothing_else_is_changed(
    server, other, storage, verb, start, edits, end, code, back
):
    """Of a file all of our path arrives, to the letter; of a folder nothing arrives at all."""
    for one in (server, other):
        one.asked.clear()
        one.headers.clear()
        one.tricks.clear()
        one.folders |= {f"/dc{JOB}", "/dc"}
    target = server if back else other
    location = f"{target.url}{start}{edited(JOB if verb in {'MKCOL', 'FOLDER'} else FILE, edits)}{end}"
    first = [True]

    def redirect(handler) -> None:
        if first.pop() if first else False:
            handler.answer(code, Location=location.encode("latin-1", "replace").decode("latin-1"))
        else:
            handler.answer(404)

    method = {"FOLDER": "DELETE"}.get(verb, verb)
    server.tricks[method] = redirect
    other.tricks[method] = status(404)
    prefix = f"{server.url}/dc"
    with suppress(ServiceError):
        if verb == "DELETE":
            storage.delete(copy(prefix))
        elif verb == "PUT":
            storage.put(f"{prefix}{FILE}", b"x")
        elif verb == "MKCOL":
            storage.make_folders(f"{prefix}{JOB}", prefix)
        else:
            storage.delete_folder_if_empty(folder(prefix))
    later = [line for line in server.asked if line.startswith(method)][1:] + other.asked
    ours = [name.encode() for name in FILE.split("/")[1:]]
    if verb in {"DELETE", "PUT"}:
        assert all(arrived_at(line)[-len(ours) :] == ours for line in later), later
        assert not any({b"..", b"."} & set(arrived_at(line)) for line in later)
    elif verb == "FOLDER":
        assert later == []
    else:
        assert other.asked == []
        assert all(line == f"MKCOL /dc{JOB}/" for line in later)
    assert not any("Authorization" in headers for headers in other.headers)


def begins(server, above: str, path: str):
    """Let somebody write a file below a folder right after it was listed, before anything else can happen."""

    def listed(handler) -> None:
        handler.on_propfind()
        if handler.name == above:
            server.put(path)

    server.tricks["PROPFIND"] = listed


def test_a_campaign_that_begins_while_another_one_is_tidied_up_loses_nothing(server, storage):
    """The server deletes a folder with all that is in it: the one above all campaigns is never deleted."""
    server.put(f"/dc{FILE}")
    del server.files[f"/dc{FILE}"]
    theirs = f"/dc/{naming.TOP}/other/s/20270208T100000Z/x/0000"
    begins(server, f"/dc/{naming.TOP}/rehearsal", theirs)
    assert deleting(storage).tidy(f"{server.url}/dc", "rehearsal") is None
    assert f"/dc/{naming.TOP}/rehearsal" not in server.folders
    assert set(server.files) == {theirs}
    server.tricks.clear()
    del server.files[theirs]
    assert deleting(storage).tidy(f"{server.url}/dc", "rehearsal") is None
    assert f"/dc/{naming.TOP}" in server.folders


def test_a_set_that_is_begun_while_another_one_is_dropped_loses_nothing(server, storage):
    server.put("/dc/dc_inject-data/one/1x5/000001.dat")
    theirs = "/dc/dc_inject-data/two/1x5/000001.dat"
    begins(server, "/dc/dc_inject-data/one", theirs)
    assert len(list(drop(storage, f"{server.url}/dc", FileSet("one", 1, 5)))) == 1
    assert set(server.files) == {theirs}
    assert "/dc/dc_inject-data/one" not in server.folders


def test_a_listing_cannot_name_what_is_deleted(server, storage):
    """Its entries only choose among names that are proved to be ours."""
    top = "/dc/dc_inject/rehearsal"
    server.folders |= {"/dc", "/dc/dc_inject", top, f"{top}/s", f"{top}/s/mine", f"{top}/s/mine/20270208T100000Z"}
    assert deleting(storage).tidy(f"{server.url}/dc", "rehearsal") is None
    assert server.deleted() == []


def test_that_folders_stay_is_said_once_and_not_for_each_job(server, storage, caplog):
    """A storage may let nobody delete folders, and a campaign has a hundred thousand of them."""
    caplog.set_level("INFO", "dc_inject")
    server.folders |= {"/dc", f"/dc/{naming.TOP}/rehearsal", f"/dc{JOB}"}
    server.tricks["DELETE"] = status(403)
    deletion = deleting(storage)
    for _ in range(3):
        assert deletion.tidy(f"{server.url}/dc", "rehearsal") is None
    assert [f"{server.url}/dc: " in line for line in caplog.messages] == [True]
