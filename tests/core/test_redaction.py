"""No secret gets through `scrub`, and what is none stays readable."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model import redaction
from dc_inject.model.redaction import LONGEST, PART, clean, no_formula, remember, scrub, trace
from tests import cpu


@pytest.fixture(autouse=True)
def nothing_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the secrets that other tests let it remember."""
    monkeypatch.setattr(redaction, "_met", deque(maxlen=redaction.KNOWN))


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("http://me:hunter2@rucio.example.org/rules failed", "rucio.example.org/rules failed", "hunter2"),
        ("Max retries exceeded with url: /auth?username=me&password=hunter2 (x)", "(x)", "hunter2"),
        ("GET https://h/x?token=abc123 gave 500", "gave 500", "abc123"),
        ("header Authorization: Bearer abc.def-123 was refused", "was refused", "abc.def-123"),
        ("token eyJhbGciOi.eyJzdWIiOiI.c2lnbmF0dXJl is bad", "is bad", "eyJzdWIiOiI"),
        (
            "X-Rucio-Auth-Token: root-ddmlab-unknown-0123456789abcdef0123456789abcdef",
            "Auth-Token",
            "0123456789abcdef",
        ),
        ("saw root-ddmlab-unknown-0123456789abcdef0123456789abcdef there", "there", "ddmlab"),
        ("{'username': 'me', 'password': 'hunter2', 'x': 1}", "'username': 'me'", "hunter2"),
        ('{"client_secret": "hunter2"}', "client_secret", "hunter2"),
        ("ssh passphrase=hunter2, sorry", "sorry", "hunter2"),
        ("the known hunter2 too", "too", "hunter2"),
        ("Authorization: Basic bWU6aHVudGVyMg== refused", "refused", "bWU6aHVudGVyMg"),
        ("{'Authorization': 'Basic bWU6aHVudGVyMg=='}", "'Authorization'", "bWU6aHVudGVyMg"),
        ("Location: https://pool:1094/f?xrd.x=1&authz=Bearer%20eyJhbGciOi.eyJzdWIi.c2ln moved", "moved", "c2ln"),
        ("opaque authz=Bearer%20opaque-thing, so", "so", "opaque-thing"),
        ("dav://pool/f?authz=abc123 (x)", "(x)", "abc123"),
        ("davs://me:hunter2@se/f is bad", "@se/f is bad", "hunter2"),
        ("sent Authorization%3A%20Bearer%20opaque-thing, so", "so", "opaque-thing"),
    ],
)
def test_secrets_are_taken_out_and_the_rest_stays(text: str, kept: str, gone: str) -> None:
    clean = scrub(text, {"hunter2", ""})
    assert kept in clean
    assert gone not in clean


