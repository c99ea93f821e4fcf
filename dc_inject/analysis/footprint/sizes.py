"""What sources are known to have, without asking any service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dc_inject.model import FileFilter, Flow, Item
from dc_inject.model.goals import SecondHop
from dc_inject.planning import pool


def known_items(flow: Flow, inventory: Mapping[str, Sequence[Item]] | None) -> Sequence[Item] | None:
    """Return the items that a flow may take, as far as they are known without a service; None: they are not."""
    datasets, source = flow.datasets, flow.link.source
    if isinstance(flow.goal, SecondHop):
        return None  # what the first hop brings
    if isinstance(datasets, FileFilter):
        listed = datasets.listing
        if listed is None or inventory is not None:
            return None if inventory is None else [i for i in inventory.get(source, ()) if i.bytes > 0]
        files = [f for f in listed.files if "://" not in f.name or f.name.startswith(f"{source}/")]
        chosen = [file for file in files if pool.passes(file, source, datasets)]
        return chosen if files and all(file.bytes > 0 for file in files) else None
    if inventory is None or datasets.landed:
        return None
    inside = bool(datasets.containers)  # what is in a container is not told by a file of datasets
    return [i for i in inventory.get(source, ()) if pool.matches(i, datasets, in_container=inside)]
