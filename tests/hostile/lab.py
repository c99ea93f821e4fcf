"""The real sandbox with a hostile proxy before each of its services, and the tool run against it."""

from __future__ import annotations

import configparser
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from dc_inject.ledger import LedgerView
from dc_inject.model import State
from dc_inject.sandbox import Dataset, Rse, Sandbox
from tests.e2e.tool import GB, Running, Tool, until
from tests.hostile.proxy import Hostile, Trap

ROLES = ("rucio", "login", "fts", "storage")  # a log-in to Rucio is tried apart: without one nothing else is asked
COMMANDS = ("ping", "check", "run", "end", "data", "link")
NEVER = {("fts", "data"), *(("login", command) for command in COMMANDS[1:])}  # not asked, or as by another
CASES = [(role, command) for role in ROLES for command in COMMANDS if (role, command) not in NEVER]
CODES = {
    0,
    2,
    4,
    5,
    130,
    -signal.SIGINT,
}  # the last: stopped when it had said all, and waited for calls at its exit
MOST_MEMORY = dict.fromkeys(COMMANDS, 200_000_000)  # bytes resident: an answer of 64 MB, and what all need
MOST_MEMORY |= dict.fromkeys(("run", "link"), 400_000_000)  # rows take more, and kept errors hold some
UNAVAILABLE = 4  # the exit code where a service or a storage does not answer
BELIEVED = {"ids": ("another injector",)}  # it also changes the id of the start that made a rule
TRIES = 3  # to begin in good weather
STOP = 180.0  # seconds for a stop: half a minute is for answers under way, the rest for a busy machine
CYCLE = 5  # seconds
MB = 1_000_000

MENU = """\
menu: 1
campaign: {campaign}
contact: hostile@example.org
start: {start}
end: {end}
limits: {{rules_per_hour: 100000}}
defaults: {{cycle: {cycle} s, dwell: {dwell} s, lifetime: {{min: 900 s, max: 900 s}}}}
scenarios:
  rules:
    datasets: {{did: ["cms:*"], files: 1..100, mean_file: 0.1..20 GB}}
    links: [{{from: {rse_from}, to: {rse_to}, rate: 1.6 Gb/s}}]
  jobs:
    through: fts
    files: {{folder: src}}
    jobs: {{files: 5, longest_transfer: 1 s}}
    links: [{{from: "{url_from}", to: "{url_to}", rate: 20 Mb/s}}]
"""


@dataclass
class Lab:
    """The services, hostile when told to, and a place for the tool."""

    grid: Sandbox
    folder: Path
    trap: Trap
    proxies: dict[str, Hostile]
    rses: tuple[str, str]
    files: str  # the place of files to copy, below a storage's prefix
    secrets: tuple[str, ...]
    forked: bool = False  # whether commands are forked from a process that has imported them
    tools: list[Tool] = field(default_factory=list)

    def tool(self) -> Tool:
        """Return the tool with a state folder of its own, which meets all services by their proxies."""
        state = self.folder / uuid.uuid4().hex[:8]
        state.mkdir()
        text = self.grid.config.read_text()
        address = f"http://127.0.0.1:{text.split('rucio_host = http://127.0.0.1:')[1].split()[0]}"
        config = state / "rucio.cfg"
        config.write_text(
            text.replace(address, self.proxies["rucio"].url).replace(
                str(self.grid.folder / "token."), str(state / "token.")
            )
        )
        config.chmod(0o600)
        more = {"DC_INJECT_FTS_ENDPOINT": self.proxies["fts"].url, "HOME": str(state)}
        self.tools.append(Tool(state, config, more, forked=self.forked))
        return self.tools[-1]

    @property
    def prefix(self) -> str:
        """The prefix of a storage's URLs, by its proxy."""
        return self.proxies["storage"].url

    def ends(self, role: str, campaign: str) -> tuple[str, str]:
        """Source and destination of a link that uses this service."""
        if role in {"rucio", "login"}:
            return self.rses
        return f"{self.prefix}/{self.files}", f"{self.prefix}/{campaign}"

    def menu(self, tool: Tool, campaign: str, *, cycles: int = 1000, dwell: int = 0) -> Path:
        """Write a menu with one link through each service."""
        now, stamp = datetime.now(UTC), "%Y-%m-%dT%H:%M:%SZ"
        path = tool.state / f"{campaign}.yaml"
        path.write_text(
            MENU.format(
                campaign=campaign, cycle=CYCLE, dwell=dwell,
                start=(now - timedelta(seconds=CYCLE)).strftime(stamp),
                end=(now + cycles * timedelta(seconds=CYCLE)).strftime(stamp),
                rse_from=self.rses[0], rse_to=self.rses[1],
                url_from=f"{self.prefix}/{self.files}", url_to=f"{self.prefix}/{campaign}",
            )
        )  # fmt: skip
        return path

    @contextmanager
    def hostile(self, role: str, mode: str) -> Iterator[Hostile]:
        """Let one service be hostile inside the block."""
        proxy = self.proxies[role]
        proxy.login = {"rucio": False, "login": True}.get(role)
        proxy.mode = mode
        try:
            yield proxy
        finally:
            proxy.mode = ""


