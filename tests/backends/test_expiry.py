"""When the credentials of a Rucio client expire, as they say themselves."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.backends.rucio.connection import credentials_until

# Made once with `openssl req -x509`; nobody has their keys.
UNTIL_2027 = """-----BEGIN CERTIFICATE-----
MIIBaTCCAQ4CAQEwCgYIKoZIzj0EAwIwQDETMBEGCgmSJomT8ixkARkWA29yZzEX
MBUGCgmSJomT8ixkARkWB2V4YW1wbGUxEDAOBgNVBAMMB3NvbWVvbmUwHhcNMjAw
MTAxMDAwMDAwWhcNMjcwMjA4MTAwMDAwWjBAMRMwEQYKCZImiZPyLGQBGRYDb3Jn
MRcwFQYKCZImiZPyLGQBGRYHZXhhbXBsZTEQMA4GA1UEAwwHc29tZW9uZTBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABL6/fG9UTy3N4OO4p4h+vwk2UKsjhsI3KQkL
ctxIST1okWvBPcpyZNKB1pp2oHiVbvLtZTyK4akIORo205/PXZcwCgYIKoZIzj0E
AwIDSQAwRgIhAKh5yj8sPfcZ+vLDaHmyL8jW9M4+ftGOBJMbjGskrlKbAiEA6p7a
H1ddWBSGlyoIWdT7LU9znxXJWEvmFHTzBKyRS10=
-----END CERTIFICATE-----
"""
UNTIL_2055 = """-----BEGIN CERTIFICATE-----
MIIBajCCARACAQEwCgYIKoZIzj0EAwIwQDETMBEGCgmSJomT8ixkARkWA29yZzEX
MBUGCgmSJomT8ixkARkWB2V4YW1wbGUxEDAOBgNVBAMMB3NvbWVvbmUwIBcNMjAw
MTAxMDAwMDAwWhgPMjA1NTAxMDExMjMwMDBaMEAxEzARBgoJkiaJk/IsZAEZFgNv
cmcxFzAVBgoJkiaJk/IsZAEZFgdleGFtcGxlMRAwDgYDVQQDDAdzb21lb25lMFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE75zIx9IRk99YdTQETAtAuhW7TkJ32jB1
TkHXt6rwUto1xaeZOLnATpf0Le58oUEMWAciXZ7OXH+8HYKrK/1FADAKBggqhkjO
PQQDAgNIADBFAiBLlSD7unUcjopHJi7EKRiMKrDQmxdx5175mzMqQ95i2QIhAPe0
IyUxbcnb/TWRlYR8ojUvxduMqyjeA19hhq9m1Ok3
-----END CERTIFICATE-----
"""


def token(claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


def certificates_until(file: Path) -> datetime | None:
    return credentials_until(SimpleNamespace(auth_type="x509_proxy", creds={"client_proxy": str(file)}))


def test_a_certificate_says_when_it_expires(tmp_path: Path) -> None:
    (tmp_path / "early").write_text(UNTIL_2027)
    (tmp_path / "late").write_text(UNTIL_2055)
    assert certificates_until(tmp_path / "early") == datetime(2027, 2, 8, 10, 0, tzinfo=UTC)
    assert certificates_until(tmp_path / "late") == datetime(2055, 1, 1, 12, 30, tzinfo=UTC)


def test_a_proxy_is_no_better_than_the_certificate_behind_it(tmp_path: Path) -> None:
    proxy = tmp_path / "x509up"
    proxy.write_text(UNTIL_2055 + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + UNTIL_2027)
    assert certificates_until(proxy) == datetime(2027, 2, 8, 10, 0, tzinfo=UTC)


@given(st.binary())
def test_no_file_whatever_makes_trouble(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    body = base64.encodebytes(content).decode()
    file = tmp_path_factory.mktemp("pem") / "any"
    file.write_text(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
    assert certificates_until(file) is None
    assert certificates_until(file.with_name("none")) is None


def test_each_kind_of_credentials_is_asked_where_it_knows(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text(UNTIL_2027)
    made = {
        "x509_proxy": {"client_proxy": str(pem)},
        "x509": {"client_cert": str(pem)},
        "userpass": {"username": "me", "password": "x"},
        "oidc": {},
    }
    told = {
        kind: credentials_until(SimpleNamespace(auth_type=kind, creds=creds, auth_token=token({"exp": 0})))
        for kind, creds in made.items()
    }
    until = datetime(2027, 2, 8, 10, 0, tzinfo=UTC)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert told == {"x509_proxy": until, "x509": until, "userpass": None, "oidc": epoch}
