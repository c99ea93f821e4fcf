"""Writing a file to a storage: streamed, compared with what the storage tells, and never written twice."""

from __future__ import annotations

import zlib

import pytest

from dc_inject.model.content import PIECE, Content
from dc_inject.model.deletion import SampleFile
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.model.samples import FileSet
from dc_inject.storage import AccessDenied, NotFound
from dc_inject.storage.sets import TRIES, upload
from tests.storage.conftest import TOKEN
from tests.storage.server import hang_up, status

CONTENT = Content("a", 3 * PIECE + 7)
WHOLE = b"".join(CONTENT)
SET = FileSet("new", 1, len(CONTENT))
DIR = f"/dc/dc_inject-data/new/{SET.shape}"
FILE = f"{DIR}/000001.dat"


@pytest.fixture
def send(server, storage):
    """Upload CONTENT to the server; gives what was written, what `moved` heard, and the pauses."""
    server.put("/dc/there")

    def call(content=CONTENT, moved=None):
        heard, pauses = [], []
        written = upload(
            storage,
            SampleFile(f"{server.url}/dc", SET, 1),
            content,
            below=server.url,
            moved=moved or heard.append,
            sleep=pauses.append,
        )
        return written, heard, pauses

    return call


def puts(server) -> int:
    return sum(line.startswith("PUT") for line in server.asked)


def test_a_file_is_streamed_with_its_length_and_compared(server, send):
    server.folders.add(DIR)
    written, heard, pauses = send()
    assert server.files[FILE] == WHOLE
    assert (written.bytes, written.adler32, written.compared) == (len(WHOLE), f"{zlib.adler32(WHOLE):08x}", True)
    assert heard == [PIECE, PIECE, PIECE, 7]
    assert pauses == []
    sent = server.headers[server.asked.index(f"PUT {FILE}")]
    assert sent["Content-Length"] == str(len(WHOLE))
    assert "Transfer-Encoding" not in sent
    assert sent["Authorization"] == f"Bearer {TOKEN}"


def test_a_folder_that_is_missing_is_made_and_the_file_written_then(server, send):
    _, heard, _ = send()
    assert server.files[FILE] == WHOLE
    assert DIR in server.folders
    assert sum(heard) == len(WHOLE)  # what went the first time is taken back


def test_what_is_there_already_is_not_written_again(server, send):
    server.put(FILE, WHOLE)
    written, heard, _ = send()
    assert puts(server) == 0
    assert (written.adler32, heard) == (f"{zlib.adler32(WHOLE):08x}", [len(WHOLE)])


@pytest.mark.parametrize("there", [WHOLE[:1000], b"", WHOLE[:-1] + bytes([WHOLE[-1] ^ 1])])
def test_what_was_cut_off_or_is_damaged_is_deleted_and_written_anew(server, send, there):
    server.put(FILE, there)
    send()
    assert server.deleted() == [f"DELETE {FILE}"]
    assert server.files[FILE] == WHOLE


def test_a_storage_that_tells_no_checksum_is_believed_by_the_size_and_it_is_said(server, send):
    server.tricks["HEAD"] = lambda handler: handler.answer(200, Content_Length=str(len(WHOLE)))
    server.put(FILE, WHOLE)
    written, _, _ = send()
    assert not written.compared
    assert written.adler32 == f"{zlib.adler32(WHOLE):08x}"


def test_a_file_that_arrives_damaged_is_never_taken_for_right(server, send, wording):
    server.folders.add(DIR)

    def spoil(handler):
        handler.body = b"x" + handler.body[1:]
        handler.on_put()

    server.tricks["PUT"] = spoil
    heard = []
    with pytest.raises(Temporary) as refused:
        send(moved=heard.append)
    wording(refused.value)
    assert puts(server) == TRIES
    assert sum(heard) == 0


def test_trouble_that_passes_is_tried_again_with_growing_pauses(server, send):
    server.folders.add(DIR)
    tricks = [status(503), hang_up]

    def troubled(handler):
        if tricks:
            return tricks.pop()(handler)
        return handler.on_put()

    server.tricks["PUT"] = troubled
    _, heard, pauses = send()
    assert server.files[FILE] == WHOLE
    assert pauses == [2, 4]
    assert sum(heard) == len(WHOLE)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (403, AccessDenied),
        (401, AccessDenied),
        (507, Permanent),
        (405, Permanent),
    ],
)
def test_a_refusal_says_at_once_what_to_ask_for(server, send, code, kind, wording):
    server.tricks["PUT"] = status(code)
    with pytest.raises(kind) as caught:
        send()
    wording(caught.value)
    assert TOKEN not in str(caught.value)
    assert puts(server) == 1


def test_a_redirect_to_another_door_is_followed_with_the_whole_file(server, other, send):
    other.folders.add(DIR)
    server.tricks["PUT"] = status(307, Location=f"{other.url}{FILE}")
    server.folders.add(DIR)
    server.tricks["HEAD"] = lambda handler: _answer_of(handler, other)
    send()
    assert other.files[FILE] == WHOLE
    assert "Authorization" not in other.headers[0]


def test_a_redirect_to_another_file_is_not_followed(server, other, send, wording):
    server.tricks["PUT"] = status(307, Location=f"{other.url}/dc/dc_inject-data/new/else")
    with pytest.raises(Permanent) as refused:
        send()
    wording(refused.value)
    assert other.asked == []


def test_what_breaks_off_in_the_middle_leaves_nothing_that_counts(server, storage, send):
    server.folders.add(DIR)
    heard = []

    def stop(count):
        heard.append(count)
        if len(heard) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send(moved=stop)
    assert sum(heard) == 0
    written, _, _ = send()  # with the same connections
    assert written.compared
    assert server.files[FILE] == WHOLE


def test_nothing_is_made_above_what_has_to_exist(server, storage):
    with pytest.raises(ServiceError):
        upload(
            storage,
            f"{server.url}/none/new/file",
            CONTENT,
            below=f"{server.url}/none",
            moved=lambda _: None,
            sleep=lambda _: None,
        )
    assert server.files == {}
    assert server.folders == {""}


def test_a_folder_that_is_missing_has_an_error_of_its_own(server, storage):
    with pytest.raises(NotFound):
        storage.put(f"{server.url}/none/file", CONTENT)


def _answer_of(handler, other) -> None:
    handler.server.files.update(other.files)
    handler.on_head()
