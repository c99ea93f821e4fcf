"""One request to a storage: sessions, TLS, credentials, redirects, bounds, errors. It knows nothing of WebDAV.

`model/faults.py` judges errors. Here is what is special about storages: a failure of one file is Permanent; one
that may pass is Temporary; NeedsOperator is for what is wrong at this machine, the same for all storages, and
AccessDenied for credentials that this storage does not accept. No request here is ever in doubt: each can be
repeated. No message has a secret.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

from dc_inject import __version__
from dc_inject.model import faults, naming, samples, urls
from dc_inject.model.causes import Cause, Peer, Remedy
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary, blame, make_service_error
from dc_inject.model.faults import Facts, Fault
from dc_inject.model.redaction import scrub
from dc_inject.storage.types import Access, AccessDenied, Body, DirEntry, NotFound, credential
from dc_inject.system.transport import TOTAL, Adapter, Exchange, ExchangeLimits, Session
from dc_inject.system.transport_errors import TooLarge, TransportError

GRID = Path("/etc/grid-security/certificates")
MOST_REDIRECTS = 5
DEEPEST = 64  # levels of folders: a storage with links can go round for ever
CHUNK = 65536
LONGEST_WORDS = 2048  # bytes of an error's body that are looked at
LARGEST = 256_000_000  # bytes of any answer: a listing is read as it comes, and not kept
_SAME_METHOD = frozenset({301, 302, 307, 308})
_READS = frozenset({"GET", "HEAD", "OPTIONS", "PROPFIND"})  # whatever else there is, changes something
_OURS = (naming.TOP.encode(), samples.MARK.encode())  # the folders below which everything of ours is
_HEADERS = {
    "User-Agent": f"dc-inject/{__version__}",
    "Accept": "*/*",
    "Accept-Encoding": "identity",  # else Content-Length is not the file's size
}
_WRITE = (
    "ask the site for the right to write there (token: storage.create for that path; proxy: your VO and role), "
    "or renew proxy or token"
)


def trust(environ: Mapping[str, str], authorities: str = "") -> str | bool:
    """Return the file or folder of authorities to trust: those named, or where the grid and requests keep them."""
    for path in (authorities, environ.get("X509_CERT_DIR", ""), environ.get("REQUESTS_CA_BUNDLE", "")):
        if path:
            return path
    return str(GRID) if GRID.is_dir() else True


def canonical(url: str) -> urls.Url:
    """Read a URL; what is wrong with it is Permanent."""
    try:
        return urls.parse(url)
    except ValueError as error:
        raise Permanent(str(error)) from None


def walk(
    request: str, top: str, depth: int | None, limit: int, read: Callable[[str, int], Sequence[DirEntry]]
) -> Iterator[DirEntry]:
    """Give what lies below a folder, as `Storage.list` wants; a folder that goes meanwhile is left out.

    `read` returns what is right below a folder, or raises Permanent where that is more than it is given.
    """
    waiting, given = [(top, 1)], 0
    while waiting:
        where, level = waiting.pop()
        try:
            children = read(where, limit - given)
        except NotFound:
            if level == 1:
                raise
            continue
        given += len(children)
        yield from children
        if level != depth:
            if level == DEEPEST:
                raise Permanent(f"{request} {top}: folders are nested more than {DEEPEST} deep")
            waiting += [(entry.url, level + 1) for entry in children if entry.folder]


class Answer:
    """What came back: status and headers, and a body."""

    def __init__(self, method: str, url: str, response: requests.Response, access: Access) -> None:
        """Take the response; `url` is the canonical one that messages show, `access` what was shown."""
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.path = urlsplit(response.url or "").path
        self.host = urlsplit(response.url or "").hostname or ""
        self._response = response
        self._what = method, url
        self._secrets = {access.token} - {""}
        self._credential = credential(access)

    def body(self) -> Iterator[bytes]:
        """Give the body in pieces."""
        yield from self._response.raw.stream(CHUNK, decode_content=False)

    def finish(self) -> None:
        """Read what is left of a small body, so that the connection can be used again."""
        self._response.raw.read(CHUNK, decode_content=False)

    def error(self) -> ServiceError:
        """Return the error that this answer means, with the answer's text if it is plain."""
        reason = self._response.reason or ""
        if "html" not in self.headers.get("Content-Type", "") and self._response.request.method != "HEAD":
            text = self._response.raw.read(LONGEST_WORDS, decode_content=False) or b""
            reason = text.decode("utf-8", "replace").strip() or reason
        self.finish()
        return of_status(*self._what, self.status, reason, self._secrets, self._credential)


