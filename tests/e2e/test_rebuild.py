"""A campaign whose ledger is lost in the middle: made anew from the real services, it goes on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dc_inject.ledger import LedgerView, files
from dc_inject.ledger.check import check
from dc_inject.model import State
from dc_inject.planning import shards
from dc_inject.sandbox import Link, Sandbox
from tests.backends.support import fts3_or_skip
from tests.e2e.files import Storages, jobs
from tests.e2e.tool import ACCEPTED, Running, Tool, add_stock, asked, given, rules, this_cycle, until
from tests.engine.world import flow

pytestmark = pytest.mark.sandbox

CYCLE = 10  # seconds: a busy machine has planned before they are over
MANY = 1000  # cycles: longer than any machine takes
MB = 10**6


def closed(tool: Tool, campaign: str) -> int:
    """How many cycles in which something was given are closed."""
    if not tool.entries(campaign):
        return 0
    return len({row.cycle for row in tool.rows(campaign) if row.closed and row.injected})


def stands_still(pid: int) -> bool:
    """Return whether a process is stopped by a signal, or has just ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZ"
    except OSError:
        return True


def held_between_calls(tool: Tool, campaign: str, running: Running) -> bool:
    """Hold the process; let it go on if a call of it is under way, which the service would answer after its death.

    A rebuild sees what is there when it looks, and the test compares with what is there now.
    """
    running.send(signal.SIGSTOP)
    until(lambda: running.process.poll() is not None or stands_still(running.process.pid), "it stands still")
    if any(entry.state is State.CALLED for entry in tool.entries(campaign)):
        running.send(signal.SIGCONT)
        return False
    return True


def killed_after_two_cycles(tool: Tool, campaign: str, menu: Path) -> None:
    """Run until two cycles are closed and the third has begun, and take the process and its ledger away."""
    running = tool.start("run", menu)
    until(lambda: closed(tool, campaign) >= 2, "two cycles")
    until(
        lambda: held_between_calls(tool, campaign, running), "a moment in which the service is asked for nothing"
    )
    running.process.kill()
    running.ends(-9)
    lose(tool, campaign)


def lose(tool: Tool, campaign: str) -> None:
    """Take the ledger away, with all that belongs to it."""
    for end in ("", "-wal", "-shm"):
        path = tool.ledger(campaign)
        path.with_name(path.name + end).unlink(missing_ok=True)


def goes_on(
    tool: Tool, campaign: str, menu: Path, backup: Path | None = None, level: Callable[[], bool] = lambda: True
) -> None:
    """Run until two more cycles have given something, the second one after a backup, and stop in good order.

    `level` is whether what was due has gone out: where Rucio is slow, some of it does so a cycle later.
    """
    before = closed(tool, campaign)
    running = tool.start("run", menu)
    until(lambda: closed(tool, campaign) > before, "a cycle more")
    if backup is not None:
        assert tool.run("ledger", "backup", campaign, backup).out == f"{backup}\n"
    before = closed(tool, campaign)
    until(lambda: closed(tool, campaign) > before and level(), "another cycle, and what was due")
    running.send(signal.SIGTERM)
    running.ends()


def arrived(sandbox: Sandbox, campaign: str, destination: str) -> bool:
    """Whether all rules to a destination are complete."""
    made = [rule for rule in rules(sandbox.config, campaign) if rule["rse_expression"] == destination]
    return all(rule["state"] == "OK" for rule in made)


def whole(tool: Tool, campaign: str) -> None:
    assert [found for file in files(tool.ledger(campaign)) for found in check(file) if not found.note] == []
    tool.run("ledger", "check", campaign)


def in_another_shard(name: str, other: str, count: int) -> str:
    """A name of a destination like `name` that is not in the shard of `other`."""
    for candidate in (f"{name}{n}" for n in range(100)):
        assigned = shards.assigned([flow("A", candidate, 1.0), flow("A", other, 1.0)], count)
        if assigned[candidate] != assigned[other]:
            return candidate
    raise AssertionError(name)


