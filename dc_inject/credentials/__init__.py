"""Where the ecosystem keeps credentials: X509 proxies and certificates, and bearer tokens in variables and files.

Files are looked at again at each use and read again when they changed. No token is ever shown, be it by `repr` or
in an error.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar

from dc_inject.credentials.expiry import Pem, read_pem, token_until
from dc_inject.model import units
from dc_inject.model.causes import RENEW, Cause, Peer
from dc_inject.model.errors import ServiceError, make_service_error
from dc_inject.model.faults import Facts, Fault, detail, judge
from dc_inject.model.ports import Clock
from dc_inject.model.redaction import remember, scrub
from dc_inject.system import disk

Purpose = Literal["fts", "source", "destination"]
CredentialKind = Literal["token", "proxy", "certificate", "nothing"]
T = TypeVar("T")

TOKEN_FILES: Mapping[Purpose, str] = {
    "fts": "DC_INJECT_FTS_TOKEN_FILE",
    "source": "DC_INJECT_SOURCE_TOKEN_FILE",
    "destination": "DC_INJECT_DESTINATION_TOKEN_FILE",
}
LARGEST = 1_000_000  # bytes of a file that are read
LONGEST = 32_768  # characters of a token: more does not fit into a request
KNOWN = 64  # tokens that are remembered, so that no echo of them is shown

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
# Errors of a file of credentials that are not about the file, but about this machine.
_MACHINE = frozenset({Cause.DESCRIPTORS, Cause.MEMORY, Cause.DISK_ERROR})
_NONE = (
    "set X509_USER_PROXY, X509_USER_CERT and X509_USER_KEY, or BEARER_TOKEN_FILE; "
    "or create a proxy with voms-proxy-init"
)


@dataclass(frozen=True, slots=True)
class Credential:
    """What opens a service now: a token, or a certificate with its key (of a proxy one file), or nothing.

    `since` and `until` are when it begins and ends, if that is known; `file` is where the secret is kept, if in a
    file; `stamp` is another one when the files behind it changed.
    """

    kind: CredentialKind
    origin: str  # where it comes from, for people: a variable or a path
    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = ""
    file: str = ""
    until: datetime | None = None
    stamp: Hashable = None
    since: datetime | None = None


class Credentials:
    """The credentials of one environment; from any thread.

    The first that is there counts: the token file named for the purpose (DC_INJECT_*_TOKEN_FILE),
    BEARER_TOKEN, BEARER_TOKEN_FILE, X509_USER_PROXY, /tmp/x509up_u<uid>, X509_USER_CERT with
    X509_USER_KEY, $XDG_RUNTIME_DIR/bt_u<uid>, /tmp/bt_u<uid>. What it is, is not tried further down.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        clock: Clock,
        *,
        uid: int | None = None,
        shared: Path = Path("/tmp"),  # noqa: S108  where grid tools leave them; only our own count
    ) -> None:
        """Take the environment; `uid` and `shared` are where files are found that nothing names."""
        self._environ = environ
        self._clock = clock
        self._uid = os.getuid() if uid is None else uid
        self._shared = shared
        self._lock = RLock()
        self._read: dict[tuple[Path, Any], tuple[Hashable, Any]] = {}
        self._checked: dict[tuple[Path, Path], Hashable] = {}
        self._known: deque[str] = deque(maxlen=KNOWN)

    def __repr__(self) -> str:
        return "Credentials(...)"

    def access(self, purpose: Purpose, *, needed: bool = False) -> Credential:
        """Return what opens a service or storage now; raises NeedsOperator with hold `credentials` and a hint.

        That is when it cannot be read, is no credential, is not valid now, or is `needed` and not there. Temporary
        is for what is wrong with this machine.
        """
        credential, now = self._find(purpose), self._clock.now()
        check_time(credential.kind, credential.origin, credential.since, credential.until, now)
        if needed and credential.kind == "nothing":
            raise _wrong(Cause.NO_CREDENTIALS, "nothing", "no credentials were found", _NONE)
        return credential

    def until(self, purpose: Purpose) -> datetime | None:
        """Return when what is used for a purpose expires, or expired; None if that is not known."""
        return self._find(purpose).until

    def transfer_tokens(self) -> tuple[str, str] | None:
        """Return the tokens for sources and destinations that FTS is to use; None when none are named."""
        if not self._named("source"):
            return None
        return self.access("source").token, self.access("destination").token

    def warnings(self) -> tuple[str, ...]:
        """Return what works but should be mended: secrets that others can read, and what was not used."""
        warnings: dict[str, None] = {}
        for purpose in TOKEN_FILES:
            file = self._secret_file(purpose)
            if file and _mode(Path(file)) & 0o077:
                warnings[f"{file} can be read by others: chmod 600 {file}"] = None
        for path in (*self._proxies_found(), *self._tokens_found()):
            if _mode(path) and not self._is_ours(path):
                warnings[f"{path} belongs to another user and is not used"] = None
        return tuple(warnings)

    def scrub(self, text: str) -> str:
        """Return a text without any token that was read here, or anything that looks like a secret."""
        with self._lock:
            secrets = set(self._known)
        return scrub(text, secrets)

    # ------------------------------------------------------------------- where it comes from

    def _find(self, purpose: Purpose) -> Credential:
        environ = self._environ
        with self._lock:
            if named := self._named(purpose):
                return self._token_file(Path(named), TOKEN_FILES[purpose])
            if text := environ.get("BEARER_TOKEN", "").strip():
                return self._token_variable(text)
            if named := environ.get("BEARER_TOKEN_FILE", ""):
                return self._token_file(Path(named), "BEARER_TOKEN_FILE")
            if named := environ.get("X509_USER_PROXY", ""):
                return self._proxy(Path(named), "X509_USER_PROXY")
            for path in self._proxies_found():
                if self._is_ours(path):
                    return self._proxy(path, "")
            if environ.get("X509_USER_CERT", "") or environ.get("X509_USER_KEY", ""):
                return self._certificate()
            for path in self._tokens_found():
                if self._is_ours(path):
                    return self._token_file(path, "")
        return Credential("nothing", "")

    def _named(self, purpose: Purpose) -> str:
        """Return the token file that is named for a purpose; those of sources and destinations go together."""
        ends = [TOKEN_FILES[end] for end in ("source", "destination")]
        if TOKEN_FILES[purpose] in ends and len({bool(self._environ.get(name)) for name in ends}) == 2:
            raise _wrong(
                Cause.UNREADABLE, "token", f"only one of {' and '.join(ends)} is set", "set both or neither"
            )
        return self._environ.get(TOKEN_FILES[purpose], "")

    def _proxies_found(self) -> list[Path]:
        return [self._shared / f"x509up_u{self._uid}"]

    def _tokens_found(self) -> list[Path]:
        folders = [Path(folder) for folder in [self._environ.get("XDG_RUNTIME_DIR", "")] if folder]
        return [folder / f"bt_u{self._uid}" for folder in (*folders, self._shared)]

    def _secret_file(self, purpose: Purpose) -> str:
        """Return the file that holds the secret which is used for a purpose, if it can be read."""
        try:
            return self._find(purpose).file
        except ServiceError:
            return ""  # `access` reports it

    # ------------------------------------------------------------------- reading it

    def _token_file(self, path: Path, variable: str) -> Credential:
        origin = f"{variable} {path}".strip()
        stamp, token = self._file(path, origin, read_token, "token")
        return self._with(token, origin, str(path), stamp)

    def _token_variable(self, text: str) -> Credential:
        try:
            return self._with(read_token(text.encode("utf-8", "replace")), "BEARER_TOKEN")
        except ValueError as error:
            raise _wrong(Cause.UNREADABLE, "token", f"BEARER_TOKEN is not a credential: {error}") from None

    def _with(self, token: str, origin: str, file: str = "", stamp: Hashable = None) -> Credential:
        if token not in self._known:
            self._known.append(token)
            remember(token)
        return Credential("token", origin, token, file=file, until=token_until(token), stamp=stamp)

    def _proxy(self, path: Path, variable: str) -> Credential:
        return self._pair(path, path, f"{variable} {path}".strip(), "proxy")

    def _certificate(self) -> Credential:
        paths = [self._environ.get(name, "") for name in ("X509_USER_CERT", "X509_USER_KEY")]
        if not all(paths):
            message = "only one of X509_USER_CERT and X509_USER_KEY is set"
            raise _wrong(Cause.UNREADABLE, "certificate", message, "set both, or create a proxy")
        return self._pair(Path(paths[0]), Path(paths[1]), f"X509_USER_CERT {paths[0]}", "certificate")

    def _pair(self, certificate: Path, key: Path, origin: str, kind: CredentialKind) -> Credential:
        """Return a certificate with its key, which of a proxy are one file."""
        stamp, pem = self._file(certificate, origin, read_pem, kind)
        of_key, key_stamp, key_pem = origin, stamp, pem
        if key != certificate:
            of_key = f"X509_USER_KEY {key}"
            key_stamp, key_pem = self._file(key, of_key, read_pem, kind)
        stamps = (stamp, key_stamp)
        if self._checked.get((certificate, key)) != stamps:
            check_pair(certificate, key, origin, of_key, pem, key_pem, kind)
            self._checked[certificate, key] = stamps
        return Credential(
            kind, origin, "", str(certificate), str(key), str(key), pem.until, stamps, since=pem.since
        )

    def _file(
        self, path: Path, origin: str, parse: Callable[[bytes], T], kind: CredentialKind
    ) -> tuple[Hashable, T]:
        """Return what a file holds; it is read again when its time, size or inode has changed."""
        try:
            with os.fdopen(disk.opened(path), "rb") as file:
                now = os.fstat(file.fileno())
                stamp = (str(path), now.st_mtime_ns, now.st_size, now.st_ino)
                cached = self._read.get((path, parse))
                if cached is not None and cached[0] == stamp:
                    return cached
                content = file.read(LARGEST)
            self._read[path, parse] = stamp, parse(content)
        except OSError as error:
            raise _unreadable(error, origin, kind) from None
        except ValueError as error:
            raise _wrong(Cause.UNREADABLE, kind, f"{origin} is not a credential: {error}", RENEW[kind]) from None
        return self._read[path, parse]

    def _is_ours(self, path: Path) -> bool:
        """Return whether a file in a default place is there and ours: anybody can put one into /tmp."""
        try:
            return stat.S_ISREG(path.stat().st_mode) and path.stat().st_uid == self._uid
        except OSError:
            return False


