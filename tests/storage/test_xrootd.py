"""root:// behind the same protocol; the library is not needed for that to be tested."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from types import SimpleNamespace as Bag

import pytest

from dc_inject.model.errors import Permanent, Temporary
from dc_inject.storage import AccessDenied, DirEntry, FileStatus, NotFound, Reach, Storages, WebDav, Xrootd
from tests.storage.conftest import Opens
from tests.storage.ours import FILE, JOB, copy, folder

GOOD = Bag(ok=True, errno=0, code=0, message="")
FLAGS = Bag(
    DirListFlags=Bag(STAT=1),
    MkDirFlags=Bag(MAKEPATH=1),
    QueryCode=Bag(CHECKSUM="checksum", SPACE="space"),
    StatInfoFlags=Bag(IS_DIR=2, OFFLINE=8),
)


def bad(errno: int, message: str = "no", code: int = 400) -> Bag:
    return Bag(ok=False, errno=errno, code=code, message=message)


NOT_FOUND = bad(3011)


class Files:
    """A file system as XRootD's client shows it, at any address."""

    def __init__(self) -> None:
        self.sizes: dict[str, int | None] = {"/": None, "/dc": None}  # a folder has no size
        self.trouble: dict[str, Bag] = {}
        self.asked: list[str] = []
        self.offline = 0  # or the flag of files that are on tape only

    def FileSystem(self, address: str) -> Files:  # noqa: N802  the library's name
        self.address = address
        return self

    def _do(self, verb: str, path: str, timeout: int) -> Bag | None:
        assert timeout == 60
        self.asked.append(f"{verb} {path}")
        return self.trouble.get(verb) or (None if path in self.sizes else NOT_FOUND)

    def _info(self, path: str) -> Bag:
        size = self.sizes[path]
        return Bag(size=size or 0, flags=2 if size is None else self.offline, modtime=60)

    def stat(self, path, timeout):
        wrong = self._do("stat", path, timeout)
        return (wrong, None) if wrong else (GOOD, self._info(path))

    def rm(self, path, timeout):
        wrong = self._do("rm", path, timeout)
        return (wrong, None) if wrong else (GOOD, self.sizes.pop(path))

    rmdir = rm

    def mkdir(self, path, flags, timeout):
        self._do("mkdir", path, timeout)
        self.sizes[path] = None
        return self.trouble.get("mkdir", GOOD), None

    def dirlist(self, path, flags, timeout):
        wrong = self._do("dirlist", path, timeout)
        below = [name for name in self.sizes if name != "/" and (name.rpartition("/")[0] or "/") == path]
        entries = [Bag(name=name.rpartition("/")[2], statinfo=self._info(name)) for name in below]
        return (wrong, None) if wrong else (GOOD, entries)

    def query(self, code, path, timeout):
        wrong = self._do(code, path, timeout)
        said = {
            "checksum": b"adler32 84b021f\0",
            "space": b"oss.cgroup=default&oss.space=9&oss.free=7&oss.quota=-1\0",
        }
        return (wrong, None) if wrong else (GOOD, said[code])


@pytest.fixture
def files() -> Files:
    files = Files()
    files.sizes |= {"/dc/a": 5, "/dc/sub": None, "/dc/sub/b": 7}
    return files


@pytest.fixture
def xrootd(files) -> Xrootd:
    return Xrootd(modules=lambda: (files, FLAGS))


def test_a_listing(xrootd, files):
    when = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert list(xrootd.list("root://eos:1095//dc")) == [
        DirEntry("root://eos:1095//dc/a", False, 5, "", when, nearline=False),
        DirEntry("root://eos:1095//dc/sub", True, None, "", when),
        DirEntry("root://eos:1095//dc/sub/b", False, 7, "", when, nearline=False),
    ]
    assert files.address == "root://eos:1095"
    assert next(xrootd.list("xroots://eos//dc")).url == "roots://eos//dc/a"
    assert files.address == "roots://eos"
    assert [found.url for found in xrootd.list("root://eos//dc", 1)] == ["root://eos//dc/a", "root://eos//dc/sub"]
    with pytest.raises(Permanent, match="too many"):
        list(xrootd.list("root://eos//dc", limit=2))
    with pytest.raises(NotFound):
        list(xrootd.list("root://eos//nope"))