def goes_on_from_a_backup(tool: Tool, campaign: str, menu: Path, backup: Path) -> None:
    """Lose the ledger, and make it of a backup: it has the rows of the backup, and what is newer from Rucio."""
    with LedgerView.open(backup) as view:
        owed = {(row.cycle, row.key): (row.due, row.injected) for row in view.rows() if row.closed}
    assert any(due != injected for due, injected in owed.values()), "which nobody could find out without it"
    everything = given(tool.entries(campaign))
    lose(tool, campaign)
    done = tool.run("ledger", "rebuild", campaign, menu, "--backup", backup, "--yes")
    assert "what cannot be recovered since the backup" in done.err
    assert given(tool.entries(campaign)) == everything
    rows = {(row.cycle, row.key): (row.due, row.injected) for row in tool.rows(campaign)}
    assert owed.items() <= rows.items()
    assert sum(injected for _, injected in rows.values()) > sum(injected for _, injected in owed.values())
    whole(tool, campaign)


def made_anew_in_shards(tool: Tool, campaign: str, menu: Path, count: int) -> None:
    """Lose the ledger, and make one for each shard: together they have everything, each its own destinations."""
    everything = given(tool.entries(campaign))
    lose(tool, campaign)
    for index in range(count):
        tool.run("ledger", "rebuild", campaign, menu, "--shard", f"{index}/{count}", "--yes")
    parts = []
    for file in files(tool.ledger(campaign)):
        with LedgerView.open(file) as view:
            parts.append(given(view.entries()))
    assert [len({destination for _, destination, _ in part}) for part in parts] == [1] * count
    assert sorted(one for part in parts for one in part) == everything == given(tool.entries(campaign))
    whole(tool, campaign)


def neither_burst_nor_hole(tool: Tool, campaign: str, rebuilt: set[str], slack: int) -> bool:
    """Whether each link got, since the rebuild, what was due since then, to within a dataset."""
    rows = [row for row in tool.rows(campaign) if row.closed]
    assert all(row.injected == row.due for row in rows if row.cycle.name in rebuilt)
    new = [row for row in rows if row.cycle.name not in rebuilt]
    off = dict.fromkeys({row.key for row in rows}, 0)
    for row in new:
        off[row.key] += row.injected - row.due
    return bool(new) and max(map(abs, off.values())) <= slack + max(row.due for row in new)


def test_every_rule_is_there_once_none_is_forgotten_and_nothing_is_given_twice(
    tool: Tool, sandbox: Sandbox, label: str
) -> None:
    source, quick = (f"T2_{label}_{end}" for end in ("From", "Quick"))
    slow = in_another_shard(f"T2_{label}_Slow", quick, count=2)
    # The slow copies take all that goes out, so that a cycle which waits for Rucio can be made up.
    add_stock(sandbox, [source], [quick, slow], count=60)
    sandbox.set_links({(source, quick): Link(rate=1e12), (source, slow): Link(rate=1e12, latency=3600)})
    campaign = f"rebuild-{label}"
    rates = {(source, quick): "8 Gb/s", (source, slow): "8 Gb/s"}
    start = this_cycle(CYCLE).next.next.start
    menu = tool.menu(campaign, rates, start=start, cycles=MANY, cycle=CYCLE, dwell=3600)
    killed_after_two_cycles(tool, campaign, menu)
    until(lambda: arrived(sandbox, campaign, quick), "the transfers that are quick")
    before = {rule["id"]: rule for rule in rules(sandbox.config, campaign)}
    assert len(before) >= 4

    assert "no ledger" in tool.run("status", campaign, code=3).err
    tool.run("ledger", "rebuild", campaign, menu, code=2)  # nobody is there to be asked
    assert not tool.ledger(campaign).exists()
    done = tool.run("ledger", "rebuild", campaign, menu, "--yes")
    assert done.out == f"{tool.ledger(campaign)}\n"
    assert "what cannot be recovered" in done.err
    tool.run("ledger", "rebuild", campaign, menu, "--yes", code=3)  # there is one now

    entries = {entry.external_id: entry for entry in tool.entries(campaign)}
    assert entries.keys() == before.keys()
    for id_, rule in before.items():
        entry = entries[id_]
        assert (entry.injection.item.bytes, entry.injection.item.files) == (rule["bytes"], 2)
        assert entry.state is (State.COMPLETE if rule["rse_expression"] == quick else State.LIVE)
        assert entry.present == 0
    whole(tool, campaign)
    rebuilt = {row.cycle.name for row in tool.rows(campaign)}
    backup = tool.state / "backup.sqlite"

    goes_on(tool, campaign, menu, backup, lambda: neither_burst_nor_hole(tool, campaign, rebuilt, 4 * 10**9))
    made = rules(sandbox.config, campaign)
    assert before.keys() < {rule["id"] for rule in made}
    assert asked(made) == given(tool.entries(campaign))
    assert max(Counter((item, to) for item, to, _ in asked(made)).values()) == 1
    assert {rule["id"] for rule in made} == {e.external_id for e in tool.entries(campaign) if e.state in ACCEPTED}
    assert neither_burst_nor_hole(tool, campaign, rebuilt, slack=4 * 10**9)
    whole(tool, campaign)

    goes_on_from_a_backup(tool, campaign, menu, backup)
    made_anew_in_shards(tool, campaign, menu, count=2)
    tool.run("end", campaign, "--yes", "--cancel", "--cancel-rate", "600/min")
    until(lambda: not rules(sandbox.config, campaign), "all of them end")


