"""Where a ledger may live: our own folder by default, and never on a network file system.

A campaign has one ledger; or, in shards, one for each next to the place of that one. Then that place itself stays
empty, and names all of them to whoever reads (`LedgerView`).
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from dc_inject.model.errors import LedgerError
from dc_inject.model.faults import hint_of
from dc_inject.system import disk

_SHARD = re.compile(r"(?P<campaign>.+)\.shard-(?P<index>[0-9]+)-of-(?P<count>[0-9]+)")
MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "auristorfs", "coda", "lustre", "gpfs"}
    | {"ceph", "9p", "virtiofs", "glusterfs", "beegfs", "pvfs2", "orangefs", "panfs", "gfs2", "ocfs2", "cvmfs"}
    | {"eos"}
)
_NETWORK_FUSE = frozenset(
    {"sshfs", "cvmfs2", "cvmfs", "eosxd", "eos", "ceph", "ceph-fuse", "glusterfs", "rclone", "s3fs", "davfs"}
    | {"davfs2", "xrootdfs", "beegfs", "moosefs", "lizardfs", "juicefs", "gcsfuse", "curlftpfs"}
)


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return where ledgers live by default: `$XDG_STATE_HOME/dc_inject`.

    As the XDG specification wants, a relative XDG_STATE_HOME is ignored and `$HOME/.local/state` taken.
    """
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return state / "dc_inject"


def default_path(campaign: str, environ: Mapping[str, str]) -> Path:
    """Return where a campaign's ledger lives by default: `<campaign>.sqlite` in the default folder."""
    return default_folder(environ) / f"{campaign}.sqlite"


def files(path: Path) -> list[Path]:
    """Return the ledgers of a campaign by the place of its one: that file, or those of its shards, in order.

    Raises LedgerError for a place that cannot be looked at.
    """
    try:
        if stat.S_ISREG(path.stat().st_mode):
            return [path]
    except (FileNotFoundError, NotADirectoryError):
        pass  # it may have those of shards
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}", hint_of(error)) from None
    others = path.parent.glob(f"{glob.escape(path.stem)}.shard-*{glob.escape(path.suffix)}")
    return sorted((file for file in others if _SHARD.fullmatch(file.stem)), key=shard_of)


def shard_of(file: Path) -> tuple[int, int]:
    """Return index and count of the shard by the name of a ledger's file; (0, 0): it is of all."""
    match = _SHARD.fullmatch(file.stem)
    return (int(match["index"]), int(match["count"])) if match else (0, 0)


def campaign_of(file: Path) -> str:
    """Return the campaign by the name of a ledger's file, whatever its shard."""
    match = _SHARD.fullmatch(file.stem)
    return match["campaign"] if match else file.stem


def link_menu(file: Path) -> Path:
    """Return where `dc-inject link` keeps the menu of the test that has this ledger."""
    return file.parent / "links" / f"{campaign_of(file)}.yaml"


def shard_path(path: Path, shard: str) -> Path:
    """Return the ledger of a shard, or of all (`""`): `dc27.shard-2-of-4.sqlite` for `2/4`.

    Raises LedgerError where it has a ledger of another number of shards: destinations would be in two ledgers.
    """
    index, _, number = shard.partition("/")
    own = path.with_name(f"{path.stem}.shard-{index}-of-{number}{path.suffix}") if shard else path
    count = shard_of(own)[1]
    if others := [other for file in files(path) if (other := shard_of(file)[1]) != count]:
        was, how = (
            (f"in {others[0]} shards", f"use --shard INDEX/{others[0]}")
            if others[0]
            else ("whole", "leave out --shard")
        )
        raise LedgerError(
            f"the campaign is {was}: it has the ledger {files(path)[0]}",
            f"{how}; to divide it otherwise, use another campaign name",
        )
    return own


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for us alone; raises OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def keep(ready: Path, path: Path) -> None:
    """Give a ledger that was made elsewhere on this disk its place, whole even after a power cut; raises OSError.

    A write-ahead log that another ledger has left there would be taken for that of the new one: it goes.
    """
    _to_disk(ready)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    ready.replace(path)
    _to_disk(path.absolute().parent)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refuse_place(path: Path) -> None:
    """Raise LedgerError for a place in which a ledger is not safe."""
    refuse_network(path)
    folder = disk.real(path).parent
    if folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH:
        raise LedgerError(
            f"the ledger {path} would be in a folder in which every user of this machine may write",
            f"`chmod o-w {folder}`, or name a folder of your own, with --ledger or XDG_STATE_HOME",
        )


def refuse_network(path: Path) -> None:
    """Raise LedgerError when a path is on a network file system, whose locks and writes are not reliable."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # without /proc nothing is known of mounts; that is no reason to refuse
    kind = mounted_as(disk.real(path), mounts)
    family, _, name = kind.partition(".")
    if kind in _NETWORK or (family == "fuse" and name in _NETWORK_FUSE):
        raise LedgerError(
            f"the ledger {path} would be on a network file system ({kind})",
            "name a file on a local disk, with --ledger or XDG_STATE_HOME",
        )


def mounted_as(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds an absolute path, by the text of /proc/mounts."""
    kind, longest = "", 0
    parts = {str(place): len(place.parts) for place in (path, *path.parents)}
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])  # as for blanks
        if parts.get(point, -1) >= longest:  # a later mount hides an earlier one
            kind, longest = fields[2], parts[point]
    return kind
