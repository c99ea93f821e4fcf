"""The trouble campaign: where control must do no harm.

`make trouble` runs five links that FTS has never seen, of one source and a storage each, through the sandbox's FTS
service, with and without control at the same time, on storages of their own, through the same troubles:

| link | asks (Mb/s) | trouble |
|---|---|---|
| healthy | 6 | none |
| slow | 24 | its storage takes 3 MB/s in all, unevenly |
| flaky | 6 | half of the requests for a copy get 500, and FTS tries again after 120 s |
| full | 8 | a disk of 400 MB, which the menu does not know |
| banned | 4 | banned from minute 8 to 12, jobs cancelled |

FTS starts nothing from minute 14 to 17, while it takes and shows jobs; its database is away in minute 20. With
`--slow-source` there is one link instead, that asks 3 MB/s of a source with 1.5 MB/s, for 22 minutes.

All times are multiplied with `--factor`, and rates divided by it, so that cycles have the same files in less time.
Each `--arm NAME=MODE` is one injector; `--arm 'NAME=MODE@FOLDER;VARIABLE=VALUE'` runs the package in that folder,
such as an older commit, with that environment. The first arm is what the others are compared with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from dc_inject.model import Cycle
from dc_inject.sandbox.environment import default_environment, ensure_environment, python_of
from tests.control.storages import Model, ModelStorage

try:
    from tests.sandbox.fts.service import Fts
except pytest.skip.Exception as missing:
    if __name__ != "__main__":
        raise
    sys.exit(str(missing))

SIZE, FILES = 3_000_000, 2500
HEALTHY = Model()
ARMS = ("off=off", "act=act")
GRACE = 90.0  # seconds that a run may take longer than its menu
# Of what the first arm moves, in all and on each link: who moves less does harm.
IN_ALL, ON_LINK = 0.97, 0.9


@dataclass(frozen=True)
class Destination:
    """What is asked of a link (bytes per second), and what its storage can do."""

    name: str
    rate: float
    model: Model = HEALTHY
    dwell: float = 0.0  # minutes that files stay


@dataclass(frozen=True)
class Trial:
    """A campaign and its troubles; times are in minutes before they are multiplied."""

    destinations: tuple[Destination, ...]
    minutes: float
    source: Model = HEALTHY
    ban: tuple[float, float] = (0, 0)


MBIT = 1e6 / 8
TROUBLE = Trial(
    (
        Destination("healthy", 6 * MBIT),
        Destination("slow", 24 * MBIT, Model(rate=3e6, spread=4)),
        Destination("flaky", 6 * MBIT, Model(failing=0.5)),
        Destination("full", 8 * MBIT, Model(space=400_000_000), dwell=10),
        Destination("banned", 4 * MBIT),
    ),
    minutes=28,
    ban=(8, 12),
)
SLOW_SOURCE = Trial((Destination("alone", 3e6),), minutes=22, source=Model(rate=1.5e6, spread=4))
STANDSTILL, DATABASE = (14, 17), (20, 21)


@dataclass
class Arm:
    """One injector, with its storages."""

    name: str
    mode: str
    package: Path | None
    more: dict[str, str]
    source: ModelStorage
    places: dict[str, ModelStorage] = field(default_factory=dict)

    def menu(self, trial: Trial, start: datetime, cycle: timedelta, factor: float) -> str:
        """Return its menu."""
        stamp, minute = "%Y-%m-%dT%H:%M:%SZ", 60 * factor
        end = start + timedelta(minutes=trial.minutes * factor)
        links = "".join(
            f'  {one.name}: {{from: "{self.source.url}/data", to: "{self.places[one.name].url}/in",'
            f" rate: {one.rate * 8 / factor:.0f} b/s, dwell: {one.dwell * minute:.0f} s}}\n"
            for one in trial.destinations
        )
        return (
            f"menu: 1\ncampaign: trouble-{self.name}\ncontact: trial@example.org\ntimezone: UTC\n"
            f"start: {start.strftime(stamp)}\nend: {end.strftime(stamp)}\naccept: [rate-outlier]\n"
            f"limits: {{total: 10 Gb/s, per_site: 10 Gb/s, rules_per_hour: {1000 / factor:.0f}}}\n"
            f"defaults:\n  through: fts\n  cycle: {cycle.total_seconds():.0f} s\n  control: {self.mode}\n"
            f"  lifetime: {{min: {4 * minute:.0f} s, max: {12 * minute:.0f} s}}\n"
            f"  files: {{list: files.csv}}\n"
            f"  jobs: {{files: 5, retry: 3, longest_transfer: {5 * minute:.0f} s}}\nscenarios:\n{links}"
        )

    def run(self, folder: Path, menu: str, fts: str) -> subprocess.Popen[bytes]:
        """Start the injector."""
        folder.mkdir()
        paths = [f"{self.source.url}/data/{number:04}" for number in range(FILES)]
        _, checksum = self.source.files["/data/0000"]
        rows = [f"{path},{SIZE},adler32:{checksum}" for path in paths]
        (folder / "files.csv").write_text("\n".join(["url,size,checksum", *rows]) + "\n")
        (folder / "menu.yaml").write_text(menu)
        trust = " ".join([self.source.url, *(place.url for place in self.places.values())])
        environ = {
            **os.environ, **self.more,
            "HOME": str(folder), "DC_INJECT_FTS_ENDPOINT": fts, "DC_INJECT_TRUST": trust,
        }  # fmt: skip
        if self.package:
            environ["PYTHONPATH"] = str(self.package)
        self._environ, self._folder = environ, folder
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                self._line("run", "--no-drain", "--plain", folder / "menu.yaml"),
                env=environ,
                cwd=folder,  # Python looks for the package there before it looks in the named folder
                stdout=log,
                stderr=log,
            )

    def figures(self) -> dict[str, dict[str, float]]:
        """Return what its ledger has of each link, in parts of its due."""
        line = self._line("status", f"trouble-{self.name}", "--summary", "--format", "json")
        told = json.loads(
            subprocess.run(line, env=self._environ, cwd=self._folder, stdout=subprocess.PIPE, check=True).stdout
        )
        return {
            row["scenario"]: {name: row[name] / row["due"] for name in ("injected", "moved")}
            for row in [*told["links"], told["total"]]
        }

    def _line(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "dc_inject", *map(str, words)]


def _troubles(trial: Trial, minute: float) -> dict[str, object]:
    """Return the settings of FTS that a minute has."""

    def now(span: tuple[float, float]) -> bool:
        return span[0] <= minute < span[1]

    return {"standstill": now(STANDSTILL), "database_down": now(DATABASE), "ban": now(trial.ban)}


def run_trial(
    trial: Trial, arms: list[str], cycle: timedelta, factor: float
) -> dict[str, dict[str, dict[str, float]]]:
    """Run all arms through a trial; returns their figures by arm and link."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dc_inject-")))
        environment = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())
        ensure_environment(environment, lambda line: print(line, file=sys.stderr))
        fts = Fts(folder, python_of(environment))
        fts.settings(time_scale=factor)
        fts.start()
        stack.callback(fts.kill)
        made = [_arm(stack, words, number, trial, factor) for number, words in enumerate(arms)]
        start = Cycle.at(datetime.now(UTC) + timedelta(seconds=8), cycle).next.start
        running = [
            stack.enter_context(arm.run(folder / arm.name, arm.menu(trial, start, cycle, factor), fts.url))
            for arm in made
        ]
        for process in running:
            stack.callback(process.kill)
        _play(trial, fts, made, running, start, factor)
        for arm, process in zip(made, running, strict=True):
            if process.returncode:
                print((folder / arm.name / "log").read_text()[-3000:], file=sys.stderr)
        return {arm.name: arm.figures() for arm in made}


