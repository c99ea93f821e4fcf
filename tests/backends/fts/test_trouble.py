"""What FTS and the network do wrong: each has its class, its hint, and never shows a token."""

from __future__ import annotations

import gc
import json
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import requests

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.fts.errors import FtsCallRecord, translate
from dc_inject.model import State
from dc_inject.model.errors import LinkRefused, NeedsOperator, Permanent, ServiceError, Temporary
from dc_inject.model.ports import Status

from ..support import Heard
from .conftest import bundle, submitted
from .keys import TOKEN, Keys, Opens
from .service import DROP, HANG, FakeFts

DEEP = "[" * 1_000_000
PAGE = f"<html><body>proxy error, you sent {TOKEN}</body></html>"


def said(message: str) -> dict[str, str]:
    return {"status": "4xx", "message": message}


@pytest.mark.parametrize(
    ("answer", "kind", "lost", "hold"),
    [
        ((400, said("No valid pairs available")), Permanent, None, None),
        ((400, said("Failed to validate access-token")), NeedsOperator, None, "credentials"),
        ((401, said(f"bad token {TOKEN}")), NeedsOperator, None, "credentials"),
        ((403, said("Not enough permissions")), NeedsOperator, None, "credentials"),
        ((403, said("davs://a is banned")), LinkRefused, False, "source-unavailable"),
        ((403, said("davs://b is banned")), LinkRefused, False, "destination-unavailable"),
        ((404, PAGE), Permanent, None, None),
        ((405, said("no")), Permanent, None, None),
        ((413, PAGE), Permanent, None, None),
        ((414, PAGE), Permanent, None, None),
        ((419, said("No delegation found")), NeedsOperator, None, "credentials"),
        ((429, said("slower")), Temporary, False, "api-errors"),
        ((500, said("boom")), Temporary, True, "api-errors"),
        ((502, PAGE), Temporary, True, "api-errors"),
        ((503, said("later")), Temporary, False, "api-errors"),
        ((504, PAGE), Temporary, True, "api-errors"),
        ((200, PAGE), Temporary, True, "api-errors"),
        ((200, []), Temporary, True, "api-errors"),
        ((200, DEEP), Temporary, True, "api-errors"),
        ((500, DEEP), Temporary, True, "api-errors"),
        ((404, DEEP), Permanent, None, None),
        ((DROP, ""), Temporary, True, "api-errors"),
    ],
)
def test_each_answer_to_a_submit_has_its_class(
    fts: FakeFts, backend: FtsBackend, caplog: pytest.LogCaptureFixture, answer, kind, lost, hold, wording
) -> None:
    fts.instead += [("POST", "/jobs", answer)] * 2
    (outcome,) = backend.submit([bundle(0)])
    error = outcome.error
    assert type(error) in {kind, *kind.__subclasses__()}
    assert getattr(error, "lost", None) == lost
    assert getattr(error, "hold", None) == hold
    wording(error)
    assert TOKEN not in f"{error.message} {error.hint} {error.__cause__ and ''}"
    assert not any(record.exc_info for record in caplog.records)
    if answer[0] in {400, 401, 403, 413, 414, 419}:
        assert error.hint


@pytest.mark.parametrize("answer", [(500, said("x")), (DROP, ""), (200, PAGE)])
def test_an_answer_that_was_lost_is_found_when_looked_for(fts: FakeFts, backend: FtsBackend, answer) -> None:
    fts.after.append(("POST", "/jobs", answer))
    made = bundle(0)
    (outcome,) = backend.submit([made])
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost
    (again,) = backend.submit([made])
    assert again.adopted
    assert len(fts.jobs) == 1


def test_a_job_that_is_known_already_is_never_given_up_for_who_we_are(fts: FakeFts, backend: FtsBackend) -> None:
    """The 409 says that the job is there; that a proxy answers 404 to what is asked next does not undo it."""
    made = bundle(0)
    backend.submit([made])
    fts.instead.append(("GET", "/whoami", (404, PAGE)))
    backend.connection._me = None
    (outcome,) = backend.submit([made])
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost
    (outcome,) = backend.submit([made])
    assert outcome.adopted


