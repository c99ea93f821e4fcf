"""The file under a ledger: where it lives, who may read it, and what is said when it cannot be used."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.ledger import Ledger, LedgerView, default_folder, default_path, ledger_files, lock, paths, schema
from dc_inject.ledger.errors import translated
from dc_inject.ledger.ledger_files import remove_log
from dc_inject.model.errors import LedgerError
from tests.ledger.world import CYCLE, START, dues, injection, opened, started, totals_from_rows


def refused(call, *args, **more):
    """Assert that a call is refused with a message and a hint, and with no error of SQLite; return it."""
    with pytest.raises(LedgerError) as error:
        call(*args, **more)
    assert error.value.hint
    assert error.value.exit_code == 3
    return error.value


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --------------------------------------------------------------------------- its place


def test_a_place_that_cannot_be_looked_at_is_told(tmp_path):
    """As in a folder of somebody else: it is not known whether a ledger is there."""
    place = tmp_path / ("n" * 256)
    error = refused(paths.files, place)
    assert str(place) in error.message


@pytest.mark.parametrize("rights", [0o777, 0o1777])
def test_a_folder_in_which_all_may_write_is_refused(tmp_path, rights, wording):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(rights)
    path = folder / "dc27.sqlite"
    wording(refused(Ledger.open, path))
    assert not path.exists()
    (tmp_path / "link.sqlite").symlink_to(path)
    wording(refused(Ledger.open, tmp_path / "link.sqlite"))
    folder.chmod(0o755)
    with Ledger.open(path):
        assert path.exists()
    folder.chmod(rights)
    with LedgerView.open(path) as view:  # reading it is no harm
        assert view.campaign is None
    with Ledger.open(folder / "own" / "dc27.sqlite") as ledger:
        assert mode(ledger.path.parent) == 0o700


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/dc_inject"),
        ({"HOME": "/home/me"}, "/home/me/.local/state/dc_inject"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/state/dc_inject"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/me"}, "/home/me/.local/state/dc_inject"),
    ],
)
def test_the_default_place(environ, folder):
    assert default_folder(environ) == Path(folder)
    assert default_path("dc27", environ) == Path(folder) / "dc27.sqlite"


def test_a_ledger_is_private_with_all_that_belongs_to_it(tmp_path):
    path = tmp_path / "state" / "dc_inject" / "dc27.sqlite"
    with Ledger.open(path) as ledger, ledger.hold("me"):
        ledger.note("one", START)
        names = {"dc27.sqlite", "dc27.sqlite-wal", "dc27.sqlite-shm", "dc27.sqlite.lock"}
        assert {file.name for file in path.parent.iterdir()} == names
        assert {mode(file) for file in path.parent.iterdir()} == {0o600}
        assert (mode(path.parent), mode(path.parent.parent)) == (0o700, 0o700)
        with LedgerView.open(path) as view:
            view.copy_to(tmp_path / "backup" / "copy.sqlite")
    assert mode(tmp_path / "backup" / "copy.sqlite") == 0o600


def test_a_ledger_that_others_could_read_is_closed_to_them(tmp_path):
    opened(tmp_path).close()
    (tmp_path / "dc27.sqlite").chmod(0o644)
    opened(tmp_path).close()
    assert mode(tmp_path / "dc27.sqlite") == 0o600


MOUNTS = r"""/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local xfs rw 0 0
sshfs#host /mnt/my\040disk fuse.sshfs rw 0 0
eos /eos fuse.eosxd rw 0 0
portal /run/user/doc fuse.portal rw 0 0
AFS /afs afs rw 0 0
/dev/sdc1 /over ext4 rw 0 0
cifs /over cifs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x.sqlite", "ext4"),
        ("/home/me/x.sqlite", "nfs4"),
        ("/homework/x.sqlite", "ext4"),
        ("/home/local/x.sqlite", "xfs"),
        ("/mnt/my disk/x.sqlite", "fuse.sshfs"),
        ("/over/x.sqlite", "cifs"),
        ("/afs/cern.ch/x.sqlite", "afs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(path, kind):
    assert paths.mounted_as(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "afs", "lustre", "gpfs", "fuse.sshfs", "fuse.eosxd"]
)
def test_a_network_file_system_is_refused_before_anything_is_made(tmp_path, monkeypatch, kind, wording):
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(paths, "MOUNTS", mounts)
    mounts.write_text(f"somewhere {tmp_path} {kind} rw 0 0\n")
    wording(refused(Ledger.open, tmp_path / "new" / "dc27.sqlite"))
    assert not (tmp_path / "new").exists()
    for fine in ("ext4", "fuse.portal", "tmpfs", "overlay"):
        mounts.write_text(f"somewhere {tmp_path} {fine} rw 0 0\n")
        opened(tmp_path).close()
    mounts.unlink()
    opened(tmp_path).close()


