"""Records of readers, which outlive their readers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dc_inject.apps.reads import records
from dc_inject.apps.reads.records import Progress, Record


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(records.FOLDER, str(tmp_path / "spool"))
    return tmp_path / "spool"


def test_a_record_outlives_its_process_and_says_that_it_died():
    """The child is gone without a word, as by kill -9."""
    child = os.fork()
    if child == 0:
        try:
            Record(records.folder(), "key").write(Progress(read=7, size=9))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert records.load(["key", "other"]) == {"key": Progress(read=7, size=9, dead=True)}


def test_a_living_reader_is_not_dead_and_its_files_are_private(spool):
    record = Record(records.folder(), "key")
    try:
        assert records.load(["key"]) == {"key": Progress()}
    finally:
        record.close()
    assert {path.stat().st_mode & 0o077 for path in (spool, *spool.iterdir())} == {0}


def test_a_record_that_a_full_disk_has_cut_hides_no_others(spool):
    for key in ("cut", "key"):
        record = Record(records.folder(), key)
        record.write(Progress(read=7))
        record.close()
    (spool / "cut").write_bytes((spool / "cut").read_bytes()[:40])
    assert records.load(["cut", "key"]) == {"key": Progress(read=7, dead=True)}


def test_a_record_that_is_half_written_is_not_believed(spool):
    Record(records.folder(), "key").write(Progress(read=1999))
    text = (spool / "key").read_bytes()
    (spool / "key").write_bytes(text.replace(b"1999", b"2999"))
    with pytest.raises(OSError, match="key"):
        records.load(["key"])
    (spool / "key").write_bytes(text)
    assert records.load(["key"])["key"].read == 1999