def harm(figures: dict[str, dict[str, dict[str, float]]]) -> dict[tuple[str, str], float]:
    """Return on what links, or in all, an arm moved too little beside the first arm, and how much of it."""
    first, *others = figures.values()
    parts = {
        (name, link): links[link]["moved"] / first[link]["moved"]
        for name, links in zip(list(figures)[1:], others, strict=True)
        for link in links
        if first[link]["moved"]
    }
    return {key: part for key, part in parts.items() if part < (IN_ALL if key[1] == "total" else ON_LINK)}


def _arm(stack: ExitStack, words: str, number: int, trial: Trial, factor: float) -> Arm:
    what, *more = words.split(";")
    name, _, rest = what.partition("=")
    mode, _, package = rest.partition("@")
    known: dict[str, ModelStorage] = {}
    content = bytes(SIZE)

    def place(host: int, model: Model) -> ModelStorage:
        scaled = Model(model.rate / factor, model.failing, model.space, model.spread)
        made = ModelStorage(f"127.78.{number}.{host}", known, scaled, host)
        stack.callback(made.close)
        return made

    environ = dict(one.split("=", 1) for one in more)
    arm = Arm(name, mode, Path(package) if package else None, environ, place(1, trial.source))
    for file in range(FILES):
        arm.source.put(f"/data/{file:04}", content if file == 0 else b"")
        arm.source.files[f"/data/{file:04}"] = arm.source.files["/data/0000"]
    arm.places = {one.name: place(2 + index, one.model) for index, one in enumerate(trial.destinations)}
    return arm


