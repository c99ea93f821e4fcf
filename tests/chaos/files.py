"""The same through FTS: files on the sandbox's storages, jobs in its FTS service, the truth on the disks."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from dc_inject.model import Cycle
from dc_inject.sandbox.locking import locked
from dc_inject.sandbox.state import write_private
from tests.chaos.truth import Others, Rule, Truth
from tests.chaos.world import World

FILES, SIZE = 10, 1_000_000
OVER = {"FINISHED", "FAILED", "FINISHEDDIRTY", "CANCELED"}
MENU = """\
menu: 1
campaign: {campaign}
contact: chaos@example.org
start: {start}
end: {end}
limits: {{rules_per_hour: 1000000}}
accept: [rate-outlier]
defaults:
  control: act
  through: fts
  cycle: {cycle} s
  lifetime: {{min: {least} s, max: {lifetime} s}}
  files: {{folder: src}}
  jobs: {{files: 5, longest_transfer: 1 s}}
scenarios:
  test:
    then: {{to: {{"{landing}": "{onward}"}}}}
    links:
"""


class FileWorld(World):
    """Files go from one storage to the two others, and on from the last, beside files of other people."""

    @property
    def source(self) -> str:
        return f"{self.sandbox.storages['XRD1']}/{self.label.lower()}"

    @property
    def landings(self) -> list[str]:
        return [f"{self.sandbox.storages[name]}/{self.label.lower()}-copies" for name in ("XRD2", "XRD3")]

    @property
    def onward(self) -> str:
        """Where what has landed at the last storage goes on to."""
        return f"{self.sandbox.storages['XRD2']}/{self.label.lower()}-onward"

    @property
    def destinations(self) -> list[str]:
        return [*self.landings, self.onward]

    @property
    def _token(self) -> Path:
        return self.config.parent / "fts-token"

    def identify(self) -> None:
        """Put a new token of the same person into the tool's file."""
        token = self.sandbox.issue_token(self.label).read_text()
        self.secrets.add(token)
        write_private(self._token, token)

    def revoke(self) -> None:
        """Let all tokens that were issued for it be of the past."""
        file = self.sandbox.folder / "fts" / "tokens.json"
        with locked(self.sandbox.folder, lambda _line: None):
            known = json.loads(file.read_text())
            ended = {token: {**whose, "expires": 0.0} for token, whose in known.items() if token in self.secrets}
            write_private(file, json.dumps(known | ended))

    def furnish(self, count: int = FILES, size: int = SIZE) -> None:
        """Put files at the source, and other people's at the destinations."""
        self.more = {**self.more, "DC_INJECT_FTS_TOKEN_FILE": str(self._token)}
        self.identify()
        for number in range(count):
            self.sandbox.put("XRD1", f"/{self.label.lower()}/src/{number:03}", size + number, seed=number)
        for name in ("XRD2", "XRD3"):
            self.sandbox.put(name, f"/{self.label.lower()}-copies/of-others/one", 1000, seed=1)
            self.sandbox.put(name, f"/{self.label.lower()}-copies/dc_inject/of-others", 1000, seed=2)

    def write_menu(self, rate: str, cycles: int, *, lifetime: int = 60, grace: int = 0) -> datetime:
        """Write a menu whose links have this rate from the next cycle on; returns its end."""
        assert grace == 0, "not here"
        length, stamp = timedelta(seconds=self.cycle), "%Y-%m-%dT%H:%M:%SZ"
        start = Cycle.at(datetime.now(UTC), length).next.start
        end = start + cycles * length
        head = MENU.format(
            campaign=self.campaign, start=start.strftime(stamp), end=end.strftime(stamp), cycle=self.cycle,
            lifetime=lifetime, least=lifetime // 4, landing=self.landings[-1], onward=self.onward,
        )  # fmt: skip
        links = [
            f'      - {{from: "{self.source}", to: "{to}", control: {self.control(to)}, rate: {rate}}}\n'
            for to in self.landings
        ]
        self.menu.write_text(head + "".join(links))
        return end


@dataclass
class FileTruth(Truth):
    """The database of the FTS service, and what lies on the disks of a world's storages."""

    world: FileWorld

    def rules(self, campaign: str) -> dict[str, Rule]:
        """Return every job that the campaign ever had, by its id; `*` stands for any."""
        with closing(self._jobs()) as db:
            jobs = db.execute("SELECT * FROM job").fetchall()
            files = db.execute("SELECT * FROM file").fetchall()
        found: dict[str, Rule] = {}
        for job in jobs:
            if fnmatchcase((json.loads(job["job_metadata"]) or {}).get("campaign", ""), campaign):
                found[job["job_id"]] = Rule(
                    job["job_id"], "", "", "", datetime.fromtimestamp(job["submit_time"], UTC)
                )
                if job["job_state"] in OVER and job["job_finished"] is not None:
                    found[job["job_id"]].ended = datetime.fromtimestamp(job["job_finished"], UTC)
        for file in files:
            if (rule := found.get(file["job_id"])) is not None:
                rule.source = self._end(file["source_surl"], [self.world.source, *self.world.landings])
                rule.destination = self._end(file["dest_surl"], self.world.destinations)
                rule.copies.append(file["dest_surl"])
                if file["file_state"] == "FINISHED":
                    rule.arrived += file["user_filesize"]
                if file["file_state"] not in {"FAILED", "CANCELED"}:
                    rule.bytes += file["user_filesize"]
        return found

    def twice(self, rules: Mapping[str, Rule]) -> Iterator[str]:
        """Tell of names that were given to more than one copy."""
        copies = Counter(copy for rule in rules.values() for copy in rule.copies)
        yield from (f"{copy} {count} times" for copy, count in copies.items() if count > 1)

    def left(self) -> Iterator[str]:
        """Tell which copies of ours still lie at the destinations."""
        for name, folder in (("XRD2", "copies"), ("XRD3", "copies"), ("XRD2", "onward")):
            for path in self.world.sandbox.storage_files(name, f"/{self.world.label.lower()}-{folder}"):
                if "of-others" not in path:
                    yield f"{path} lies at {name}"

    def others(self, label: str) -> Others:
        """Return the files at the source, and those of other people at the destinations, with their checksums."""
        grid, found = self.world.sandbox, []
        for name in grid.storages:
            for folder in (label.lower(), f"{label.lower()}-copies"):
                for path in grid.storage_files(name, f"/{folder}"):
                    if "/src/" in path or "of-others" in path:
                        stored = grid.storage_file(name, path)
                        found.append((name, path, stored.size, stored.adler32))
        return [], found

    def tokens(self) -> set[str]:
        """FTS gives none out: the world knows those that it has got."""
        return set()

    def _jobs(self) -> sqlite3.Connection:
        db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=30)
        db.row_factory = sqlite3.Row
        return db

    @staticmethod
    def _end(url: str, known: list[str]) -> str:
        return next((prefix for prefix in known if url.startswith(f"{prefix}/")), url)
