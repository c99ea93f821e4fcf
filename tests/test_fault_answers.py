"""Whose fault an error is: of local files, and of answers that services and storages really give."""

from __future__ import annotations

import configparser
import errno
import http.client
import json
import os
import re
import socket
from itertools import product

import pytest
import requests
import urllib3
from rucio.common import exception as rucio

from dc_inject.backends.fts import errors as fts
from dc_inject.backends.rucio import errors as of_rucio
from dc_inject.model import Hold, faults
from dc_inject.model.causes import Cause, Mark, Party, Peer
from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary, TryOtherItem
from dc_inject.storage import http_transport as storage

USER, SERVICE, SITE, UNKNOWN = Party
PAGE = "<!DOCTYPE html><html><head><title>ERROR</title></head><body>Access Denied.</body></html>"
BARE = "no error information passed (http status code: {})"


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EMFILE, "descriptors"),
        (errno.ENFILE, "descriptors"),
        (errno.ENOMEM, "memory"),
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "disk-full"),
        (errno.EIO, "disk-error"),
        (errno.EROFS, "disk-read-only"),
        (errno.EACCES, "file-rights"),
        (errno.EPERM, "file-rights"),
        (errno.ENOENT, "file-missing"),
        (errno.EADDRNOTAVAIL, "ports"),
        (errno.EXDEV, "local-error"),
    ],
)
def test_a_local_file_is_never_the_fault_of_a_service(number, why):
    local = OSError(number, os.strerror(number), "/home/me/rucio.cfg")
    told = [
        of_rucio.translate(local, of_rucio.RucioCallRecord()),
        of_rucio.translate(local, of_rucio.RucioCallRecord(), making=True),
        fts.translate(local, fts.FtsCallRecord(), str),
        storage.translate_failure("GET", "davs://a/b", local),
    ]
    for error in told:
        assert (str(error.fault.cause), error.fault.party) == (why, USER)
        assert getattr(error, "hold", "local") == "local"


def test_a_login_that_gives_no_token_is_the_fault_of_the_service():
    error = of_rucio.translate(KeyError("x-rucio-auth-token"), of_rucio.RucioCallRecord(), making=True)
    assert (error.fault.cause, error.fault.party) == (Cause.ODD_ANSWER, SERVICE)


# ------------------------------------------------------------------------------- answers

RUCIO = [  # what Rucio's client raises, the status of the answer, cause, party, what comes of it
    (rucio.CannotAuthenticate("x"), 401, "credentials-refused", USER, NeedsOperator),
    (rucio.CannotAuthenticate("the token has expired"), 401, "credentials-expired", USER, NeedsOperator),
    (rucio.CannotAuthenticate(PAGE), 502, "broken", SERVICE, Temporary),
    (rucio.IdentityError("x"), 401, "credentials-refused", USER, NeedsOperator),
    (rucio.MissingClientParameter("Cannot find a valid X509 proxy; checked $RUCIO_CLIENT_PROXY"), 0,
     "credentials-missing", USER, NeedsOperator),
    (rucio.MissingClientParameter("Option 'rucio_host' cannot be found"), 0, "configuration", USER, NeedsOperator),
    (rucio.ConfigNotFound("x"), 0, "configuration-missing", USER, NeedsOperator),
    (rucio.ClientProtocolNotFound(host="a:443", protocols_allowed=["https"]), 0, "address", USER, NeedsOperator),
    (configparser.NoSectionError("client"), 0, "configuration", USER, NeedsOperator),
    (rucio.DatabaseException("ORA-02391: exceeded SESSIONS_PER_USER"), 500, "database", SERVICE, Temporary),
    (rucio.RucioException("('(psycopg.errors.DeadlockDetected) deadlock',)"), 500, "database", SERVICE, Temporary),
    (rucio.ServiceUnavailable("x"), 503, "busy", SERVICE, Temporary),
    (rucio.ServerConnectionException(), 0, "down", SERVICE, Temporary),
    (rucio.InsufficientAccountLimit("x"), 409, "quota", USER, LinkRefused),
    (rucio.InsufficientTargetRSEs("x"), 409, "no-target", SITE, LinkRefused),
    (rucio.RSEOverQuota("x"), 409, "full", SITE, LinkRefused),
    (rucio.RSEWriteBlocked("x"), 409, "closed", SITE, LinkRefused),
    (rucio.DuplicateRule("x"), 409, "item", SERVICE, TryOtherItem),
    (rucio.AccessDenied("x"), 401, "right-missing", USER, Permanent),
    (rucio.InvalidObject("'DC' is not one of the allowed activities"), 400, "menu", USER, Permanent),
    (rucio.InvalidRSEExpression("x"), 400, "rse", USER, Permanent),
    (rucio.RuleNotFound("x"), 404, "rejected", SERVICE, Permanent),
    (rucio.RucioException(BARE.format(401)), 401, "credentials-refused", USER, NeedsOperator),
    (rucio.RucioException(BARE.format(413)), 413, "request-too-large", USER, Permanent),
    (rucio.RucioException(BARE.format(429)), 429, "too-many-requests", SERVICE, Temporary),
    (rucio.RucioException(BARE.format(500)), 500, "broken", SERVICE, Temporary),
    (rucio.RucioException(BARE.format(502)), 502, "front-end", SERVICE, Temporary),
    (requests.ReadTimeout("x"), 0, "no-answer", SERVICE, Temporary),
    (KeyError("x-rucio-auth-token"), 200, "not-understood", SERVICE, Temporary),
    (ZeroDivisionError("x"), 0, "unexpected", UNKNOWN, Temporary),
]  # fmt: skip


