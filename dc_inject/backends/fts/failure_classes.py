"""Why a file failed, in one word of a short list: FTS's reasons are sentences of many storages. Pure."""

from __future__ import annotations

import re

CANCELED = "canceled"
VANISHED = "vanished"  # not a reason of FTS's: the job is not there any more, and nobody saw its end
CLASSES = (
    "source-missing",
    "source-error",
    "destination-exists",
    "destination-full",
    "destination-error",
    "storage-error",
    "checksum",
    "size",
    "connection",
    "timeout",
    "permission",
    "credentials",
    CANCELED,
    VANISHED,
    "other",
)
UNFIT = frozenset({"source-missing", "checksum", "size"})  # the same file would fail again

_READ = 1024  # characters of a reason: what counts stands at its beginning, and storages send whole pages

_DIFFER = re.compile(r"mismatch|do(?:es)? not match|differ", re.I)
_LISTED = re.compile(r"user[- ](?:specified|defined)", re.I)
_SIZE = re.compile(r"file ?size", re.I)
_EXISTS = re.compile(r"\[17\]|file exists|already exists", re.I)
_MISSING = re.compile(r"HTTP 404|(?i:no such file|file not found)")
_ANSWERED = re.compile(r"HTTP [45][0-9]{2}\b")
_UNREACHED = re.compile(r"\[(?:70|101|104|107|11[1-3])\]")
# The first that fits counts.
_WORDS = (
    ("destination-full", re.compile(r"\[(?:28|122)\]|\bcode=28\b|no space left|HTTP 507|quota exceeded", re.I)),
    (
        "credentials",
        re.compile(
            r"\[Token|token (?:exchange|refresh|expired|has expired|is expired)"
            r"|(?:proxy|certificate|credentials?) (?:has |have |is )?expired"
            r"|expired (?:proxy|certificate|credential|token)",
            re.I,
        ),
    ),
    (
        "timeout",
        re.compile(
            r"\[(?:62|110)\]|timed? ?out|operation expired|in the queue for too long|stalled|HTTP (?:408|504)",
            re.I,
        ),
    ),
    (
        "permission",
        re.compile(r"\[(?:1|13)\]|HTTP 40[13]\b|permission|denied|unauthori[sz]ed|forbidden", re.I),
    ),
    ("connection", re.compile(r"could not connect|connection|network|resolve|unreachable", re.I)),
)


def classify(state: str, reason: str) -> str:
    """Return the class of a file that did not arrive, from its state and FTS's reason.

    FTS writes `WHERE [errno] words`, where WHERE is SOURCE, DESTINATION or TRANSFER.
    """
    text = " ".join(reason[:_READ].split())
    if state == "CANCELED" and "too long" not in text:
        return CANCELED
    if word := _of_the_file(text):
        return word
    for word, sign in _WORDS:
        if sign.search(text):
            return word
    answered = _ANSWERED.search(text) is not None  # so it was reached, whatever errno stands for the answer
    if not answered and _UNREACHED.search(text):
        return "connection"
    if "[125]" in text or re.search("cancell?ed", text, re.I):
        return CANCELED
    if text.startswith("SOURCE"):
        return "source-error"
    if text.startswith("DESTINATION"):
        return "destination-error"
    return "storage-error" if answered and text.startswith("TRANSFER") else "other"


def _of_the_file(text: str) -> str:
    """Return the class where the reason is about this one file; an empty text where it is not."""
    at_source = text.upper().startswith("SOURCE")
    # Only where two were compared: slow checksums and unknown algorithms say nothing of the file.
    if "checksum" in text.lower() and _DIFFER.search(text):
        return "checksum"
    if at_source and _LISTED.search(text) and _SIZE.search(text):
        return "size"
    if not at_source and _EXISTS.search(text):
        return "destination-exists"
    named = re.match(r"SOURCE\b", text) and "DESTINATION" not in text
    if named and (text[text.find("[") :].startswith("[2]") or _MISSING.search(text)):
        return "source-missing"
    return ""
