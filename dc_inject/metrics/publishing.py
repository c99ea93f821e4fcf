"""Publishing: metrics of a process that is too short to scrape: `run --once` from cron.

When a run has done its cycle and let go of its ledger, it writes what a scrape would have read, in one or both of
two ways. Both keep it until the next run replaces it; their own metrics have the time of it.

- A file for the textfile collector of node_exporter. It is written under another name, and then renamed, so that
  no half of it is ever read. It has mode 0644, whatever the umask, because node_exporter runs as another user:
  whoever can log in on that machine can read the metrics there.
- A Pushgateway, as the group of job `dc_inject` and the campaign. One that hangs, is down or refuses costs a run
  at most LONGEST seconds after its cycle, and a warning.

Nothing of this can fail a run, which has done its work by then. What cannot work at all is refused at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_LATEST

from dc_inject.model.errors import UsageError
from dc_inject.model.redaction import scrub
from dc_inject.system import files
from dc_inject.system.transport import Adapter, ExchangeLimits, Session
from dc_inject.system.transport_errors import TransportError

log = logging.getLogger(__name__)

LONGEST = 10.0  # seconds that a Pushgateway may take in all
ANSWER = 100_000  # bytes of its answer at most
READABLE = 0o644
SUFFIX = ".prom"  # node_exporter reads no other files


def check(textfile: Path | None, pushgateway: str | None, *, once: bool) -> None:
    """Raise UsageError for a place where metrics cannot be published, or for a run that is not done `once`."""
    if (textfile or pushgateway) and not once:
        message = "--textfile and --pushgateway are for `run --once`, and not for a dry run"
        raise UsageError(message, "a run that goes on serves its metrics: --metrics-address 9465")
    if textfile is not None and textfile.suffix != SUFFIX:
        raise UsageError(f"{textfile} does not end in {SUFFIX}", "node_exporter reads only such files")
    if textfile is not None and not textfile.absolute().parent.is_dir():
        raise UsageError(f"{textfile.parent} is no folder", "name a file in the folder that node_exporter reads")
    if pushgateway is not None and not _is_address(pushgateway):
        raise UsageError(f"{scrub(pushgateway)} is no address of a Pushgateway", "such as http://127.0.0.1:9091")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and not (parts.query or parts.fragment)


def publish(text: Callable[[], bytes], group: str, textfile: Path | None, pushgateway: str | None) -> None:
    """Publish metrics, in Prometheus's format, where they are wanted; `group` is `dc27`, or `dc27/shard/2`."""
    if textfile is not None:
        to_textfile(text(), textfile)
    if pushgateway is not None:
        to_pushgateway(text(), pushgateway, group)


def to_textfile(text: bytes, path: Path) -> None:
    """Write metrics to a file as a whole; what goes wrong is a warning."""
    try:
        files.write_whole(path, text, force=True, mode=READABLE, exactly=True)
    except UsageError as error:
        log.warning("the metrics are not published: %s", error.message)


def to_pushgateway(text: bytes, url: str, group: str) -> None:
    """Send metrics to a Pushgateway, in place of those that it has of the group; a failure is a warning."""
    goal = f"{url.rstrip('/')}/metrics/job/dc_inject/campaign/{group}"
    try:
        with Session(Adapter(ExchangeLimits(LONGEST, ANSWER))) as session:
            answer = session.put(goal, text, headers={"Content-Type": CONTENT_TYPE_LATEST}, timeout=LONGEST)
    except (OSError, ValueError, TransportError) as error:  # whatever `requests` raises is one of these
        log.warning("the metrics are not published: %s: %s", scrub(url), scrub(str(error)))
        return
    if not answer.ok:
        reason = scrub(answer.text or answer.reason or "")
        log.warning("the metrics are not published: %s answered %d: %s", scrub(url), answer.status_code, reason)
