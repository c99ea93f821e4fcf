"""The log: no secret is in it, whoever raised it; as JSON it has typed fields; its file is private."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.cli.shared import exits, log_output
from dc_inject.model.errors import UsageError
from tests.apps.link.linking import A, B
from tests.cli.ledgers import run

SECRET = "hunter2-opaque"
ROOT = Path(__file__).parents[2]
log = logging.getLogger("dc_inject.test")


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("fmt", log_output.FORMATS)
def test_the_log_shows_no_secret(capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    """Neither of a message, nor of its fields, nor of the traceback below it."""
    log_output.talk(fmt=fmt)
    fields = {"why": f"https://h/x?authz={SECRET}", "of": {f"Bearer {SECRET}": [f"token={SECRET}"]}}
    try:
        raise ValueError(f"https://h/x?authz={SECRET}")
    except ValueError as error:
        extra = {"event": "test", "fields": fields}
        log.error("sent Authorization: Bearer %s", SECRET, exc_info=error, extra=extra)
    told = capsys.readouterr().err
    assert "sent Authorization" in told
    assert "ValueError: https://h/x?***" in told
    assert SECRET not in told


def test_a_line_above_the_live_view_has_no_traceback_and_a_file_keeps_it() -> None:
    try:
        raise ValueError
    except ValueError:
        record = logging.LogRecord("dc_inject", logging.ERROR, "", 1, "unexpected %s", ("it",), sys.exc_info())
    for _ in range(2):  # whichever comes first
        assert log_output.BriefFormatter().format(record).endswith(" ERROR unexpected it")
        assert "ValueError" in log_output.TextFormatter().format(record)


def test_a_line_of_json_has_a_time_a_level_a_message_and_typed_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, whatever the message holds."""
    log_output.talk(fmt="json")
    log.warning("two\nlines of \x1b[2J %s", "text", extra={"event": "test", "fields": {"due": 5, "held": {}}})
    log.info("only a sentence")
    first, second = lines(capsys.readouterr().err)
    assert datetime.fromisoformat(first["time"]).utcoffset() == timedelta(0)
    assert first["time"].endswith("Z")
    del first["time"], second["time"]
    assert first == {
        "level": "WARNING",
        "message": "two\nlines of  [2J text",
        "event": "test",
        "due": 5,
        "held": {},
    }
    assert second == {"level": "INFO", "message": "only a sentence"}


def test_the_file_is_private_and_is_appended_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the format that was asked for; stderr stays for people."""
    file = tmp_path / "dc27.log"
    before = os.umask(0)
    try:
        for number in range(2):
            log_output.talk(fmt="json", file=file)
            log.info("run %d", number)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [line["message"] for line in lines(file.read_text())] == ["run 0", "run 1"]
    assert re.fullmatch(r"\S+Z INFO run 0\n\S+Z INFO run 1\n", capsys.readouterr().err)


def test_quiet_does_not_shorten_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For cron, which mails what is on stderr."""
    file = tmp_path / "dc27.log"
    log_output.talk(quiet=True, file=file)
    log.info("a cycle")
    log.warning("a trouble")
    logging.getLogger("urllib3").warning("retrying")
    assert [line.split(" ", 1)[1] for line in file.read_text().splitlines()] == [
        "INFO a cycle",
        "WARNING a trouble",
    ]
    assert capsys.readouterr().err.endswith("Z WARNING a trouble\n")
    assert "a cycle" not in capsys.readouterr().err


def test_what_is_no_regular_file_is_refused(tmp_path: Path, wording) -> None:
    """A link may lead to a file of somebody else, and a pipe may wait for ever."""
    (tmp_path / "aim").touch()
    (tmp_path / "link").symlink_to(tmp_path / "aim")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "link", tmp_path / "pipe", Path("/dev/null"), tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(UsageError) as refused:
            log_output.talk(file=path)
        wording(refused.value)
    assert isinstance(run("run", "menu.yaml", "--log-file", tmp_path / "link").exception, UsageError)


def test_a_full_disk_stops_nothing_and_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own log would print the message as it was before secrets were taken out."""

    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log_output, "_opened", lambda _path: Full())
    log_output.talk(file=tmp_path / "dc27.log")
    for _ in range(3):
        log.info("token=%s", SECRET)
    told = capsys.readouterr().err
    assert told.count("INFO token=***") == 3
    assert told.count(": [Errno 28] No space left on device") == 1
    assert SECRET not in told
    assert "Traceback" not in told


def test_a_run_tells_its_cycles_as_json(service, tmp_path: Path) -> None:
    """With the sums of the ledger; a quiet one tells them to the file only."""
    service()
    file = tmp_path / "mini.log"
    words = ("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini", "--quiet")
    done = run(*words, "--log-file", file, "--log-format", "json")
    assert done.exit_code == 0, done.exception
    assert " INFO " not in done.stderr
    told = lines(file.read_text())
    (started,) = [line for line in told if line.get("event") == "started"]
    assert (started["campaign"], started["cycle_seconds"], started["dry_run"]) == ("mini", 600.0, False)
    closed = [line for line in told if line.get("event") == "cycle-closed"]
    summary = json.loads(run("status", "mini", "--summary", "--format", "json").stdout)["total"]
    assert sum(line["due"] for line in closed) == summary["due"]
    assert all(
        type(line[name]) is int for line in closed for name in ("links", "due", "injected", "moved", "rules")
    )
    assert {line["event"] for line in told if "event" in line} >= {"resident", "step-ended", "inventory"}


def test_every_event_is_documented_with_its_fields() -> None:
    """The table of docs/reference/log.md, and what the code gives."""
    page = (ROOT / "docs" / "reference" / "log.md").read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))
    given: set[str] = set()
    for path in (ROOT / "dc_inject").rglob("*.py"):
        text = path.read_text()
        given.update(re.findall(r'"event": "([a-z-]+)"', text))
        given.update(re.findall(r'\b(?:_of_service|_fields)\("([a-z-]+)"', text))
        given.update(re.findall(r'\bkeep\([^\[\n]+?, "([a-z-]+)"', text))
    assert documented == given


def test_the_trace_that_is_kept_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits.explain(ValueError(f"https://h/x?authz={SECRET}")) == exits.UNEXPECTED
    file = Path(capsys.readouterr().err.split()[-1])
    try:
        assert "ValueError: https://h/x?***" in file.read_text()
    finally:
        file.unlink()


def test_a_log_that_is_renamed_goes_on_in_a_new_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As logrotate does it; where the name became a link the old file gets the lines, which is reported once."""
    file, old = tmp_path / "log", tmp_path / "log.1"
    log_output.talk(file=file, quiet=True)
    log.info("one")
    file.rename(old)
    log.info("two")
    assert [path.read_text().split()[-1] for path in (old, file)] == ["one", "two"]
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    file.symlink_to(old)
    log.info("three")
    log.info("four")
    assert old.read_text().split()[-1] == "one"
    assert capsys.readouterr().err.count(str(file)) == 1
