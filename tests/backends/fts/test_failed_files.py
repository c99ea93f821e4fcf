"""Reasons of FTS and of storages fall into the classes that an operator would give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.backends.fts.failed_files import CLASSES, UNFIT, classify


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("SOURCE [2] Result HTTP 404 : File not found  after 1 attempts", "source-missing"),
        ("SOURCE [2] No such file or directory", "source-missing"),
        ("DESTINATION [2] No such file or directory", "destination-error"),
        ("DESTINATION [17] Destination file exists and overwrite is not enabled", "destination-exists"),
        ("DESTINATION OVERWRITE [17] file exists", "destination-exists"),
        ("SOURCE [5] SOURCE CHECKSUM MISMATCH ... checksum do not match", "checksum"),
        ("DESTINATION CHECKSUM MISMATCH User and destination checksums do not match", "checksum"),
        ("SOURCE [5] Source and destination checksums differ", "checksum"),
        ("TRANSFER [22] mismatch: the checksum is 1, not 2", "checksum"),
        ("SOURCE [5] the checksum does not match", "checksum"),
        ("DESTINATION CHECKSUM [110] Connection timed out", "timeout"),
        ("SOURCE CHECKSUM [70] Error on XrdCl::FileSystem::Query: [ERROR] Operation expired", "timeout"),
        ("TRANSFER [11] Could not get the checksum: timeout of 60 s", "timeout"),
        ("DESTINATION CHECKSUM [111] Connection refused", "connection"),
        ("DESTINATION [95] Checksum algorithm not supported by the storage", "destination-error"),
        ("SOURCE CHECKSUM [95] no checksum", "source-error"),
        ("SOURCE CHECKSUM [2] No such file or directory", "source-missing"),
        ("SOURCE [5] Result HTTP 404 : File not found", "source-missing"),
        ("SOURCE [113] Host not found", "connection"),
        ("SOURCE [22] the authority's certificate was not found", "source-error"),
        ("SOURCE [5] copy failed: DESTINATION [2] no such file or directory", "source-error"),
        ("Source told by TRANSFER [2]: HTTP 404 at the destination", "other"),
        ("SOURCE [112] Could not connect to a:1094", "connection"),
        ("DESTINATION [111] Connection refused", "connection"),
        ("TRANSFER [70] connection broke", "connection"),
        ("TRANSFER [110] Transfer timed out", "timeout"),
        ("Job has been canceled because it stayed in the queue for too long", "timeout"),
        ("DESTINATION [13] Permission denied", "permission"),
        ("DESTINATION [1] Result HTTP 403 : Forbidden", "permission"),
        ("SOURCE [22] Result HTTP 500", "source-error"),
        ("DESTINATION [28] No space left on device", "destination-full"),
        ("TRANSFER [5] TRANSFER ERROR: ... no space left on device (code=28)", "destination-full"),
        ("TRANSFER [5] copy HTTP 507 : Insufficient Storage", "destination-full"),
        ("DESTINATION [122] Disk quota exceeded", "destination-full"),
        ("TRANSFER [112] TRANSFER ERROR: Copy failed (3rd push). Last attempt: copy HTTP 400", "storage-error"),
        ("TRANSFER [112] Copy failed (3rd pull). Last attempt: copy HTTP 500 : Internal Error", "storage-error"),
        ("DESTINATION [112] copy HTTP 503 : Service Unavailable", "destination-error"),
        ("TRANSFER [112] Host is down", "connection"),
        ("TRANSFER [112] copy HTTP 502, Connection refused", "connection"),
        ("TRANSFER [112] copy HTTP 504 : Gateway", "timeout"),
        ("[TokenExchange] Failed to exchange access token: unknown_error", "credentials"),
        ("[TokenRefresh] Failed to refresh token", "credentials"),
        ("SOURCE [5] the proxy has expired", "credentials"),
        ("Transfer forced-killed because it was stalled", "timeout"),
        ("TRANSFER [110] forced-killed because it was stalled", "timeout"),
        ("TRANSFER [5] something", "other"),
        ("TRANSFER [125] Transfer canceled by the user", "canceled"),
        ("", "other"),
    ],
)
def test_a_reason_has_its_class(reason: str, word: str) -> None:
    assert classify("FAILED", reason) == word


def test_a_cancelled_file_is_one_unless_its_queue_was_too_long() -> None:
    assert classify("CANCELED", "SOURCE [5] checksum") == "canceled"
    assert classify("CANCELED", "it stayed in the queue for too long") == "timeout"


@pytest.mark.parametrize(
    "reason",
    [
        "DESTINATION CHECKSUM [110] Connection timed out",
        "DESTINATION [95] Checksum algorithm not supported by the storage",
        "SOURCE [113] Host not found",
        "DESTINATION [2] No such file or directory",
        "TRANSFER [2] Result HTTP 404",
    ],
)
def test_what_may_go_well_next_time_speaks_against_no_file(reason: str) -> None:
    assert classify("FAILED", reason) not in UNFIT


def test_only_the_beginning_of_a_reason_is_looked_at() -> None:
    assert classify("FAILED", "TRANSFER [5] " + "x" * 5000 + " SOURCE [111] Connection refused") == "other"


@given(st.sampled_from(["FAILED", "CANCELED", "NOT_USED"]), st.text())
def test_any_reason_has_a_class_of_the_list(state: str, reason: str) -> None:
    assert classify(state, reason) in CLASSES
    assert set(CLASSES) >= UNFIT