@pytest.mark.parametrize(("writes", "lost"), [(True, True), (False, False)])
def test_tls_that_breaks_off_may_have_done_so_while_the_answer_was_read(writes: bool, lost: bool) -> None:
    broke = requests.exceptions.SSLError(ssl.SSLEOFError(8, "EOF occurred in violation of protocol"))
    error = translate(broke, FtsCallRecord(), str, writes=writes)
    assert isinstance(error, Temporary)
    assert error.lost is lost


def test_an_answer_that_does_not_come_is_lost(fts: FakeFts, make: Callable[..., FtsBackend]) -> None:
    backend = make(timeout=0.3)
    backend.check()
    fts.instead.append(("POST", "/jobs", (HANG, "")))
    (outcome,) = backend.submit([bundle(0)])
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost
    assert "in time" in outcome.error.message


def refused_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def test_a_refused_connection_is_not_lost_and_asked_once_for_all(
    make: Callable[..., FtsBackend], heard: Heard
) -> None:
    endpoint = refused_port()
    backend = make(endpoint)
    outcomes = backend.submit([bundle(0), bundle(1)])
    assert [type(o.error) for o in outcomes] == [Temporary, Temporary]
    assert not any(o.error.lost for o in outcomes)
    assert heard.results("submit") == ["temporary"]
    with pytest.raises(Temporary, match="cannot connect"):
        backend.limits([bundle(0).link])
    with pytest.raises(NeedsOperator, match=endpoint.rpartition("/")[2]) as fatal:
        backend.check()
    assert fatal.value.hint


def test_a_service_that_goes_away_while_we_are_at_it_is_not_lost_before_it_is_sent(
    fts: FakeFts, backend: FtsBackend
) -> None:
    """The client is there already, and then the connection of the submit itself is refused."""
    backend.check()
    backend.connection._local.client._context.endpoint = refused_port()
    (outcome,) = backend.submit([bundle(0)])
    assert isinstance(outcome.error, Temporary)
    assert not outcome.error.lost


def test_what_is_wrong_with_one_job_costs_the_others_nothing(fts: FakeFts, backend: FtsBackend) -> None:
    backend.check()
    fts.instead += [("POST", "/jobs", (400, said("x"))), ("POST", "/jobs", (500, said("y")))]
    outcomes = backend.submit([bundle(n) for n in range(4)])
    assert [type(o.error) for o in outcomes] == [Permanent, Temporary, type(None), type(None)]


@pytest.mark.parametrize("answer", [(503, said("later")), (401, said("no")), (403, said("davs://b is banned"))])
def test_trouble_that_all_share_is_met_once(fts: FakeFts, backend: FtsBackend, answer) -> None:
    backend.check()
    fts.instead.append(("POST", "/jobs", answer))
    outcomes = backend.submit([bundle(n) for n in range(3)])
    assert fts.posts() == 1
    assert all(o.error and not getattr(o.error, "lost", False) for o in outcomes)
    assert not [o.error for o in backend.submit([bundle(n) for n in range(3)]) if o.error]


def test_a_service_that_fails_is_not_asked_for_each_job_of_a_batch(fts: FakeFts, backend: FtsBackend) -> None:
    backend.check()
    fts.instead += [("POST", "/jobs", (500, said("database")))] * 10
    outcomes = backend.submit([bundle(n) for n in range(10)])
    assert fts.posts() == 2
    assert [getattr(o.error, "lost", None) for o in outcomes] == [True] * 2 + [False] * 8


def test_tokens_that_a_service_echoes_never_come_out(
    fts: FakeFts, backend: FtsBackend, keys: Keys, caplog
) -> None:
    keys.accesses |= {"source": Opens("src-token-0123456789-abcdef"), "destination": Opens("dst-token-0123456789")}
    secrets = [TOKEN, "src-token-0123456789-abcdef", "dst-token-0123456789"]
    echo = " ".join(secrets) + f" https://pool/f?authz={TOKEN} eyJhbGciOi.eyJzdWIi.c2ln"
    for status in (400, 401, 500):
        fts.instead.append(("POST", "/jobs", (status, said(echo))))
        (outcome,) = backend.submit([bundle(0)])
        shown = f"{outcome.error.message} {outcome.error.hint}"
        assert not [secret for secret in [*secrets, "eyJzdWIi"] if secret in shown]
    (entry,) = submitted(backend, 1)
    fts.finish(lambda _file: f"TRANSFER [5] {echo}")
    (seen,) = backend.observe([entry])
    assert "TRANSFER [5]" in seen.error
    assert not [secret for secret in [*secrets, "eyJzdWIi"] if secret in repr(seen) + caplog.text]