class HttpTransport:
    """Sends requests from any thread, each thread with its own session of kept connections."""

    def __init__(
        self,
        access: Callable[[], Access],
        *,
        verify: str | bool = True,
        connect: float = 10.0,
        read: float = 60.0,
        longest: float | None = None,
        may_open: Callable[[str], None] = lambda _url: None,
    ) -> None:
        """Take who is asked for credentials at each call, and seconds: to connect, of silence, and in all.

        In all it may take ten times the silence, unless set otherwise. `may_open` is asked before each call, and
        raises a ServiceError where credentials must not be seen.
        """
        self._access = access
        self._may_open = may_open
        self._verify = verify
        self._timeout = (connect, read)
        self._limits = ExchangeLimits(TOTAL * read if longest is None else longest, LARGEST)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._sessions: list[requests.Session] = []

    @contextmanager
    def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Body | None = None,
        more: float = 0.0,
        *,
        follow: bool = True,
    ) -> Iterator[Answer]:
        """Send one request, follow what may be followed, and close the answer at the end of the block.

        `more` are seconds that this one may take beyond what all may. Without `follow` no redirect is followed.
        """
        whole = canonical(url)
        folder = "/" if url.endswith("/") or not whole.path else ""
        asked = str(whole)
        self._may_open(asked)
        access = self._access()
        exchange = Exchange(whole.host, replace(self._limits, seconds=self._limits.seconds + more))
        try:
            web = str(whole._replace(scheme={"davs": "https", "dav": "http"}.get(whole.scheme, whole.scheme)))
            with exchange.under_way():
                response = self._send(method, asked, web + folder, access, headers or {}, body, follow=follow)
            with response:
                answer = Answer(method, asked, response, access)
                yield answer
                answer.finish()
        except TooLarge as error:
            raise Permanent(f"{method} {asked}: {error.what}") from None
        except (TransportError, requests.RequestException, HTTPError, OSError) as error:
            raise translate_failure(method, asked, error, {access.token} - {""}, credential(access)) from None

    def close(self) -> None:
        """Close the connections of all threads; whoever asks later opens new ones."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
            self._local = threading.local()
        for session in sessions:
            session.close()

    def _send(
        self,
        method: str,
        asked: str,
        url: str,
        access: Access,
        headers: Mapping[str, str],
        body: bytes | Body | None,
        *,
        follow: bool,
    ) -> requests.Response:
        if not (access.token.isascii() and access.token.isprintable()):
            raise NeedsOperator(
                "the token has characters that are not allowed in a token",
                "write the token again",
                hold="credentials",
            )
        session = self._session(access.stamp)
        first, at_home = urlsplit(url), True
        for _ in range(MOST_REDIRECTS + 1):
            here = urlsplit(url)
            # Once away, always away: who sent us on must not aim our credentials at another file of our storage.
            # Storages that redirect to their data servers put what opens those into the URL.
            at_home = at_home and _origin(here) == _origin(first)
            secret = {"Authorization": f"Bearer {access.token}"} if access.token and at_home else {}
            shown = access.certificate and at_home and here.scheme == "https"
            response = session.request(
                method,
                url,
                headers=_HEADERS | dict(headers) | secret,
                data=body,
                stream=True,
                allow_redirects=False,
                timeout=self._timeout,
                verify=self._verify,
                cert=(access.certificate, access.key) if shown else None,
            )
            if not 300 <= response.status_code < 400:
                return response
            target = response.headers.get("Location", "")
            response.close()
            if not follow:
                raise Permanent(f"{method} {asked}: the storage answered {response.status_code}; not followed")
            url = _redirect_target(method, asked, first, here, response.status_code, target)
        raise Permanent(f"{method} {asked}: more than {MOST_REDIRECTS} redirects")

    def _session(self, stamp: Hashable) -> requests.Session:
        local = self._local
        if getattr(local, "session", None) is None or local.stamp != stamp:
            if getattr(local, "session", None) is not None:
                local.session.close()  # what was opened with the old certificate is not used any more
                with self._lock:
                    self._sessions = [session for session in self._sessions if session is not local.session]
            local.session, local.stamp = self._new_session(), stamp
            with self._lock:
                self._sessions.append(local.session)
        session: requests.Session = local.session
        return session

    def _new_session(self) -> Session:
        """Return a session that takes nothing from the environment, and leaves redirects to us."""
        adapter = Adapter(self._limits, pool_connections=32, pool_maxsize=2)
        session = Session(adapter, environment=False, redirects_returned=True)
        session.headers.clear()
        return session


def _origin(url: SplitResult) -> tuple[Any, ...]:
    return url.scheme, url.hostname, url.port


def _redirect_target(
    method: str, asked: str, requested: SplitResult, current: SplitResult, status: int, location: str
) -> str:
    """Return the URL that a redirect leads to; raises Permanent if it may not be followed.

    `requested` is the first URL of the exchange, `current` the one that answered. Messages show only the host of a
    Location.
    """
    message = f"{method} {asked}: the storage answered {status}"
    if status not in _SAME_METHOD or not location:
        raise Permanent(f"{message}, which cannot be followed with the same method")
    try:
        target = urlsplit(urljoin(current.geturl(), location))
        host, _ = target.hostname or "", target.port
    except ValueError:
        raise Permanent(f"{message} with a Location that is no URL") from None
    if not host or target.username is not None or target.password is not None:
        raise Permanent(f"{message} with a Location that is not followed (no host, or a password in it)")
    loops = urls.is_loopback(host) and urls.is_loopback(requested.hostname or "")
    if target.scheme != "https" and not (target.scheme == "http" and loops):
        raise Permanent(f"{message} with a Location on {host} that is not https")
    if method not in _READS:
        _refuse_elsewhere(f"{message} with a Location on {host}", requested.path, target.path)
    return target._replace(fragment="").geturl()


def _refuse_elsewhere(message: str, first: str, target: str) -> None:
    """Raise Permanent unless a change may be made at another path: that of a file of ours, to the letter.

    What precedes our own folder may differ, because endpoints and data servers of a storage have different roots.
    Of a file outside of such a folder all of the path has to be equal. A folder is changed only where it was asked
    for: most servers delete it with all that is in it.
    """
    if first.endswith("/") or target.endswith("/"):
        raise Permanent(f"{message}: nothing was done, since a folder is never changed at another address")
    asked, there = _names(first), _names(target)
    start = next((place for place, name in enumerate(asked) if name in _OURS), None)
    same = there == asked if start is None else there[start - len(asked) :] == asked[start:]
    if not same or any(name in {b"", b".", b".."} or b"/" in name for name in there):
        raise Permanent(f"{message} of another file: nothing was done")


def _names(path: str) -> list[bytes]:
    """Return the decoded names that a path is made of, also those that are empty."""
    return [urls.unquote(name) for name in path.removeprefix("/").split("/")]


def of_status(
    method: str, url: str, status: int, reason: str = "", secrets: Collection[str] = (), credential: str = ""
) -> ServiceError:
    """Return the error for an answer that is not the one hoped for; `reason` is what came with it."""
    words = scrub(reason, secrets)
    text = f"{method} {url}: the storage answered {status}" + (f" ({words})" if words else "")
    fault = faults.judge(Facts(peer=Peer.STORAGE, status=status, text=words, credential=credential))
    if fault.cause is Cause.NOT_FOUND:
        return blame(NotFound(f"{method} {url}: there is no such file or folder"), fault)
    if fault.cause is Cause.CONFLICT and method in {"MKCOL", "PUT"}:
        return blame(NotFound(f"{text}, as a folder above it is missing"), fault)
    if status == 403 and method == "DELETE":
        hint = "you may not delete there, or not this file: ask the site, or delete it by hand"
        return blame(Permanent(text, hint), fault)
    return _of_storage(fault, text, _WRITE if method in {"PUT", "MKCOL"} else None)


def translate_failure(
    method: str, url: str, error: Exception, secrets: Collection[str] = (), credential: str = ""
) -> ServiceError:
    """Return the error for what `requests` raised; its own words are used sparingly, as they hold whole URLs."""
    fault = faults.judge(Facts.of(error, Peer.STORAGE, credential=credential))
    detail = error.what if isinstance(error, TransportError) else faults.detail(error)  # the URL has the host
    return _of_storage(fault, f"{method} {url}: {fault.message(scrub(detail, secrets))}")


def _of_storage(fault: Fault, text: str, write: str | None = None) -> ServiceError:
    """Return the error of one storage: others may work, unless it is this machine that fails."""
    if fault.cause.remedy is not Remedy.PERSON or fault.ours:
        return make_service_error(fault, text)
    if fault.cause.hold == "credentials":
        return blame(AccessDenied(text, write or fault.hint, hold=fault.cause.hold), fault)
    return blame(Temporary(text, fault.hint), fault)
