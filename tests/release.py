"""`python -m tests.release` (`make release-check`) tries what would be published, as somebody who installs it.

The last commit is built into an sdist, and the sdist into a wheel, which holds the package's files and nothing
else. The wheel is installed into an empty environment, with the locked versions of what it needs, and runs there.
`--quick` leaves out `dc-inject demo`, which takes some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from dc_inject import __version__

ROOT = Path(__file__).resolve().parents[1]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
DEADLINE = 1800  # seconds for each command


def main(words: list[str]) -> int:
    """Build, compare, install and run; the first thing that is wrong ends it."""
    with tempfile.TemporaryDirectory(prefix="dc_inject-release-") as name:
        folder = Path(name)
        wheel = _built(folder)
        _compared(wheel)
        _tried(wheel, folder, demo="--quick" not in words)
    print(f"dc_inject {__version__} can be released")
    return 0


def _built(folder: Path) -> Path:
    """Build the sdist from what is committed, and the wheel from the sdist."""
    committed, sdists, source, wheels = (folder / name for name in ("commit", "sdists", "source", "wheels"))
    for each in (committed, sdists, source, wheels):
        each.mkdir()
    archive = folder / "commit.tar"
    _run(["git", "-C", str(ROOT), "archive", f"--output={archive}", "HEAD"], cwd=ROOT)
    with tarfile.open(archive) as tar:
        tar.extractall(committed, filter="data")
    _run([sys.executable, "-c", BUILD, "build_sdist", str(sdists)], cwd=committed)
    (sdist,) = sdists.iterdir()
    with tarfile.open(sdist) as tar:
        tar.extractall(source, filter="data")
    (unpacked,) = source.iterdir()
    _run([sys.executable, "-c", BUILD, "build_wheel", str(wheels)], cwd=unpacked)
    (wheel,) = wheels.iterdir()
    print(f"built {sdist.name} and {wheel.name}")
    return wheel


def _compared(wheel: Path) -> None:
    """Compare what is in the wheel with what is committed of the package."""
    listed = _run(["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", "HEAD", "dc_inject"], cwd=ROOT)
    committed = {name for name in listed.split() if not name.endswith(".in")}  # `make lock` reads those
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    if committed != packed:
        missing, more = sorted(committed - packed), sorted(packed - committed)
        sys.exit(f"the wheel lacks {missing or 'nothing'}, and has {more or 'nothing'} that is not in the package")
    print(f"the wheel holds the {len(packed)} files of the package, and nothing else")


def _tried(wheel: Path, folder: Path, *, demo: bool) -> None:
    """Install the wheel into an empty environment, and run it from an empty home."""
    environment, home = folder / "environment", folder / "home"
    home.mkdir()
    _run([sys.executable, "-m", "venv", str(environment)], cwd=home)
    pip = [str(environment / "bin" / "pip"), "--quiet", "--no-input", "--disable-pip-version-check"]
    _run([*pip, "install", "--require-hashes", "-r", str(ROOT / "requirements.txt")], cwd=home)
    _run([*pip, "install", "--no-deps", str(wheel)], cwd=home)
    _run([*pip, "check"], cwd=home)
    command = str(environment / "bin" / "dc-inject")
    said = _run([command, "--version"], cwd=home)
    if __version__ not in said:
        sys.exit(f"`dc-inject --version` says {said!r}, and the package is {__version__}")
    print(said.strip())
    _run([command, "check", str(ROOT / "menus" / "cms")], cwd=home)
    print("dc-inject check menus/cms: no error")
    if demo:
        shown = _run([command, "demo"], cwd=home)
        print(shown.strip().splitlines()[-1])


def _run(command: list[str], cwd: Path) -> str:
    """Run a command with an empty home, and return what it printed; end with its last words if it fails."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DC_INJECT_", "XDG_"))
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env=clean | {"HOME": str(cwd)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
