"""What every object that speaks of a sandbox knows: its folder, and through it all else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dc_inject.model.errors import UsageError

from .services import Services
from .state import State

Report = Callable[[str], None]


def default_folder() -> Path:
    """Name the place of a sandbox by default."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "dc_inject" / "sandbox"


class Handle:
    """The sandbox in `folder`; any number of these objects, in any process, may speak of the same one."""

    def __init__(self, folder: Path | None = None, report: Report = lambda _: None) -> None:
        """Name the folder, and what to do with each line of progress."""
        self.folder = Path(os.path.abspath(folder or default_folder()))  # noqa: PTH100 (links stay as given)
        if set(str(self.folder)) & set("%?#\n"):
            raise UsageError(f"{self.folder} has a character that a database address cannot have")
        self._report = report

    @property
    def config(self) -> Path:
        """rucio.cfg of the ordinary account."""
        return self.folder / "rucio.cfg"

    @property
    def root_config(self) -> Path:
        """rucio.cfg of root, for what tests set up."""
        return self.folder / "root.cfg"

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._state().url

    def _state(self) -> State:
        return State.read(self.folder)

    def _services(self) -> Services:
        return Services(self.folder, self._state(), self._report)
