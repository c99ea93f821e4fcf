"""Reasons of FTS and of storages fall into the classes that an operator would give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.backends.fts.reasons import CLASSES, UNFIT, classify


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
        ("SOURCE [112] Could not connect to a:1094", "connection"),
        ("DESTINATION [111] Connection refused", "connection"),
        ("TRANSFER [70] connection broke", "connection"),
        ("TRANSFER [110] Transfer timed out", "timeout"),
        ("Job has been canceled because it stayed in the queue for too long", "timeout"),
        ("DESTINATION [13] Permission denied", "permission"),
        ("DESTINATION [1] Result HTTP 403 : Forbidden", "permission"),
        ("SOURCE [22] Result HTTP 500", "source-error"),
        ("DESTINATION [28] No space left on device", "destination-error"),
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


@given(st.sampled_from(["FAILED", "CANCELED", "NOT_USED"]), st.text())
def test_any_reason_has_a_class_of_the_list(state: str, reason: str) -> None:
    assert classify(state, reason) in CLASSES
    assert set(CLASSES) >= UNFIT
