"""Why a copy failed, in the words of FTS3: which end, an errno, and a text."""

from __future__ import annotations

import errno

SOURCE, DESTINATION, TRANSFER = "SOURCE", "DESTINATION", "TRANSFER"

_EVERYWHERE = {errno.EPERM, errno.EACCES, errno.EISDIR, errno.ENAMETOOLONG, errno.E2BIG, errno.EPROTONOSUPPORT}
_FINAL = {  # FTS3 does not try these again
    SOURCE: _EVERYWHERE | {errno.ENOENT, errno.ENOTDIR},
    DESTINATION: _EVERYWHERE | {errno.EEXIST},
    TRANSFER: (_EVERYWHERE - {errno.EISDIR, errno.E2BIG}) | {errno.ENOSPC, errno.EEXIST, errno.EFBIG, errno.EROFS},
}
_OF_STATUS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 405: errno.EPERM, 507: errno.ENOSPC}
_WORDS = {
    401: "Authentication Error",
    403: "Permission refused",
    404: "File not found",
    405: "Operation not permitted",
}
EXISTS = "Destination file exists and overwrite is not enabled"


class CopyFailed(Exception):
    """A copy failed at one end, or between them."""

    def __init__(self, end: str, number: int, text: str) -> None:
        """Take the end, an errno, and what a person should read."""
        super().__init__(text)
        self.end = end
        self.number = number
        self.text = " ".join(text.split())[:1000]

    @property
    def reason(self) -> str:
        """As it stands in the reason of a file."""
        return f"{self.end} [{self.number}] {self.text}"

    @property
    def final(self) -> bool:
        """Return whether another try is useless."""
        return self.number in _FINAL[self.end] or "checksum do not match" in self.text


def of_status(end: str, status: int) -> CopyFailed:
    """Translate a storage's HTTP status."""
    words = _WORDS.get(status, f"Unexpected server error: {status}")
    return CopyFailed(end, _OF_STATUS.get(status, errno.EIO), f"Result HTTP {status} : {words} after 1 attempts")
