"""Storage URLs in the texts of a menu: prefixes, paths below them, links of two URLs, and the address of FTS.

All are written in the canonical form of dc_inject.model.urls, so that two spellings of one place are equal.
Messages never quote the URL, which may carry a password.
"""

from __future__ import annotations

import re

from dc_inject.menu import values
from dc_inject.menu.values import WrongError
from dc_inject.model import urls

LONGEST = 700  # characters of a prefix; below it come our own names, and FTS keeps about 1,000 of a URL
EXAMPLE = "davs://se.example.org:8443/dc27"
ARROW = "->"  # between the ends of a link, where people write it
_NOT_OF_RSES = re.compile(r"[^!-~]")  # neither of names nor of expressions: Rucio has no others
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
ENDPOINT = "such as https://fts3.example.org:8446"
_SERVICE, _MONITORING = 8446, 8449  # the usual ports of FTS


def meant_as_url(text: str) -> bool:
    """Return whether the end of a link is meant as a URL, also with a slash too few; no RSE or expression is."""
    return _URL.match(text) is not None


def prefix(text: str) -> str:
    """Read the URL prefix that is an end of a link."""
    url = _parsed(text)
    if url.scheme in urls.XROOTD and not url.path:
        raise WrongError("the URL has no path", "name a folder: root://se.example.org//dc27")
    if len(str(url)) > LONGEST:
        raise WrongError(f"the URL has more than {LONGEST} characters", "use a folder with a shorter path")
    return str(url)


def file(text: str) -> str:
    """Read what a source list names: the URL of a file, or its path below the link's source."""
    if not meant_as_url(text):
        name = path(text)
    elif text.endswith("/"):
        raise WrongError(
            "the URL ends with a slash, as one of a folder", "name files; `files: {folder: ...}` lists one"
        )
    else:
        url = _parsed(text)
        name = str(url) if url.path else ""
    if not name:
        raise WrongError("it does not name a file", f"name one, such as {EXAMPLE}/file1")
    if len(name) > LONGEST:
        raise WrongError(f"the name has more than {LONGEST} characters", "leave it out")
    return name


def path(text: str) -> str:
    """Read a path below a prefix, written as in URLs; `.` is the prefix itself, the empty path."""
    if meant_as_url(text):
        raise WrongError("expected a path below the link's source, got a URL", "a path such as data/2024")
    if text.startswith("/"):
        raise WrongError(
            "the path begins with a slash", "paths are relative to the link's source: write data/2024, or `.`"
        )
    _parsed(f"https://source/{text}")  # whatever the scheme of the source will be
    return "/".join(part for part in text.split("/") if part not in {"", "."})


def pattern(text: str) -> str:
    """Read a pattern with shell wildcards for paths below a prefix."""
    if text.startswith("/") or meant_as_url(text):
        raise WrongError(
            "the pattern looks like a whole path or URL",
            "write a pattern for the path below the link's source, such as *.root",
        )
    return values.line(text, 255)


def link(text: str) -> str:
    """Read a link, `SOURCE:DESTINATION` or `SOURCE->DESTINATION`, and return it with the colon.

    Of two URLs the second begins where a second scheme does.
    """
    source, arrow, destination = text.partition(ARROW)
    if arrow:
        return f"{end_name(source.strip())}:{end_name(destination.strip())}"
    second = urls.BETWEEN.search(text)
    if second is None:
        if meant_as_url(text):
            raise WrongError(
                "a link has two ends", f"SOURCE:DESTINATION, such as {EXAMPLE}:root://se2.example.org//dc27"
            )
        return values.line(text)
    return f"{prefix(text[: second.start()])}:{prefix(text[second.end() :])}"


def end(text: str) -> str:
    """Read an end of a link: an RSE, a site with one RSE, an RSE expression, or (through FTS) a URL prefix."""
    text = text.strip()
    if (
        not text
        or (len(text) > 255 and not meant_as_url(text))
        or (not meant_as_url(text) and _NOT_OF_RSES.search(text))
    ):
        odd = values.odd_character(text, _NOT_OF_RSES)
        raise WrongError(
            f"{values.shown(text)!r} is not an end of a link{odd}",
            "an RSE such as T1_DE_KIT_Disk, or an RSE expression of up to 255 characters, without spaces",
        )
    return text


def end_name(text: str) -> str:
    """Read what the end of a link is called: the name of an RSE, or a URL prefix."""
    return prefix(text) if meant_as_url(text) else values.rse(text)


def endpoint(text: str) -> str:
    """Read the address of an FTS service."""
    try:
        url = _parsed(text)
    except WrongError as error:
        message, _ = values.explain(error)
        raise WrongError(message, ENDPOINT) from None  # an example of a storage does not help here
    if url.scheme not in {"https", "http"}:
        raise WrongError(f"FTS needs an https:// address, not {url.scheme}://", ENDPOINT)
    if url.port == _MONITORING or "ftsmon" in url.path:
        service = url._replace(port=_SERVICE, path="")
        raise WrongError("this is the monitoring page of FTS, not the service", f"such as {service}")
    return str(url)


def _parsed(text: str) -> urls.Url:
    """Return the parts of a URL; raises WrongError, whose text never shows what it may carry."""
    try:
        return urls.parse(text)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise WrongError(message, hint or f"such as {EXAMPLE}") from None
