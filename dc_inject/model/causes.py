"""The causes of errors: whose fault each is, what has to happen next, its hold, a sentence and a hint.

`faults.py` decides which cause an error has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, Flag, StrEnum, auto


class Party(StrEnum):
    """Whose fault an error is."""

    USER = "user"  # menu, credentials, clock, disk, HTTP proxy, file descriptors
    SERVICE = "service"
    SITE = "site"  # a storage
    UNKNOWN = "unknown"


class Peer(Enum):
    """Who was asked: its name in sentences, whose fault its own troubles are, and who operates it."""

    RUCIO = "Rucio", Party.SERVICE, "Rucio's operators"
    FTS = "FTS", Party.SERVICE, "FTS's operators"
    STORAGE = "the storage", Party.SITE, "the site"

    def __init__(self, title: str, party: Party, operators: str) -> None:
        """Take the name, the party and the operators."""
        self.title, self.party, self.operators = title, party, operators


class Remedy(Enum):
    """What has to happen next."""

    AGAIN = auto()  # the same request, later
    LINK = auto()  # the link waits, the others go on
    OTHER_ITEM = auto()  # another dataset or file now, this one later
    NO_ITEM = auto()  # never again with this dataset or file
    PERSON = auto()  # a person has to repair something first


class Mark(Flag):
    """What else distinguishes causes."""

    NOTHING = 0
    IN_DOUBT = auto()  # a request that changes something may have been carried out
    OURS = auto()  # of this machine: the same for all services and storages


_AGAIN, _LINK, _OTHER, _NO_ITEM, _PERSON = Remedy
_IN_DOUBT, _OURS = Mark.IN_DOUBT, Mark.OURS
_Values = tuple[str, Party | None, Remedy, str, str, str, Mark]
_WORKS = "there is an answer, but {peer} does not work: ask {operators}"


def _credentials(value: str, sentence: str, hint: str, mark: Mark = _OURS) -> _Values:
    return value, Party.USER, _PERSON, "credentials", sentence, hint, mark


def _local(value: str, remedy: Remedy, sentence: str, hint: str, mark: Mark = _OURS) -> _Values:
    return value, Party.USER, remedy, "local", sentence, hint, mark


def _request(value: str, remedy: Remedy, hint: str, hold: str = "api-errors") -> _Values:
    return value, Party.USER, remedy, hold, "", hint, Mark.NOTHING


def _peer(value: str, remedy: Remedy, sentence: str, hint: str, mark: Mark = Mark.NOTHING) -> _Values:
    return value, None, remedy, "api-errors", sentence, hint, mark


def _site(value: str, hint: str, hold: str) -> _Values:
    return value, Party.SITE, _LINK, hold, "", hint, Mark.NOTHING


def _unknown(value: str, sentence: str, hint: str, mark: Mark = Mark.NOTHING) -> _Values:
    return value, Party.UNKNOWN, _AGAIN, "api-errors", sentence, hint, mark


class Cause(StrEnum):
    """The causes of errors.

    `party` is None where it is that of the peer. `sentence` is empty where the text of the answer is enough. In
    sentences and hints braces stand for the peer, its operators, and what `WORDS` has for it.
    """

    party: Party | None
    remedy: Remedy
    hold: str
    sentence: str
    hint: str
    mark: Mark

    def __new__(
        cls, value: str, party: Party | None, remedy: Remedy, hold: str, sentence: str, hint: str, mark: Mark
    ) -> Cause:
        """Make a member of its name and what follows from it."""
        member = str.__new__(cls, value)
        member._value_, member.party, member.remedy, member.hold = value, party, remedy, hold
        member.sentence, member.hint, member.mark = sentence, hint, mark
        return member

    EXPIRED = _credentials("credentials-expired", "the {credential} has expired", "{renew}", Mark.NOTHING)
    NOT_YET_VALID = _credentials(
        "credentials-not-yet-valid",
        "the {credential} is not valid yet",
        "check the clock of this machine (`date -u`); if it is right, {renew}",
    )
    KEY_MISMATCH = _credentials(
        "key-mismatch",
        "the private key is not that of the certificate",
        "name the key of this certificate, or {renew}",
    )
    WEAK_KEY = _credentials(
        "weak-key",
        "the {credential} is too weak for TLS",
        "{renew}, with a key of at least 2048 bits and signed with SHA-2",
    )
    UNREADABLE = _credentials(
        "credentials-unreadable",
        "the {credential} cannot be used",
        "check its path, rights and content, or {renew}",
    )
    DELEGATION = _credentials(
        "delegation-missing", "", "FTS has no delegated proxy of yours that lasts: {renew}", Mark.NOTHING
    )
    NO_CREDENTIALS = _credentials("credentials-missing", "{peer} requires credentials", "{provide}", Mark.NOTHING)
    REFUSED = _credentials(
        "credentials-refused",
        "{peer} did not accept the {credential}",
        "{renew}, or ask {operators} for the right",
        Mark.NOTHING,
    )

    CONFIGURATION = _local("configuration", _PERSON, "", "{configuration}")
    NO_CONFIGURATION = _local("configuration-missing", _PERSON, "", "{places}")
    ADDRESS = _local("address", _PERSON, "the address of {peer} cannot be used", "{endpoint}", Mark.NOTHING)
    NAME = _local(
        "name",
        _AGAIN,
        "the host name of {peer} cannot be resolved",
        "{endpoint}; or DNS does not work on this machine",
        Mark.NOTHING,
    )
    MOVED = _local(
        "moved", _PERSON, "", "if {peer} has moved, write its new address into your configuration", Mark.NOTHING
    )
    NOT_TLS = _local("not-tls", _AGAIN, "{peer} does not use TLS at this address", "{endpoint}", Mark.NOTHING)
    ISSUER = _local(
        "issuer-unknown", _PERSON, "the certificate of {peer} cannot be trusted", "{trust}", Mark.NOTHING
    )
    AUTHORITIES = _local("ca-bundle", _PERSON, "the certificates of the authorities cannot be read", "{trust}")
    CLOCK = _local(
        "clock",
        _PERSON,
        "the certificate of {peer} is not valid yet",
        "check the clock of this machine (`date -u`); if it is right, ask {operators}",
        Mark.NOTHING,
    )
    PROXY_DOWN = _local("proxy-down", _AGAIN, "the HTTP proxy does not connect to {peer}", "{proxy}")
    PROXY_REFUSED = _local("proxy-refused", _PERSON, "the HTTP proxy refused to connect to {peer}", "{proxy}")
    PROXY_LOGIN = _local("proxy-login", _PERSON, "the HTTP proxy requires a login", "{proxy}")
    PROXY_UNUSABLE = _local("proxy-unusable", _PERSON, "the proxy cannot be used", "{proxy}")
    PROXY_PLAIN = _local("proxy-plain-http", _PERSON, "", "use https, or add the host to no_proxy")
    DESCRIPTORS = _local(
        "descriptors",
        _AGAIN,
        "this process may not open more files and connections",
        "raise the limit (`ulimit -n 4096`, or LimitNOFILE= of the unit)",
    )
    THREADS = _local(
        "threads",
        _AGAIN,
        "this process may not start more threads",
        "raise the limit (`ulimit -u`, or TasksMax= of the unit)",
    )
    PORTS = _local("ports", _AGAIN, "this machine has no free port left", "end what keeps its connections open")
    MEMORY = _local("memory", _AGAIN, "this machine has no memory left", "free memory, or raise the limit")
    DISK_FULL = _local("disk-full", _AGAIN, "a disk of this machine is full", "free space (`df -h`)")
    DISK_ERROR = _local("disk-error", _AGAIN, "a disk of this machine failed", "see `dmesg`")
    READ_ONLY = _local(
        "disk-read-only",
        _PERSON,
        "a file system of this machine is read-only",
        "use a folder that can be written (HOME, XDG_STATE_HOME, TMPDIR)",
    )
    FILE_RIGHTS = _local(
        "file-rights", _PERSON, "no right to open a file", "check the owner and rights of the file"
    )
    NO_FILE = _local("file-missing", _PERSON, "a file is missing", "check the path")
    LOCAL_ERROR = _local("local-error", _AGAIN, "this machine failed", "")

    QUOTA = _request("quota", _LINK, "ask for more quota at this destination, or let rules end sooner", "quota")
    NO_RIGHT = _request("right-missing", _NO_ITEM, "the experiment's policy does not let this account do that")
    MENU = _request("menu", _NO_ITEM, "{menu}")
    RSE = _request(
        "rse",
        _NO_ITEM,
        "an RSE of the menu is gone, or a global limit of the account names RSEs that do not exist",
    )
    TOO_MUCH = _request("request-too-large", _NO_ITEM, "{smaller}")

    DOWN = _peer("down", _AGAIN, "cannot connect to {peer}", "{endpoint}")
    BROKE = _peer("connection-lost", _AGAIN, "the connection to {peer} broke", "", _IN_DOUBT)
    NO_ANSWER = _peer("no-answer", _AGAIN, "no answer of {peer} in time", "", _IN_DOUBT)
    TOO_LARGE = _peer("answer-too-large", _AGAIN, "", "", _IN_DOUBT)
    ODD_ANSWER = _peer(
        "not-understood", _AGAIN, "the answer of {peer} cannot be understood", "{endpoint}", _IN_DOUBT
    )
    TLS = _peer(
        "tls-version",
        _PERSON,
        "no TLS connection to {peer}: no common version or cipher",
        "ask {operators} for TLS 1.2 or newer, with a cipher of today",
    )
    CERTIFICATE = _peer(
        "server-certificate",
        _PERSON,
        "the certificate of {peer} is not valid",
        "check the host name, and ask {operators} to renew the certificate",
    )
    DATABASE = _peer("database", _AGAIN, "", "{peer} answers, but its database does not: ask {operators}")
    BUSY = _peer("busy", _AGAIN, "", "{peer} asks to try again later")
    TOO_OFTEN = _peer("too-many-requests", _AGAIN, "", "{peer} asks for fewer calls: lower rules_per_hour")
    FRONT_END = _peer("front-end", _AGAIN, "", _WORKS, _IN_DOUBT)
    BROKEN = _peer("broken", _AGAIN, "", _WORKS, _IN_DOUBT)
    ANSWER = _peer("unforeseen-answer", _AGAIN, "", "")
    REJECTED = _peer("rejected", _NO_ITEM, "", "")
    ITEM = _peer("item", _OTHER, "", "")
    NOT_FOUND = _peer("not-found", _NO_ITEM, "", "{endpoint}")
    METHOD = _peer("method", _NO_ITEM, "", "{peer} does not allow this method there")
    LOCKED = _peer("locked", _AGAIN, "", "it is locked, perhaps because it is still being written")
    CONFLICT = _peer("conflict", _NO_ITEM, "", "a folder above it may be missing")
    NO_SPACE = _peer("no-space", _NO_ITEM, "", "the storage is full, or your quota is used up")

    BANNED = _site("banned", "{operators} have banned it: ask them why", "destination-unavailable")
    NO_TARGET = _site("no-target", "no RSE of the destination is open for this account", "destination-unavailable")
    CLOSED = _site("closed", "the site does not take data now: wait, or exclude it", "destination-unavailable")
    FULL = _site("full", "the destination is over its own limit: wait, or take another one", "destination-full")

    NETWORK = _unknown("network", "no connection to {peer}", "check the network and the firewalls in between")
    UNEXPECTED = _unknown("unexpected", "", "", _IN_DOUBT)


# --------------------------------------------------------------------------- words of peers and credentials

_FTS_TRUST = "set X509_CERT_DIR, or REQUESTS_CA_BUNDLE, to the certificates of the authorities that you trust"
WORDS: Mapping[Peer, Mapping[str, str]] = {
    Peer.RUCIO: {
        "endpoint": "check rucio_host and auth_host in rucio.cfg, which are like https://rucio.example.org:443, "
        "and that the server runs",
        "trust": "set ca_cert in rucio.cfg, X509_CERT_DIR or REQUESTS_CA_BUNDLE to the authorities that you trust",
        "configuration": "correct rucio.cfg, or the variable RUCIO_* that replaces it",
        "places": "set RUCIO_CONFIG to a file that is there, or put rucio.cfg into $RUCIO_HOME/etc, "
        "$VIRTUAL_ENV/etc or /opt/rucio/etc",
        "menu": "one of activity, priority or comment is not allowed there; the menu sets the activity",
        "smaller": "the request is too large for the server",
        "provide": "set auth_type in rucio.cfg, and the password, proxy or token that it needs",
    },
    Peer.FTS: {
        "endpoint": "check FTS's endpoint: it is like https://fts3-pilot.cern.ch:8446",
        "trust": _FTS_TRUST,
        "configuration": "check the endpoint and the credentials (`dc-inject ping`)",
        "places": "set DC_INJECT_FTS_ENDPOINT",
        "menu": "FTS does not take it as it is: the reason names what is wrong",
        "smaller": "lower `jobs: {files: N}` in the menu",
        "provide": "create a proxy (voms-proxy-init), or set BEARER_TOKEN_FILE",
    },
    Peer.STORAGE: {
        "endpoint": "check the URL of the storage, and whether it is up",
        "trust": _FTS_TRUST,
        "configuration": "check the URL and the credentials (`dc-inject ping`)",
        "places": "check the URL of the storage",
        "menu": "the storage does not take it as it is",
        "smaller": "the request is too large for the storage",
        "provide": "create a proxy (voms-proxy-init), or set BEARER_TOKEN_FILE",
    },
}
RENEW: Mapping[str, str] = {
    "proxy": "create a new proxy (voms-proxy-init)",
    "certificate": "ask your certificate authority for a new certificate (X509_USER_CERT, X509_USER_KEY)",
    "token": "get a new token (oidc-token, htgettoken)",
    "password": "check auth_type, username, password and account in rucio.cfg and RUCIO_*",
    "": "renew the proxy, certificate or token (`dc-inject ping` shows which is used)",
}


# --------------------------------------------------------------------------- files that did not arrive


@dataclass(frozen=True, slots=True)
class FileClass:
    """Whose fault it is that files of a class did not arrive, and where.

    `excuse` is why they do not show how good the link is; empty where they do. `unfit` files would fail again.
    """

    party: Party
    where: str = ""  # source, destination or network
    excuse: str = ""
    unfit: bool = False


FILE_CLASSES: Mapping[str, FileClass] = {
    "source-missing": FileClass(Party.USER, "source", "source files are missing", unfit=True),
    "source-on-tape": FileClass(Party.USER, "source", "source files are on tape", unfit=True),
    "source-error": FileClass(Party.SITE, "source"),
    "destination-exists": FileClass(Party.UNKNOWN, "destination", "files were already at the destination"),
    "destination-full": FileClass(Party.SITE, "destination", "the destination is full"),
    "destination-error": FileClass(Party.SITE, "destination"),
    "storage-error": FileClass(Party.SITE),
    "no-third-party-copy": FileClass(Party.SITE, "", "a storage does not allow third-party copies"),
    "checksum": FileClass(Party.SITE, "source", unfit=True),
    "size": FileClass(Party.USER, "source", "source files do not have the size that was listed", unfit=True),
    "connection": FileClass(Party.UNKNOWN, "network", "a storage could not be reached"),
    "timeout": FileClass(Party.UNKNOWN, "network"),
    "permission": FileClass(Party.USER, "", "a storage refused access"),
    "credentials": FileClass(Party.USER, "", "a storage refused the credentials"),
    "canceled": FileClass(Party.SERVICE, "", "a person cancelled transfers"),
    "vanished": FileClass(Party.SERVICE, "", "the service lost rules or jobs"),
    "other": FileClass(Party.UNKNOWN),
}
