"""What has to be safe before Rucio's client sends anything: whom it trusts, and where it stores its token."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from dc_inject.model.causes import Cause, Peer
from dc_inject.model.errors import NeedsOperator, ServiceError, make_service_error
from dc_inject.model.faults import Fault

CREDENTIALS = "credentials"


def check_trust(authorities: object, *hosts: str) -> None:
    """Raise NeedsOperator where the client would not verify TLS: that is what it makes of an empty path."""
    if authorities or not any(host.startswith("https:") for host in hosts):
        return
    empty = "X509_CERT_DIR" if os.environ.get("X509_CERT_DIR") == "" else "ca_cert in rucio.cfg"
    raise NeedsOperator(
        f"{empty} is empty, which would turn the verification of TLS off",
        "set it to the folder or file of the authorities that you trust, or remove it",
    )


def check_place(places: Sequence[str | None]) -> None:
    """Raise NeedsOperator where others could give us their token, or read ours; `places` are the client's.

    They are the configured file, the file of the expiry, the file of the token, and their folder. The folder may
    belong to root, and be open to all as /tmp is: there only its owner can replace a file.
    """
    _, expiry, token, folder = (Path(place or ".") for place in places)
    me = os.geteuid()
    for place in _up_to_shared(folder):
        about = _about(place, follow=True)
        if about is not None and (about.st_uid not in {me, 0} or (about.st_mode & 0o022 and not _shared(about))):
            raise _needs_operator(place)
    for file in (token, expiry):
        about = _about(file, follow=False)
        if about is not None and (about.st_uid != me or not stat.S_ISREG(about.st_mode) or about.st_mode & 0o022):
            raise _needs_operator(file)


def check_found(proxy: object) -> None:
    """Raise NeedsOperator for a proxy in the place where anybody can put one, if it is somebody else's."""
    if proxy == f"/tmp/x509up_u{os.geteuid()}":  # noqa: S108  where the client looks
        _check_owner(Path(str(proxy)))


def check_discovery(shared: Path = Path("/tmp")) -> None:  # noqa: S108  where the client looks
    """Raise NeedsOperator where the client would find a bearer token of somebody else."""
    if not (os.environ.get("BEARER_TOKEN") or os.environ.get("BEARER_TOKEN_FILE")):
        _check_owner(shared / f"bt_u{os.geteuid()}")


def no_proxy() -> ServiceError:
    """Return what to do where rucio.cfg wants a proxy and there is none."""
    message = "auth_type is x509_proxy, and there is no proxy"
    hint = "create one (voms-proxy-init), or name it: X509_USER_PROXY, or client_x509_proxy in rucio.cfg"
    return make_service_error(Fault(Cause.NO_CREDENTIALS, Peer.RUCIO, credential="proxy"), message, hint=hint)


def _check_owner(path: Path) -> None:
    about = _about(path, follow=True)
    if about is not None and about.st_uid != os.geteuid():
        raise NeedsOperator(
            f"{path} belongs to another user and is not used",
            "name your own proxy or token (X509_USER_PROXY, BEARER_TOKEN_FILE)",
            hold=CREDENTIALS,
        )


def _up_to_shared(folder: Path) -> list[Path]:
    """Return a folder and those above it below one that all may write to, such as /tmp; just itself elsewhere."""
    path = Path(os.path.realpath(folder))
    for number, parent in enumerate(path.parents):
        about = _about(parent, follow=True)
        if about is not None and _shared(about):
            return [path, *path.parents[:number]]
    return [path]


def _shared(about: os.stat_result) -> bool:
    """Whether it is a folder of root where all may write, but nobody may replace what is not his own."""
    return about.st_uid == 0 and bool(about.st_mode & stat.S_ISVTX)


def _about(path: Path, *, follow: bool) -> os.stat_result | None:
    """Return what is known of a file; None where there is none that we may see, nor the client."""
    try:
        return path.stat(follow_symlinks=follow)
    except OSError:
        return None


def _needs_operator(path: Path) -> NeedsOperator:
    return NeedsOperator(
        f"Rucio's token is not taken from {path}: others own it or can write there",
        "remove it, or set auth_token_file_path in rucio.cfg to a file in a folder that only you can write to",
        hold=CREDENTIALS,
    )