# --------------------------------------------------------------------------- what is no ledger


def test_what_is_no_database_is_refused_and_left_alone(tmp_path, wording):
    path = tmp_path / "menu.yaml"
    path.write_text("menu: 1\n" * 1000)
    wording(refused(Ledger.open, path))
    wording(refused(LedgerView.open, path))
    assert path.read_text() == "menu: 1\n" * 1000


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path, wording):
    path = tmp_path / "other.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (a)")
    other.close()
    before = path.read_bytes()
    wording(refused(Ledger.open, path))
    wording(refused(LedgerView.open, path))
    assert path.read_bytes() == before


def test_a_damaged_ledger_is_said(tmp_path, wording):
    with opened(tmp_path) as ledger:
        started(ledger, *(injection(f"cms:/{number}#1") for number in range(100)))
    whole = bytearray(ledger.path.read_bytes())
    whole[4096:] = b"\xff" * (len(whole) - 4096)
    ledger.path.write_bytes(bytes(whole))

    def read() -> None:
        with LedgerView.open(ledger.path) as view:
            view.entries()

    wording(refused(read))


def test_a_missing_ledger_is_not_made_by_looking_at_it(tmp_path, wording):
    wording(refused(LedgerView.open, tmp_path / "none.sqlite"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/proc/dc27.sqlite", "/proc/new/dc27.sqlite", "/dev/null/dc27.sqlite", "/tmp"])
def test_a_place_that_cannot_be_written_is_said(path, wording):
    wording(refused(Ledger.open, Path(path)))


def test_an_empty_file_becomes_a_ledger(tmp_path):
    """A first start that was killed right after it made the file."""
    (tmp_path / "dc27.sqlite").touch()
    opened(tmp_path).close()
    LedgerView.open(tmp_path / "dc27.sqlite").close()


# --------------------------------------------------------------------------- trouble while writing


def test_a_full_disk_is_said_and_loses_nothing_that_was_written(tmp_path, wording):
    with opened(tmp_path) as ledger:
        started(ledger, injection())
        run = ledger._db._connection.execute
        run(f"PRAGMA max_page_count = {run('PRAGMA page_count').fetchone()[0]}")
        many = [injection(f"cms:/{number}#1") for number in range(2000)]
        wording(refused(ledger.add_injections, many, START))
        assert [entry.injection for entry in ledger.entries()] == [injection()]
        run("PRAGMA max_page_count = 1000000")
        ledger.add_injections(many, START)
        assert len(ledger.entries()) == 2001


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_at_the_start_is_said_as_in_a_run(tmp_path, monkeypatch, code, wording):
    """The lock's file is the first thing written; the ledger's own is the first thing made."""

    def fail(*_):
        raise OSError(code, os.strerror(code))

    with opened(tmp_path) as ledger:
        monkeypatch.setattr("dc_inject.ledger.lock.os.pwrite", fail)
        error = refused(ledger.hold("me").__enter__)
        wording(error)
        monkeypatch.undo()
        with ledger.hold("me"):
            assert lock.holder(ledger.path)
    monkeypatch.setattr("dc_inject.ledger.in_place.paths.make_folder", fail)
    wording(refused(Ledger.open, tmp_path / "new.sqlite"))


def test_another_trouble_with_the_lock_is_no_bug_of_ours(tmp_path, monkeypatch, wording):
    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("dc_inject.ledger.lock.os.pwrite", fail)
    with opened(tmp_path) as ledger:
        wording(refused(ledger.hold("me").__enter__))


@pytest.mark.parametrize("free", [4096, 10**9])
def test_a_trouble_of_the_disk_without_room_on_it_is_a_full_disk(tmp_path, monkeypatch, free, wording):
    """SQLite says SQLITE_IOERR_SHMSIZE when it cannot lengthen its -shm at the start."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"

    def fail():
        with translated(tmp_path / "dc27.sqlite"):
            raise error

    with monkeypatch.context() as patched:
        patched.setattr("dc_inject.ledger.errors.shutil.disk_usage", lambda _: SimpleNamespace(free=free))
        wording(refused(fail))


@pytest.mark.parametrize("exists", [True, False])
def test_only_where_there_is_no_ledger_yet_another_place_is_the_hint(tmp_path, monkeypatch, exists):
    """A second, empty ledger of a campaign that lives would begin it anew."""
    opened(tmp_path).close()
    path = tmp_path / ("dc27.sqlite" if exists else "new.sqlite")

    def fail(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr("dc_inject.ledger.in_place.os.open", fail)
        hint = refused(Ledger.open, path).hint
    assert ("--ledger" in hint) is not exists
    assert ("fix that" in hint) is exists


def test_a_ledger_that_another_process_keeps_locked_is_said(tmp_path, wording):
    with opened(tmp_path, patience=timedelta(0)) as ledger:
        other = sqlite3.connect(ledger.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        wording(refused(ledger.note, "one", START))
        other.execute("ROLLBACK")
        other.close()
        ledger.note("two", START)


def test_a_ledger_that_became_read_only_is_said(tmp_path, wording):
    with opened(tmp_path) as ledger:
        ledger._db._connection.execute("PRAGMA query_only = ON")
        wording(refused(ledger.note, "one", START))


def test_a_closed_ledger_and_a_number_too_large_are_errors_of_ours(tmp_path, wording):
    ledger = opened(tmp_path)
    wording(refused(ledger.open_cycle, CYCLE, dues(2**70), START))
    assert ledger.unclosed() == ()
    ledger.close()
    ledger.close()
    wording(refused(ledger.pauses))


def test_a_ledger_survives_a_power_cut_by_default(no_ledger_waits_for_the_disk):
    """Tests have another default."""
    assert no_ledger_waits_for_the_disk == "FULL"


def test_a_way_to_synchronise_that_there_is_not_is_refused(tmp_path, wording):
    wording(refused(Ledger.open, tmp_path / "a.sqlite", synchronous="FULL; DROP TABLE x"))
    for way, number in {"OFF": 0, "NORMAL": 1, "FULL": 2, "EXTRA": 3}.items():
        with Ledger.open(tmp_path / "a.sqlite", synchronous=way) as ledger:
            assert ledger._db.row("PRAGMA synchronous")[0] == number


# --------------------------------------------------------------------------- several processes

MANY = """
import sys
from pathlib import Path
from dc_inject.ledger import Ledger
from tests.ledger.world import START
with Ledger.open(Path(sys.argv[1]), synchronous="OFF") as ledger:
    sys.stdin.readline()
    for number in range(50):
        assert ledger.pause(f"{sys.argv[2]}:{number}", sys.argv[2], "", START)
        ledger.quarantine("cms:/a#1", "B", "busy", START)
        assert ledger.resume(f"{sys.argv[2]}:{number}", sys.argv[2], "", START)
"""


def test_processes_that_write_at_the_same_time_wait_for_each_other_and_lose_nothing(tmp_path):
    """Stops, resumes and counts from three terminals while an injector writes: all of them are there."""
    with opened(tmp_path) as ledger:
        started(ledger, *(injection(f"cms:/{number}#1") for number in range(100)))
        command = [sys.executable, "-c", MANY, str(ledger.path)]
        others = [subprocess.Popen([*command, who], stdin=subprocess.PIPE, text=True) for who in ("x", "y", "z")]
        for other in others:
            other.stdin.write("go\n")
            other.stdin.flush()
        for number in range(100):
            ledger.call([injection(f"cms:/{number}#1").key], START)
        for other in others:
            other.communicate(timeout=60)
        assert [other.returncode for other in others] == [0, 0, 0]
        assert len(ledger.changes(1000)) == 300
        assert ledger.times_set_aside("cms:/a#1", "B") == 150
        assert ledger.pauses() == ()
        assert ledger.accounts() == totals_from_rows(ledger)


def test_what_a_writer_reads_is_what_it_changes(tmp_path):
    """A transaction has the write lock from its first read on, so nobody can change what it decides upon."""
    with opened(tmp_path) as ledger, opened(tmp_path, patience=timedelta(0)) as other:
        with ledger.together():
            assert ledger.pauses() == ()
            refused(other.pause, "*", "me", "", START)
        assert other.pause("*", "me", "", START)


# --------------------------------------------------------------------------- readers beside a writer


def test_a_view_reads_while_a_transaction_is_open_and_changes_nothing(tmp_path):
    with opened(tmp_path) as ledger, LedgerView.open(ledger.path) as view:
        started(ledger, injection())
        with ledger.together():
            ledger.withdraw([injection().key], "stop", START)
            assert view.entries()[0].error == ""
        assert view.entries()[0].error == "stop"
        refused(view._db.run, "DELETE FROM injection")


def test_what_is_read_in_a_snapshot_is_of_one_instant(tmp_path):
    with opened(tmp_path) as ledger, LedgerView.open(ledger.path) as view:
        started(ledger, injection())
        with view.snapshot():
            assert view.notes() == ()
            ledger.note("one", START)
            with view.snapshot():
                assert view.notes() == ()
        assert len(view.notes()) == 1


def test_a_copy_is_a_ledger_of_its_own(tmp_path):
    with opened(tmp_path) as ledger:
        started(ledger, injection())
        with LedgerView.open(ledger.path) as view, view.snapshot():
            view.copy_to(tmp_path / "copy.sqlite")
        ledger.withdraw([injection().key], "stop", START)
    with Ledger.open(tmp_path / "copy.sqlite") as copy:
        assert copy.entries()[0].error == ""
        copy.note("one", START)
        assert copy.accounts() == totals_from_rows(copy)


def test_a_ledger_that_was_made_elsewhere_takes_its_place_without_what_the_old_one_left(tmp_path):
    path, ready = tmp_path / "dc27.sqlite", tmp_path / "new" / "dc27.sqlite"
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).write_text("old")
    with Ledger.open(ready) as ledger:
        ledger.note("one", START)
    paths.keep(ready, path)
    assert not ready.exists()
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == [path.name]
    with LedgerView.open(path) as view:
        assert view.notes() == ((START, "one"),)


def test_a_ledger_that_the_disk_does_not_let_go_is_not_forgotten(tmp_path, monkeypatch, wording):
    with opened(tmp_path) as ledger:
        path = ledger.path

    def refuse(self, missing_ok=False):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    wording(refused(ledger_files.forget_campaign, path, "me"))
    monkeypatch.undo()
    assert path.exists()
    ledger_files.forget_campaign(path, "me")
    assert list(tmp_path.iterdir()) == []


def test_no_sql_is_newer_than_sqlite_3_34():
    """EL9 has it: no RETURNING, STRICT, MATERIALIZED, DROP COLUMN, JSON arrows or math functions."""
    folder = Path(schema.__file__).parent
    text = "\n".join(path.read_text() for kind in ("*.py", "*.sql") for path in folder.glob(kind))
    for word in ("RETURNING", "STRICT", "MATERIALIZED", "DROP COLUMN", "unixepoch()", "jsonb", "format("):
        assert f" {word} " not in text
    assert "CURRENT_TIMESTAMP" not in text
    assert "strftime('" not in text


def test_a_ledger_that_nobody_writes_any_more_is_read_without_a_log(tmp_path):
    opened(tmp_path).close()
    path = tmp_path / "dc27.sqlite"
    remove_log(path)
    with LedgerView.open(path):
        assert list(tmp_path.iterdir()) == [path]
