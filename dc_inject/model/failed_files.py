"""Failed files: which files of FTS jobs failed, the class of each failure, and how they return to the debt. Pure.

FTS tries a file again by itself, so nothing has failed until its job is over; then everything that is not FINISHED
has, except what we cancelled ourselves. FTS's reasons are sentences of many storages: `classify` makes of each one
word of a short list.

The way back to the debt:

1. `_with_files` in `backends/fts/observing.py` adds up the bytes of a job's failed files. A job that FTS does not
   know any more has failed with all that was not seen to move (`_note_missing`).
2. `_measured` in `model/transitions.py` keeps those bytes in `Entry.failed`, which only grows.
3. `Entry.injected` (`model/types.py`) is less by as much; triggers in `ledger/schema.sql` keep the account in the
   same way. `_lost` in `engine/closing.py` counts it in the cycle in which it became known.
4. `Account.debt` (`planning/situation.py`) is more by as much, and `set_budgets` (`planning/selection.py`) spends
   it in the next cycles, within the cap.
5. What would fail again is not given again: files of a class in `UNFIT` are set aside for their destination
   (`_set_unfit_aside` in `engine/reconciler.py`), and a link of which most fails gets the hold `failing`.

Through Rucio no observation has failed bytes (`backends/rucio/observing.py`): STUCK files are tried again by
Rucio until the rule ends. What comes back to the debt is only what a stalled rule (suspended, or not begun minutes
after it was accepted) had not moved when it is gone: `with_stalled_named` in `planning/reconcile.py`. A rule with
STUCK files that expires unfinished, or that another person ends, stays injected with all of its bytes: its cycle
has asked for them, and the debt does not ask again. Only a link with a goal is due them again (`model/goals.py`),
since they have not moved and are not on their way. Where control acts, STUCK files count for the hold `failing`.
"""

from __future__ import annotations

import re

from dc_inject.model.causes import FILE_CLASSES

CANCELED = "canceled"
FINISHED = "FINISHED"  # the only state of a file that has moved
FAILED = frozenset({"FAILED", "NOT_USED"})  # also in a job that we cancelled
UNFIT = frozenset(name for name, about in FILE_CLASSES.items() if about.unfit)

_READ = 1024  # characters of a reason: what counts stands at its beginning, and storages send whole pages

_DIFFER = re.compile(r"mismatch|do(?:es)? not match|differ", re.I)
_LISTED = re.compile(r"user[- ](?:specified|defined)", re.I)
_SIZE = re.compile(r"file ?size", re.I)
_EXISTS = re.compile(r"\[17\]|file exists|already exists", re.I)
_MISSING = re.compile(r"HTTP 404|(?i:no such file|file not found)")
_ANSWERED = re.compile(r"HTTP [45][0-9]{2}\b")
_TAPE = re.compile(r"^STAGING|nearline|not online|bring[- _]?online", re.I)
# The storage that copies reports the status of the other one: which that is, follows from the way of copying.
_REMOTE = re.compile(
    r"remote side failed with status code (?P<far>\d{3})|rejected (?P<verb>GET|PUT): (?P<near>\d{3})", re.I
)
_WAYS = re.compile(r"3rd (pull|push)", re.I)
_UNREACHED = re.compile(r"\[(?:70|101|104|107|11[1-3])\]")
_STATUSES = {
    (end, status): name
    for end in ("source", "destination", "storage")
    for status, name in ((401, "permission"), (403, "permission"), (408, "timeout"), (504, "timeout"))
} | {("source", 404): "source-missing", ("destination", 507): "destination-full"}
# The first that fits counts.
_WORDS = (
    (
        "destination-full",
        re.compile(  # XRootD's only words for most writes onto a disk that is full are the last ones
            r"\[(?:28|122)\]|\bcode=28\b|no space left|HTTP 507|quota exceeded|unknown filesystem write failure",
            re.I,
        ),
    ),
    ("no-third-party-copy", re.compile(r"tpc not supported|not support third.party.cop", re.I)),
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
            r"\[(?:62|110)\]|timed? ?out|operation expired|in the queue for too long|stalled|HTTP (?:408|504)"
            r"|curl error \(28\)",
            re.I,
        ),
    ),
    ("permission", re.compile(r"\[(?:1|13)\]|HTTP 40[13]\b|permission|denied|unauthori[sz]ed|forbidden", re.I)),
    (
        "connection",
        re.compile(
            r"could(?: not|n.t) connect|connection|network|resolve|unreachable|SSL connect|receiving data"
            r"|transferred a partial file|server returned nothing|early EOF|broken pipe",
            re.I,
        ),
    ),
)


def classify(state: str, reason: str) -> str:
    """Return the class of a file that did not arrive, from its state and FTS's reason.

    FTS writes `WHERE [errno] words`, where WHERE is SOURCE, DESTINATION or TRANSFER. A file that is still waiting
    although its job is over, as for a token, was cancelled with it.
    """
    text = " ".join(reason[:_READ].split())
    if state not in FAILED and "too long" not in text:
        return CANCELED
    if word := _of_the_file(text) or _of_remote(text):
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
    # Only where two were compared: slow checksums and unknown algorithms show nothing about the file.
    if "checksum" in text.lower() and _DIFFER.search(text):
        return "checksum"
    if at_source and _LISTED.search(text) and _SIZE.search(text):
        return "size"
    if not at_source and _EXISTS.search(text):
        return "destination-exists"
    if _TAPE.search(text):
        return "source-on-tape"
    named = re.match(r"SOURCE\b", text) and "DESTINATION" not in text
    if named and (text[text.find("[") :].startswith("[2]") or _MISSING.search(text)):
        return "source-missing"
    return ""


def _of_remote(text: str) -> str:
    """Return the class where one storage reports what the other one answered; an empty text where it does not."""
    status = _REMOTE.search(text)
    if status is None:
        return ""
    ways = _WAYS.findall(text)  # the last one was tried last
    reads = status["verb"].upper() == "GET" if status["verb"] else ways[-1].lower() == "pull" if ways else None
    end = {True: "source", False: "destination", None: "storage"}[reads]
    return _STATUSES.get((end, int(status["far"] or status["near"])), f"{end}-error")
