"""Rucio's and FTS's own clients behind the gate: bounded answers, and secrets only for whom they are meant."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rucio.client import baseclient

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.rucio import RucioBackend, client
from dc_inject.backends.rucio.client import QuietClient
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary
from dc_inject.system import transport
from dc_inject.system.clock import SystemClock
from tests.certificates import make

from ..conftest import rucio_config
from ..gate import Server, bomb, drip, endless, json_answer, redirect, running
from .fts.keys import Keys
from .support import Heard, fts3_or_skip
from .test_client import PASSWORD, TOKEN, write_config

MB = 1_000_000


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        server.answers["/auth/"] = json_answer("", X_Rucio_Auth_Token=TOKEN)
        yield server


@pytest.fixture
def other() -> Iterator[Server]:
    with running() as server:
        server.answers["/"] = json_answer("{}", X_Rucio_Auth_Token=TOKEN)
        yield server


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("RUCIO_", "BEARER_", "X509_")) or name == "REQUESTS_CA_BUNDLE":
            monkeypatch.delenv(name)
    monkeypatch.setattr(QuietClient, "_back_off", lambda *_: None)


@pytest.fixture
def config(server: Server, tmp_path: Path) -> Iterator[Path]:
    config = write_config(tmp_path, server.server_port)
    with rucio_config(config):
        yield config


@pytest.fixture
def rucio(config: Path) -> RucioBackend:
    return RucioBackend(
        campaign="test", clock=SystemClock(), observer=Heard(), timeout=30, sleep=lambda _seconds: None
    )


@pytest.fixture
def fts(server: Server) -> FtsBackend:
    fts3_or_skip()
    return FtsBackend(
        server.url, campaign="test", clock=SystemClock(), observer=Heard(), credentials=Keys(), timeout=30
    )


def ask(request: pytest.FixtureRequest, service: str) -> Callable[[], Any]:
    """Return a question to the service, all of whose answers a test has bent."""
    backend = request.getfixturevalue(service)
    return backend.check if service == "fts" else lambda: backend.resolve("*")


def error_of(call: Callable[[], Any]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        call()
    return caught.value


SERVICES = pytest.mark.parametrize("service", ["rucio", "fts"])
STREAM = {"Content_Type": "application/x-json-stream"}


# ---------------------------------------------------------------------------------------- size


@SERVICES
@pytest.mark.parametrize(
    "trick",
    [endless(), endless(**STREAM), endless(b"", b'{"a": "%s"}\n' % (b"x" * 100_000), **STREAM)],
    ids=["one", "line", "lines"],
)
def test_an_answer_without_end_is_not_kept(
    request, server: Server, monkeypatch, service: str, trick, wording
) -> None:
    monkeypatch.setattr(transport.ExchangeLimits.__init__, "__defaults__", (5 * MB, *_clock()))
    call = ask(request, service)
    server.answers["/"] = trick
    error = error_of(call)
    assert "127.0.0.1" in error.message
    wording(error.message)
    assert server.sent < 100 * MB  # Rucio's back end asks a question three times


def _clock() -> tuple[Any, ...]:
    return (transport.ExchangeLimits.__init__.__defaults__ or ())[1:]


@SERVICES
def test_a_compressed_answer_is_not_unpacked(request, server: Server, service: str) -> None:
    call = ask(request, service)
    server.answers["/"] = bomb()
    assert "compressed" in error_of(call).message  # before anything of it is read


def test_what_is_listed_line_by_line_may_be_long(server: Server, rucio: RucioBackend, monkeypatch) -> None:
    monkeypatch.setattr(transport.ExchangeLimits.__init__, "__defaults__", (MB // 10, *_clock()))
    row = '{"scope": "a", "name": "b"}\n'
    server.answers["/rules"] = json_answer(row * 4_000, **STREAM)
    assert sum(1 for _ in rucio.connection.stream("list_replication_rules", {})) == 4_000
    assert "larger than 100 kB" in error_of(lambda: rucio.connection.call("list_replication_rules", {})).message


# ---------------------------------------------------------------------------------------- time


@SERVICES
def test_an_answer_that_drips_is_given_up(request, server: Server, monkeypatch, service: str, wording) -> None:
    call = ask(request, service)
    monkeypatch.setattr(transport, "TOTAL", 0.01)
    if service == "fts":
        monkeypatch.setattr("dc_inject.backends.fts.client.TOTAL", 0.01)
    server.answers["/"] = drip()
    wording(error_of(call).message)


def test_where_the_answer_to_a_change_drips_it_is_in_doubt(
    server: Server, rucio: RucioBackend, monkeypatch
) -> None:
    monkeypatch.setattr(transport, "TOTAL", 0.01)
    server.answers["/rules"] = drip(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n[")
    dids = [{"scope": "a", "name": "b"}]
    error = error_of(lambda: rucio.connection.call("add_replication_rule", dids, 1, "X", writes=True))
    assert isinstance(error, Temporary)
    assert error.lost


# ---------------------------------------------------------------------------------------- whose secrets


@SERVICES
def test_password_and_token_follow_no_redirect(request, server: Server, other: Server, service: str) -> None:
    call = ask(request, service)
    server.answers.clear()
    server.answers["/"] = redirect(other.url)
    error = error_of(call)
    assert isinstance(error, NeedsOperator)
    assert "redirect" in error.message
    assert other.asked == []


def test_a_token_follows_no_redirect_after_it_was_given(
    server: Server, other: Server, rucio: RucioBackend
) -> None:
    server.answers["/rses"] = redirect(other.url)
    assert isinstance(error_of(lambda: rucio.resolve("*")), NeedsOperator)
    assert other.asked == []


@SERVICES
def test_netrc_is_not_read(request, server: Server, monkeypatch, tmp_path: Path, service: str) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password from-netrc\n")
    monkeypatch.setenv("NETRC", str(netrc))
    call = ask(request, service)
    server.answers["/"] = json_answer("{}", 500)
    error_of(call)
    wanted = "Bearer " if service == "fts" else None
    assert {str(headers.get("Authorization"))[:7] for headers in server.headers} == {str(wanted)}


@pytest.mark.parametrize("where", ["X509_CERT_DIR", "ca_cert"])
@pytest.mark.parametrize("host", ["rucio_host", "auth_host"])
def test_verification_is_never_turned_off_by_an_empty_path(
    config: Path, rucio: RucioBackend, monkeypatch, where: str, host: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as never:  # its name is told the password, were it asked
        text = config.read_text().replace(f"{host} = http:", f"{host} = https:")
        config.write_text(text + ("\nca_cert =\n" if where == "ca_cert" else ""))
        if where != "ca_cert":
            monkeypatch.setenv(where, "")
        error = error_of(rucio.check)
        assert never
    assert isinstance(error, NeedsOperator)
    assert where in error.message
    assert "authorities" in (error.hint or "")


# ---------------------------------------------------------------------------------------- whose token


def test_the_place_of_a_token_is_ours_alone(server: Server, rucio: RucioBackend, tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir(mode=0o777)
    (tmp_path / "tokens").chmod(0o777)
    (tmp_path / "tokens" / "token").write_text("planted")
    error = error_of(rucio.check)
    assert isinstance(error, NeedsOperator)
    assert error.hold == "credentials"
    assert str(tmp_path / "tokens") in error.message
    assert server.asked == []
    assert PASSWORD not in error.message


@pytest.mark.parametrize("plant", ["owner", "folder", "writable", "link", "expiry", "above"])
def test_a_token_that_somebody_else_may_have_planted_is_not_used(
    tmp_path: Path, monkeypatch, plant: str, wording
) -> None:
    shared = tmp_path / "tmp"
    folder = shared / "me" / ".rucio_me"
    folder.mkdir(parents=True, mode=0o700)
    shared.chmod(0o1777)
    token, expiry = folder / "token", folder / "expiry"
    token.write_text("planted")
    token.chmod(0o600)
    expiry.write_text("1")
    expiry.chmod(0o600)
    places = (None, str(expiry), str(token), str(folder))
    client.check_place(places)
    client.check_place((None, str(folder / "none"), str(folder / "no"), str(folder)))
    client.check_place((None, str(tmp_path / "x"), str(tmp_path / "y"), str(tmp_path / "no-folder")))
    others = {"owner": token, "folder": folder, "above": folder.parent}.get(plant)
    if others is not None:
        real = Path.stat

        def stat(path: Path, **how: bool) -> os.stat_result:
            about = real(path, **how)
            values = list(about)
            values[4] = 4711 if path == others else about.st_uid
            return os.stat_result(values)

        monkeypatch.setattr(Path, "stat", stat)
    elif plant == "writable":
        token.chmod(0o620)
    elif plant == "link":
        token.unlink()
        token.symlink_to(expiry)
    else:
        expiry.chmod(0o666)
    with pytest.raises(NeedsOperator) as refused:
        client.check_place(places)
    wording(refused.value)


def test_a_bearer_token_of_somebody_else_is_not_discovered(tmp_path: Path, monkeypatch, wording) -> None:
    file = tmp_path / f"bt_u{os.geteuid()}"
    client.check_discovery(tmp_path)
    file.write_text("planted")
    client.check_discovery(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    file.rename(tmp_path / "bt_u4711")
    with pytest.raises(NeedsOperator) as refused:
        client.check_discovery(tmp_path)
    wording(refused.value)
    monkeypatch.setenv("BEARER_TOKEN_FILE", "/mine")
    client.check_discovery(tmp_path)


# ---------------------------------------------------------------------------------------- nothing goes beside it


def gated(client: QuietClient) -> bool:
    """Whether each way out of a client's session is the gate's."""
    return isinstance(client.session, transport.Session) and all(
        isinstance(adapter, transport.Adapter) for adapter in client.session.adapters.values()
    )


def test_the_session_of_rucios_client_is_the_gates_also_after_a_new_token(
    server: Server, rucio: RucioBackend
) -> None:
    refusal = json_answer("", 401, ExceptionClass="CannotAuthenticate", ExceptionMessage="no")
    answers = iter([refusal, json_answer('{"rse": "A"}', **STREAM)])
    server.answers["/rses"] = lambda handler: next(answers)(handler)  # noqa: PLW0108  another one each time
    client = rucio.connection.client()
    first = client.session
    assert gated(client)
    assert rucio.resolve("*") == ("A",)
    assert client.session is not first
    assert gated(client)


@pytest.mark.parametrize("kind", ["userpass", "x509", "x509_proxy", "ssh", "oidc", "gss"])
def test_each_way_to_a_token_goes_through_the_gate(
    server: Server, config: Path, rucio: RucioBackend, tmp_path: Path, monkeypatch, kind: str
) -> None:
    """An answer without a bound would be read to its end by the client: that of an error is."""
    monkeypatch.setattr(transport.ExchangeLimits.__init__, "__defaults__", (5 * MB, *_clock()))
    if kind == "gss":  # tickets would be made by a library that is not in the lock; the rest is the client's own
        monkeypatch.setitem(baseclient.EXTRA_MODULES, "requests_kerberos", True)
        monkeypatch.setattr(baseclient, "HTTPKerberosAuth", lambda: lambda request: request, raising=False)
    key = tmp_path / "key.pem"
    made = make(tmp_path, "person", "person", days=5)
    key.write_text(made.certificate.read_text() + made.key.read_text())
    key.chmod(0o600)
    config.write_text(
        config.read_text().replace("auth_type = userpass", f"auth_type = {kind}")
        + f"\nclient_cert = {key}\nclient_key = {key}\nclient_x509_proxy = {key}\nssh_private_key = {key}\n"
        + "auth_oidc_refresh_active = True\n"
    )
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if kind == "oidc":  # the client only ever renews one
        (tmp_path / "tokens").mkdir(mode=0o700)
        (tmp_path / "tokens" / "token").write_text("old")
        (tmp_path / "tokens" / "auth_token_exp_for_account_dcops").write_text(
            str(int(datetime.now(UTC).timestamp()) + 60)
        )
    server.answers.clear()
    server.answers["/"] = json_answer("x" * 20 * MB, 500)
    error_of(lambda: rucio.resolve("*"))
    assert any(path.startswith("GET /auth/") for path in server.asked)
    assert server.sent < 80 * MB
