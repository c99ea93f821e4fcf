"""Credentials that a test can change."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dc_inject.model.errors import NeedsOperator
from dc_inject.model.redaction import scrub

TOKEN = "opaque-token-0123456789-abcdefghij-secret"


@dataclass
class Opens:
    """An access that a test can change."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    stamp: object = None
    kind: str = "nothing"
    origin: str = ""


@dataclass
class Keys:
    """Credentials that a test can change."""

    accesses: dict[str, Opens] = field(default_factory=lambda: {"fts": Opens(TOKEN)})
    expire: datetime | None = None
    refused: dict[str, NeedsOperator] = field(
        default_factory=dict
    )  # by purpose, such as of a token that has expired

    def access(self, purpose: str) -> Opens:
        if purpose in self.refused:
            raise self.refused[purpose]
        return self.accesses.get(purpose) or Opens()

    def until(self, purpose: str) -> datetime | None:
        return self.expire if purpose == "source" else None

    def transfer_tokens(self) -> tuple[str, str] | None:
        source, destination = self.access("source").token, self.access("destination").token
        return (source, destination) if source and destination else None

    def scrub(self, text: str) -> str:
        return scrub(text, [access.token for access in self.accesses.values()])
