"""What a test run leaves behind is ended, however the run ends."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

from dc_inject.sandbox import processes
from tests import guard


def test_what_a_run_has_left_is_ended_when_the_run_is_gone():
    """And nothing else is: only what carries the run's mark."""
    mark = uuid.uuid4().hex
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    ours = subprocess.Popen(sleep, env=os.environ | {guard.MARK: mark})
    other = subprocess.Popen(sleep, env=os.environ | {guard.MARK: "another"})
    code = "import sys; from tests import guard; guard.GRACE = 0.0; guard.main(sys.argv[1])"
    watching = subprocess.Popen([sys.executable, "-c", code, mark], stdin=subprocess.PIPE)
    try:
        assert ours.poll() is None
        watching.communicate(timeout=60)
        assert ours.wait(60) < 0
        assert other.poll() is None
    finally:
        for one in (ours, other, watching):
            one.kill()
            one.wait()


def test_the_servers_of_a_sandbox_carry_the_mark(monkeypatch, tmp_path):
    monkeypatch.setenv(guard.MARK, "this run")
    assert processes.environment("sandbox", "server", tmp_path, tmp_path)[guard.MARK] == "this run"