def test_a_delegation_that_ran_out_is_made_anew_and_the_job_sent_once_more(
    fts: FakeFts, backend: FtsBackend
) -> None:
    fts.instead.append(("POST", "/jobs", (419, said("The delegated credentials expired"))))
    (outcome,) = backend.submit([bundle(0)])
    assert outcome.error is None
    assert fts.posts() == 2


def test_a_new_token_is_taken_up_after_the_old_one_was_refused(
    fts: FakeFts, backend: FtsBackend, keys: Keys
) -> None:
    backend.check()
    fts.instead.append(("POST", "/jobs", (401, said("expired"))))
    assert isinstance(backend.submit([bundle(0)])[0].error, NeedsOperator)
    keys.accesses["fts"] = Opens("new-token", stamp="new")
    assert backend.submit([bundle(0)])[0].error is None
    assert fts.seen[-1][2]["Authorization"] == "Bearer new-token"


@pytest.mark.parametrize("other", [{"vos": ["atlas"]}, {"user_dn": "/CN=somebody else"}, {"vos": []}])
def test_with_credentials_of_somebody_else_nothing_is_done(
    fts: FakeFts, backend: FtsBackend, keys: Keys, other: dict[str, object]
) -> None:
    """Ids of jobs are made of the VO: those of before would not be found, and be sent again."""
    backend.check()
    known, doubt = submitted(backend, 0, 1)
    doubt = replace(doubt, state=State.CALLED, external_id="")
    mine, fts.told = fts.told, fts.told | other
    keys.accesses["fts"] = Opens("token-of-another", stamp=2)
    jobs = len(fts.jobs)
    for _ in range(2):
        (outcome,) = backend.submit([bundle(2)])
        assert isinstance(outcome.error, NeedsOperator)
        assert outcome.error.hold == "credentials"
        for name in ("/CN=me", "dteam", *other.get("vos", []), other.get("user_dn", "")):
            assert name in outcome.error.message
        assert "token-of-another" not in outcome.error.message
        assert isinstance(backend.end([known])[0].error, NeedsOperator)
        with pytest.raises(NeedsOperator):
            backend.observe([known, doubt])
        if other != {"vos": []}:
            told = (
                backend.check()
            )  # it tells whom FTS knows now; that nobody takes it for the same is the engine's
            assert (told.account, told.vo) != ("/CN=me", "dteam")
    assert len(fts.jobs) == jobs
    assert all(job.state != "CANCELED" for job in fts.jobs.values())
    fts.told = mine
    keys.accesses["fts"] = Opens(TOKEN, stamp=3)
    assert backend.submit([bundle(2)])[0].error is None
    assert [one.status for one in backend.observe([known, doubt])] == [Status.WAITING] * 2


def test_new_credentials_cost_one_question_for_all(fts: FakeFts, backend: FtsBackend, keys: Keys) -> None:
    backend.check()
    keys.accesses["fts"] = Opens("new-token", stamp=2)
    submitted(backend, 0, 1, 2)
    backend.observe(submitted(backend, 3))
    asked = [path for _, path, headers in fts.seen if headers.get("Authorization") == "Bearer new-token"]
    assert asked.count("/whoami") == 1


def test_a_question_who_we_are_that_is_not_answered_costs_no_job(
    fts: FakeFts, backend: FtsBackend, keys: Keys
) -> None:
    """The job was never sent: nothing is in doubt."""
    backend.check()
    keys.accesses["fts"] = Opens("new-token", stamp=2)
    fts.instead.append(("GET", "/whoami", (500, said("boom"))))
    (outcome,) = backend.submit([bundle(0)])
    assert isinstance(outcome.error, Temporary)
    assert not outcome.error.lost
    assert not fts.jobs
    assert backend.submit([bundle(0)])[0].error is None


@pytest.mark.parametrize("purpose", ["source", "destination"])
def test_an_expired_token_of_a_storage_is_told_by_check_too(
    fts: FakeFts, backend: FtsBackend, keys: Keys, purpose: str
) -> None:
    """Were it told by submit only, the service would work again at each check and break at each submit."""
    keys.accesses |= {"source": Opens("src-token-0123456789"), "destination": Opens("dst-token-0123456789")}
    keys.refused[purpose] = NeedsOperator("the token expired", "get a new token", hold="credentials")
    for ask in (backend.check, lambda: backend.submit([bundle(0)])[0].error):
        try:
            error = ask()
        except NeedsOperator as raised:
            error = raised
        assert isinstance(error, NeedsOperator)
        assert (error.message, error.hold) == ("the token expired", "credentials")
    keys.refused.clear()
    assert backend.check().account
    assert backend.submit([bundle(0)])[0].error is None


