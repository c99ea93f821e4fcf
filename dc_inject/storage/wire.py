"""One request to a storage: sessions, TLS, credentials, redirects, bounds. Nothing of WebDAV is known here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

from dc_inject import __version__, urls
from dc_inject.errors import Fatal, Permanent, ServiceError, Temporary
from dc_inject.storage.bound import Bound, BoundAdapter
from dc_inject.storage.errors import of_failure, of_status
from dc_inject.storage.nouns import Access, Body

GRID = Path("/etc/grid-security/certificates")
MOST_REDIRECTS = 5
CHUNK = 65536
LONGEST_WORDS = 2048  # bytes of an error's body that are looked at
LARGEST = 256_000_000  # bytes of any other body
_SAME_METHOD = frozenset({301, 302, 307, 308})
_CHANGES = {"DELETE": "deleted", "PUT": "written"}
_HEADERS = {
    "User-Agent": f"dc-inject/{__version__}",
    "Accept": "*/*",
    "Accept-Encoding": "identity",  # else Content-Length is not the file's size
}


def trust(environ: Mapping[str, str], told: str = "") -> str | bool:
    """Return the file or folder of authorities to trust: as told, or where the grid and requests keep them."""
    for path in (told, environ.get("X509_CERT_DIR", ""), environ.get("REQUESTS_CA_BUNDLE", "")):
        if path:
            return path
    return str(GRID) if GRID.is_dir() else True


def canonical(url: str) -> urls.Url:
    """Read a URL; what is wrong with it is Permanent."""
    try:
        return urls.parse(url)
    except ValueError as error:
        raise Permanent(str(error)) from None


class Answer:
    """What came back: status and headers, and a body that is read within bounds."""

    def __init__(self, method: str, asked: str, response: requests.Response, secret: str) -> None:
        """Take the response; `asked` is the canonical URL that messages show."""
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.path = urlsplit(response.url or "").path
        self.host = urlsplit(response.url or "").hostname or ""
        self._response = response
        self._what = method, asked
        self._secrets = {secret} if secret else set()

    def body(self, largest: int = LARGEST) -> Iterator[bytes]:
        """Give the body in pieces; raises Permanent when it is too large."""
        method, asked = self._what
        size = 0
        for piece in self._response.raw.stream(CHUNK, decode_content=False):
            size += len(piece)
            if size > largest:
                raise Permanent(f"{method} {asked}: the answer is larger than {largest} bytes")
            yield piece

    def finish(self) -> None:
        """Read what is left of a small body, so that the connection can be used again."""
        self._response.raw.read(CHUNK, decode_content=False)

    def error(self) -> ServiceError:
        """Return the error that this answer means, with what a plain text says of it."""
        said = self._response.reason or ""
        if "html" not in self.headers.get("Content-Type", "") and self._response.request.method != "HEAD":
            text = self._response.raw.read(LONGEST_WORDS, decode_content=False) or b""
            said = text.decode("utf-8", "replace").strip() or said
        self.finish()
        return of_status(*self._what, self.status, said, self._secrets)


class Wire:
    """Sends requests from any thread, each thread with its own session of kept connections."""

    def __init__(
        self,
        access: Callable[[], Access],
        *,
        verify: str | bool,
        connect: float = 10.0,
        read: float = 60.0,
        longest: float = 600.0,
    ) -> None:
        """Take who is asked for credentials at each call, and seconds: to connect, of silence, and in all."""
        self._access = access
        self._verify = verify
        self._timeout = (connect, read)
        self._longest = longest
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
    ) -> Iterator[Answer]:
        """Send one request, follow what may be followed, and close the answer at the end of the block.

        `more` are seconds that this one may take beyond what all may.
        """
        whole = canonical(url)
        folder = "/" if url.endswith("/") or not whole.path else ""
        asked = str(whole)
        access = self._access()
        endless = Temporary(f"{method} {asked}: the answer does not come to an end")
        with Bound(self._longest + more) as bound:
            try:
                web = str(whole._replace(scheme={"davs": "https", "dav": "http"}.get(whole.scheme, whole.scheme)))
                response = self._send(method, asked, web + folder, access, headers or {}, body)
                with response:
                    answer = Answer(method, asked, response, access.token)
                    yield answer
                    answer.finish()
                if bound.over:  # headers that were cut look like all of them
                    raise endless
            except (requests.RequestException, HTTPError, OSError, ServiceError) as error:
                if bound.over:  # then it was us who broke it
                    raise endless from None
                if isinstance(error, ServiceError):
                    raise
                raise of_failure(method, asked, error, {access.token} - {""}) from None

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
    ) -> requests.Response:
        if not (access.token.isascii() and access.token.isprintable()):
            raise Fatal("the token has characters that no token has", "write it again", hold="credentials")
        session = self._session(access.stamp)
        first, at_home = urlsplit(url), True
        for _ in range(MOST_REDIRECTS + 1):
            here = urlsplit(url)
            # Once away, always away: who sent us on must not aim our token at another file of our storage.
            at_home = at_home and _origin(here) == _origin(first)
            secret = {"Authorization": f"Bearer {access.token}"} if access.token and at_home else {}
            response = session.request(
                method,
                url,
                headers=_HEADERS | dict(headers) | secret,
                data=body,
                stream=True,
                allow_redirects=False,
                timeout=self._timeout,
                verify=self._verify,
                cert=(access.certificate, access.key) if access.certificate and here.scheme == "https" else None,
            )
            if not 300 <= response.status_code < 400:
                return response
            target = response.headers.get("Location", "")
            response.close()
            url = _next(method, asked, first, here, response.status_code, target)
        raise Permanent(f"{method} {asked}: more than {MOST_REDIRECTS} redirects")

    def _session(self, stamp: Hashable) -> requests.Session:
        local = self._local
        if getattr(local, "session", None) is None or local.stamp != stamp:
            if getattr(local, "session", None) is not None:
                local.session.close()  # what was opened with the old certificate is not used any more
                with self._lock:
                    self._sessions = [one for one in self._sessions if one is not local.session]
            local.session, local.stamp = _Session(), stamp
            with self._lock:
                self._sessions.append(local.session)
        session: requests.Session = local.session
        return session


class _Session(requests.Session):
    """A session that takes nothing from the environment, keeps no cookies, and leaves redirects to us."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # else a ~/.netrc would replace our token
        self.headers.clear()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        adapter = BoundAdapter(pool_connections=32, pool_maxsize=2, max_retries=0)
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002  as requests calls it
        """Keep requests from reading a redirect's body to its end, however long it is."""
        return None


