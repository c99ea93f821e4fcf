"""Files on the sandbox's storages: put there, asked for by a menu through FTS, and looked up on the disks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from dc_inject.sandbox import Sandbox
from tests.e2e.tool import Tool

MENU = """\
menu: 1
campaign: {campaign}
contact: e2e@example.org
start: {start}
end: {end}
limits: {{rules_per_hour: 100000}}
defaults:
  through: fts
  cycle: {cycle} s
  dwell: {dwell} s
  lifetime: {{min: {lifetime} s, max: {lifetime} s}}
  files: {{folder: {folder}}}
  jobs: {{files: 20, longest_transfer: {longest} s}}
scenarios:
  test:
    links:
"""


@dataclass
class Storages:
    """Some files on each storage, and what a campaign makes of them."""

    grid: Sandbox
    label: str
    adler32: dict[int, str] = field(default_factory=dict)  # by size: no two files have the same

    def fill(self, files: int, size: int) -> None:
        """Put files of about a size on each storage."""
        for place, name in enumerate(sorted(self.grid.storages)):
            for number in range(files):
                mine = size + 1000 * place + number
                stored = self.grid.put(name, f"/{self.label}/src/{number:03}", mine, seed=mine)
                self.adler32[stored.size] = stored.adler32

    def source(self, name: str) -> str:
        return f"{self.grid.storages[name]}/{self.label}"

    def destination(self, name: str, of: str) -> str:
        """Where copies from a storage go to, so that the disk alone tells the link that they came over."""
        return f"{self.grid.storages[name]}/{self.label}-from-{of}"

    def links(self) -> list[tuple[str, str]]:
        """Every ordered pair of storages."""
        names = sorted(self.grid.storages)
        return [(a, b) for a in names for b in names if a != b]

    def copies(self, source: str, destination: str) -> dict[str, int]:
        """Files that came over a link: path and size, as they lie there."""
        return dict(self.grid.storage_files(destination, f"/{self.label}-from-{source}"))

    def left(self) -> list[str]:
        """The files of ours at the destinations."""
        return [path for a, b in self.links() for path in self.copies(a, b)]

    def menu(
        self,
        tool: Tool,
        campaign: str,
        rates: Mapping[tuple[str, str], str],
        *,
        start: datetime,
        cycles: int = 1,
        cycle: int = 6,
        dwell: int = 0,
        lifetime: int = 600,
        longest: int = 1,
    ) -> Path:
        """Write a menu with these links and their rates."""
        path = tool.state / f"{campaign}.yaml"
        stamp = "%Y-%m-%dT%H:%M:%SZ"
        head = MENU.format(
            campaign=campaign, start=start.strftime(stamp), cycle=cycle, dwell=dwell, lifetime=lifetime,
            end=(start + cycles * timedelta(seconds=cycle)).strftime(stamp), folder="src", longest=longest,
        )  # fmt: skip
        lines = [
            f'      - {{from: "{self.source(a)}", to: "{self.destination(b, a)}", rate: {rate}}}\n'
            for (a, b), rate in rates.items()
        ]
        path.write_text(head + "".join(lines))
        return path


def jobs(grid: Sandbox, campaign: str) -> dict[str, list[dict[str, str]]]:
    """The campaign's jobs with their files, as FTS tells them to its own client."""
    import fts3.rest.client.easy as fts3  # noqa: PLC0415  an extra

    context = fts3.Context(grid.fts_url)
    states = "SUBMITTED,ACTIVE,FINISHED,FINISHEDDIRTY,FAILED,CANCELED"
    # The client's own listing has no window of time, without which FTS tells of no finished jobs.
    listed = json.loads(context.get(f"/jobs?state_in={states}&time_window=24&limit=500"))
    ours = [job["job_id"] for job in listed if (job["job_metadata"] or {}).get("campaign") == campaign]
    told = {}
    for start in range(0, len(ours), 100):
        some = fts3.get_jobs_statuses(context, ours[start : start + 100], list_files=True)
        told |= {job["job_id"]: job["files"] for job in (some if isinstance(some, list) else [some])}
    return told
