"""`python -m tests.deploy.production` (`make production`) follows the pages on production in a fresh Debian.

mmdebstrap makes a root that has nothing of ours, like a new machine. The commands are those of the pages, in their
order and as they stand there; the operator brings the source, a rucio.cfg and menus. No systemd runs in such a
root: in its place the command of a unit is run by its user, with its environment, credentials and folder, and has
to tell that it is ready. Rucio is a sandbox on the loopback, which both share; Debian's Prometheus runs outside,
with the configuration and the rules of the docs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

from dc_inject.sandbox import Sandbox
from tests.deploy.image import CERTIFICATES, MENU, ROOT, mirror, pip_config, run
from tests.metrics import prometheus

HOW_TO = ROOT / "docs" / "how-to"
PATIENCE = 1800.0  # seconds for anything that has to come, on a machine that is busy with other things
ENTER = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && root="$0" user="$1" folder="$2" && shift 2 &&
exec chroot --userspec="$user" "$root" /usr/bin/env -i -C "$folder" \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


def main() -> int:
    """Install it, let it inject, scrape it, back it up, upgrade it; the first thing that is wrong ends it."""
    if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
        sys.exit("root makes the fresh Debian, with mmdebstrap; on Debian: apt install mmdebstrap")
    service, operate, cron, rucio = (
        sections(name) for name in ("run-as-a-service", "operate", "run-from-cron", "run-with-rucio")
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by somebody"))  # so that it leaves nothing behind
    with contextlib.ExitStack() as leaves:
        folder = Path(leaves.enter_context(tempfile.TemporaryDirectory(prefix="dc_inject-production-")))
        folder.chmod(0o755)
        sandbox = Sandbox(folder / "sandbox")
        leaves.callback(sandbox.down)
        machine = Machine(folder / "root")
        leaves.callback(machine.stop)
        sandbox.up()
        machine.brought("root", sandbox.config)
        machine.follow(service["Install it"])
        (machine.root / "etc" / "dc_inject" / "menus" / "dc27" / "day.yaml").write_text(menu())
        machine.follow(service["Start it"])
        scraped(folder / "prometheus")
        for heading in ("Back it up", "Upgrade it", "Restore it", "Move it to another machine"):
            machine.follow(operate[heading])
        machine.follow(service["One cycle at a time"])
        machine.shell("useradd --create-home shifter")
        machine.brought("shifter", sandbox.config)
        machine.follow(rucio["Install and try"], "shifter")
        (machine.root / "home" / "shifter" / "menus").mkdir()
        (machine.root / "home" / "shifter" / "menus" / "day.yaml").write_text(menu())
        line = cron[""].rstrip().split(" ", 5)[5]
        by_cron = "env -i HOME=$HOME LOGNAME=$USER SHELL=/bin/sh PATH=/usr/bin:/bin /bin/sh -c"
        machine.shell(f"{by_cron} {shlex.quote(line)}", "shifter")
        machine.shell("$HOME/dc-inject/bin/dc-inject status dc27", "shifter")
    print("the pages lead to an injector that runs")
    return 0


def sections(page: str) -> dict[str, str]:
    """Return the commands of a page by the heading above them."""
    found: dict[str, str] = defaultdict(str)
    pattern = r"^## (?P<heading>[^\n]+)$|^```(?:sh)?\n(?P<block>.*?)^```$|^```.*?^```$"
    heading = ""
    for match in re.finditer(pattern, (HOW_TO / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL):
        heading = match["heading"] or heading
        found[heading] += match["block"] or ""
    return found


def menu() -> str:
    """Return a menu of the campaign that the pages name, for the next hours."""
    start = datetime.now(UTC)
    text = MENU.replace("campaign: image", "campaign: dc27").replace("  image:", "  dc27:")
    return text.format(start=start, end=start + timedelta(hours=6), rate=4)


class Machine:
    """A fresh Debian in a folder, on which commands are run as a user types them."""

    def __init__(self, root: Path) -> None:
        """Make it, with the way to packages that this machine has."""
        self.root = root
        self._aliases = ""
        self._service: subprocess.Popen[bytes] | None = None
        self._log = root.parent / "journal"
        run(["mmdebstrap", "--variant=minbase", "bookworm", str(root), *mirror()])
        for name in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(name, root / name[1:])
        authorities = "/etc/authorities.crt"  # of this machine: it may have more than Debian has
        if Path(CERTIFICATES).is_file():
            shutil.copy(CERTIFICATES, root / authorities[1:])
        (root / "etc" / "pip.conf").write_text(pip_config().replace(CERTIFICATES, authorities))

    def brought(self, user: str, config: Path) -> None:
        """Put the last commit and a rucio.cfg where a user has them: in the home, and in the source."""
        home = self.root / "root" if user == "root" else self.root / "home" / user
        source = home / "dc_inject"
        source.mkdir()
        archive = self.root.parent / "source.tar"
        run(["git", "-C", str(ROOT), "archive", f"--output={archive}", "HEAD"])
        run(["tar", "--extract", f"--file={archive}", f"--directory={source}"])
        own = re.sub(
            r"^auth_token_file_path.*\n", "", config.read_text(), flags=re.MULTILINE
        )  # it is the sandbox's
        for place in (home, source):
            (place / "rucio.cfg").write_text(own)
        run(self.command("root", "/", "chown", "--recursive", f"{user}:", f"/{home.relative_to(self.root)}"))

    def command(self, user: str, folder: str, *words: str) -> list[str]:
        """Return what runs words (settings of the environment, then a command) on it as a user."""
        return ["unshare", "--mount", "sh", "-ec", ENTER, str(self.root), user, folder, *words]

    def shell(self, script: str, user: str = "root") -> str:
        """Run lines as a user types them, in the folder of the source."""
        home = "/root" if user == "root" else f"/home/{user}"
        words = f"HOME={home}", f"USER={user}", f"LOGNAME={user}", "DEBIAN_FRONTEND=noninteractive"
        for line in script.splitlines():
            print(f"{user}: {line}", flush=True)
        said = run(self.command(user, f"{home}/dc_inject", *words, "sh", "-ec", self._aliases + script))
        print(said.rstrip()[-600:], flush=True)
        return said

    def follow(self, commands: str, user: str = "root") -> None:
        """Run the commands of a page; what is said to systemd is done in its place."""
        self._aliases += "".join(re.findall(r"^alias .*\n", commands, re.MULTILINE))
        lines = commands.replace("\\\n", "").splitlines()
        for to_manager, part in groupby(lines, lambda line: line.startswith(("systemctl ", "journalctl "))):
            if not to_manager:
                self.shell("\n".join(part), user)
                continue
            for line in part:
                print(f"{user}: {line}  # in its place", flush=True)
                self._manage(shlex.split(line))

    def _manage(self, words: list[str]) -> None:
        match words:
            case ["systemctl", "daemon-reload"]:
                pass
            case ["systemctl", "enable", "--now", name] if name.endswith(".timer"):
                self._start(name.removesuffix(".timer"))
                self._ended()
            case ["systemctl", "enable", "--now", name] | ["systemctl", "start", name]:
                self._start(name)
            case ["systemctl", "stop", _] | ["systemctl", "disable", "--now", _]:
                self.stop()
            case ["journalctl", *_]:
                print(self._log.read_text()[-600:], flush=True)
            case _:
                sys.exit(f"nobody does this in the place of systemd: {shlex.join(words)}")

    def _start(self, name: str) -> None:
        """Run the command of a unit as systemd would, and wait until it is ready."""
        unit, instance = name.split("@")
        secrets = f"/run/credentials/{name}"
        text = (self.root / "etc" / "systemd" / "system" / f"{unit}@.service").read_text()
        for short, value in {"%i": instance, "%S": "/var/lib", "%d": secrets}.items():
            text = text.replace(short, value)
        settings = defaultdict(list)
        for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
            settings[key].append(value)
        (user,) = settings["User"]
        given = [one.split(":") for one in settings["LoadCredential"]]
        copies = [f"install -o {user} -m 0400 {source} {secrets}/{secret}" for secret, source in given]
        folders = f"install -d -o {user} -m 0700 {secrets} /var/lib/{settings['StateDirectory'][0]}"
        run(self.command("root", "/", "sh", "-ec", "\n".join([folders, *copies])))
        environment = " ".join(settings["Environment"]).split()
        environment += [f"HOME=/var/lib/{settings['StateDirectory'][0]}", f"USER={user}", f"LOGNAME={user}"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, self._log.open("wb") as log:
            channel.bind(f"\0{self.root}")
            channel.settimeout(1)
            words = [*environment, f"NOTIFY_SOCKET=@{self.root}", *shlex.split(settings["ExecStart"][0])]
            self._service = subprocess.Popen(
                self.command(user, "/", *words), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            while settings["Type"] == ["notify"] and self._service.poll() is None:
                try:
                    if channel.recv(100) == b"READY=1":
                        return
                except TimeoutError:
                    continue
        if settings["Type"] == ["notify"]:
            self._ended()

    def stop(self) -> None:
        """End the service as systemd does."""
        if self._service is not None:
            self._service.send_signal(signal.SIGTERM)
            self._ended()

    def _ended(self) -> None:
        """Wait until the service has ended, which it has to do well."""
        service, self._service = self._service, None
        if service is not None and service.wait(PATIENCE):
            sys.exit(f"the service ended with {service.returncode}:\n{self._log.read_text()[-3000:]}")


def scraped(folder: Path) -> None:
    """Let a Prometheus with the configuration of the docs scrape the service, until it has injected something."""
    text = (HOW_TO / "monitor-with-prometheus.md").read_text()
    (config,) = re.findall(r"^```yaml prometheus.yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    folder.mkdir()
    (folder / "prometheus.yaml").write_text(config)
    shutil.copy(prometheus.RULES, folder)
    address = prometheus.free_address()
    command = [str(prometheus.programs() / "prometheus"), f"--config.file={folder}/prometheus.yaml"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"]
    with prometheus.serving(command, folder / "log"):
        real = prometheus.Prometheus(address)
        query = 'sum by (campaign) (dc_inject_injected_bytes_total{job="dc_inject"}) > 0'
        until = prometheus.until
        until(lambda: real.get("/api/v1/query", query=query)["result"], "a scrape with bytes", PATIENCE)
        print(real.get("/api/v1/query", query=query)["result"])
        until(lambda: {rule["health"] for rule in rules_of(real)} == {"ok"}, "rules that were evaluated", PATIENCE)
        print(f"{len(rules_of(real))} rules, firing: {sorted(real.firing()) or 'none'}")


def rules_of(real: prometheus.Prometheus) -> list[dict[str, str]]:
    """Return the rules and alerts that a Prometheus has, with their health."""
    return [rule for group in real.get("/api/v1/rules")["groups"] for rule in group["rules"]]


if __name__ == "__main__":
    sys.exit(main())
