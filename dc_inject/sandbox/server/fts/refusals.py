"""Answers other than success: what the service refuses, with the status and the body that FTS3 gives."""

from __future__ import annotations

REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    419: "Authentication Timeout",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Refused(Exception):
    """A request is answered with `status` and a message for a person."""

    def __init__(self, status: int, message: str) -> None:
        """Take one of the statuses in REASONS."""
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def line(self) -> str:
        """Status and reason, as they stand in bodies: '404 Not Found'."""
        return f"{self.status} {REASONS[self.status]}"
