"""`python -m tests.deploy.image` (`make image`) builds the image as the Dockerfile says, and runs it.

No image registry is asked and no container engine has to run: mmdebstrap makes a Debian with Python as the base,
and buildah builds and runs in a chroot, both from Debian's packages, as root. What is built has no compiler and no
pip, works with a read-only root for a user that has no name, and injects a cycle into a sandbox.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dc_inject.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 1800  # seconds for each command
NOBODY = "54321:0"  # a user without a name, as OpenShift gives one
VERSION = "0.1.0"
WRITABLE = {"tmp", "state", "proc", "sys", "dev", "run"}  # of the root, while it runs
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MENU = """\
menu: 1
campaign: image
contact: image@example.org
start: {start:%Y-%m-%dT%H:%M:%SZ}
end: {end:%Y-%m-%dT%H:%M:%SZ}
defaults:
  cycle: 30 s
  lifetime: {{min: 5 min, max: 5 min}}
  datasets: {{did: ["cms:*"], files: 1..100, mean_file: 0.1..20 GB}}
scenarios:
  image: {{from: T1_UK_RAL_Disk, to: T2_UK_London_Brunel, rate: {rate} Gb/s}}
"""


def main() -> int:
    """Build the image, look into it, and let it inject; the first thing that is wrong ends it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    for program in ("buildah", "mmdebstrap"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing; on Debian: apt install --no-install-recommends buildah mmdebstrap")
    if os.geteuid() != 0:
        sys.exit("root makes the base and the image")
    with tempfile.TemporaryDirectory(prefix="dc_inject-image-") as name:
        folder = Path(name)
        storage = Buildah(folder / "storage")
        try:
            base = _base(storage, folder)
            storage.run("build", "--isolation", "chroot", "--format", "docker", "--tag", "dc-inject",
                        "--build-arg", f"BASE={base}", "--build-arg", f"VERSION={VERSION}", str(ROOT))  # fmt: skip
            container = storage.run("from", "--name", "tool", "localhost/dc-inject").strip()
            _looked_into(storage, container)
            _tried(storage, container, folder)
        finally:
            storage.run("rm", "--all")
            storage.run("rmi", "--all", "--force")
    print("the image works")
    return 0


class Buildah:
    """buildah with a storage of its own."""

    def __init__(self, storage: Path) -> None:
        """Take the folder of its storage."""
        self._options = ["--root", str(storage / "root"), "--runroot", str(storage / "run")]
        self._options += ["--storage-driver", "vfs"]

    def run(self, *arguments: str) -> str:
        """Run a command of buildah and return what it printed."""
        return run(["buildah", *self._options, *arguments])

    def inside(self, container: str, *command: str, volumes: Sequence[str] = (), more: Sequence[str] = ()) -> str:
        """Run a command in a container, as a user without a name."""
        mounts = [word for volume in volumes for word in ("--volume", volume)]
        return self.run(
            "run", "--isolation", "chroot", "--user", NOBODY, *mounts, *more, container, "--", *command
        )


def _base(storage: Buildah, folder: Path) -> str:
    """Make a base, Debian with Python, which asks for packages where and how this machine does; return its name.

    It is named by its digest, as a base from a registry should be.
    """
    tree = folder / "base.tar"
    include = "python3,python3-venv,ca-certificates,libssl3"
    run(["mmdebstrap", "--variant=minbase", f"--include={include}", "bookworm", str(tree), *mirror()])
    container = storage.run("from", "--name", "base", "scratch").strip()
    storage.run("add", container, str(tree), "/")
    if Path(CERTIFICATES).is_file():
        storage.run("add", container, CERTIFICATES, CERTIFICATES)
    config = folder / "pip.conf"
    config.write_text(pip_config())
    storage.run("add", container, str(config), "/etc/pip.conf")
    storage.run("commit", container, "localhost/base")
    storage.run("rm", container)
    tree.unlink()
    digest = storage.run("images", "--format", "{{.Digest}}", "localhost/base").strip()
    print(f"made a base from Debian's packages: {digest}")
    return f"localhost/base@{digest}"


def pip_config() -> str:
    """Return a configuration of pip that asks for packages where and how this machine does."""
    settings = {
        name[4:].lower().replace("_", "-"): value for name, value in os.environ.items() if name[:4] == "PIP_"
    }
    lines = [f"{name} = {value}" for name, value in settings.items() if name not in {"find-links", "no-index"}]
    return "\n".join(["[global]", *lines, ""])


def mirror() -> list[str]:
    """Return the sources of packages that this machine has for Debian's bookworm, if it names any."""
    listed = Path("/etc/apt/sources.list.d/debian.sources")
    return [str(listed)] if listed.is_file() else []


def _looked_into(storage: Buildah, container: str) -> None:
    """Find neither compiler nor pip, and both clients."""
    for program in ("gcc", "cc", "pip", "pip3", "swig"):
        done = storage.run(
            "run", "--isolation", "chroot", container, "--", "sh", "-c", f"command -v {program} || echo none"
        )
        if done.strip() != "none":
            sys.exit(f"the image has {done.strip()}")
    storage.inside(container, "/opt/dc-inject/bin/python", "-c", "import fts3.rest.client.easy, XRootD.client")
    print("no compiler and no pip inside; the clients of FTS and XRootD are there")


def _tried(storage: Buildah, container: str, folder: Path) -> None:
    """Run it against a sandbox: version, check, ping, and one cycle."""
    said = storage.inside(container, "dc-inject", "--version").strip()
    if not said.endswith(f" {VERSION}"):
        sys.exit(f"the image says {said!r}")
    print(said)
    (folder / "menus").mkdir()
    (folder / "ledger").mkdir()
    os.chown(folder / "ledger", 54321, 0)
    folder.chmod(0o755)  # the sandbox's config is read by a user without a name
    sandbox = Sandbox(folder / "sandbox")
    sandbox.up()
    try:
        secret = folder / "rucio"
        secret.mkdir()
        shutil.copy(sandbox.config, secret / "rucio.cfg")
        os.chown(secret / "rucio.cfg", 54321, 0)
        start = datetime.now(UTC)
        menu = MENU.format(start=start, end=start + timedelta(minutes=10), rate=40)  # a dataset each second
        (folder / "menus" / "day.yaml").write_text(menu)
        volumes = [f"{folder}/menus:/menus:ro", f"{secret}:/secret:ro", f"{folder}/ledger:/state"]
        more = ["--env", "RUCIO_CONFIG=/secret/rucio.cfg", "--env", "XDG_STATE_HOME=/state"]
        for words in (["check", "/menus"], ["ping", "/menus"], ["run", "--once", "/menus"]):
            said = storage.inside(container, "dc-inject", *words, volumes=volumes, more=more)
            print(f"dc-inject {' '.join(words)}: {said.strip().splitlines()[-1] if said.strip() else 'done'}")
        told = storage.inside(
            container, "dc-inject", "status", "image", "--summary", "--format", "csv", volumes=volumes, more=more
        )
        print(told.strip())
        (row,) = csv.DictReader(told.splitlines())
        if int(row["injected"]) == 0:
            sys.exit("it has injected nothing")
        _nothing_written(storage, container, start)
    finally:
        sandbox.down()


def _nothing_written(storage: Buildah, container: str, since: datetime) -> None:
    """Find that everything was written into volumes and /tmp: the rest may be read-only."""
    root = Path(storage.run("mount", container).strip())
    outside = [path for path in root.rglob("*") if path.relative_to(root).parts[0] not in WRITABLE]
    if new := [path for path in outside if path.is_file() and path.lstat().st_mtime > since.timestamp()]:
        sys.exit(f"it has written {', '.join(map(str, new))}")
    print(f"none of {len(outside)} files and folders of the image was written")


def run(command: list[str]) -> str:
    """Run a command and return what it printed; end with its last words if it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(
            f"{' '.join(command[:9])} ... ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
