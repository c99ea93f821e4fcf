"""`python -m tests.release.build` (`make release`) makes in dist/ what is published of the last commit.

That is the sdist, which holds all that is committed; the wheel, built from the sdist, which holds the package and
its man pages and nothing else; the SBOM, which lists the locked packages that it runs with, in CycloneDX's format;
and the SHA-256 sums of these. A commit with a tag, such as v0.1.0, is a release of that version, and has to be
ready for it: the changelog, the chart and the ledgers of released versions have to know it.

Everything is made twice, in clones with different times, rights, time zones and orders of hashing, and has to be
equal byte for byte, so that anybody who builds the same commit with the same lock gets the same files. Times in
them are the commit's.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
DEADLINE = 1800  # seconds for each command
MAN = "docs/man/"
ANOTHER_MACHINE = {"TZ": "Pacific/Auckland", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
RELEASE = re.compile(r"\d+\.\d+\.\d+")


def main() -> int:
    """Build twice, compare, and put it into dist/; the first thing that is wrong ends it."""
    commit = run(["git", "rev-parse", "HEAD"], ROOT).strip()
    with tempfile.TemporaryDirectory(prefix="dc_inject-release-") as name:
        first = _made(Path(name) / "first", commit, {}, umask=0o022)
        again = _made(Path(name) / "another-place", commit, ANOTHER_MACHINE, umask=0o077)
        if different := differing(first, again):
            sys.exit(f"built twice, and not equal: {', '.join(different)}")
        _packed(first, commit)
        version = _version(first)
        if RELEASE.fullmatch(version) and (missing := unready(version, ROOT)):
            sys.exit(f"{version} is tagged, and not ready: {'; '.join(missing)}")
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(first, DIST)
    for line in (DIST / "SHA256SUMS").read_text().splitlines():
        print(line)
    print(f"dist/ has dc_inject {version}, which was built twice and is equal")
    return 0


def _made(folder: Path, commit: str, settings: Mapping[str, str], *, umask: int) -> Path:
    """Make everything in a clone of the commit, checked out with a umask; returns the folder that has it."""
    source, unpacked, made = folder / "source", folder / "unpacked", folder / "made"
    for each in (unpacked, made):
        each.mkdir(parents=True)
    run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(source)], ROOT)
    run(["git", "checkout", "--quiet", "--detach", commit], source, umask=umask)
    moment = run(["git", "log", "-1", "--format=%ct"], source).strip()
    settings = {**settings, "SOURCE_DATE_EPOCH": moment}
    run([sys.executable, "-c", BUILD, "build_sdist", str(made)], source, settings)
    (sdist,) = made.iterdir()
    pack_anew(sdist, int(moment))
    with tarfile.open(sdist) as tar:
        tar.extractall(unpacked, filter="data")
    (inner,) = unpacked.iterdir()
    run([sys.executable, "-c", BUILD, "build_wheel", str(made)], inner, settings)
    version = _version(made)
    _listed(inner, made / f"dc_inject-{version}.cdx.json", version, settings)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made.iterdir())]
    (made / "SHA256SUMS").write_text("".join(sums))
    for path in made.iterdir():
        path.chmod(0o644)
    return made


def pack_anew(sdist: Path, moment: int) -> None:
    """Pack an sdist as nobody in particular: in order of names, all of one time, without owners.

    setuptools keeps the times and rights that files have in the clone, and the time of the build.
    """
    with tarfile.open(sdist) as tar:
        members = [(member, tar.extractfile(member)) for member in tar.getmembers() if member.isfile()]
        contents = {member.name: (member.mode, file.read()) for member, file in members if file is not None}
    with (
        sdist.open("wb") as out,
        gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, (mode, content) in sorted(contents.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), moment, 0o755 if mode & 0o100 else 0o644
            with tempfile.SpooledTemporaryFile() as file:
                file.write(content)
                file.seek(0)
                tar.addfile(member, file)


def _listed(source: Path, sbom: Path, version: str, settings: Mapping[str, str]) -> None:
    """Write the SBOM: the locked packages, with the hashes that pip wants of them."""
    words = ["requirements", "requirements.txt", "--pyproject", "pyproject.toml", "--output-reproducible"]
    run([sys.executable, "-m", "cyclonedx_py", *words, "--output-file", str(sbom)], source, settings)
    text = json.loads(sbom.read_text())
    text["metadata"]["component"]["version"] = version  # which pyproject.toml does not name
    sbom.write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")


def differing(first: Path, again: Path) -> list[str]:
    """Name the files of two folders that are not equal."""
    names = {path.name for folder in (first, again) for path in folder.iterdir()}
    pairs = {name: [folder / name for folder in (first, again)] for name in names}
    return sorted(
        name
        for name, pair in pairs.items()
        if not all(path.exists() for path in pair) or len({path.read_bytes() for path in pair}) > 1
    )


def _packed(made: Path, commit: str) -> None:
    """Compare what is in the sdist and in the wheel with what is committed."""
    committed = set(run(["git", "ls-tree", "-r", "-z", "--name-only", commit], ROOT).split("\0")) - {""}
    (sdist,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
    with tarfile.open(sdist) as tar:
        in_sdist = {name.partition("/")[2] for name in tar.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    in_wheel = {re.sub(r"^dc_inject-[^/]+\.data/data/share/man/man1/", MAN, name) for name in names}
    package = {name for name in committed if name.startswith(("dc_inject/", MAN)) and not name.endswith(".in")}
    made_by_setuptools = {name for name in in_sdist if name in {"PKG-INFO", "setup.cfg"} or ".egg-info/" in name}
    for what, wanted, found in (
        ("sdist", committed, in_sdist - made_by_setuptools),
        ("wheel", package, in_wheel),  # without what only `make lock` reads
    ):
        if wanted != found:
            missing, more = sorted(wanted - found), sorted(found - wanted)
            sys.exit(f"the {what} lacks {missing or 'nothing'}, and has {more or 'nothing'} that is not committed")
        print(f"the {what} holds the {len(found)} files that it should, and nothing else")


def _version(made: Path) -> str:
    """Return the version that the sdist has."""
    (sdist,) = made.glob("*.tar.gz")
    return sdist.name.removeprefix("dc_inject-").removesuffix(".tar.gz")


def unready(version: str, root: Path) -> list[str]:
    """Say what of a source tree does not know yet that this version is released."""
    missing = []
    newest = re.search(r"^## (.+)$", (root / "docs" / "changelog.md").read_text(), re.MULTILINE)
    if newest is None or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", newest[1]):
        missing.append(f"docs/changelog.md does not begin with `## {version} (the date)`")
    chart = (root / "docs" / "deploy" / "helm" / "dc-inject" / "Chart.yaml").read_text()
    if f'appVersion: "{version}"' not in chart:
        missing.append("Chart.yaml has another appVersion")
    if not (root / "tests" / "ledger" / "released" / f"{version}.sql").exists():
        missing.append("tests/ledger/released has no ledger of it: run `make released-ledger`")
    return missing


def run(command: list[str], cwd: Path, settings: Mapping[str, str] | None = None, *, umask: int = 0o022) -> str:
    """Run a command without the settings of this shell, and return what it printed.

    One that fails ends this program, with its last words. The wheel keeps the rights that its files have when it
    is built, so the umask is one of the settings.
    """
    others = ("PYTHON", "DC_INJECT_", "XDG_", "SETUPTOOLS_", "SOURCE_DATE_EPOCH")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=clean | {"HOME": str(cwd)} | dict(settings or {}),
        umask=umask,
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
    sys.exit(main())