@pytest.mark.parametrize(
    "text",
    [
        "Data identifier cms:/Primary/Run2024-v1/RAW#c86ca44e-2a18-4163-8bea-02276bc93c10 is not valid.",
        "No rule with the id 6df328a9911944c3a1bbf117478658ed found",
        "X509 proxy /tmp/x509up_u1000 not found; is the token there? yes",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert scrub(text) == text


@given(st.text(), st.text(alphabet="abcXYZ0189_-", min_size=6))
def test_a_known_secret_never_gets_through(text: str, secret: str) -> None:
    clean = scrub(f"{text}{secret}{text}", {secret})
    assert secret not in clean
    assert "\n" not in clean
    assert len(clean) <= LONGEST


@given(st.text(max_size=40), st.text(alphabet="abcXYZ0189_-.", min_size=40, max_size=60), st.integers(0, 20))
def test_a_part_of_a_known_secret_does_not_get_through(text: str, secret: str, start: int) -> None:
    """Servers cut what they echo: no sixteen characters of a token in a row are ever shown."""
    part = secret[start : start + PART + 4]
    clean = scrub(f"{text}[{part}]", {secret})
    assert not any(secret[at : at + PART] in clean for at in range(len(secret) - PART + 1))


def test_a_trace_keeps_its_lines_and_has_no_secret_in_it() -> None:
    """Libraries put headers and whole URLs into what they raise, and what they caught hangs below it."""
    try:
        try:
            raise ValueError("https://me:hunter2@h/x?authz=abc123 \udce9 Authorization: Bearer opaque-thing")
        except ValueError as inner:
            raise RuntimeError("token=abc-def") from inner
    except RuntimeError as error:
        told = trace(error)
    assert not any(secret in told for secret in ("hunter2", "abc123", "opaque-thing", "abc-def"))
    assert 'raise RuntimeError("token=' in told
    assert len(told.splitlines()) > 8
    assert told.encode()


def test_a_secret_that_was_met_is_known_everywhere() -> None:
    secret = "opaque-0123456789-of-one-test"
    remember(secret)
    remember("short")
    assert scrub(f"they said {secret[:20]}, short") == "they said ***, short"
    assert secret not in clean(f"a\n{secret}\nb")


HOSTILE = [
    *(
        "-",
        "/",
        "//",
        "a-",
        "eyJ",
        "eyJabc.",
        "bearer ",
        "Bearer%20",
        "token",
        "token=",
        "token='",
        "authorization:",
    ),
    *("-" + "a" * 31, "x=-", "?", "/?", ":", "@", " ", "'", '"', "\x1b", "é", "a"),
]


@pytest.mark.parametrize("first", HOSTILE)
def test_no_text_takes_longer_to_read_than_its_length_allows(first: str) -> None:
    """A reason of 5,000 dashes once held the interpreter, and with it signals and metrics, for hours."""
    remember("a-secret-of-some-length-0123456789")
    for second in ["", *HOSTILE]:
        text = (first + second) * 20_000
        for read in (scrub, clean):
            with cpu.budget(10, f"{read.__name__} of {first + second!r} x 20,000"):
                read(text)


@given(st.integers(0, 1100), st.sampled_from([1, 7, 60, 2000]))
def test_a_secret_that_the_cut_breaks_does_not_survive_in_part(before: int, after: int) -> None:
    """What is no known secret is known by its form, and a cut must not take its form away."""
    token = "0123456789abcdef" * 2
    for whole in (
        f"https://me:{token}@h/",
        f"tok root-ddmlab-unknown-{token}",
        f"eyJhbGciOiJSUzI1NiJ9{token}.eyJz",
        f"password='{token} {token}' ",
        f"/x?{token}",
    ):
        text = ("words " * 200)[:before] + " " + whole + " x" * after
        for said in (scrub(text), clean(text), clean(f"{text}\nmore")):
            assert not any(token[at : at + PART] in said for at in range(PART))


def test_a_long_text_is_cut_and_what_follows_is_never_read() -> None:
    assert scrub("word " * 10_000) == "word " * 59 + "wo..."
    assert len(scrub("x" * 100_000)) < PART + 4
    lines = clean("\n".join(f"line {number} " + "y " * 5000 for number in range(10_000))).splitlines()
    assert len(lines) < 500
    assert max(map(len, lines)) < 2100
    assert lines[0].startswith("line 0 ")
    assert lines[-1].startswith("line 9999 ")


def test_what_is_kept_of_many_lines_moves_no_cursor() -> None:
    assert clean("a\x1b[31mb\r\nc\u202ed") == "a [31mb \nc d"


def test_secrets_without_end_are_looked_for_up_to_a_bound() -> None:
    """A hostile server chooses how long the tokens are that it gives out."""
    for number in range(100):
        remember(f"{number:03}" + "t" * 60_000)
    remember("the-latest-of-them-0123456789")
    with cpu.budget(5, "secrets without end"):
        assert scrub("they said the-latest-of-them-0123456789 to us") == "they said *** to us"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+A1", "@SUM(A1)", "\tx", "＝1"])  # noqa: RUF001  full width, on purpose
def test_a_text_that_a_spreadsheet_would_compute_is_text(text: str) -> None:
    assert no_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "T2_CH_CERN", "davs://se.example.org/a", "a=b", "'=1"])
def test_other_texts_stand_as_they_are(text: str) -> None:
    assert no_formula(text) == text
