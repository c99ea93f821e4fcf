"""Why a file failed, in one word of a short list: FTS's reasons are sentences of many storages. Pure."""

from __future__ import annotations

import re

CANCELED = "canceled"
VANISHED = "vanished"  # not a reason of FTS's: the job is not there any more, and nobody saw its end
CLASSES = (
    "source-missing",
    "source-error",
    "destination-exists",
    "destination-error",
    "checksum",
    "size",
    "connection",
    "timeout",
    "permission",
    CANCELED,
    VANISHED,
    "other",
)
UNFIT = frozenset({"source-missing", "checksum", "size"})  # the same file would fail again

# The first that fits counts. FTS writes `WHERE [errno] words`, where WHERE is SOURCE, DESTINATION or TRANSFER.
_SIGNS = (
    # Only where two were compared: slow checksums and unknown algorithms say nothing of the file.
    ("checksum", re.compile(r"(?=.*checksum).*(?:mismatch|do(?:es)? not match|differ)", re.I)),
    ("size", re.compile(r"SOURCE.*(?:user[- ](?:specified|defined)).*file ?size", re.I)),
    ("destination-exists", re.compile(r"(?!SOURCE).*(?:\[17\]|file exists|already exists)", re.I)),
    (
        "source-missing",
        re.compile(r"SOURCE\b(?!.*DESTINATION)(?:[^\[]*\[2\]|.*(?:HTTP 404|(?i:no such file|file not found)))"),
    ),
    (
        "timeout",
        re.compile(r".*(?:\[(?:62|110)\]|timed? ?out|operation expired|in the queue for too long)", re.I),
    ),
    (
        "permission",
        re.compile(r".*(?:\[(?:1|13)\]|HTTP 40[13]\b|permission|denied|unauthori[sz]ed|forbidden)", re.I),
    ),
    (
        "connection",
        re.compile(
            r".*(?:\[(?:70|101|104|107|11[1-3])\]|could not connect|connection|network|resolve|unreachable)", re.I
        ),
    ),
    (CANCELED, re.compile(r".*(?:\[125\]|cancell?ed)", re.I)),
    ("source-error", re.compile(r"SOURCE")),
    ("destination-error", re.compile(r"DESTINATION")),
)


def classify(state: str, reason: str) -> str:
    """Return the class of a file that did not arrive, from its state and FTS's reason."""
    text = " ".join(reason.split())
    if state == "CANCELED" and "too long" not in text:
        return CANCELED
    for word, sign in _SIGNS:
        if sign.match(text):
            return word
    return "other"
