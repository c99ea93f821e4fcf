"""What is done to the Rucio of a running sandbox: stop and start, pause, change links, add RSEs and datasets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from dc_inject.model.errors import UsageError

from .contents import datasets_plain, rses_plain
from .grid import Dataset, Link, Rse, link_plain
from .handle import Handle
from .locking import locked
from .services import DAEMONS, POSTGRES, SERVER, listen
from .state import write_private


class RucioControls(Handle):
    """The part of a sandbox that is Rucio."""

    def stop_server(self) -> None:
        """End the REST server; the daemons go on."""
        self._services().end(SERVER)

    def start_server(self) -> None:
        """Start the REST server again, at the same address."""
        services = self._services()
        with listen(self._state().port) as listener:
            services.start_server(listener)
        services.wait(SERVER, services.answers)

    def stop_database(self) -> None:
        """End PostgreSQL in order; whoever asks Rucio for anything meanwhile gets database errors."""
        self._needs_postgres()
        self._services().end(POSTGRES)

    def start_database(self) -> None:
        """Start PostgreSQL again, with what it had."""
        self._needs_postgres()
        services = self._services()
        services.start_postgres()
        services.wait(POSTGRES, services.postgres_answers)

    def stop_daemons(self) -> None:
        """End the daemons; what is on its way over the links starts again when they come back."""
        self._services().end(DAEMONS)
        (self.folder / "passes").unlink(missing_ok=True)

    def start_daemons(self) -> None:
        """Start the daemons again."""
        self._services().start_daemons()
        self.settle()

    def pause_daemons(self) -> None:
        """Let the daemons rest; returns when their present pass is over."""
        (self.folder / "pause").touch(mode=0o600)
        services = self._services()
        services.wait(DAEMONS, lambda: services.progress().get("paused") is True)

    def resume_daemons(self) -> None:
        """Let the daemons work again."""
        (self.folder / "pause").unlink(missing_ok=True)
        services = self._services()
        services.wait(DAEMONS, lambda: services.progress().get("paused") is False)

    def slow_daemon(self, name: str, seconds: float) -> None:
        """Call one of the daemons only every `seconds` seconds (0: in every pass); return when that is in force.

        In production each daemon has its own interval: dataset summaries follow their replicas minutes later.
        Until it is back to 0, `add` and `settle` may wait in vain for the work of this daemon.
        """
        services = self._services()
        services.wait(DAEMONS, lambda: "daemons" in services.progress())
        if name not in (daemons := services.progress().get("daemons", [])):
            raise UsageError(f"the sandbox has no daemon {name}", f"it has {', '.join(daemons)}")
        with locked(self.folder, self._report):
            file = self.folder / "slow.json"
            slow = json.loads(file.read_text()) if file.exists() else {}
            write_private(file, json.dumps(slow | {name: seconds}))
        services.wait(DAEMONS, lambda: services.progress().get("slow", {}).get(name) == seconds)

    def set_links(self, links: Mapping[tuple[str, str], Link]) -> None:
        """Change links from the daemons' next pass on."""
        with locked(self.folder, self._report):  # several tests may do so at a time
            file = self.folder / "links.json"
            content = json.loads(file.read_text())
            content["links"] |= {":".join(pair): link_plain(link) for pair, link in links.items()}
            write_private(file, json.dumps(content, indent=1))

    def add(self, rses: Iterable[Rse] = (), datasets: Mapping[str, Sequence[Dataset]] | None = None) -> None:
        """Add RSEs, and datasets by source RSE; returns when the datasets are candidates.

        At an RSE that lies on a storage the datasets' files are written too, with real bytes.
        """
        with locked(self.folder, self._report):
            state = self._state().with_rses(rses := tuple(rses))
            state.write(self.folder)
        self._services().order(
            {
                "rses": rses_plain(state, rses),
                "quotas": {state.account: state.quota},
                "datasets": datasets_plain(self.folder, state, datasets or {}),
            }
        )
        self.settle()

    def set_quota(self, rse: str, size: int) -> None:
        """Give the ordinary account another quota at an RSE, in bytes; -1 is no limit."""
        self._services().order({"new_quotas": {rse: {self._state().account: size}}})

    def _needs_postgres(self) -> None:
        if self._state().db != "postgres":
            raise UsageError("the sandbox has no database server", "bring it up with --db postgres")

    def settle(self) -> None:
        """Wait until the daemons have worked off what was added before this call."""
        services = self._services()
        before = services.progress().get("passes", 0)

        def settled() -> bool:
            progress = services.progress()
            return bool(progress.get("passes", 0) >= before + 2 and progress["waiting"] == 0)

        hurry = self.folder / "hurry"
        hurry.touch(0o600)
        try:
            services.wait(DAEMONS, settled)
        finally:
            hurry.unlink(missing_ok=True)
