"""`python -m tests.release.check` (`make release-check`) tries what `make release` has made, as who installs it.

The wheel in dist/ is installed into an empty environment, with the locked versions of what it needs, and runs
there from an empty home. `--quick` leaves out `dc-inject demo`, which takes some minutes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.release.build import DIST, ROOT, run


def main(words: list[str]) -> int:
    """Install and run; the first thing that is wrong ends it."""
    wheels = list(DIST.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit("dist/ has no wheel: run `make release`")
    with tempfile.TemporaryDirectory(prefix="dc_inject-release-") as name:
        _tried(wheels[0], Path(name), demo="--quick" not in words)
    print(f"{wheels[0].name} can be released")
    return 0


def _tried(wheel: Path, folder: Path, *, demo: bool) -> None:
    environment, home = folder / "environment", folder / "home"
    home.mkdir()
    run([sys.executable, "-m", "venv", str(environment)], home)
    pip = [str(environment / "bin" / "pip"), "--quiet", "--no-input", "--disable-pip-version-check"]
    run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(ROOT / "requirements.txt")], home)
    run([*pip, "install", "--no-deps", str(wheel)], home)
    run([*pip, "check"], home)
    command = str(environment / "bin" / "dc-inject")
    said, version = run([command, "--version"], home).strip(), wheel.name.split("-")[1]
    if said != f"dc-inject, version {version}":
        sys.exit(f"`dc-inject --version` says {said!r}, and the wheel is of {version}")
    print(said)
    if not (environment / "share" / "man" / "man1" / "dc-inject.1").exists():
        sys.exit("the man pages are not installed")
    run([command, "check", str(ROOT / "menus" / "cms")], home)
    print("dc-inject check menus/cms: no error")
    if demo:
        print(run([command, "demo"], home).strip().splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
