"""Many cases of every property, each seeded, and how many there were: `make fuzz`, `make fuzz SEED=7 TIMES=100`.

DC_INJECT_FUZZ is how many times the cases are run that each property names (tests run half of them), and
DC_INJECT_FUZZ_SEED where they begin.
Further arguments are words of the properties to run.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
import traceback

from .cases import SEED, TIMES, properties, ran

MODULES = (
    "tests.menu.test_fuzz", "tests.fuzz.test_names", "tests.fuzz.test_credentials", "tests.fuzz.test_storage",
    "tests.fuzz.test_rucio", "tests.fuzz.test_fts", "tests.fuzz.test_tables",
)  # fmt: skip


def main() -> int:
    """Run all properties, print a line for each and the sum; 1 when one of them does not hold."""
    logging.disable(logging.CRITICAL)
    for module in MODULES:
        importlib.import_module(module)
    wanted, failures = sys.argv[1:], []
    print(f"seed {SEED}, {TIMES:g} times the cases of each property\n{'property':<78} {'cases':>7} {'CPU s':>6}")
    for name, test in properties.items():
        if wanted and not any(word in name for word in wanted):
            continue
        begun = time.process_time()
        try:
            test()
        except Exception:  # noqa: BLE001  told at the end, after the others have run
            failures.append((name, traceback.format_exc()))
        print(f"{name:<78} {ran[name]:>7} {time.process_time() - begun:>6.0f}", flush=True)
    print(f"{len(ran)} properties, {ran.total()} cases, {len(failures)} failed")
    for name, trace in failures:
        print(f"\n{name}\n{trace}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
