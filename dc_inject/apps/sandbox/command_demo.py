"""`dc-inject demo`: the main job on a grid on this machine, through the real command line, and the proof of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click

from dc_inject.apps.report import pictures
from dc_inject.backends.fts.errors import INSTALL
from dc_inject.backends.rucio import RucioBackend
from dc_inject.cli.shared import hangup
from dc_inject.ledger import LedgerView
from dc_inject.metrics import Silent
from dc_inject.model import Cycle, FlowKey, units
from dc_inject.model.errors import ServiceError, ThresholdMissed
from dc_inject.model.ports import Candidate
from dc_inject.sandbox import Sandbox, default_folder, default_xrootd, ensure_xrootd
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor

MOVED_AT_LEAST = 0.95  # of injected
FILES, FILE_SIZE = 15, 4_000_000  # on each storage: how many to copy from, and the bytes of the smallest
DELETED_WITHIN = timedelta(seconds=60)


@click.command()
@click.option("--cycles", default=7, show_default=True, type=click.IntRange(1, 1000), help="The number of cycles.")
@click.option(
    "--cycle", "seconds", default=12, show_default=True, type=click.IntRange(5, 3600), help="Seconds in a cycle."
)
@click.option("--folder", type=click.Path(path_type=Path), help="A folder for the grid and the ledger.")
@click.option(
    "--env",
    envvar="DC_INJECT_SANDBOX_ENV",
    type=click.Path(path_type=Path),
    help="Where to install the Rucio server, the first time.",
)
@click.option(
    "--xrootd",
    envvar="DC_INJECT_SANDBOX_XROOTD",
    type=click.Path(path_type=Path),
    help="Where to unpack XRootD the first time, if the system has none.",
)
@click.option("--keep", is_flag=True, help="Keep the grid and the ledger, so that you can look at them.")
def demo(
    cycles: int, seconds: int, folder: Path | None, env: Path | None, xrootd: Path | None, keep: bool
) -> None:
    r"""Start a test grid, inject menus of 17 links, wait until all is moved and deleted, check it, and report.

    12 links exist in Rucio's catalogue only. Over 5 links real files move between storages: through rules that
    Rucio passes to FTS, and through FTS jobs. Without XRootD or FTS's client these 5 are left out.

    Exit code 0 if each link's injected bytes are within one dataset (or job) of what it was due, at least 95 % of
    them moved, and no rule, replica, file or process is left; 5 if not. The report stays beside the grid's folder.

    \b
    Example: dc-inject demo
    """
    folder = folder or default_folder().parent / "demo"
    with _grid(folder, env, _xrootd(xrootd), keep=keep) as grid:
        ledger = folder / "ledger" / "demo.sqlite"
        menus = _write_menus(grid, cycles, seconds)
        environ = {**os.environ, "RUCIO_CONFIG": str(grid.config)}
        os.environ["RUCIO_CONFIG"] = environ["RUCIO_CONFIG"]
        _step("dc-inject run: each line is one cycle")
        _command(["run", *map(str, menus), "--ledger", str(ledger), "--timeout", "10"], environ)
        _step("dc-inject status --summary")
        _command(["status", "demo", "--summary", "--ledger", str(ledger)], environ)
        shown = _report(ledger, folder.absolute().parent, environ)
        faults = [*_accounts(ledger), *_left_in_rucio(ledger), *_left_on_storages(grid)]
    _step(f"the report, with all of it over time: {shown}")
    if faults:
        message = "the demo missed what it promises:\n  " + "\n  ".join(faults)
        raise ThresholdMissed(message, "the grid is too slow on a busy machine: try it again, or --cycle 30")
    _step("done: every link within one dataset or job of its due; no rule, replica, file or process left")


def _xrootd(folder: Path | None) -> Path | None:
    """Return where XRootD is, or would be unpacked; None, and say so, where files cannot be moved here."""
    folder = folder or default_xrootd()
    missing = ServiceError("FTS's client is not installed", INSTALL) if find_spec("fts3") is None else None
    try:
        if missing is None:
            ensure_xrootd(folder, _step)
    except ServiceError as error:
        missing = error
    if missing is not None:
        _step(f"LEFT OUT: the links with real files; {missing.message} ({missing.hint})")
    return None if missing else folder


@contextmanager
def _grid(folder: Path, env: Path | None, xrootd: Path | None, *, keep: bool) -> Iterator[Sandbox]:
    """Give a sandbox that is taken down whatever happens."""
    hangup.interrupt()
    grid = Sandbox(folder, say=_step)
    grid.down()  # what an interrupted demo may have left
    grid.up(env=env, storage=None if xrootd is None else "xrootd", xrootd=xrootd)
    try:
        yield grid
    finally:
        if keep:
            _step(f"kept: export RUCIO_CONFIG={grid.config}; end it with dc-inject sandbox down --folder {folder}")
        else:
            _step("taking the grid down")
            grid.down()


def _write_menus(grid: Sandbox, cycles: int, seconds: int) -> list[Path]:
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
    form = "%Y-%m-%dT%H:%M:%SZ"
    values |= {"start": start.strftime(form), "end": end.strftime(form), "cycle": str(seconds)}
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


def _report(ledger: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Write the report where it outlives the grid and its ledger; return its path."""
    fmt = "html" if find_spec("vl_convert") else "md"
    if fmt == "md":
        _step(f"without pictures, since vl-convert is missing ({pictures.INSTALL})")
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


def _left_in_rucio(ledger: Path) -> list[str]:
    """Ask Rucio itself, as the same account, for rules of ours and for bytes at the destinations."""
    clock = SystemClock()
    backend = RucioBackend(campaign="demo", timeout=10, observer=Silent(), clock=clock)
    with LedgerView.open(ledger) as view:
        places = [
            Candidate(e.injection.item.id, e.injection.link)
            for e in view.entries()
            if e.injection.link.through == backend.name
        ]
    _step(
        f"asking Rucio for rules of ours, and for {units.counted(len(places), 'datasets')} at their destinations"
    )
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


def _left_on_storages(grid: Sandbox) -> list[str]:
    """Look at the storages' disks for copies of ours; what Rucio copied is asked for in Rucio."""
    paths = [path for name in grid.storages for path in grid.storage_files(name, "/copies")]
    disks, copies = units.counted(len(grid.storages), "storages"), units.counted(len(paths), "copies", "copy")
    _step(f"looking at the disks of {disks}: {copies} of ours")
    return [f"{units.counted(len(paths), 'files')} of ours left on storages, such as {paths[0]}"] if paths else []


def _step(line: str) -> None:
    click.echo(f"==> {line}", err=True)
