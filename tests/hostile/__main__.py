"""`make hostile`: all modes against all commands and services, and a table of what became of each."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from dc_inject.sandbox import Sandbox, default_environment, default_xrootd, read_grid
from tests.conftest import _two, heed_signals
from tests.hostile.lab import CASES, COMMANDS, ROLES, Lab, Outcome, lab, play, stock
from tests.hostile.modes import MODES

Case = tuple[str, str, str]  # mode, service, command
INJECT = ("run", "end", "link")
AT_ONCE = 3  # cases, each with proxies of its own: most of their time is waiting
MOST_DATASETS = 120  # what rules have taken comes back when their lifetimes end


def main() -> int:
    """Play all cases, or those of MODE, ROLE and COMMAND in the environment; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    heed_signals()  # cases press Ctrl-C
    modes, roles, commands = (
        os.environ[name].split(",") if os.environ.get(name) else list(all_)
        for name, all_ in (("MODE", MODES), ("ROLE", ROLES), ("COMMAND", COMMANDS))
    )
    env = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())
    xrootd = Path(os.environ.get("DC_INJECT_SANDBOX_XROOTD") or default_xrootd())
    cases = [
        (mode, role, command) for mode in modes for role, command in CASES if role in roles and command in commands
    ]
    became: dict[Case, str] = {}
    for mode in modes:  # each has services of its own: what hangs of one mode makes the next one slow
        became |= _play_all([case for case in cases if case[0] == mode], env, xrootd)
    print(f"\n| mode | service | {' | '.join(commands)} |\n|---|---|{'---|' * len(commands)}")
    for mode in modes:
        for role in roles:
            print(f"| {mode} | {role} | {' | '.join(became.get((mode, role, one), '-') for one in commands)} |")
    failed = sum(words == "FAILED" for words in became.values())
    print(f"\n{len(cases)} cases, {failed} failed")
    return 1 if failed else 0


def _play_all(cases: Sequence[Case], env: Path, xrootd: Path) -> dict[Case, str]:
    """Play cases against one sandbox; returns what became of each."""
    became: dict[Case, str] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        grid = Sandbox(Path(folder) / "sandbox")
        stack.callback(grid.down)
        grid.up(grid=_two(read_grid()), env=env, interval=0.1, storage="xrootd", xrootd=xrootd, time_scale=1 / 60)
        labs: SimpleQueue[Lab] = SimpleQueue()
        injecting = sum(command in INJECT for _, _, command in cases)
        for label in stock(grid, AT_ONCE, min(MOST_DATASETS, 4 + 20 * injecting // AT_ONCE)):
            (place := Path(folder) / label).mkdir()
            labs.put(stack.enter_context(lab(grid, place, label)))

        def one(case: Case) -> None:
            mode, role, command = case
            made, begun = labs.get(), time.monotonic()
            try:
                became[case] = _told(play(made, role, mode, command))
            except Exception:  # noqa: BLE001  what failed is told at the end
                became[case] = "FAILED"
                print(f"\n=== {' '.join(case)}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            labs.put(made)
            took = time.monotonic() - begun
            print(f"{mode:14} {role:8} {command:6} {took:5.1f} s  {became[case]}", flush=True)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, cases))
    return became


def _told(outcome: Outcome) -> str:
    """What became of a case: exit codes, and the most memory."""
    codes = ", ".join(map(str, outcome.codes))
    return f"{codes}; {outcome.memory / 1e6:.0f} MB"


if __name__ == "__main__":
    sys.exit(main())