def _play(
    trial: Trial, fts: Fts, arms: list[Arm], running: list[subprocess.Popen[bytes]], start: datetime, factor: float
) -> None:
    """Make the troubles in their minutes, until all injectors have ended."""
    deadline = start + timedelta(minutes=trial.minutes * factor, seconds=GRACE)
    before: dict[str, object] = {}
    while any(process.poll() is None for process in running):
        now = datetime.now(UTC)
        if now > deadline:
            raise RuntimeError("an injector does not end")
        troubles = _troubles(trial, (now - start).total_seconds() / 60 / factor)
        if troubles != before:
            before = troubles
            banned = [arm.places["banned"].url.rpartition(":")[0] for arm in arms] if troubles["ban"] else []
            settings = {name: value for name, value in troubles.items() if name != "ban"}
            fts.settings(time_scale=factor, banned=banned, **settings)
        time.sleep(0.2)


@click.command()
@click.option(
    "--arm", "arms", multiple=True, default=ARMS, show_default=True, help="NAME=MODE[@FOLDER][;VARIABLE=VALUE]."
)
@click.option("--slow-source", is_flag=True, help="The slow source alone.")
@click.option(
    "--cycle",
    "cycles",
    multiple=True,
    default=(1.0,),
    show_default=True,
    help="Minutes of a cycle, before the factor.",
)
@click.option("--factor", default=1.0, show_default=True, help="Of all times.")
def main(arms: tuple[str, ...], *, slow_source: bool, cycles: tuple[float, ...], factor: float) -> None:
    """Run the trial, and print what each arm injected and moved of the due, by link; exit 5 for harm."""
    trial, harmed = SLOW_SOURCE if slow_source else TROUBLE, False
    for cycle in cycles:
        figures = run_trial(trial, list(arms), timedelta(minutes=cycle * factor), factor)
        harms = harm(figures)
        harmed = harmed or bool(harms)
        for name, links in figures.items():
            for link, parts in links.items():
                less = f"  {harms[name, link]:.2f} of {arms[0]}" if (name, link) in harms else ""
                part = f"injected {parts['injected']:7.1%}  moved {parts['moved']:7.1%}{less}"
                click.echo(f"{cycle:4g} min  {name:10} {link:10} {part}")
    sys.exit(5 if harmed else 0)


if __name__ == "__main__":
    main()
