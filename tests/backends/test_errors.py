"""Foreign errors are translated by what has to happen next, and let no secret through."""

from __future__ import annotations

import configparser
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from rucio.common import exception as rucio

from dc_inject.backends.rucio.errors import RucioCallRecord, translate
from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary, TryOtherItem

BARE = "no error information passed (http status code: {})"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (rucio.CannotAuthenticate("x"), NeedsOperator),
        (rucio.MissingClientParameter("x"), NeedsOperator),
        (rucio.ConfigNotFound("x"), NeedsOperator),
        (configparser.NoSectionError("client"), NeedsOperator),
        (requests.exceptions.InvalidSchema("x"), NeedsOperator),
        (rucio.DatabaseException("x"), Temporary),
        (rucio.ServerConnectionException(), Temporary),
        (rucio.InsufficientAccountLimit("x"), LinkRefused),
        (rucio.RSEWriteBlocked("x"), LinkRefused),
        (requests.ReadTimeout("x"), Temporary),
        (requests.exceptions.ChunkedEncodingError("x"), Temporary),
        (rucio.DuplicateRule("x"), TryOtherItem),
        (rucio.ReplicationRuleCreationTemporaryFailed("x"), TryOtherItem),
        (rucio.DataIdentifierNotFound("x"), Permanent),
        (rucio.InvalidObject("x"), Permanent),
        (rucio.AccessDenied("x"), Permanent),
        (rucio.RucioException(BARE.format(401)), NeedsOperator),
        (rucio.RucioException(BARE.format(413)), Permanent),
        (rucio.RucioException(BARE.format(429)), Temporary),
        (rucio.RucioException(BARE.format(500)), Temporary),
        (rucio.RucioException(BARE.format(404)), Temporary),
        (rucio.RucioException("KeyError: 'dids' not defined"), Permanent),
        (rucio.RucioException("('(sqlite3.OperationalError) database is locked',)"), Temporary),
        (rucio.RucioException("('(psycopg.errors.DeadlockDetected) deadlock detected',)"), Temporary),
        (rucio.RucioException("('(oracledb.exceptions.DatabaseError) ORA-00060: deadlock',)"), Temporary),
        (rucio.RucioException("A StatementError occurred while processing rule 4b12fff5"), Temporary),
        (rucio.RucioException("Badly formatted rule id (4b12fff5)"), Temporary),
        (rucio.RucioException("Badly formatted input (IDs?)"), Temporary),
        (rucio.RucioException("('(sqlite3.IntegrityError) UNIQUE constraint failed',)"), Permanent),
        (OSError("Could not find the TLS certificate file, invalid path: /tmp/x509up_u0"), NeedsOperator),
        (ValueError("Expecting value: line 1 column 1"), Temporary),
        (KeyError("x-rucio-auth-token"), Temporary),
    ],
)
def test_each_error_has_its_class(error: Exception, kind: type[ServiceError]) -> None:
    assert type(translate(error, RucioCallRecord())) is kind


@pytest.mark.parametrize(
    "error",
    [
        rucio.DatabaseException("An unknown Database Exception has occurred."),
        rucio.RucioException("('(sqlite3.OperationalError) database is locked',)"),
        rucio.RucioException(BARE.format(502)),
    ],
)
def test_where_there_is_an_answer_the_hint_is_to_ask_the_operators(error: Exception, wording) -> None:
    """`ping` would otherwise send people to their rucio.cfg."""
    wording(translate(error, RucioCallRecord()).hint)
    assert "operators" in (translate(error, RucioCallRecord()).hint or "")


@pytest.mark.parametrize(
    "kind", [k for _, k in inspect.getmembers(rucio, inspect.isclass) if issubclass(k, rucio.RucioException)]
)
def test_no_error_of_rucio_escapes(kind: type[rucio.RucioException]) -> None:
    with pytest.raises(Exception) as caught:
        raise kind("what the server said")
    assert isinstance(translate(caught.value, RucioCallRecord()), ServiceError)


@pytest.mark.parametrize(
    "text",
    ["password hunter2", "[client]\npassword hunter2", "[client]\npassword = %hunter2", "[client]\n[client]"],
)
def test_a_configuration_that_cannot_be_read_is_not_shown(text: str) -> None:
    def read() -> None:
        parser = configparser.ConfigParser()
        parser.read_string(text)
        parser.get("client", "password")

    with pytest.raises(configparser.Error) as caught:
        read()
    error = translate(caught.value, RucioCallRecord())
    assert isinstance(error, NeedsOperator)
    assert "hunter2" not in error.message


@pytest.mark.parametrize("content", [None, "no section", "[client"])
def test_a_wrong_configuration_does_not_stop_the_import(tmp_path: Path, content: str | None) -> None:
    config = tmp_path / "rucio.cfg"
    if content is not None:
        config.write_text(content)
    env = {**os.environ, "RUCIO_CONFIG": str(config)}
    subprocess.run([sys.executable, "-c", "import dc_inject.backends.rucio"], env=env, check=True, timeout=60)


def test_an_unforeseen_error_is_translated_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(translate(ZeroDivisionError("x"), RucioCallRecord()), Temporary)
    assert "ZeroDivisionError" in caplog.text


def test_while_a_client_is_made_the_unforeseen_is_for_a_person() -> None:
    error = translate(KeyError("client_proxy"), RucioCallRecord(), making=True)
    assert isinstance(error, NeedsOperator)
    assert (error.hold, error.fault.party) == ("local", "user")


@pytest.mark.parametrize(
    "error", [rucio.InsufficientAccountLimit("x"), rucio.CannotAuthenticate("x"), OSError("x")]
)
def test_an_unanswered_attempt_leaves_it_in_doubt_whatever_came_after(error: Exception) -> None:
    told = translate(error, RucioCallRecord(unanswered=True), writes=True)
    assert isinstance(told, Temporary)
    assert told.lost


def test_a_duplicate_is_looked_up_even_after_an_unanswered_attempt() -> None:
    assert isinstance(
        translate(rucio.DuplicateRule("x"), RucioCallRecord(unanswered=True), writes=True), TryOtherItem
    )


def test_a_broken_door_is_not_a_wrong_key() -> None:
    error = rucio.CannotAuthenticate("<html>502 Bad Gateway</html>")
    assert isinstance(translate(error, RucioCallRecord(status=502)), Temporary)
    assert isinstance(translate(error, RucioCallRecord(status=401)), NeedsOperator)
