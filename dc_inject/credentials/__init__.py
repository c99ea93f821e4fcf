"""Where the ecosystem keeps credentials: X509 proxies and certificates, and bearer tokens in variables and files.

Files are looked at again at each use and read again when they changed. No token is ever shown, be it by `repr` or
in an error.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar

from dc_inject.credentials.expiry import Pem, read_pem, token_until
from dc_inject.model.errors import NeedsOperator
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
_NEW_PROXY = "create a new proxy (voms-proxy-init)"
_NEW_TOKEN = "get a new token (oidc-token, htgettoken)"  # noqa: S105  a hint, not a token
_NONE = (
    "set X509_USER_PROXY, X509_USER_CERT and X509_USER_KEY, or BEARER_TOKEN_FILE; "
    "or create a proxy with voms-proxy-init"
)


@dataclass(frozen=True, slots=True)
class Credential:
    """What opens a service now: a token, or a certificate with its key (of a proxy one file), or nothing.

    `until` is when it expires, if that is known; `file` is where the secret is kept, if in a file;
    `stamp` is another one when the files behind it changed.
    """

    kind: CredentialKind
    origin: str  # where it comes from, for people: a variable or a path
    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = ""
    file: str = ""
    until: datetime | None = None
    stamp: Hashable = None


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
        self._known: deque[str] = deque(maxlen=KNOWN)

    def __repr__(self) -> str:
        return "Credentials(...)"

    def access(self, purpose: Purpose, *, needed: bool = False) -> Credential:
        """Return what opens a service or storage now; raises NeedsOperator with hold `credentials` and a hint.

        That is when it cannot be read, is no credential, has expired, or is `needed` and not there.
        """
        credential = self._find(purpose)
        if credential.until is not None and credential.until <= self._clock.now():
            hint = _NEW_TOKEN if credential.kind == "token" else _NEW_PROXY
            raise _needs_operator(
                f"the {credential.kind} of {credential.origin} expired at {credential.until:%Y-%m-%dT%H:%M:%SZ}",
                hint,
            )
        if needed and credential.kind == "nothing":
            raise _needs_operator("no credentials were found", _NONE)
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
            raise _needs_operator(f"only one of {' and '.join(ends)} is set", "set both or neither")
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
        except NeedsOperator:
            return ""  # `access` reports it

    # ------------------------------------------------------------------- reading it

    def _token_file(self, path: Path, variable: str) -> Credential:
        origin = f"{variable} {path}".strip()
        stamp, token = self._file(path, origin, read_token, _NEW_TOKEN)
        return self._with(token, origin, str(path), stamp)

    def _token_variable(self, text: str) -> Credential:
        try:
            return self._with(read_token(text.encode("utf-8", "replace")), "BEARER_TOKEN")
        except ValueError as error:
            raise _needs_operator(f"BEARER_TOKEN is not a credential: {error}", _NEW_TOKEN) from None

    def _with(self, token: str, origin: str, file: str = "", stamp: Hashable = None) -> Credential:
        if token not in self._known:
            self._known.append(token)
            remember(token)
        return Credential("token", origin, token, file=file, until=token_until(token), stamp=stamp)

    def _proxy(self, path: Path, variable: str) -> Credential:
        origin = f"{variable} {path}".strip()
        stamp, pem = self._file(path, origin, read_pem, _NEW_PROXY)
        _check_pem(origin, pem, certificate=True, key=True)
        return Credential("proxy", origin, "", str(path), str(path), str(path), pem.until, stamp)

    def _certificate(self) -> Credential:
        paths = [self._environ.get(name, "") for name in ("X509_USER_CERT", "X509_USER_KEY")]
        if not all(paths):
            raise _needs_operator(
                "only one of X509_USER_CERT and X509_USER_KEY is set", "set both, or create a proxy"
            )
        certificate, key = Path(paths[0]), Path(paths[1])
        stamp, pem = self._file(certificate, f"X509_USER_CERT {certificate}", read_pem, _NEW_PROXY)
        key_stamp, key_pem = self._file(key, f"X509_USER_KEY {key}", read_pem, _NEW_PROXY)
        _check_pem(f"X509_USER_CERT {certificate}", pem, certificate=True, key=False)
        _check_pem(f"X509_USER_KEY {key}", key_pem, certificate=False, key=True)
        origin = f"X509_USER_CERT {certificate}"
        stamps = (stamp, key_stamp)
        return Credential("certificate", origin, "", str(certificate), str(key), str(key), pem.until, stamps)

    def _file(self, path: Path, origin: str, parse: Callable[[bytes], T], hint: str) -> tuple[Hashable, T]:
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
            raise _needs_operator(
                f"{origin} cannot be read: {error.strerror or error}", f"check path and rights, or {hint}"
            ) from None
        except ValueError as error:
            raise _needs_operator(f"{origin} is not a credential: {error}", hint) from None
        return self._read[path, parse]

    def _is_ours(self, path: Path) -> bool:
        """Return whether a file that nobody named is there and ours: anybody can put one into /tmp."""
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


def _check_pem(origin: str, pem: Pem, *, certificate: bool, key: bool) -> None:
    if certificate and pem.until is None:
        raise _needs_operator(f"{origin} contains no certificate", _NEW_PROXY)
    if key and not pem.key:
        raise _needs_operator(f"{origin} contains no private key", _NEW_PROXY)
    if key and pem.encrypted:
        raise _needs_operator(f"the key in {origin} needs a password, which nobody can type here", _NEW_PROXY)


def _needs_operator(message: str, hint: str) -> NeedsOperator:
    return NeedsOperator(message, hint, hold="credentials")
