"""What is said and kept of errors has no secret in it, whoever raised them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dc_inject.cli import common, exits

SECRET = "hunter2-opaque"


@pytest.fixture
def talking() -> None:
    """The log as commands have it, for one test."""
    common.talk()


@pytest.mark.usefixtures("talking")
def test_the_log_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of a message nor of the traceback below it."""
    common.talk()
    try:
        raise ValueError(f"https://h/x?authz={SECRET}")
    except ValueError as error:
        logging.getLogger("dc_inject.test").error("sent Authorization: Bearer %s", SECRET, exc_info=error)
    told = capsys.readouterr().err
    assert "sent Authorization" in told
    assert "ValueError: https://h/x?***" in told
    assert SECRET not in told


def test_the_trace_that_is_kept_shows_no_secret() -> None:
    _, hint = exits._unexpected(ValueError(f"https://h/x?authz={SECRET}"))
    file = Path(hint.rpartition(" ")[2])
    try:
        assert "ValueError: https://h/x?***" in file.read_text()
    finally:
        file.unlink()
