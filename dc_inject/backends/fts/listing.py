"""Our jobs as FTS has them, found without a ledger: by their metadata and the names of their files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any
from urllib.parse import urlencode

from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.jobs import metadata as metadata_of
from dc_inject.backends.fts.jobs import parts
from dc_inject.backends.fts.observing import OVER
from dc_inject.backends.fts.rows import true_size
from dc_inject.model import Link, deletion, naming, urls
from dc_inject.model.items import label_of_job
from dc_inject.model.naming import Copy
from dc_inject.model.ports import FoundInjection, Made, Status
from dc_inject.model.redaction import scrub

log = logging.getLogger(__name__)

Row = Mapping[str, Any]
AT_ONCE = 20  # jobs whose files are asked for in a call
LONGEST = timedelta(days=14)  # how far back jobs that are over are looked for; FTS archives its own after a week
_FIELDS = ("file_state", "filesize", "user_filesize", "source_surl", "dest_surl")
_HOUR = timedelta(hours=1)
_DEPTH = 6  # names of a copy's path below the prefix: naming.copies


@dataclass(frozen=True, slots=True)
class JobList:
    """Finds the jobs of a campaign that we submitted; other people's with the same words are left alone."""

    connection: Connection
    service: str

    def ours(self, campaign: str, since: datetime | None) -> Iterator[FoundInjection]:
        """Stream the jobs of a campaign that are at work, and those that were over after `since`.

        A job whose files are not named as ours is left out, whatever it says of itself. The link's source is the
        folder that all source files lie in: the prefix of the menu is that one, or one above it.
        """
        for batch in parts(self._rows(campaign, since), AT_ONCE):
            files = self._files([row["job_id"] for row in batch])
            for row in batch:
                injection = self._injection(row, files.get(row["job_id"], ()))
                if injection is not None:
                    yield injection

    def made(self, campaign: str, since: datetime) -> Iterator[Made]:
        """Stream who made the jobs of a campaign since then, by their metadata alone."""
        for row in self._rows(campaign, since):
            metadata, at = metadata_of(row), _moment(row["submit_time"])
            if at >= since:
                yield Made(str(metadata.get("key")), naming.read_origin(metadata), at)

    def _rows(self, campaign: str, since: datetime | None) -> list[Row]:
        """Return the jobs of a campaign that are at work, and those that were over after `since`."""
        answer = self.connection.call("whoami")
        mine = {"user_dn": str(answer["user_dn"]), "vo_name": self.connection.vo()}
        now = self.connection.now()
        hours = max(1, ceil((now - max(since or now - LONGEST, now - LONGEST)) / _HOUR))
        finished = mine | {"state_in": ",".join(sorted(OVER)), "time_window": str(hours)}
        # in this order: a job that ends between the two answers is in both
        jobs = {row["job_id"]: row for query in (mine, finished) for row in self._list(query)}
        return [row for row in jobs.values() if metadata_of(row).get("campaign") == campaign]

    def _list(self, query: Mapping[str, str]) -> list[Row]:
        rows: list[Row] = self.connection.call("get", f"/jobs?{urlencode(query)}")
        return rows

    def _files(self, ids: Sequence[str]) -> dict[str, Sequence[Row]]:
        answer = self.connection.call("get", f"/jobs/{','.join(ids)}?files={','.join(_FIELDS)}")
        rows = answer if isinstance(answer, list) else [answer]
        return {row["job_id"]: tuple(row.get("files") or ()) for row in rows}

    def _injection(self, row: Row, files: Sequence[Row]) -> FoundInjection | None:
        """Return a job of ours; None when its files' names do not bear out what it says."""
        metadata, job = metadata_of(row), row["job_id"]
        prefix = str(files[0]["dest_surl"]).rsplit("/", _DEPTH)[0] if files else ""
        copy = _common_copy(prefix, files)
        if copy is None:
            log.warning("the job %s says that it is of %s, and its files do not", job, metadata["campaign"])
            return None
        if (copy.campaign, copy.key) != (metadata["campaign"], metadata.get("key")):
            log.warning("the job %s and its files do not say the same of it", job)
            return None
        if not deletion.is_ours(deletion.Job(job, self.connection.vo(), copy.key)):
            log.warning("the job %s has files of another job", job)
            return None
        sources = tuple(urls.normal(str(file["source_surl"])) for file in files)
        states = Counter(str(file["file_state"]) for file in files)
        stuck = states["FAILED"] + states["CANCELED"]
        return FoundInjection(
            key=copy.key,
            external_id=job,
            campaign=copy.campaign,
            scenario=copy.scenario,
            cycle=copy.cycle,
            link=Link(_common_folder(sources), prefix, self.service),
            item=label_of_job(len(files), job),
            bytes=sum(true_size(file) for file in files),
            status=Status.COMPLETE if row["job_state"] in OVER else Status.MOVING,
            done=states["FINISHED"],
            moving=len(files) - states["FINISHED"] - stuck,
            stuck=stuck,
            created_at=_moment(row["submit_time"]),
            expires_at=None,  # FTS ends nothing but what waits too long
            changed_at=_moment(row["job_finished"]) if row.get("job_finished") else None,
            sources=sources,
            contact=scrub(str(metadata.get("contact") or "")),
            origin=naming.read_origin(metadata),
        )


def _common_copy(prefix: str, files: Sequence[Row]) -> Copy | None:
    """Return what the names of a job's files say together; None unless they are all of one injection's."""
    copies = [naming.read_copy(prefix, str(file["dest_surl"])) for file in files]
    whole = sorted(copy for copy in copies if copy is not None)
    same = {copy._replace(number=0) for copy in whole}
    numbered = [copy.number for copy in whole] == list(range(len(files)))
    return same.pop() if len(same) == 1 and numbered else None


def _common_folder(sources: Sequence[str]) -> str:
    """Return the innermost folder that holds all of these files."""
    folder = urls.parent(sources[0])
    while not all(urls.is_below(folder, url) for url in sources) and urls.parent(folder) != folder:
        folder = urls.parent(folder)
    return folder


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
