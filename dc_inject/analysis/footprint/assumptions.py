"""What a footprint has to assume because no menu says it; each default has its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from dc_inject.model import DatasetFilter, Flow, Item
from dc_inject.model.transfers import FILE_SPEED, LINK_LIMIT

MEAN_FILE = 5 * 10**9
FILES = 1000
CALLS_PER_RULE = 4
TOKENS_PER_END = 1


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is not in a menu; sizes in bytes, speeds in bytes per second.

    The sources of the defaults are "WLCG/DOMA Data Challenge 2024, Final Report" (zenodo 11444180) and what
    others measured:

    - `mean_file`, of files whose sizes no inventory and no list tells: 5 GB. Datasets of DC24 had files of 5 to
      7 GB; the UK's mini challenge, Belle II and JUNO moved files of 5 GB.
    - `dataset_files`, of a dataset: 1000 as in DC24, within the bounds of the menu.
    - `file_speed`: 6 MB/s, as CERN to RAL in DC24; 3 to 8 in mini challenges, 20 to 25 planned by ATLAS.
    - `deletion_seconds`, of one file: 1 s at RAL, 20 s there under load, 0.3 s elsewhere.
    - `deletion_lag`, from the end of a rule to free space: what the menu says of the RSE (None), plus one cycle.
    - `lifetime` of rules and jobs: the longest that the menu lets them have (None).
    - `link_limit`, transfers at a time that FTS allows on a link: the default of LIMITS_OF.
    """

    mean_file: int | None = None
    dataset_files: int = FILES
    file_speed: float = FILE_SPEED
    deletion_seconds: float = 1.0
    deletion_lag: timedelta | None = None
    lifetime: timedelta | None = None
    link_limit: int = LINK_LIMIT


def dataset_files(flow: Flow, assumed: int) -> int:
    """Return the files of one dataset or job of a flow: what is assumed, within what its menu allows."""
    if isinstance(flow.datasets, DatasetFilter):
        fewest, most = flow.datasets.files
        return min(max(assumed, fewest), most)
    return min(assumed, flow.job.files) if flow.job is not None else assumed


def mean_file(flow: Flow, items: Sequence[Item] | None, assumed: int | None) -> float:
    """Return the mean file size of a flow in bytes: the one that is assumed, or that of known items.

    Without either it is 5 GB, within the bounds of the menu.
    """
    if assumed is not None:
        return assumed
    if items:
        return sum(item.bytes for item in items) / sum(item.files for item in items)
    bounds = flow.datasets.mean_file if isinstance(flow.datasets, DatasetFilter) else flow.datasets.size
    return min(max(MEAN_FILE, bounds[0]), bounds[1])