@pytest.mark.parametrize(
    "told", [{"user_dn": "anon", "vos": []}, {"user_dn": "/CN=me", "vos": ["x"], "level": {"deleg": ""}}]
)
def test_somebody_without_rights_is_told_so(fts: FakeFts, backend: FtsBackend, told) -> None:
    fts.told = told
    with pytest.raises(NeedsOperator, match="127") as fatal:
        backend.check()
    assert fatal.value.hold == "credentials"


@pytest.mark.parametrize("answer", [(200, PAGE), (200, {"hello": 1}), (404, PAGE), (301, PAGE)])
def test_what_is_no_fts_is_told_so(fts: FakeFts, backend: FtsBackend, answer) -> None:
    fts.instead += [("GET", "/", answer)] * 2
    with pytest.raises(NeedsOperator, match="127") as fatal:
        backend.check()
    assert "8446" in fatal.value.hint


@pytest.mark.parametrize("answer", [(500, said("x")), (200, PAGE), (207, {"a": 1}), (207, [1]), (200, [{}])])
def test_a_look_that_fails_is_a_service_error(fts: FakeFts, backend: FtsBackend, answer) -> None:
    entries = submitted(backend, 0, 1)
    fts.instead.append(("GET", "/jobs", answer))
    try:
        seen = backend.observe(entries)
    except ServiceError as error:
        assert type(error) is Temporary  # noqa: PT017  some of them are told of by what was not said
    else:
        assert {one.status for one in seen} == {Status.UNKNOWN}


def test_a_job_that_we_may_not_see_is_not_known(fts: FakeFts, backend: FtsBackend) -> None:
    entries = submitted(backend, 0, 1)
    rows = [{"job_id": e.external_id, "http_status": "403 Forbidden", "http_message": "no"} for e in entries]
    fts.instead.append(("GET", "/jobs", (207, rows)))
    assert [one.status for one in backend.observe(entries)] == [Status.UNKNOWN] * 2
    fts.instead.append(("DELETE", "/jobs", (207, rows)))
    assert [type(o.error) for o in backend.end(entries)] == [Temporary] * 2


def test_a_certificate_that_is_not_there_is_told(make: Callable[..., FtsBackend], keys: Keys, tmp_path) -> None:
    keys.accesses["fts"] = Opens(certificate=str(tmp_path / "no.pem"), key=str(tmp_path / "no.pem"))
    with pytest.raises(NeedsOperator) as fatal:
        make().check()
    assert (fatal.value.hold, fatal.value.fault.cause) == ("credentials", "credentials-unreadable")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_certificate_that_is_none_is_told(make: Callable[..., FtsBackend], keys: Keys, tmp_path) -> None:
    """FTS's client leaves the file open then, which the collector finds."""
    (tmp_path / "bad.pem").write_text("nonsense")
    keys.accesses["fts"] = Opens(certificate=str(tmp_path / "bad.pem"), key=str(tmp_path / "bad.pem"))
    with pytest.raises(NeedsOperator) as fatal:
        make().check()
    assert (fatal.value.hold, fatal.value.fault.cause) == ("credentials", "credentials-unreadable")
    del fatal  # the trace keeps the file
    gc.collect()


def test_without_the_package_the_hint_says_how_to_get_it(
    make: Callable[..., FtsBackend], monkeypatch, wording
) -> None:
    monkeypatch.setitem(sys.modules, "dc_inject.backends.fts.client", None)
    with pytest.raises(NeedsOperator) as fatal:
        make().check()
    wording(fatal.value)
    assert "gcc" in fatal.value.hint


def test_a_body_is_json_of_a_bounded_message(fts: FakeFts, backend: FtsBackend) -> None:
    fts.instead.append(("POST", "/jobs", (400, said("x" * 10_000))))
    (outcome,) = backend.submit([bundle(0)])
    assert len(outcome.error.message) < 400
    assert json.dumps(outcome.error.message)
