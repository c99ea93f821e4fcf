"""Reasons of FTS and of storages fall into the classes that an operator would give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model.causes import FILE_CLASSES, Party
from dc_inject.model.failed_files import UNFIT, classify


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


PULL, PUSH = (f"TRANSFER [5] TRANSFER ERROR: Copy failed (3rd {way}). Last attempt: " for way in ("pull", "push"))
BOTH = "TRANSFER [5] TRANSFER ERROR: Copy failed (3rd pull, 3rd push). Last attempt: "
REMOTE = "Transfer failure: Remote side failed with status code"


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (f"{PULL}Transfer failure: Unknown filesystem write failure.", "destination-full"),
        (f"{PULL}Transfer failure: Transferred a partial file", "connection"),
        (f'{PULL}{REMOTE} 503; error message: "no"', "source-error"),
        (f'{PUSH}{REMOTE} 507; error message: "Insufficient Storage"', "destination-full"),
        (f"{PUSH}{REMOTE} 404", "destination-error"),
        (f"{BOTH}{REMOTE} 503", "destination-error"),
        (f"TRANSFER [5] {REMOTE} 500", "storage-error"),
        (f"{PULL}{REMOTE} 403", "permission"),
        (f"{PULL}{REMOTE} 404", "source-missing"),
        (f"{PULL}{REMOTE} 504", "timeout"),
        (
            "Copy failed with mode 3rd pull: Transfer failed: failure: rejected GET: 500 Server Error",
            "source-error",
        ),
        ("TRANSFER [5] failure: rejected PUT: 507 UNKNOWN_RESPONSE_CODE", "destination-full"),
        ("TRANSFER [95] TRANSFER ERROR: tpc not supported", "no-third-party-copy"),
        ("DESTINATION [95] Destination does not support third-party-copy.", "no-third-party-copy"),
        ("SOURCE [5] Result HTTP 503 : the file is nearline", "source-on-tape"),
        (f'{PULL}{REMOTE} 503; error message: "nearline"', "source-on-tape"),
        ("STAGING [110] bring-online timed out", "source-on-tape"),
        ("DESTINATION [17] Destination file exists and is on tape", "destination-exists"),
        (f"{PULL}copy HTTP 507 : Insufficient Storage", "destination-full"),
        (f"{PULL}copy HTTP 500 : Unexpected server error: 500", "storage-error"),
        (f"{PULL}Connection terminated abruptly; Status of TPC request unknown", "connection"),
        (f"{PUSH}Transfer failure: Server returned nothing (no headers, no data)", "connection"),
        ("SOURCE [112] Result curl error (56): Failure when receiving data from the peer", "connection"),
        ("DESTINATION [112] Result curl error (35): SSL connect error after 1 attempts", "connection"),
        ("DESTINATION [112] Result curl error (7): Couldn't connect to server", "connection"),
        ("SOURCE [112] Result curl error (28): Timeout was reached after 1 attempts", "timeout"),
        ("DESTINATION [1] HTTP 403 : Permission refused", "permission"),
        ("Job has been canceled because it stayed in the queue for too long (max-time-in-queue)", "timeout"),
        ("TRANSFER CHECKSUM MISMATCH Source and destination checksums do not match 675 != 8a4", "checksum"),
    ],
)
def test_what_real_services_write_has_the_class_that_an_operator_would_give(reason: str, word: str) -> None:
    """Seen with XRootD behind the real FTS, and reported by users of XRootD, dCache, gfal2 and CRAB."""
    assert classify("FAILED", reason) == word


@pytest.mark.parametrize("name", FILE_CLASSES)
def test_each_class_has_whose_fault_it_is(name: str) -> None:
    about = FILE_CLASSES[name]
    assert about.party in Party
    placed = ("source", "destination", "checksum", "size", "connection", "timeout")
    assert bool(about.where) == name.startswith(placed)


def test_a_cancelled_file_is_one_unless_its_queue_was_too_long() -> None:
    assert classify("CANCELED", "SOURCE [5] checksum") == "canceled"
    assert classify("CANCELED", "it stayed in the queue for too long") == "timeout"
    for waiting in ("TOKEN_PREP", "ON_HOLD", "SUBMITTED", "STAGING"):  # of a job that is over
        assert classify(waiting, "") == "canceled"


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
    assert classify(state, reason) in FILE_CLASSES
    assert set(FILE_CLASSES) >= UNFIT
