"""The real client against a small server that answers what a test wants: the network's side of the back end."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.rucio.client import QuietClient
from dc_inject.model import Dataset, Link
from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.system.clock import SystemClock
from tests.certificates import make, make_between

from ..conftest import rucio_config
from .support import Heard, injection

PASSWORD = "hunter2-is-secret"
TOKEN = "dcops-someone-unknown-0123456789abcdef0123456789abcdef"
ONE = injection(Dataset("cms:/data#1", 10, 1), Link("FROM", "TO"))


@dataclass
class Answer:
    """What the server says to one request; `drop` closes the connection instead, `hang` says nothing."""

    status: int = 200
    body: str = "{}"
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    hang: bool = False


def refusal(status: int, kind: str, message: str = "no") -> Answer:
    """An error as Rucio tells it."""
    told = {"ExceptionClass": kind, "ExceptionMessage": message}
    return Answer(status, json.dumps(told), {"Content-Type": "application/octet-stream", **told})


@dataclass
class Script:
    """Answers by the beginning of the path, in turn; the last one stays."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    seen: list[tuple[str, str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def next(self, method: str, path: str) -> Answer:
        self.seen.append((method, path))
        found = next((some for start, some in self.answers.items() if path.startswith(start)), [Answer(404)])
        return found.pop(0) if len(found) > 1 else found[0]