@pytest.mark.parametrize(("error", "status", "why", "whose", "kind"), RUCIO)
def test_rucio(error, status, why, whose, kind):
    told = of_rucio.translate(error, of_rucio.RucioCallRecord(status=status, credential="token"))
    assert (str(told.fault.cause), told.fault.party, type(told)) == (why, whose, kind)


def test_what_the_client_hides_behind_no_connection_is_told():
    record = of_rucio.RucioCallRecord()
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    record.failed(requests.ConnectionError(unknown), writes=True)
    told = of_rucio.translate(rucio.ServerConnectionException(), record, writes=True)
    assert (told.fault.cause, told.hold, told.lost) == ("name", "local", False)


def body(message: str) -> str:
    return json.dumps({"status": "4xx", "message": message})


FTS = [  # status, body, cause, party, what comes of it
    (400, body("Bad request: No valid pairs available"), "menu", USER, Permanent),
    (400, body("Failed to validate access-token"), "credentials-refused", USER, NeedsOperator),
    (401, body("Invalid token"), "credentials-refused", USER, NeedsOperator),
    (401, body("The token has expired"), "credentials-expired", USER, NeedsOperator),
    (403, body("Not enough permissions"), "credentials-refused", USER, NeedsOperator),
    (403, body("davs://a is banned"), "banned", SITE, LinkRefused),
    (404, PAGE, "not-found", SERVICE, Permanent),
    (408, "", "front-end", SERVICE, Temporary),
    (413, PAGE, "request-too-large", USER, Permanent),
    (414, PAGE, "request-too-large", USER, Permanent),
    (419, body("No delegation found"), "delegation-missing", USER, NeedsOperator),
    (429, "", "too-many-requests", SERVICE, Temporary),
    (500, body("Internal server error"), "broken", SERVICE, Temporary),
    (503, body("It is a maintenance"), "busy", SERVICE, Temporary),
    (504, PAGE, "front-end", SERVICE, Temporary),
]


@pytest.mark.parametrize(("status", "text", "why", "whose", "kind"), FTS)
def test_fts(status, text, why, whose, kind):
    record = fts.FtsCallRecord(credential="certificate")
    record.answered(status, text)
    told = fts.translate(RuntimeError("what the client makes of it"), record, str)
    assert (str(told.fault.cause), told.fault.party) == (why, whose)
    assert isinstance(told, kind)
    assert kind is not NeedsOperator or "voms-proxy-init" not in told.hint  # a certificate has no proxy


STORAGE = [
    (401, "credentials-refused", USER),
    (403, "credentials-refused", USER),
    (404, "not-found", SITE),
    (405, "method", SITE),
    (407, "proxy-login", USER),
    (423, "locked", SITE),
    (429, "too-many-requests", SITE),
    (500, "broken", SITE),
    (503, "busy", SITE),
    (507, "no-space", SITE),
]


@pytest.mark.parametrize(("status", "why", "whose"), STORAGE)
def test_storages(status, why, whose):
    told = storage.of_status("PROPFIND", "davs://a/b", status)
    assert (str(told.fault.cause), told.fault.party) == (why, whose)


# ------------------------------------------------------------------------------- all causes


@pytest.mark.parametrize("why", Cause)
def test_each_cause_has_a_hold_and_words_for_each_peer(why: Cause):
    assert Hold(why.hold)
    credentials = ("", "proxy", "certificate", "token", "password", "nothing")
    for peer, credential in product(Peer, credentials):
        fault = faults.Fault(why, peer, "proxy:3128", credential)
        assert not re.search(r"\{\w+\}", f"{fault.message('x')} {fault.hint}")
        assert fault.party in Party
    assert why.party is USER or Mark.OURS not in why.mark
    assert (why.hold in {"credentials", "local"}) <= (why.party is USER)


def test_no_more_than_a_bounded_chain_is_followed():
    error: Exception = ValueError("innermost")
    for _ in range(100):
        error = requests.ConnectionError(error)
    assert isinstance(of_rucio.translate(error, of_rucio.RucioCallRecord()), ServiceError)
    looped = ValueError("x")
    looped.__context__ = looped
    assert isinstance(of_rucio.translate(looped, of_rucio.RucioCallRecord()), ServiceError)


# ------------------------------------------------------------------------------- what libraries of HTTP can raise

HTTP = ("requests.", "urllib3.", "http.")
OF_PROGRAMS = {  # a wrong use of the library, which no peer brings about
    *("CannotSendHeader", "CannotSendRequest", "ImproperConnectionState", "NotConnected", "ResponseNotReady"),
    *("ClosedPoolError", "EmptyPoolError", "FullPoolError", "HostChangedError", "PoolError", "RequestError"),
    *("StreamConsumedError", "TimeoutStateError", "UnimplementedFileMode", "UnrewindableBodyError"),
    *("BaseHTTPError", "error"),  # other names of what is here
}


@pytest.mark.parametrize(
    "library", [requests.exceptions, urllib3.exceptions, http.client], ids=lambda lib: lib.__name__
)
def test_each_error_of_a_library_of_http_has_a_cause(library):
    """A loop of redirects was unexpected once, and printed a traceback."""
    kinds = {
        name: kind
        for name, kind in vars(library).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    raised = {n: k for n, k in kinds.items() if not issubclass(k, Warning) and k.__module__.startswith(HTTP)}
    unknown = set()
    for name, kind in raised.items():
        error = kind.__new__(kind)
        error.args = ("x",)
        if faults.judge(faults.Facts.of(error, Peer.RUCIO, text="x")).cause is Cause.UNEXPECTED:
            unknown.add(name)
    assert unknown <= OF_PROGRAMS
    assert len(raised) > 10
