"""The demo: the main job on a grid on this machine, through the real command line, and the proof of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template

from dc_inject.apps.report import pictures
from dc_inject.backends.fts.errors import INSTALL
from dc_inject.backends.rucio import RucioBackend
from dc_inject.ledger import LedgerView
from dc_inject.model import Cycle, FlowKey, units
from dc_inject.model.errors import ServiceError, ThresholdMissed
from dc_inject.model.events import Silent
from dc_inject.model.ports import Candidate
from dc_inject.sandbox import Sandbox, default_xrootd, ensure_xrootd
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor

MOVED_AT_LEAST = 0.95  # of injected
FILES, FILE_SIZE = 15, 4_000_000  # on each storage: how many to copy from, and the bytes of the smallest
DELETED_WITHIN = timedelta(seconds=60)
Step = Callable[[str], None]  # shows what is done next


def run(
    folder: Path, env: Path | None, xrootd: Path | None, *, cycles: int, seconds: int, keep: bool, step: Step
) -> None:
    """Run the demo in a folder with cycles of `seconds`; `step` shows what is done next.

    `env` is where the Rucio server is installed, and `xrootd` where XRootD is unpacked. Raises ThresholdMissed
    where a link got too little or something is left.
    """
    with _grid(folder, env, _xrootd(xrootd, step), keep=keep, step=step) as grid:
        ledger = folder / "ledger" / "demo.sqlite"
        menus = write_menus(grid, cycles, seconds)
        environ = {**os.environ, "RUCIO_CONFIG": str(grid.config)}
        os.environ["RUCIO_CONFIG"] = environ["RUCIO_CONFIG"]
        step("dc-inject run: each line is one cycle")
        _command(["run", *map(str, menus), "--ledger", str(ledger), "--timeout", "10"], environ)
        step("dc-inject status --summary")
        _command(["status", "demo", "--summary", "--ledger", str(ledger)], environ)
        shown = write_report(ledger, folder.absolute().parent, environ, step)
        faults = [*_accounts(ledger), *_left_in_rucio(ledger, step), *_left_on_storages(grid, step)]
    step(f"the report, with all of it over time: {shown}")
    if faults:
        message = "the demo missed what it promises:\n  " + "\n  ".join(faults)
        raise ThresholdMissed(message, "the grid is too slow on a busy machine: try it again, or --cycle 30")
    step("done: every link within one dataset or job of its due; no rule, replica, file or process left")


def _xrootd(folder: Path | None, step: Step) -> Path | None:
    """Return where XRootD is, or would be unpacked; None, and show why, where files cannot be moved here."""
    folder = folder or default_xrootd()
    missing = ServiceError("FTS's client is not installed", INSTALL) if find_spec("fts3") is None else None
    try:
        if missing is None:
            ensure_xrootd(folder, step)
    except ServiceError as error:
        missing = error
    if missing is not None:
        step(f"LEFT OUT: the links with real files; {missing.message} ({missing.hint})")
    return None if missing else folder


@contextmanager
def _grid(folder: Path, env: Path | None, xrootd: Path | None, *, keep: bool, step: Step) -> Iterator[Sandbox]:
    """Give a sandbox that is taken down whatever happens."""
    grid = Sandbox(folder, report=step)
    grid.down()  # what an interrupted demo may have left
    grid.up(env=env, storage=None if xrootd is None else "xrootd", xrootd=xrootd)
    try:
        yield grid
    finally:
        if keep:
            step(f"kept: export RUCIO_CONFIG={grid.config}; end it with dc-inject sandbox down --folder {folder}")
        else:
            step("taking the grid down")
            grid.down()


def write_menus(grid: Sandbox, cycles: int, seconds: int) -> list[Path]:
    """Write the menus for cycles that begin at the next slot of the grid, and the files that are copied."""
    names, values = ["demo.yaml"], {}
    if grid.storages:
        names.append("demo-files.yaml")
        values = dict(zip(("one", "two", "three"), grid.storages.values(), strict=True)) | {
            "endpoint": grid.fts_url
        }
        for storage in grid.storages:
            for number in range(FILES):
                grid.put(storage, f"/source/{number:02}.bin", FILE_SIZE + 10_000 * number, f"{storage} {number}")
    start = Cycle.at(SystemClock().now() + timedelta(seconds=4), timedelta(seconds=seconds)).next.start
    end = start + cycles * timedelta(seconds=seconds)
    values |= {"start": units.format_time(start), "end": units.format_time(end), "cycle": str(seconds)}
    for name in names:
        text = resources.files("dc_inject.apps.sandbox").joinpath(name).read_text(encoding="utf-8")
        (grid.folder / name).write_text(Template(text).substitute(values), encoding="utf-8")
    return [grid.folder / name for name in names]


def _command(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run a command of ours as a user does; a Ctrl-C reaches it too, and it is waited for."""
    process = subprocess.Popen([sys.executable, "-m", "dc_inject", *arguments], env=dict(environ))
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait(timeout=60)
        raise
    if code:
        raise ServiceError(f"dc-inject {arguments[0]} ended with exit code {code}")


