"""Files read over root://, with a library that answers as the test wants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dc_inject.apps.reads.reader import Stopped, Task, XrootdSource
from dc_inject.model import ReadOptions
from dc_inject.model.errors import ServiceError
from dc_inject.storage import xrootd

URL = "root://se.example.org//dc/file"
OK = SimpleNamespace(ok=True)


class File:
    """A file of 2500 bytes; requests that are `mute` are never answered, those that `fail` with an error."""

    opened: str
    mute = fail = ""

    def _answer(self, request: str, value: Any, callback: Any) -> SimpleNamespace:
        if request == self.fail:
            callback(SimpleNamespace(ok=False, errno=3011, code=400, message="gone"), None)
        elif request != self.mute:
            callback(OK, value)
        return OK

    def open(self, url: str, _flags: int, *, timeout: int, callback: Any) -> SimpleNamespace:
        self.opened = url
        return self._answer("open", None, callback)

    def stat(self, *, timeout: int, callback: Any) -> SimpleNamespace:
        return self._answer("stat", SimpleNamespace(size=2500), callback)

    def read(self, _offset: int, length: int, *, timeout: int, callback: Any) -> SimpleNamespace:
        return self._answer("read", b"x" * length, callback)


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> File:
    file = File()
    library = SimpleNamespace(File=lambda: file), SimpleNamespace(OpenFlags=SimpleNamespace(READ=1))
    monkeypatch.setattr(xrootd, "load", lambda: library)
    monkeypatch.setattr("dc_inject.apps.reads.reader.STOPS_WITHIN", 0.01)
    return file


@pytest.mark.parametrize(("scitag", "opened"), [(77, f"{URL}?scitag.flow=77"), (None, URL)])
def test_the_flow_label_goes_to_the_storage(file: File, scitag: int | None, opened: str):
    source = XrootdSource(Task("key", (), ReadOptions(), 0, scitag), URL, lambda: False)
    assert (file.opened, source.size, source.read(0, 1000)) == (opened, 2500, 1000)


@pytest.mark.parametrize("request_", ["open", "stat", "read"])
@pytest.mark.parametrize(("how", "error"), [("fail", ServiceError), ("mute", Stopped)])
def test_errors_are_raised_and_a_silent_storage_keeps_no_reader(file: File, request_: str, how: str, error: type):
    setattr(file, how, request_)
    with pytest.raises(error) as raised:
        XrootdSource(Task("key", (), ReadOptions(), 0, 77), URL, lambda: True).read(0, 10)
    assert "scitag" not in str(raised.value)
