"""What is wrong with credentials: the cause, whose fault it is, and what exactly to renew."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dc_inject.credentials import Credentials
from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.system.clock import SystemClock
from tests.certificates import make, make_between


def look(shared: Path, **environ: object) -> Credentials:
    return Credentials({name: str(value) for name, value in environ.items()}, SystemClock(), shared=shared)


def fatal(call: Callable[[], object]) -> NeedsOperator:
    with pytest.raises(NeedsOperator) as caught:
        call()
    assert caught.value.hold == "credentials"
    return caught.value


def test_each_fault_of_a_file_has_its_cause_and_names_what_to_renew(tmp_path):
    authority = make(tmp_path, "authority", "authority", days=5)
    times = {"past": ("20250101000000Z", "20250201000000Z"), "future": ("20980101000000Z", "20990101000000Z")}
    made = {
        name: make_between(tmp_path, name, "person", start=start, end=end, by=authority)
        for name, (start, end) in times.items()
    }
    made["short"] = make_between(
        tmp_path, "short", "person", start=times["past"][0], end=times["future"][1], by=authority, bits=1024
    )
    made["mixed"] = replace(make(tmp_path, "person", "person", days=5, by=authority), key=made["past"].key)
    causes = {
        "past": "credentials-expired",
        "future": "credentials-not-yet-valid",
        "short": "weak-key",
        "mixed": "key-mismatch",
    }
    for name, cause in causes.items():
        pair = made[name]
        found = look(tmp_path, X509_USER_CERT=pair.certificate, X509_USER_KEY=pair.key)
        error = fatal(lambda found=found: found.access("fts"))
        assert (str(error.fault.cause), error.fault.party) == (cause, "user")
        assert "voms-proxy-init" not in error.hint
        whole = tmp_path / f"{name}.whole"
        whole.write_text(pair.certificate.read_text() + pair.key.read_text())
        error = fatal(lambda whole=whole: look(tmp_path, X509_USER_PROXY=whole).access("source"))
        assert str(error.fault.cause) == cause
        assert "voms-proxy-init" in error.hint


def test_too_many_open_files_are_no_fault_of_the_credentials(tmp_path):
    (tmp_path / "token").write_text("opaque-token-0123456789")
    found = look(tmp_path, BEARER_TOKEN_FILE=tmp_path / "token")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        with pytest.raises(Temporary) as caught:
            found.access("fts")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (caught.value.hold, str(caught.value.fault.cause)) == ("local", "descriptors")
