"""Whose fault an error is, and its cause: one function decides, `judge`, for services, transports and local files.

An adapter passes what it knows (`Facts`): the class names of the error and of those behind it, errno, HTTP status,
text, the HTTP proxy in between, and who was asked. The first row of `_ROWS` that fits gives the cause, and
`causes.py` what follows from it. A new error needs a row, a new kind of trouble a cause; no adapter judges by
itself.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from dc_inject.model.causes import RENEW, WORDS, Cause, Mark, Party, Peer

PROXY_NOTE = "through the proxy "  # begins a note of an error that came by way of one (PEP 678), before host:port
_DEEPEST = 12  # errors behind errors that are looked at
_OF_TLS = frozenset(
    {"SSLError", "SSLCertVerificationError", "SSLEOFError", "SSLZeroReturnError", "SSLSyscallError"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of an error: `text` is that of the innermost error, or of the answer.

    `credential` is what was shown: a proxy, a certificate, a token, a password, or nothing. `answered` means that
    the peer itself refused, `page` that a page came, which the peer itself does not send, and `making` that the
    client was not ready yet.
    """

    peer: Peer
    kinds: frozenset[str] = frozenset()
    number: int | None = None
    status: int = 0
    text: str = ""
    proxy: str = ""
    credential: str = ""
    answered: bool = False
    page: bool = False
    making: bool = False

    @classmethod
    def of(cls, error: BaseException, peer: Peer, *, text: str | None = None, **more: Any) -> Facts:
        """Return the facts of an error and of those behind it; `text` replaces that of the innermost one."""
        errors = tuple(chain(error))
        own = [one for one in errors if isinstance(one, OSError) and not _OF_TLS & {type(one).__name__}]
        numbers = [one.errno for one in own if one.errno is not None and type(one).__name__ != "gaierror"]
        return cls(
            peer=peer,
            kinds=frozenset(type(one).__name__ for one in errors),
            number=next(reversed(numbers), None),
            text=str(errors[-1]) if text is None else text,
            proxy=proxy_of(error),
            **more,
        )


def chain(error: BaseException) -> Iterator[BaseException]:
    """Give an error and those behind it, the innermost last.

    Libraries wrap what they catch: in an argument, in `reason`, as the cause, or without a word of it. An error of
    our own gate, which names `what` happened, hides the cause.
    """
    seen: BaseException | None = error
    for _ in range(_DEEPEST):
        if seen is None:
            return
        yield seen
        if hasattr(seen, "what"):
            return
        parts = (getattr(seen, "reason", None), *seen.args)
        held = next((part for part in parts if isinstance(part, BaseException)), None)
        seen = held or seen.__cause__ or seen.__context__


def proxy_of(error: BaseException) -> str:
    """Return the proxy (host:port) through which an error came, as its notes name it; empty if there was none."""
    notes = (note for one in chain(error) for note in getattr(one, "__notes__", ()))
    return next((note.removeprefix(PROXY_NOTE) for note in notes if note.startswith(PROXY_NOTE)), "")


def detail(error: BaseException) -> str:
    """Return the system's own words for an error: those of the libraries around it hold whole URLs."""
    innermost = tuple(chain(error))[-1]
    texts = (getattr(innermost, name, None) for name in ("verify_message", "strerror"))
    words = next((word for word in texts if isinstance(word, str) and word), str(innermost))
    return re.sub(r"^\[[\w: ]+\] |^_ssl\.c:\d+: | ?\(_ssl\.c:\d+\)$", "", words) or type(innermost).__name__