@pytest.fixture
def files_tool(storage_grid: Sandbox, tmp_path: Path) -> Iterator[Tool]:
    """The command line with FTS's address in its environment."""
    fts3_or_skip()
    made = Tool(tmp_path, storage_grid.config, {"DC_INJECT_FTS_ENDPOINT": storage_grid.fts_url})
    try:
        yield made
    finally:
        made.kill()


def test_every_job_is_there_once_and_its_files_are_deleted_in_the_end(
    files_tool: Tool, storage_grid: Sandbox, label: str
) -> None:
    """FTS tells a job's files and what it says of itself; the rest is in the menu."""
    tool, storages, campaign = files_tool, Storages(storage_grid, label.lower()), f"jobs-{label}"
    storages.fill(6, MB)
    rates = dict.fromkeys([("XRD1", "XRD2"), ("XRD2", "XRD1")], "8 Mb/s")
    start = this_cycle(CYCLE).next.next.start
    menu = storages.menu(tool, campaign, rates, start=start, cycle=CYCLE, cycles=MANY, dwell=900)
    killed_after_two_cycles(tool, campaign, menu)
    before = jobs(storages.grid, campaign)
    assert len(before) >= 4

    tool.run("ledger", "rebuild", campaign, menu, "--yes")
    entries = {entry.external_id: entry for entry in tool.entries(campaign)}
    assert entries.keys() == before.keys()
    assert {id_: entry.injection.item.files for id_, entry in entries.items()} == {
        id_: len(files) for id_, files in before.items()
    }
    wanted = {(storages.source(a), storages.destination(b, a)) for a, b in rates}
    assert {tuple(e.injection.link.ends) for e in entries.values()} == wanted
    whole(tool, campaign)
    rebuilt = {row.cycle.name for row in tool.rows(campaign)}

    goes_on(tool, campaign, menu, level=lambda: neither_burst_nor_hole(tool, campaign, rebuilt, MB))
    assert before.keys() < jobs(storages.grid, campaign).keys()
    assert jobs(storages.grid, campaign).keys() == {e.external_id for e in tool.entries(campaign) if e.accepted_at}
    assert neither_burst_nor_hole(tool, campaign, rebuilt, slack=MB)
    whole(tool, campaign)
    until(
        lambda: all(
            f["file_state"] == "FINISHED" for some in jobs(storages.grid, campaign).values() for f in some
        ),
        "all files",
    )
    copies = {(storages.source(a), storages.destination(b, a)): storages.copies(a, b) for a, b in rates}
    assert sum(map(len, copies.values())) == sum(map(len, jobs(storages.grid, campaign).values()))
    tool.run("end", campaign, "--yes")
    assert storages.left() == []
    for link in tool.status(campaign, "--summary")["links"]:
        on_disk = sum(copies[link["source"], link["destination"]].values())
        assert link["moved"] == link["injected"] == on_disk
    assert {entry.state for entry in tool.entries(campaign) if entry.accepted_at} == {State.GONE}
    whole(tool, campaign)