def write_report(ledger: Path, folder: Path, environ: Mapping[str, str], step: Step) -> Path:
    """Write the report where it outlives the grid and its ledger; return its path."""
    fmt = "html" if find_spec("jinja2") and find_spec("vl_convert") else "md"
    if fmt == "md":
        step(f"without pictures: {pictures.INSTALL}")
    shown = folder / f"demo-report.{fmt}"
    _command(["report", "demo", "--ledger", str(ledger), "--format", fmt, "-o", str(shown), "--force"], environ)
    return shown


def _accounts(ledger: Path) -> list[str]:
    """Check the closing numbers of every link."""
    faults = []
    with LedgerView.open(ledger) as view:
        largest: dict[FlowKey, int] = {}
        for entry in view.entries():
            flow = entry.injection.flow
            largest[flow] = max(largest.get(flow, 0), entry.injection.item.bytes)
        for line in view.summary():
            tolerance = largest.get(line.key, 0)
            due, injected, moved = map(units.format_size, (line.due, line.injected, line.moved))
            if abs(line.injected - line.due) > tolerance or not line.injected:
                held = ", ".join(f"{cycles} {hold}" for hold, cycles in line.holds.items()) or "nothing"
                faults.append(
                    f"{line.key}: due {due}, injected {injected}, tolerance {units.format_size(tolerance)}; "
                    f"held (cycles): {held}"
                )
            if line.moved < MOVED_AT_LEAST * line.injected:
                faults.append(f"{line.key}: injected {injected}, moved {moved}")
    return faults


def _left_in_rucio(ledger: Path, step: Step) -> list[str]:
    """Ask Rucio itself, as the same account, for rules of ours and for bytes at the destinations."""
    clock = SystemClock()
    backend = RucioBackend(campaign="demo", timeout=10, observer=Silent(), clock=clock)
    with LedgerView.open(ledger) as view:
        places = [
            Candidate(e.injection.item.id, e.injection.link)
            for e in view.entries()
            if e.injection.link.through == backend.name
        ]
    step(f"asking Rucio for rules of ours, and for {units.counted(len(places), 'datasets')} at their destinations")
    executor = ThreadExecutor(clock, 1)
    deadline = clock.now() + DELETED_WITHIN
    while True:
        rules = sum(1 for _ in backend.ours("demo"))
        remaining = [place for place, status in backend.check_replicas(places).items() if status.destination_bytes]
        if not (rules or remaining) or clock.now() >= deadline:
            break
        executor.wait(clock.now() + timedelta(seconds=1))
    executor.close()
    faults = [f"{units.counted(rules, 'rules')} of ours left in Rucio"] if rules else []
    return faults + [f"{place.item} is still at {place.link.destination}" for place in remaining]


def _left_on_storages(grid: Sandbox, step: Step) -> list[str]:
    """Look at the storages' disks for copies of ours; what Rucio copied is asked for in Rucio."""
    paths = [path for name in grid.storages for path in grid.storage_files(name, "/copies")]
    disks, copies = units.counted(len(grid.storages), "storages"), units.counted(len(paths), "copies", "copy")
    step(f"looking at the disks of {disks}: {copies} of ours")
    return [f"{units.counted(len(paths), 'files')} of ours left on storages, such as {paths[0]}"] if paths else []