def test_looking(xrootd, files):
    assert xrootd.stat("root://eos//dc/a") == FileStatus(True, 5)
    assert xrootd.stat("root://eos//dc/a", checksum=True) == FileStatus(True, 5, "084b021f")
    assert xrootd.stat("root://eos//nope") == FileStatus(exists=False)
    assert xrootd.reachable("root://eos//dc") == Reach(True, True, 7)
    assert xrootd.reachable("root://eos") == Reach(True, True, 7)
    assert xrootd.reachable("root://eos//nope") == Reach(exists=False)
    files.trouble["space"] = bad(3013)
    assert xrootd.reachable("root://eos//dc/a") == Reach(True, False, nearline=False)
    files.offline = 8
    assert xrootd.reachable("root://eos//dc/a").nearline
    assert next(xrootd.list("root://eos//dc")).nearline
    assert set(xrootd.verbs("root://eos//dc").values()) == {None}


def test_deleting(xrootd, files):
    before = dict(files.sizes)
    xrootd.make_folders(f"root://eos//dc{JOB}", "root://eos//dc")
    files.sizes[f"/dc{FILE}"] = 1
    assert xrootd.delete_folder_if_empty(folder("root://eos//dc")) is False
    assert xrootd.delete(copy("root://eos//dc")) is True
    assert xrootd.delete(copy("root://eos//dc")) is False
    assert xrootd.delete_folder_if_empty(folder("root://eos//dc")) is True
    assert xrootd.delete_folder_if_empty(folder("root://eos//dc")) is True
    assert before.items() <= files.sizes.items()
    assert f"/dc{JOB}" not in files.sizes


def test_folders_are_made_below_a_prefix_that_exists(xrootd, files):
    xrootd.make_folders("root://eos//dc/x/y", "root://eos//dc")
    assert "/dc/x/y" in files.sizes
    with pytest.raises(NotFound, match="does not exist"):
        xrootd.make_folders("root://eos//nope/x", "root://eos//nope")
    with pytest.raises(Permanent, match="not below"):
        xrootd.make_folders("root://eos//dc", "root://eos//dc")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (bad(3010), AccessDenied),
        (bad(3030), AccessDenied),
        (bad(0, code=204), AccessDenied),
        (bad(3009), Permanent),
        (bad(3005), Temporary),
        (bad(0, code=206), Temporary),
    ],
)
def test_every_error_has_its_class_and_shows_no_secret(xrootd, files, status, kind):
    status.message = "[ERROR] root://h//a?authz=Bearer%20hunter2 failed"
    files.trouble["stat"] = status
    with pytest.raises(kind) as caught:
        xrootd.stat("root://eos//dc/a")
    assert "hunter2" not in str(caught.value)
    assert "stat root://eos//dc/a" in str(caught.value)


def test_one_file_that_may_not_be_deleted_is_set_aside(xrootd, files):
    files.trouble["rm"] = bad(3010)
    with pytest.raises(Permanent, match=f"rm root://eos//dc{FILE}"):
        xrootd.delete(copy("root://eos//dc"))


def test_the_scheme_decides_who_is_asked(server, storage, xrootd):
    at = Storages(storage, lambda: xrootd)
    server.put("/dc/a", b"1234")
    for url, size in ((f"{server.url}/dc/a", 4), ("root://eos//dc/a", 5)):
        assert at(url).stat(url).bytes == size
    assert at("root://eos//dc").reachable("root://eos//dc").exists


def test_without_the_library_a_hint_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "XRootD.client", None)
    webdav = WebDav(Opens)
    with pytest.raises(Permanent, match="not installed") as caught:
        Storages(webdav)("root://eos//dc").delete(copy("root://eos//dc"))
    assert "dc-inject[xrootd]" in (caught.value.hint or "")
    webdav.close()


@pytest.mark.parametrize("name", ["two words", "a?b", "a#b", "tab\there", "..", "a/b"])
def test_a_name_that_no_url_can_have_is_left_out_of_a_listing(xrootd, files, name):
    """root:// has no codes for it, so it cannot be named; but its folder is not empty."""
    files.dirlist = lambda path, flags, timeout: (GOOD, [Bag(name=name, statinfo=files._info("/dc/a"))])
    assert list(xrootd.list("root://eos//dc")) == []
    assert not xrootd.delete_folder_if_empty(folder("root://eos//dc"))
    assert not any(asked.startswith("rm") for asked in files.asked)
    with pytest.raises(Permanent, match="too many"):
        list(xrootd.list("root://eos//dc", limit=0))


def test_the_library_is_asked_to_look_at_the_time_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library looks only every 15 seconds by default."""
    settings: dict[str, int] = {}
    monkeypatch.setitem(sys.modules, "XRootD.client", Bag(EnvPutInt=settings.__setitem__))
    monkeypatch.setitem(sys.modules, "XRootD.client.flags", Bag())
    Xrootd()
    assert settings == {"TimeoutResolution": 1}
