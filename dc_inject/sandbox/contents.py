"""What goes to those who build the grid in Rucio: RSEs with their addresses, datasets with their files.

At an RSE that lies on a storage every file is written there first, where Rucio will look for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import storage
from .grid import Dataset, Rse
from .state import State


def rses_plain(state: State, rses: Iterable[Rse]) -> list[dict[str, Any]]:
    """Write RSEs; one on a storage gets the address of its files and the service that moves them."""
    plain = []
    for rse in rses:
        entry: dict[str, Any] = {
            "name": rse.name,
            "type": rse.kind,
            "space": rse.space,
            "attributes": dict(rse.attributes or {}),
            "quotas": dict(rse.quotas or {}),
        }
        if rse.on is not None:
            host, _, port = state.storages[rse.on].partition(":")
            entry["address"] = {"hostname": host, "port": int(port), "prefix": prefix(rse.name)}
            entry["attributes"]["fts"] = state.fts_url
        plain.append(entry)
    return plain


def datasets_plain(
    folder: Path, state: State, datasets: Mapping[str, Sequence[Dataset]]
) -> dict[str, list[dict[str, Any]]]:
    """Write datasets by source RSE, and their files' bytes where the RSE lies on a storage of the sandbox."""
    return {
        source: [_dataset_plain(folder, state, source, dataset) for dataset in at_source]
        for source, at_source in datasets.items()
    }


def _dataset_plain(folder: Path, state: State, source: str, dataset: Dataset) -> dict[str, Any]:
    files: list[dict[str, Any]] = []
    stem = "/store" + ("" if dataset.name.startswith("/") else "/") + dataset.name.replace("#", "/")
    for number, size in enumerate(dataset.files):
        name = f"{stem}/{number:04d}.root"
        file: dict[str, Any] = {"name": name, "bytes": size}
        if source in state.real:
            # a leading slash would make an empty folder name in Rucio's paths
            file["name"] = name = name.lstrip("/")
            data = storage.data_folder(folder, state.real[source])
            file["adler32"] = storage.write(data, path(source, dataset.scope, name), size, name).adler32
        files.append(file)
    return {"scope": dataset.scope, "name": dataset.name, "files": files}


def prefix(rse: str) -> str:
    """Name the folder of an RSE on its storage."""
    return f"/rucio/{rse}"


def path(rse: str, scope: str, name: str) -> str:
    """Name the file of a replica on its storage, as Rucio's algorithm `hash` does it."""
    digest = hashlib.md5(f"{scope}:{name}".encode(), usedforsecurity=False).hexdigest()
    return f"{prefix(rse)}/{scope}/{digest[0:2]}/{digest[2:4]}/{name}"
