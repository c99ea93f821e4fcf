"""Who may ask: tokens, certificates with delegation, and anybody on this machine unless that is switched off."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.sandbox import authority
from dc_inject.sandbox.environment import python_of
from tests.sandbox.fts.service import Fts, ended, fts3, states, submit, transfers

ALICE = {"vo": "cms", "user": "/CN=alice"}


def test_a_token_says_who_asks_and_needs_no_delegation(fts, source, destination):
    fts.tokens(**{"token-of-alice": ALICE})
    context = fts.context("token-of-alice")
    me = fts3.whoami(context)
    assert (me["vos"], me["user_dn"], me["method"]) == (["cms"], "/CN=alice", "oauth2")
    job = ended(context, submit(context, transfers(source, destination)))
    assert (job["vo_name"], job["user_dn"], job["job_state"]) == ("cms", "/CN=alice", "FINISHED")
    assert destination.tokens == [
        ("Bearer token-of-alice", "Bearer token-of-alice")
    ]  # as FTS3 does without others


def test_an_unknown_token_is_refused_and_not_repeated(fts):
    with pytest.raises(fts3.exceptions.Unauthorized) as refused:
        fts.context("token-of-nobody")
    assert "token-of-nobody" not in str(refused.value)
    assert "token-of-nobody" not in fts.log.read_text()


def test_a_token_expires_in_the_middle(fts):
    fts.tokens(alice=ALICE | {"expires": time.time() + 3600})
    context = fts.context("alice")
    fts.tokens(alice=ALICE | {"expires": time.time() - 1})
    with pytest.raises(fts3.exceptions.Unauthorized, match="expired"):
        fts3.whoami(context)


def test_jobs_of_another_vo_are_not_told_and_not_cancelled(fts, context, source, destination):
    fts.tokens(alice=ALICE)
    alice = fts.context("alice")
    job_id = submit(alice, transfers(source, destination))
    for ask in (fts3.get_job_status, fts3.cancel):
        with pytest.raises(fts3.exceptions.Unauthorized, match="Not enough permissions"):
            ask(context, job_id)
    ended(alice, job_id)
    place = f"source_se={source.se}&state_in=FINISHED&limit=9"
    assert [len(json.loads(who.get(f"/jobs?{place}"))) for who in (alice, context)] == [1, 0]
    assert [len(json.loads(who.get(f"/files?{place}"))) for who in (alice, context)] == [1, 0]


def test_the_same_sid_in_another_vo_is_another_job(fts, context, source, destination):
    fts.tokens(alice=ALICE)
    words = {"id_generator": "deterministic", "sid": "the same"}
    assert submit(fts.context("alice"), transfers(source, destination), **words) != submit(
        context, transfers(source, destination), **words
    )


def test_nobody_is_let_in_when_that_is_switched_off(fts):
    fts.settings(anonymous=False)
    with pytest.raises(fts3.exceptions.Unauthorized):
        fts.context()


@dataclass(frozen=True)
class Encrypted:
    """A service with https, and the authority behind it."""

    fts: Fts
    authority: authority.Authority

    def context(self, name: str) -> Any:
        certificate, key = self.authority.issue(name)
        return fts3.Context(self.fts.tls_url, str(certificate), str(key), capath=str(self.authority.certificate))


@pytest.fixture(scope="module")
def encrypted(sandbox_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("encrypted")
    mine = authority.create(folder / "authority")
    service = Fts(folder, python_of(sandbox_env))
    for file, name in zip(mine.issue("host", ["127.0.0.1"]), ("host.pem", "host.key"), strict=True):
        shutil.copy(file, service.folder / name)
    shutil.copy(mine.certificate, service.folder / "ca.pem")
    service.start(encrypted=True)
    try:
        yield Encrypted(service, mine)
    finally:
        service.stop()


def test_a_certificate_is_delegated_once_and_submits(encrypted, source, destination):
    context = encrypted.context("alice")
    me = fts3.whoami(context)
    assert (me["user_dn"], me["method"], me["vos"]) == (
        "/O=dc_inject sandbox/CN=alice",
        "certificate",
        ["sandbox"],
    )
    job = ended(context, submit(context, transfers(source, destination, 3)))
    assert states(job) == ["FINISHED"] * 3
    told = json.loads(context.get(f"/delegation/{me['delegation_id']}"))
    submit(context, transfers(source, destination))
    assert json.loads(context.get(f"/delegation/{me['delegation_id']}")) == told  # the first one still holds


def test_without_delegation_a_certificate_cannot_submit(encrypted, source, destination):
    context = encrypted.context("bob")
    job = fts3.new_job(transfers(source, destination))
    with pytest.raises(fts3.exceptions.NeedDelegation):
        context.post_json("/jobs", job)
    fts3.delegate(context)
    context.post_json("/jobs", job)


def test_a_delegation_of_less_than_an_hour_is_not_enough(encrypted, source, destination):
    context = encrypted.context("carol")
    fts3.delegate(context, lifetime=timedelta(minutes=30))
    with pytest.raises(fts3.exceptions.NeedDelegation):
        context.post_json("/jobs", fts3.new_job(transfers(source, destination)))
    fts3.delegate(context)
    context.post_json("/jobs", fts3.new_job(transfers(source, destination)))


def test_a_delegation_can_be_withdrawn(encrypted):
    context = encrypted.context("dave")
    place = f"/delegation/{fts3.delegate(context)}"
    context.delete(place)
    assert json.loads(context.get(place)) is None


def test_a_credential_of_somebody_else_is_not_taken(encrypted):
    alice, mallory = encrypted.context("alice"), encrypted.context("mallory")
    own = fts3.whoami(mallory)["delegation_id"]
    with pytest.raises(fts3.exceptions.Unauthorized, match="do not match"):
        mallory.get(f"/delegation/{fts3.whoami(alice)['delegation_id']}/request")
    mallory.get(f"/delegation/{own}/request")
    for rubbish in ("rubbish", encrypted.authority.certificate.read_text() * 2):
        with pytest.raises(fts3.exceptions.ClientError, match="Could not process the proxy"):
            mallory.put(f"/delegation/{own}/credential", rubbish)


def test_a_credential_that_was_signed_by_somebody_else_or_for_another_key_is_not_taken(encrypted):
    from fts3.rest.client.delegator import Delegator  # noqa: PLC0415 (only where there is the client)

    def signed_by(context, request):
        signer = Delegator(context)
        return signer._full_proxy_chain(signer._sign_request(request, timedelta(hours=12), legacy_mode=False))

    alice, mallory = encrypted.context("alice"), encrypted.context("mallory")
    ids = {who: fts3.whoami(who)["delegation_id"] for who in (alice, mallory)}
    requests = {who: Delegator(who)._get_proxy_request(own) for who, own in ids.items()}
    for signer, asked, words in ((alice, mallory, "not of the one"), (mallory, alice, "stored associated")):
        with pytest.raises(fts3.exceptions.ClientError, match=words):
            mallory.put(f"/delegation/{ids[mallory]}/credential", signed_by(signer, requests[asked]))
    mallory.put(f"/delegation/{ids[mallory]}/credential", signed_by(mallory, requests[mallory]))


def test_a_certificate_of_another_authority_does_not_get_in(encrypted, tmp_path):
    certificate, key = authority.create(tmp_path / "other").issue("eve")
    trust = str(encrypted.authority.certificate)
    with pytest.raises((fts3.exceptions.BadEndpoint, OSError)):
        fts3.Context(encrypted.fts.tls_url, str(certificate), str(key), capath=trust)


def test_https_without_credentials_is_refused(encrypted):
    with pytest.raises(fts3.exceptions.Unauthorized, match="No credentials"):
        fts3.Context(encrypted.fts.tls_url, capath=str(encrypted.authority.certificate))


def test_a_token_is_enough_on_https(encrypted):
    encrypted.fts.tokens(alice=ALICE)
    trust = str(encrypted.authority.certificate)
    context = fts3.Context(encrypted.fts.tls_url, fts_access_token="alice", capath=trust)
    assert fts3.whoami(context)["vos"] == ["cms"]


def test_the_vo_of_a_certificate_and_its_config_right_come_from_the_settings(encrypted):
    dn = "/O=dc_inject sandbox/CN=operator"
    encrypted.fts.settings(vos={dn: "atlas"}, config_users=[dn])
    context = encrypted.context("operator")
    assert fts3.whoami(context)["vos"] == ["atlas"]
    assert [row["symbolicname"] for row in json.loads(context.get("/config/links"))] == ["*"]


def test_a_proxy_is_its_owner(encrypted, tmp_path):
    """The proxy is made by the client's own code; its chain and key are in one file, as grid users have it."""
    from fts3.rest.client.delegator import Delegator  # noqa: PLC0415 (only where there is the client)
    from M2Crypto import EVP, RSA, X509  # noqa: PLC0415 (as above)

    context = encrypted.context("frank")
    key = RSA.gen_key(2048, 65537, callback=lambda *_: None)
    private = EVP.PKey()
    private.assign_rsa(key, capture=0)
    request = X509.Request()
    request.set_pubkey(private)
    request.sign(private, "sha256")
    proxy = Delegator(context)._sign_request(request, timedelta(hours=12), legacy_mode=False)
    file = tmp_path / "proxy.pem"
    file.write_bytes(proxy.as_pem() + key.as_pem(None) + context.x509.as_pem())
    through = fts3.Context(encrypted.fts.tls_url, str(file), capath=str(encrypted.authority.certificate))
    assert fts3.whoami(through)["user_dn"] == "/O=dc_inject sandbox/CN=frank"
    fts3.delegate(through)