def read_token(content: bytes) -> str:
    """Return the token of a file or variable, white space around it taken away; ValueError never shows it."""
    try:
        text = content.decode("ascii").strip()
    except UnicodeDecodeError:
        text = "?"
    if not text:
        raise ValueError("it is empty")
    if not _TOKEN.fullmatch(text) or len(text) > LONGEST:
        raise ValueError("it contains no bearer token")
    return text


def _mode(path: Path) -> int:
    """Return the rights on a file; 0 if there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0


def check_files(certificate: Path, key: Path, kind: CredentialKind, now: datetime) -> None:
    """Raise NeedsOperator unless the files of a proxy or certificate can be used now."""
    pems = []
    for path in (certificate, key):
        try:
            pems.append(read_pem(disk.read(path, LARGEST)))
        except OSError as error:
            raise _unreadable(error, str(path), kind) from None
        except ValueError as error:
            raise _wrong(Cause.UNREADABLE, kind, f"{path} is not a credential: {error}", RENEW[kind]) from None
    check_time(kind, str(certificate), pems[0].since, pems[0].until, now)
    check_pair(certificate, key, str(certificate), str(key), pems[0], pems[1], kind)


def check_pair(
    certificate: Path, key: Path, origin: str, of_key: str, pem: Pem, key_pem: Pem, kind: CredentialKind
) -> None:
    """Raise NeedsOperator unless a certificate and a key belong together and TLS can use them."""
    if pem.until is None:
        raise _wrong(Cause.UNREADABLE, kind, f"{origin} contains no certificate", RENEW[kind])
    if not key_pem.key:
        raise _wrong(Cause.UNREADABLE, kind, f"{of_key} contains no private key", RENEW[kind])
    if key_pem.encrypted:
        message = f"the key in {of_key} needs a password, and there is no way to type it here"
        raise _wrong(Cause.UNREADABLE, kind, message, RENEW[kind])
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, password="")  # it never asks
    except (ssl.SSLError, OSError) as error:
        fault = judge(Facts.of(error, Peer.FTS, credential=kind))
        raise make_service_error(fault, f"{origin}: {fault.message(detail(error))}") from None


def check_time(
    kind: CredentialKind, origin: str, since: datetime | None, until: datetime | None, now: datetime
) -> None:
    """Raise NeedsOperator for what is not valid now."""
    if until is not None and until <= now:
        raise _wrong(Cause.EXPIRED, kind, f"the {kind} of {origin} expired at {units.format_time(until)}")
    if since is not None and now < since:
        times = f"{units.format_time(since)}, and now it is {units.format_time(now)}"
        raise _wrong(Cause.NOT_YET_VALID, kind, f"the {kind} of {origin} is not valid before {times}")


def _unreadable(error: OSError, origin: str, kind: CredentialKind) -> ServiceError:
    fault = judge(Facts.of(error, Peer.FTS, credential=kind))
    if fault.cause in _MACHINE:
        return make_service_error(fault, f"{origin} cannot be read: {fault.message(detail(error))}")
    hint = f"check path and rights, or {RENEW[kind]}"
    return _wrong(Cause.UNREADABLE, kind, f"{origin} cannot be read: {detail(error)}", hint)


def _wrong(cause: Cause, kind: CredentialKind, message: str, hint: str | None = None) -> ServiceError:
    return make_service_error(Fault(cause, Peer.FTS, credential=kind), message, hint=hint)