def _origin(url: SplitResult) -> tuple[Any, ...]:
    return url.scheme, url.hostname, url.port


def _next(method: str, asked: str, first: SplitResult, here: SplitResult, status: int, location: str) -> str:
    """Return where a redirect leads, if we may go there; no part of a Location is ever shown but its host."""
    what = f"{method} {asked}: the storage answered {status}"
    if status not in _SAME_METHOD or not location:
        raise Permanent(f"{what}, which cannot be followed with the same method")
    try:
        target = urlsplit(urljoin(here.geturl(), location))
        host, _ = target.hostname or "", target.port
    except ValueError:
        raise Permanent(f"{what} with a Location that is no URL") from None
    if not host or target.username is not None or target.password is not None:
        raise Permanent(f"{what} with a Location that is not followed (no host, or a password in it)")
    loops = urls.is_loopback(host) and urls.is_loopback(first.hostname or "")
    if target.scheme != "https" and not (target.scheme == "http" and loops):
        raise Permanent(f"{what} with a Location on {host} that is not https")
    if method in _CHANGES and _name(target.path) != _name(first.path):
        raise Permanent(
            f"{what} with a Location on {host} that is another file: nothing was {_CHANGES[method]} there"
        )
    return target._replace(fragment="").geturl()


def _name(path: str) -> bytes:
    return urls.unquote(path.rstrip("/").rpartition("/")[2])
