"""Nothing imports modules of the working folder: in a folder of menus others may have left a `click.py`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger
from dc_inject.registry import COMMANDS
from dc_inject.sandbox import processes
from tests.backends.fts.service import running
from tests.backends.fts.store import Store
from tests.backends.support import fts3_or_skip
from tests.cli.ledgers import CYCLE, FNAL, GB

DEADLINE = 120.0
TWIN = Path(__file__).parents[2] / "menus" / "twin" / "one-link"
# Every name by which we, or what we use, import anything.
NAMES = {*sys.stdlib_module_names, *metadata.packages_distributions()} - {"dc_inject"}
MENU = """\
menu: 1
campaign: later
contact: me@example.org
defaults: {files: {folder: d}}
start: 2099-02-08T10:00Z
end: 2099-02-08T11:00Z
scenarios:
  s: {through: fts, from: "davs://a.example.org/x", to: "davs://b.example.org/dc", rate: 1 Gb/s}
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where each module that one may import leaves its name in `ran`."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in filter(str.isidentifier, NAMES):
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\nraise ImportError\n"
        )
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment without credentials, and with a state folder of its own."""
    ours = ("DC_INJECT_", "X509_", "BEARER_", "RUCIO_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}


def ran(hostile: Path) -> str:
    """Return which modules of the folder ran."""
    file = hostile / "ran"
    return file.read_text() if file.exists() else ""


def test_no_command_imports_them(hostile: Path, environ: dict[str, str]) -> None:
    """`config show` knows the options of every command, so it imports them all."""
    done = subprocess.run(
        [sys.executable, "-v", "-m", "dc_inject", "config", "show", "--format", "json"],
        cwd=hostile, env=environ, check=False, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    imported = set(re.findall(r"^import '([\w.]+)'", done.stderr, re.MULTILINE))
    assert done.returncode == 0, done.stderr[-1000:]
    assert {name.partition(":")[0] for name, _ in COMMANDS.values()} <= imported
    assert ran(hostile) == ""


def test_processes_that_simulate_do_not(hostile: Path, environ: dict[str, str]) -> None:
    words = ["simulate", TWIN / "menu.yaml", "--grid", TWIN / "grid.yaml"]
    words += ["--seeds", "2", "--days", "0.1", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "dc_inject", *map(str, words)],
        cwd=hostile, env=environ, check=False, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1000:]
    assert len(json.loads(done.stdout)["seeds"]) == 2
    assert ran(hostile) == ""


@contextmanager
def served(hostile: Path, environ: Mapping[str, str], *words: object) -> Iterator[str]:
    """Run a command in the folder that serves pages, and give their address."""
    with subprocess.Popen(
        [sys.executable, "-m", "dc_inject", *map(str, words)],
        cwd=hostile, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            yield next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.close()
            process.wait(DEADLINE)


def test_processes_that_make_pages_do_not(hostile: Path, environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as made:
        made.bind("dc27", CYCLE.length, [], CYCLE.start)
        made.open_cycle(CYCLE, {FNAL: (GB, None)}, CYCLE.start)
        made.close_cycle(CYCLE, CYCLE.end)
    with (
        served(hostile, environ, "serve", path, "--port", "0") as address,
        urllib.request.urlopen(address, timeout=DEADLINE) as answer,
    ):
        page = answer.read()
    assert b"dc27" in page
    assert ran(hostile) == ""


def test_processes_that_make_pages_of_a_run_do_not(hostile: Path, environ: dict[str, str], tmp_path: Path) -> None:
    fts3_or_skip()
    menu = tmp_path / "menu.yaml"
    menu.write_text(MENU)
    with running(Store({})) as fts:
        more = {"DC_INJECT_FTS_ENDPOINT": fts.url, "DC_INJECT_TRUST": "a.example.org b.example.org"}
        with (
            served(hostile, environ | more, "run", menu, "--serve=0") as address,
            pytest.raises(urllib.error.HTTPError) as answer,  # it has no cycle yet
        ):
            urllib.request.urlopen(address, timeout=DEADLINE)
    answer.value.close()
    assert answer.value.code == 503
    assert ran(hostile) == ""


def test_processes_of_the_sandbox_do_not(tmp_path: Path) -> None:
    assert processes.environment("m", "fts", tmp_path, tmp_path)["PYTHONSAFEPATH"] == "1"