@dataclass(frozen=True, slots=True)
class Fault:
    """Whose fault an error is, why, and what helps."""

    cause: Cause
    peer: Peer
    proxy: str = ""
    credential: str = ""

    @property
    def party(self) -> Party:
        """Whose fault it is."""
        return self.cause.party or self.peer.party

    @property
    def hint(self) -> str | None:
        """What a person can do; None where nothing helps."""
        return self._filled(self.cause.hint) or None

    @property
    def in_doubt(self) -> bool:
        """Whether a request that changes something may have been carried out all the same."""
        return Mark.IN_DOUBT in self.cause.mark

    @property
    def ours(self) -> bool:
        """Whether it is the same whichever service or storage is asked."""
        return Mark.OURS in self.cause.mark

    def message(self, detail: str = "") -> str:
        """Return the sentence about it, with the text of the error."""
        sentence = self._filled(self.cause.sentence)
        text = f"{sentence} ({detail})" if sentence and detail else sentence or detail or str(self.cause)
        return f"{text} (through the proxy {self.proxy})" if self.proxy else text

    def _filled(self, text: str) -> str:
        shown = "credentials" if self.credential in {"", "nothing"} else self.credential
        return text.format(
            peer=self.peer.title,
            operators=self.peer.operators,
            credential=shown,
            renew=RENEW.get(self.credential, RENEW[""]),
            proxy="check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, or ask who operates the proxy",
            **WORDS[self.peer],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Facts that together mean a cause; what is not given may be anything."""

    cause: Cause
    kinds: Collection[str] = ()
    numbers: Collection[int] = ()
    statuses: Collection[int] = ()
    words: re.Pattern[str] | None = None
    peers: Collection[Peer] = tuple(Peer)
    credentials: Collection[str] = ()
    proxied: bool = False
    answered: bool = False
    page: bool = False
    making: bool = False

    def fits(self, facts: Facts) -> bool:
        """Whether all that the row asks for is so."""
        return (
            facts.peer in self.peers
            and (not self.kinds or not facts.kinds.isdisjoint(self.kinds))
            and (not self.numbers or facts.number in self.numbers)
            and (not self.statuses or facts.status in self.statuses)
            and (self.words is None or self.words.search(facts.text) is not None)
            and (not self.credentials or facts.credential in self.credentials)
            and facts.answered >= self.answered
            and facts.page >= self.page
            and facts.making >= self.making
            and bool(facts.proxy) >= self.proxied
        )


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", "[ _]"), re.IGNORECASE)


def _tls(cause: Cause, pattern: str, **more: Collection[str]) -> _Row:
    return _Row(cause=cause, kinds=_OF_TLS, words=_words(pattern), **more)  # type: ignore[arg-type]  # by name


def _of(cause: Cause, *kinds: str) -> _Row:
    return _Row(cause=cause, kinds=frozenset(kinds))


def _numbered(cause: Cause, *numbers: int) -> _Row:
    return _Row(cause=cause, numbers=frozenset(numbers))


_RUCIO, _FTS, _STORAGE = (Peer.RUCIO,), (Peer.FTS,), (Peer.STORAGE,)
_SERVER = range(500, 600)
LOGIN = ("CannotAuthenticate", "NoAuthInformation", "IdentityError", "IdentityNotFound")
# Locks, deadlocks and lost connections, as some calls of Rucio pass them on. Rucio calls any statement with an id
# that failed "badly formatted"; the ids that we send are its own.
_DATABASE = re.compile(
    r"\([\w.]+\.(OperationalError|DatabaseError|DeadlockDetected)\) "
    r"|A StatementError occurred while|Badly formatted (rule id|input) \("
)
_OF_TOKENS = re.compile(
    r"access[-_]token|(?:source|destination)_tokens|token does not|token for |unknown issuer|unmanaged tokens",
    re.I,
)
_ROWS = (
    # The gate's own refusals.
    _of(Cause.NO_ANSWER, "TooLong"),
    _of(Cause.TOO_LARGE, "TooLarge"),
    _of(Cause.ODD_ANSWER, "Compressed"),
    _of(Cause.MOVED, "Redirected"),
    _of(Cause.AUTHORITIES, "Unverified"),
    _of(Cause.PROXY_PLAIN, "PlainProxy"),
    _of(Cause.PROXY_UNUSABLE, "ProxyUnusable", "InvalidProxyURL", "ProxySchemeUnknown", "ProxySchemeUnsupported"),
    # This machine.
    _numbered(Cause.DESCRIPTORS, errno.EMFILE, errno.ENFILE),
    _Row(cause=Cause.THREADS, kinds=("RuntimeError",), words=_words("can't start new thread")),
    _numbered(Cause.MEMORY, errno.ENOMEM),
    _of(Cause.MEMORY, "MemoryError"),
    _numbered(Cause.PORTS, errno.EADDRNOTAVAIL),
    _numbered(Cause.DISK_FULL, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    _numbered(Cause.DISK_ERROR, errno.EIO),
    _numbered(Cause.READ_ONLY, errno.EROFS),
    _Row(cause=Cause.NETWORK, kinds=("NewConnectionError",), numbers=(errno.EACCES, errno.EPERM)),
    _numbered(Cause.FILE_RIGHTS, errno.EACCES, errno.EPERM),
    _numbered(Cause.NO_FILE, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    # The proxy between here and there.
    _Row(cause=Cause.PROXY_LOGIN, statuses=(407,)),
    _Row(cause=Cause.PROXY_LOGIN, kinds=("ProxyError",), words=_words(r"failed: 407")),
    _Row(cause=Cause.PROXY_REFUSED, kinds=("ProxyError",), words=_words(r"failed: 4\d\d")),
    _of(Cause.PROXY_DOWN, "ProxyError"),
    _Row(cause=Cause.PROXY_REFUSED, proxied=True, page=True, statuses=range(400, 500)),
    _Row(cause=Cause.PROXY_DOWN, proxied=True, page=True, statuses=_SERVER),
    # TLS: our own files.
    _tls(Cause.KEY_MISMATCH, "key values mismatch"),
    _tls(Cause.AUTHORITIES, r"no certificate or crl found|\[x509\] pem lib"),
    _tls(Cause.UNREADABLE, r"pem lib|no start line|bad decrypt|bad end line|unsupported.{0,80}key|private key"),
    _Row(cause=Cause.AUTHORITIES, words=_words("CA certificate bundle")),
    _Row(cause=Cause.UNREADABLE, words=_words("could not find the TLS (certificate|key) file")),
    # TLS: the certificate of the peer.
    _tls(Cause.CLOCK, "verify failed: .{0,80}not yet valid"),
    _tls(Cause.CERTIFICATE, "verify failed: .{0,80}(has expired|mismatch|not valid for|too weak|revoked|purpose)"),
    _tls(Cause.ISSUER, "certificate verify failed"),
    _tls(Cause.TLS, "dh key too small"),
    _tls(Cause.WEAK_KEY, "(key|md) too (small|weak)"),  # ours: that of the peer fails to verify
    # TLS: what the peer objects to in ours, and errors of TLS itself.
    _tls(Cause.EXPIRED, "alert certificate expired"),
    _tls(Cause.NO_CREDENTIALS, "alert certificate required|certificate required"),
    _tls(Cause.NO_CREDENTIALS, "alert handshake failure", credentials=("nothing",)),
    _tls(Cause.REFUSED, "alert (bad|unknown|unsupported|revoked)? ?(certificate|ca)|alert access denied"),
    _tls(Cause.NOT_TLS, "wrong version number|http request|unknown protocol|record layer failure"),
    _tls(Cause.TLS, "alert|unsupported protocol|no protocols|cipher|legacy renegotiation|too small|signature"),
    _tls(Cause.BROKE, ""),
    # Names, addresses, connections.
    _of(Cause.NAME, "gaierror", "NameResolutionError"),
    _of(Cause.ADDRESS, "InvalidURL", "InvalidSchema", "MissingSchema", "LocationParseError", "UnicodeError"),
    _of(Cause.ADDRESS, "ClientProtocolNotFound", "ClientProtocolNotSupported", "UnicodeEncodeError"),
    _of(Cause.ADDRESS, "URLRequired", "URLSchemeUnknown", "LocationValueError"),
    _numbered(Cause.DOWN, errno.ECONNREFUSED),
    _of(Cause.NETWORK, "NewConnectionError", "ConnectTimeout", "ConnectTimeoutError"),
    _numbered(
        Cause.BROKE, errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.EHOSTUNREACH, errno.ENETUNREACH
    ),
    _of(Cause.NO_ANSWER, "ReadTimeout", "ReadTimeoutError", "Timeout", "TimeoutError"),
    _of(Cause.ODD_ANSWER, "BadStatusLine", "HeaderParsingError", "InvalidHeader", "LineTooLong"),
    _of(Cause.BROKE, "RemoteDisconnected", "IncompleteRead", "ProtocolError", "ChunkedEncodingError"),
    _of(Cause.BROKE, "ConnectionError", "ConnectionResetError", "InvalidChunkLength", "ContentDecodingError"),
    # Rucio's own errors, by their classes.
    _Row(cause=Cause.BROKEN, kinds=LOGIN, statuses=_SERVER),
    _Row(cause=Cause.EXPIRED, kinds=LOGIN, words=_words("(token|proxy|certificate|credential).{0,80}expired")),
    _of(Cause.REFUSED, *LOGIN),
    _Row(cause=Cause.NO_CREDENTIALS, kinds=("MissingClientParameter",), words=_words("x.?509|proxy")),
    _of(Cause.NO_CONFIGURATION, "ConfigNotFound", "ConfigLoadingError"),
    _of(Cause.CONFIGURATION, "MissingClientParameter", "MissingModuleException", "ErrorLoadingCredentials"),
    _of(Cause.CONFIGURATION, "ConfigurationError", "NoSectionError", "NoOptionError", "ParsingError"),
    _of(Cause.CONFIGURATION, "DuplicateSectionError", "DuplicateOptionError", "MissingSectionHeaderError"),
    _of(
        Cause.CONFIGURATION,
        "InterpolationSyntaxError",
        "InterpolationMissingOptionError",
        "InterpolationDepthError",
    ),
    _of(Cause.DATABASE, "DatabaseException"),
    _of(Cause.BUSY, "ServiceUnavailable", "ResourceTemporaryUnavailable"),
    _of(Cause.DOWN, "ServerConnectionException"),
    _of(Cause.QUOTA, "InsufficientAccountLimit"),
    _of(Cause.FULL, "RSEOverQuota"),
    _of(Cause.CLOSED, "RSEWriteBlocked"),
    _of(Cause.NO_TARGET, "InsufficientTargetRSEs"),
    _of(Cause.ITEM, "DuplicateRule", "ReplicationRuleCreationTemporaryFailed", "MissingSourceReplica"),
    _of(Cause.NO_RIGHT, "AccessDenied"),
    _of(Cause.MENU, "InvalidObject"),
    _of(Cause.RSE, "InvalidSourceReplicaExpression", "InvalidRSEExpression", "RSENotFound"),
    _Row(cause=Cause.DATABASE, kinds=("RucioException",), words=_DATABASE),
    # HTTP statuses.
    _Row(cause=Cause.BANNED, peers=_FTS, statuses=(403,), words=_words("is banned")),
    _Row(cause=Cause.DELEGATION, statuses=(419,)),
    _Row(cause=Cause.EXPIRED, statuses=(401, 403), words=_words("expired")),
    _Row(cause=Cause.REFUSED, statuses=(401, 402, 403)),
    _Row(cause=Cause.REFUSED, peers=_FTS, statuses=(400,), words=_OF_TOKENS),
    _Row(cause=Cause.TOO_MUCH, statuses=(413, 414)),
    _Row(cause=Cause.TOO_OFTEN, statuses=(429,)),
    _Row(cause=Cause.NOT_FOUND, peers=(Peer.FTS, Peer.STORAGE), statuses=(404, 410)),
    _Row(cause=Cause.METHOD, peers=_STORAGE, statuses=(405,)),
    _Row(cause=Cause.CONFLICT, peers=_STORAGE, statuses=(409,)),
    _Row(cause=Cause.LOCKED, peers=_STORAGE, statuses=(423,)),
    _Row(cause=Cause.NO_SPACE, peers=_STORAGE, statuses=(507,)),
    _Row(cause=Cause.METHOD, peers=_STORAGE, statuses=(501, 505, 508)),
    _Row(cause=Cause.BUSY, statuses=(503,)),
    _Row(cause=Cause.FRONT_END, statuses=(408, 502, 504)),
    _Row(cause=Cause.BROKEN, statuses=_SERVER),
    _Row(cause=Cause.ANSWER, peers=_RUCIO, statuses=range(1, 500)),
    _Row(cause=Cause.ANSWER, peers=_STORAGE, statuses=(421, 425)),
    _Row(cause=Cause.MENU, peers=_FTS, statuses=range(400, 500)),
    _Row(cause=Cause.REJECTED, peers=_STORAGE, statuses=range(1, 500)),
    _Row(cause=Cause.ODD_ANSWER, statuses=range(1, 400)),
    _Row(cause=Cause.REJECTED, answered=True),
    # What is left.
    _of(Cause.LOCAL_ERROR, "OSError"),
    _Row(cause=Cause.EXPIRED, peers=_FTS, making=True, words=_words("proxy expired")),
    _Row(cause=Cause.UNREADABLE, peers=_FTS, making=True),
    _Row(cause=Cause.ODD_ANSWER, kinds=("KeyError",), words=_words("x-rucio-auth-token")),  # a login without it
    _Row(cause=Cause.CONFIGURATION, peers=_RUCIO, making=True),
    _of(
        Cause.ODD_ANSWER, "AttributeError", "KeyError", "IndexError", "TypeError", "ValueError", "JSONDecodeError"
    ),
    _of(Cause.ODD_ANSWER, "RecursionError"),  # JSON that is nested too deeply
    _of(Cause.ODD_ANSWER, "TooManyRedirects", "RetryError", "MaxRetryError", "ResponseError", "DecodeError"),
    _of(Cause.ODD_ANSWER, "ResponseNotChunked", "BodyNotHttplibCompatible", "InvalidJSONError", "UnknownProtocol"),
    _of(Cause.ODD_ANSWER, "HTTPException", "UnknownTransferEncoding", "RequestException", "HTTPError"),
)


def hint_of(error: OSError) -> str:
    """Return what a person can do about a file that cannot be opened, read or written."""
    return judge(Facts.of(error, Peer.FTS)).hint or "check path and rights"  # the peer is in no hint about files


def judge(facts: Facts) -> Fault:
    """Return whose fault an error is, and why."""
    cause = next((row.cause for row in _ROWS if row.fits(facts)), Cause.UNEXPECTED)
    return Fault(cause, facts.peer, facts.proxy, facts.credential)