@dataclass
class Place:
    script: Script
    config: Path
    backend: RucioBackend
    heard: Heard


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A back end whose rucio.cfg names a server that follows a script."""
    for name in (
        "RUCIO_ACCOUNT",
        "RUCIO_AUTH_TYPE",
        "RUCIO_HOME",
        "RUCIO_VO",
        "BEARER_TOKEN",
        "BEARER_TOKEN_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(QuietClient, "_back_off", lambda *_: None)  # the client sleeps between its attempts
    script = Script()
    with serving(script) as port:
        script.answers["/auth/userpass"] = [Answer(headers={"X-Rucio-Auth-Token": TOKEN})]
        config = write_config(tmp_path, port)
        heard = Heard()
        backend = RucioBackend(campaign="test", clock=SystemClock(), observer=heard, timeout=0.5)
        with rucio_config(config):
            yield Place(script, config, backend, heard)


@contextlib.contextmanager
def serving(script: Script) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = script.next(self.command, self.path)
            if answer.hang:
                script.over.wait(30)
            if answer.drop or answer.hang:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(answer.status)
            headers = {"Content-Type": "application/json", **answer.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body.encode())))
            self.end_headers()
            self.wfile.write(answer.body.encode())

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        script.over.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def write_config(folder: Path, port: int, *more: str) -> Path:
    config = folder / "rucio.cfg"
    host = f"http://127.0.0.1:{port}"
    lines = [
        "[client]",
        f"rucio_host = {host}",
        f"auth_host = {host}",
        "auth_type = userpass",
        "username = someone",
        f"password = {PASSWORD}",
        "account = dcops",
        f"auth_token_file_path = {folder}/tokens/token",
        *more,
    ]
    config.write_text("\n".join(lines))
    return config


def submit(place: Place) -> Any:
    (outcome,) = place.backend.submit([ONE])
    return outcome


# ---------------------------------------------------------------------------------------- what is in doubt


def test_a_rule_that_was_made_is_not_in_doubt(place: Place) -> None:
    place.script.answers["/rules"] = [Answer(201, '["rule-1"]')]
    assert submit(place).external_id == "rule-1"


@pytest.mark.parametrize(
    "answers",
    [
        [Answer(502, "<html>Bad Gateway</html>")],
        [Answer(504, "")],
        [Answer(500, "Internal Server Error")],
        [Answer(drop=True)],
        [Answer(hang=True)],
        [Answer(201, "this is no JSON")],
        [Answer(201, "[" * 1_000_000)],
        [Answer(201, "{}")],
        [Answer(drop=True), refusal(409, "InsufficientAccountLimit")],
        [Answer(502, ""), refusal(401, "CannotAuthenticate")],
    ],
    ids=["502", "504", "500", "drop", "hang", "garbage", "deep", "odd", "drop-quota", "502-401"],
)
def test_where_the_answer_was_lost_it_is_in_doubt(
    place: Place, answers: list[Answer], caplog: pytest.LogCaptureFixture
) -> None:
    place.script.answers["/rules"] = answers
    error = submit(place).error
    assert isinstance(error, Temporary)
    assert error.lost
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    "answer",
    [
        refusal(500, "DatabaseException"),
        refusal(503, "DatabaseException", "Currently there are too many requests"),
        refusal(409, "InsufficientAccountLimit"),
        Answer(429, "slow down"),
    ],
    ids=["database", "busy", "quota", "429"],
)
def test_what_rucio_refused_is_not_in_doubt(place: Place, answer: Answer) -> None:
    place.script.answers["/rules"] = [answer]
    error = submit(place).error
    assert isinstance(error, Temporary)
    assert not error.lost


def test_a_refused_connection_is_not_in_doubt(place: Place) -> None:
    place.script.answers["/rules"] = [Answer(201, '["rule-1"]')]
    submit(place)  # so that there is a client with a token
    host = place.backend.connection.client()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host.host = f"http://127.0.0.1:{unused.getsockname()[1]}"
        host.list_hosts = [host.host]
        error = place.backend._rules._make([ONE])[0].error
    assert isinstance(error, Temporary)
    assert not error.lost
    assert "refused" in error.message


def test_the_clients_own_repetition_of_a_lost_call_ends_in_adoption(place: Place) -> None:
    row = {
        "id": "rule-1",
        "scope": "cms",
        "name": "/data#1",
        "comments": "dc_inject/1 test s 2027-02-08T10:00:00Z",
        "rse_expression": "TO",
        "source_replica_expression": "FROM",
        "state": "REPLICATING",
        "locks_ok_cnt": 0,
        "locks_replicating_cnt": 1,
        "locks_stuck_cnt": 0,
        "created_at": "Mon, 08 Feb 2027 10:00:00 UTC",
        "expires_at": "Mon, 08 Feb 2027 11:00:00 UTC",
        "error": None,
    }
    listed = Answer(body=json.dumps(row), headers={"Content-Type": "application/x-json-stream"})
    place.script.answers["/rules/?"] = [listed]
    place.script.answers["/rules"] = [Answer(502, ""), refusal(409, "DuplicateRule")]
    place.script.answers["/accounts/whoami"] = [Answer(body='{"account": "dcops"}')]
    outcome = submit(place)
    assert (outcome.external_id, outcome.adopted) == ("rule-1", True)


def test_a_read_that_breaks_off_is_tried_again_later(place: Place) -> None:
    place.script.answers["/rses"] = [
        Answer(body='{"rse": "A"}\n{"rse":', headers={"Content-Type": "application/x-json-stream"})
    ]
    with pytest.raises(Temporary) as caught:
        place.backend.resolve("*")
    assert not caught.value.lost


def test_a_page_instead_of_rows_is_no_answer_and_the_question_is_asked_again(place: Place) -> None:
    page = Answer(body="<html><h1>Bad Gateway</h1></html>", headers={"Content-Type": "text/html"})
    rows = Answer(body='{"rse": "A"}\n', headers={"Content-Type": "application/x-json-stream"})
    place.script.answers["/rses"] = [page, rows]
    assert place.backend.resolve("*") == ("A",)


# ---------------------------------------------------------------------------------------- who we are


def test_a_wrong_password_is_for_a_person_and_is_not_told(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.script.answers["/auth/userpass"] = [
        refusal(401, "CannotAuthenticate", f"{PASSWORD} is wrong, so is password={PASSWORD}")
    ]
    caplog.set_level(logging.DEBUG)
    with pytest.raises(NeedsOperator) as caught:
        place.backend.check()
    assert caught.value.hold == "credentials"
    assert caught.value.hint is not None
    assert "127.0.0.1" in caught.value.message
    assert PASSWORD not in caught.value.message + caught.value.hint + caplog.text


def test_a_repaired_configuration_is_taken_up_by_the_next_check(place: Place) -> None:
    place.script.answers["/auth/userpass"].insert(0, refusal(401, "CannotAuthenticate"))
    with pytest.raises(NeedsOperator):
        place.backend.check()
    place.script.answers["/ping"] = [Answer(body='{"version": "41.5.1"}')]
    place.script.answers["/accounts/whoami"] = [Answer(body='{"account": "other"}')]
    place.script.answers["/accounts/other/attr"] = [Answer(body="[]")]
    place.script.answers["/rules"] = [refusal(404, "RuleNotFound")]
    place.config.write_text(place.config.read_text().replace("account = dcops", "account = other"))
    assert place.backend.check().account == place.backend.connection.client().account == "other"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda config: config.unlink(), "configuration file"),
        (lambda config: config.write_text("[client]\n"), "rucio_host"),
        (lambda config: config.write_text("no section\n"), "line 1"),
        (
            lambda config: config.write_text(config.read_text().replace("rucio_host = http", "rucio_host = ftp")),
            "ftp",
        ),
        (lambda config: config.write_text(config.read_text().replace("= userpass", "= x509_proxy")), "proxy"),
        (lambda config: config.write_text(config.read_text().replace("= userpass", "= oidc")), "token"),
    ],
    ids=["missing", "empty", "garbage", "scheme", "proxy", "token"],
)
def test_a_wrong_configuration_is_fatal_with_a_hint(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: Callable[[Path], None],
    words: str,
) -> None:
    monkeypatch.setenv("X509_USER_PROXY", str(tmp_path / "no-proxy"))
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "no-token"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    change(place.config)
    with pytest.raises(NeedsOperator) as caught:
        place.backend.check()
    assert words in caught.value.message
    assert caught.value.hint


SECRET = "password = hunter2-is-secret"


@pytest.mark.parametrize(
    ("change", "cause", "place_"),
    [
        (lambda text: f"\ufeff{text}", "configuration", ", line 1:"),
        (lambda text: f"{text}\njust a line\n", "configuration", ", line {}:"),
        (lambda text: f"{text}\n{SECRET}\n{SECRET}\n", "configuration", ", line {}:"),
        (lambda text: f"{SECRET}\n{text}", "configuration", ", line 1:"),
        (lambda text: text.replace("http://", ""), "address", ""),
        (lambda text: text.replace("= userpass", "= x509_proxy"), "credentials-missing", ""),
    ],
    ids=["mark", "stray", "twice", "before", "no scheme", "no proxy"],
)
def test_what_is_wrong_in_a_configuration_has_its_place_and_never_its_text(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str], cause: str, place_: str
) -> None:
    for name in ("X509_USER_PROXY", "RUCIO_CLIENT_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.isfile", lambda path: "x509up_u" not in str(path) and Path(path).is_file())
    text = place.config.read_text()
    place.config.write_text(change(text), encoding="utf-8")
    with pytest.raises(NeedsOperator) as caught:
        place.backend.check()
    assert caught.value.fault is not None
    assert (str(caught.value.fault.cause), caught.value.fault.party) == (cause, "user")
    line = place.config.read_text().splitlines()[len(text.splitlines()) :]
    number = len(text.splitlines()) + next((n for n, one in enumerate(line, 1) if one), 0)
    assert f"{place.config}{place_.format(number)}" in caught.value.message or not place_
    assert "hunter2" not in f"{caught.value.message}{caught.value.hint}"
    assert "RUCIO_CONFIG" not in (caught.value.hint or "")  # the file is found


@pytest.mark.parametrize("kind", ["x509", "x509_proxy"])
def test_a_certificate_is_looked_at_before_it_is_shown(place: Place, monkeypatch, tmp_path: Path, kind) -> None:
    authority = make(tmp_path, "authority", "authority", days=5)
    future = make_between(
        tmp_path, "future", "person", start="20980101000000Z", end="20990101000000Z", by=authority
    )
    whole = tmp_path / "whole"
    whole.write_text(future.certificate.read_text() + future.key.read_text())
    whole.chmod(0o600)
    monkeypatch.setenv("RUCIO_CLIENT_PROXY", str(whole))
    monkeypatch.setenv("RUCIO_CLIENT_CERT", str(future.certificate))
    monkeypatch.setenv("RUCIO_CLIENT_KEY", str(future.key))
    place.config.write_text(place.config.read_text().replace("= userpass", f"= {kind}"))
    with pytest.raises(NeedsOperator) as caught:
        place.backend.check()
    assert caught.value.fault is not None
    assert caught.value.fault.cause == "credentials-not-yet-valid"
    assert place.script.seen == [("GET", "/ping")] or not place.script.seen
    assert ("voms-proxy-init" in (caught.value.hint or "")) is (kind == "x509_proxy")


def test_a_token_that_expires_is_renewed_from_its_file_and_nobody_is_asked(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "bearer"
    file.write_text("first")
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(file))
    place.config.write_text(place.config.read_text().replace("= userpass", "= oidc"))
    rses = Answer(body='{"rse": "A"}', headers={"Content-Type": "application/x-json-stream"})
    place.script.answers["/rses"] = [rses, refusal(401, "CannotAuthenticate")]
    place.backend.resolve("*")
    with pytest.raises(NeedsOperator) as caught:
        place.backend.resolve("*")
    assert caught.value.hold == "credentials"
    file.write_text("second")
    place.script.answers["/rses"] = [refusal(401, "CannotAuthenticate"), rses]
    assert place.backend.resolve("*") == ("A",)


def test_tokens_are_kept_where_only_the_owner_can_read_them(place: Place, tmp_path: Path) -> None:
    place.script.answers["/rules"] = [Answer(201, '["rule-1"]')]
    submit(place)
    token = tmp_path / "tokens" / "token"
    assert token.read_text() == TOKEN
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_the_client_says_nothing_whatever_the_log_level(
    place: Place, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place.script.answers["/rules"] = [Answer(drop=True)]
    submit(place)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert {record.name.partition(".")[0] for record in caplog.records} <= {"urllib3", "dogpile", "dc_inject"}
    assert PASSWORD not in caplog.text
    assert TOKEN not in caplog.text


def test_every_thread_has_a_client_of_its_own(place: Place) -> None:
    clients: list[Any] = []

    def work() -> None:
        clients.extend([place.backend.connection.client(), place.backend.connection.client()])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(clients) == 6
    assert len({id(client) for client in clients}) == 3


def test_requests_are_counted_with_those_for_tokens_and_repetitions(place: Place) -> None:
    place.script.answers["/rules"] = [Answer(502, ""), Answer(201, '["rule-1"]')]
    submit(place)
    assert place.backend.connection.requests == len(place.script.seen) == 3