def stock(grid: Sandbox, labs: int, datasets: int) -> list[str]:
    """Add RSEs for some labs, each with datasets for campaigns; returns the labels of the labs."""
    labels = [uuid.uuid4().hex[:8].upper() for _ in range(labs)]
    rses = [Rse(rse, 10**16) for label in labels for rse in _rses(label)]
    grid.add(rses, {
        _rses(label)[0]: tuple(
            Dataset("cms", f"/{label}/v1/RAW#{number:04}", (GB,)) for number in range(datasets)
        )
        for label in labels
    })  # fmt: skip
    return labels


def _rses(label: str) -> tuple[str, str]:
    return f"T2_{label}_From", f"T2_{label}_To"


@contextmanager
def lab(grid: Sandbox, folder: Path, label: str, *, forked: bool = False) -> Iterator[Lab]:
    """Give a sandbox with storages hostile proxies, and files to copy."""
    name = sorted(grid.storages)[0]
    for number in range(24):
        grid.put(name, f"/hostile/{label}/src/{number:03}", MB // 4 + number, seed=number)
    parser = configparser.ConfigParser()
    parser.read(grid.config)
    with ExitStack() as stack:
        trap = stack.enter_context(Trap())
        services = {
            "rucio": parser.get("client", "rucio_host"),
            "fts": str(grid.fts_url),
            "storage": grid.storages[name],
        }
        proxies = {role: stack.enter_context(Hostile(url, trap)) for role, url in services.items()}
        secrets = (parser.get("client", "password"),)
        made = Lab(grid, folder, trap, proxies, _rses(label), f"hostile/{label}", secrets, forked)
        made.proxies["login"] = proxies["rucio"]
        try:
            yield made
        finally:
            for tool in made.tools:
                tool.kill()


# --------------------------------------------------------------------------- one case


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    codes: tuple[int, ...]  # exit codes of the processes
    memory: int  # bytes: the most that one of them had resident
    answers: int  # hostile ones that were taken; 0: the command does not ask this service


def play(lab: Lab, role: str, mode: str, command: str) -> Outcome:
    """Run a command against a service that is hostile in one way, and judge what it did."""
    tool, campaign = lab.tool(), f"h-{uuid.uuid4().hex[:8]}"
    lab.proxies[role].met.clear()
    seen, stray = len(lab.trap.asked), len(lab.proxies[role].stray)
    done = {
        "run": lambda: _run(lab, tool, campaign, role, mode),
        "end": lambda: _end(lab, tool, campaign, role, mode),
        "link": lambda: _link(lab, tool, campaign, role, mode),
    }.get(command, lambda: _once(lab, tool, campaign, role, mode, command))()
    for running, memory in done:
        ended = running.ends(None)  # no traceback, no password
        # it says that it is another service, or that another start has made our rule
        bound = ended.code == 3 and any(
            one in ended.err for one in ("is bound to another", *BELIEVED.get(mode, ()))
        )
        assert bound or ended.code in CODES, f"exit code {ended.code}:\n{ended.err[-2000:]}"
        assert "this is a bug" not in ended.err, ended.err[-2000:]
        assert "\x1b" not in ended.err + ended.out
        assert memory <= MOST_MEMORY[command], f"{memory:,} bytes of memory"
    assert lab.proxies[role].met, "the hostile service was not asked"
    for method, path, headers in lab.trap.asked[seen:]:
        reading = method in {"GET", "HEAD", "PROPFIND", "OPTIONS"}
        ours = re.match(rf"/({campaign}(-\d)?)/dc_inject/\1", path)  # a data server may hold what is ours
        assert reading or ours, (method, path)
        assert not {"authorization", "x-rucio-auth-token", "x-rucio-password"} & {h.lower() for h in headers}
    assert [one for one in lab.proxies[role].stray[stray:] if one.split()[0] in {"DELETE", "PUT", "MKCOL"}] == []
    for file in tool.state.rglob("*"):
        if file.is_file() and file.name != "rucio.cfg":
            content = file.read_bytes()
            assert not any(secret.encode() in content for secret in lab.secrets), file
    return Outcome(
        tuple(running.process.returncode for running, _ in done),
        max(memory for _, memory in done),
        len(lab.proxies[role].met),
    )


def _end_of(
    running: Running, patience: float = STOP, begs: float | None = None, met: Sequence[object] = (None,)
) -> int:
    """Wait for the end of a process; return the most memory that it has had, in bytes.

    One that may well wait for long is stopped as by Ctrl-C, `begs` seconds after it has `met` something hostile.
    """
    begun, memory = time.monotonic(), 0
    first = None
    while True:
        memory = max(memory, _most(running.process.pid))
        if running.process.poll() is not None:
            return memory
        now = time.monotonic()
        first = now if first is None and met else first
        if begs is not None and first is not None and now - first > begs:
            running.send(signal.SIGINT)
            begun, begs = now, None
        assert now - begun < patience, f"it does not end:\n{running.err[-2000:]}"
        time.sleep(0.02)


def _most(pid: int) -> int:
    """Return the most memory that a process has had resident so far, in bytes; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _timeout(mode: str) -> float:
    """Seconds of silence that a command allows; a call may take ten times that, which only a drip comes to."""
    return 2 if mode == "drip" else 15


def _once(lab: Lab, tool: Tool, campaign: str, role: str, mode: str, command: str) -> list[tuple[Running, int]]:
    """Run a command that ends by itself."""
    menu, (source, _) = lab.menu(tool, campaign), lab.ends(role, campaign)
    words = {"ping": ["ping", menu], "check": ["check", "--online", menu], "data": ["data", "list", source]}[
        command
    ]
    with lab.hostile(role, mode):
        running = tool.start(*words, "--timeout", _timeout(mode))
        return [(running, _end_of(running, 4 * STOP))]


def _link(lab: Lab, tool: Tool, campaign: str, role: str, mode: str) -> list[tuple[Running, int]]:
    """Try a link twice: in bad weather from the start, and when the first of it has been accepted."""

    rate = "3.2Gb/s" if role == "rucio" else "20Mb/s"  # some datasets or files a cycle
    files = () if role == "rucio" else ("--folder", "src")

    def start(name: str) -> Running:
        return tool.start(
            "link", *lab.ends(role, name), "--rate", rate, "--for", "15s", "--cycle", "5s", "--yes",
            "--campaign", name, "--contact", "me", *files, "--fts", lab.proxies["fts"].url,
            "--accept", "coarse-datasets", "--accept", "pool-small", "--timeout", _timeout(mode),
        )  # fmt: skip

    names: list[str] = []

    def begin() -> Running:
        names.append(f"{campaign}-{len(names) + 1}")
        return start(names[-1])

    def accepted() -> bool:
        return any(entry.accepted_at for entry in tool.entries(names[-1]))

    with lab.hostile(role, mode) as proxy:
        refused = start(f"{campaign}-0")
        memory = _end_of(refused, begs=40, met=proxy.met)
    second = _begun(begin, accepted)
    with lab.hostile(role, mode):
        return [(refused, memory), (second, _end_of(second, begs=40))]


def _begun(start: Callable[[], Running], accepted: Callable[[], bool]) -> Running:
    """Start a link in good weather; once more where a storage was too busy to answer, and nothing was begun."""
    for _ in range(TRIES - 1):
        running = start()
        until(partial(_ended_or, running, accepted), "something is accepted, or it ends")
        if running.process.returncode != UNAVAILABLE:
            break
    else:
        running = start()
    until(_alive(running, accepted), "something is accepted")
    return running


def _ended_or(running: Running, done: Callable[[], bool]) -> bool:
    return running.process.poll() is not None or done()


def _run(lab: Lab, tool: Tool, campaign: str, role: str, mode: str) -> list[tuple[Running, int]]:
    """Let a run begin in good weather, then in bad: the other service is observed, and a stop works."""
    running = tool.start("run", lab.menu(tool, campaign), "--timeout", _timeout(mode))
    other = "fts" if role == "rucio" else "rucio"

    def complete(service: str) -> int:
        states = {State.COMPLETE, State.ENDED, State.GONE}
        some = [e for e in tool.entries(campaign) if e.injection.link.through == service]
        return sum(entry.state in states for entry in some)

    until(_alive(running, lambda: complete("rucio") and complete("fts")), "both services at work")
    with lab.hostile(role, mode) as proxy:
        before = complete(other)
        until(_alive(running, lambda: len(proxy.met) > 1), "hostile answers")
        cycles = len(_cycles(tool, campaign))
        until(_alive(running, lambda: len(_cycles(tool, campaign)) > cycles + 1), "cycles go on")
        until(_alive(running, lambda: complete(other) > before), f"{other} is observed")
        running.send(signal.SIGTERM)
        return [(running, _end_of(running))]


def _alive(running: Running, done: Callable[[], object]) -> Callable[[], object]:
    """Ask the same, as long as the process has not ended by itself."""

    def asked() -> object:
        assert running.process.poll() is None, running.err[-2000:]
        return done()

    return asked


def _cycles(tool: Tool, campaign: str) -> set[object]:
    with LedgerView.open(tool.ledger(campaign)) as view:
        return {row.cycle for row in view.rows()}


def _end(lab: Lab, tool: Tool, campaign: str, role: str, mode: str) -> list[tuple[Running, int]]:
    """End a campaign that has rules and files."""
    run = tool.start("run", lab.menu(tool, campaign, dwell=600), "--timeout", "5", "--no-drain")

    def given() -> bool:
        services = {e.injection.link.through for e in tool.entries(campaign) if e.accepted_at}
        return services == {"rucio", "fts"}

    until(_alive(run, given), "both services at work")
    run.send(signal.SIGTERM)
    memory = _end_of(run)
    with lab.hostile(role, mode) as proxy:
        end = tool.start("end", campaign, "--cancel", "--yes", "--timeout", _timeout(mode))
        return [(run, memory), (end, _end_of(end, begs=20, met=proxy.met))]
