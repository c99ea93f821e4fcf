"""Slices in Rucio: temporary datasets of ours, with some of the files of a dataset that is too coarse."""

from __future__ import annotations

import threading
from collections import OrderedDict

from rucio.common import exception as rucio

from dc_inject.backends.answers import count
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.deletion import let_go
from dc_inject.backends.rucio.dids import Did
from dc_inject.model import Injection, Slice, deletion, units
from dc_inject.model.errors import NoSlices, Permanent, ServiceError
from dc_inject.model.items import Range
from dc_inject.planning import lifetime

_KEPT = 20  # datasets whose lists of files are kept

_NO_NAME = (rucio.InvalidObject, rucio.InvalidPath)
_NO_RIGHT = (rucio.AccessDenied, rucio.ScopeNotFound, *_NO_NAME)


class Slices:
    """Makes slices and looks at them; lists of files are read of their parents, and the last ones kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lists: OrderedDict[str, list[Row]] = OrderedDict()
        self._lock = threading.Lock()

    def files(self, part: Range) -> list[Row]:
        """Return the files of a slice; raises Permanent when its parent has gone or changed."""
        with self._lock:
            listed = self._lists.pop(part.parent, None)
        if listed is None or len(listed) != part.of:
            did = Did.read(part.parent)
            rows = self._connection.call("list_files", did.scope, did.name)
            listed = [
                {"scope": row["scope"], "name": row["name"], "bytes": count(row["bytes"])}
                for row in sorted(rows, key=Did.of)
            ]
        with self._lock:
            self._lists[part.parent] = listed
            while len(self._lists) > _KEPT:
                self._lists.popitem(last=False)
        if len(listed) != part.of:
            raise Permanent(f"{part.parent} has {units.counted(len(listed), 'files')} now, not {part.of}")
        return listed[part.first - 1 : part.last]

    def make(self, injection: Injection, item: Slice) -> None:
        """Make the dataset of a slice, files and all, in one call; one that is there is that of an earlier call.

        Raises NoSlices where the account may not.
        """
        did = Did.of_item(item.id)
        files = [Did.of(file).row() for file in self.files(item.range)]
        lives = lifetime.seconds(injection.lifetime + lifetime.SLICE_LONGER)
        try:
            self._connection.call("add_dataset", did.scope, did.name, lifetime=lives, files=files, writes=True)
        except Permanent as error:
            if isinstance(error.__cause__, rucio.DataIdentifierAlreadyExists):
                return
            if isinstance(error.__cause__, _NO_RIGHT):
                hint = f"ask for the right to make datasets in {did.scope}, or name another scope in `slices`"
                if isinstance(error.__cause__, _NO_NAME):
                    hint = "write a `name` in `slices` that the experiment's rules for names take"
                refused = NoSlices(f"no slices can be made in the scope {did.scope}: {error.message}", hint)
                raise refused from error.__cause__
            raise

    def ended(self, injection: Injection) -> ServiceError | None:
        """Let a slice's temporary dataset go soon, now that its rule was ended; returns what stood in the way.

        That is no failure: it goes by its lifetime in any case.
        """
        if not isinstance(injection.item, Slice):
            return None
        try:
            let_go(self._connection, deletion.SliceDataset(injection), lifetime.seconds(lifetime.SLICE_AFTER))
        except ServiceError as error:
            return error
        return None
