"""A sandbox with its catalogue in PostgreSQL: the same life, an outage, a crash, rows that others hold."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from rucio.common.exception import DatabaseException, RucioException

from dc_inject.apps.sandbox.command_sandbox import sandbox as command
from dc_inject.model import Hold
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.sandbox import Sandbox, environment, postgres, processes
from dc_inject.sandbox.environment import python_of
from dc_inject.sandbox.services import POSTGRES, Services
from dc_inject.sandbox.state import State
from tests.chaos.postgres import PostgresTruth
from tests.conftest import client_for
from tests.e2e.tool import Tool, add_stock, asked, given, rules, this_cycle
from tests.sandbox.rules import inject, locks, rest_and_wake, state, until
from tests.sandbox.test_reach import listeners

pytestmark = pytest.mark.sandbox

CYCLE = 6  # seconds
ASK = "import psycopg, sys; print(psycopg.connect('service=rucio').execute(sys.argv[1]).fetchall())"
HOLD = """
import psycopg, sys
ask = psycopg.connect("service=rucio", autocommit=True).execute
ask("ALTER SYSTEM SET lock_timeout = '500ms'")
ask("SELECT pg_reload_conf()")
ask("BEGIN")
ask(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
ask("ROLLBACK")
ask("ALTER SYSTEM RESET lock_timeout")
ask("SELECT pg_reload_conf()")
"""


@pytest.fixture(scope="module")
def env(sandbox_env: Path) -> Path:
    """The server's environment with PostgreSQL; without it tests are skipped, in CI they fail."""
    try:
        postgres.account()
        environment.ensure_postgres(sandbox_env, lambda line: None)
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no PostgreSQL for the sandbox: {error}")
    return sandbox_env


@pytest.fixture(scope="module")
def grid(env: Path, small_grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A running sandbox of the module's own, in a folder whose name is longer than a socket's may be."""
    made = Sandbox(tmp_path_factory.mktemp("postgres") / ("sandbox-" * 14))
    made.up(grid=small_grid, env=env, db="postgres")
    try:
        there = server(made)
        yield made
    finally:
        made.down()
    assert len(there) > 2
    assert not alive(there)
    assert list(made.folder.parent.iterdir()) == []


def first(grid: Sandbox) -> int | None:
    """Id of PostgreSQL's first process, as it wrote it down itself; None while it starts."""
    try:
        return int((grid.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def server(grid: Sandbox) -> list[int]:
    """Ids of PostgreSQL's first process and of its children, which only their parent can be known by."""
    parent = first(grid)
    assert parent is not None
    found = [parent]
    for entry in Path("/proc").glob("[0-9]*/status"):
        try:
            if re.search(rf"^PPid:\s+{parent}$", entry.read_text(), re.MULTILINE):
                found.append(int(entry.parent.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def alive(pids: Iterable[int]) -> list[int]:
    """Those that run; who has ended and is not yet collected has no command any more."""
    found = []
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
            if Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def socket_name(grid: Sandbox) -> str:
    return f"@dc_inject-{State.read(grid.folder).marker[:16]}"


def client_environment(grid: Sandbox) -> dict[str, str]:
    return Services(grid.folder, State.read(grid.folder), lambda line: None)._environment("test")


def datasets(grid: Sandbox) -> list[tuple[str, str]]:
    found = client_for(grid.config).list_datasets_per_rse("T2_CH_CERN")
    return sorted((one["scope"], one["name"]) for one in found)


@contextmanager
def holding(grid: Sandbox, statement: str) -> Iterator[None]:
    """Hold the rows that a statement locks, in a connection of our own; others wait for half a second."""
    words = [str(python_of(Path(State.read(grid.folder).env))), "-c", HOLD, statement]
    with subprocess.Popen(
        words, env=client_environment(grid), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield  # leaving closes its standard input, for which it waits


def answered(grid: Sandbox) -> bool:
    """Tell whether Rucio answers with what its catalogue has."""
    try:
        return bool(client_for(grid.config).whoami()["account"] == "dcops")
    except RucioException:  # connections of before an outage fail once
        return False


def test_a_rule_has_its_whole_life(grid):
    client, (where, *_) = client_for(grid.config), datasets(grid)
    rule = inject(client, *where, "T2_CH_CERN", "T1_DE_KIT_Disk")
    until(lambda: state(client, rule) == "OK")
    assert locks(client, rule)[1:] == (0, 0)
    client.update_replication_rule(rule, {"lifetime": 0})
    until(lambda: state(client, rule) == "GONE")
    until(lambda: [one["rse"] for one in client.list_dataset_replicas(*where)] == ["T2_CH_CERN"])


def test_status_tells_the_database_and_up_does_not_change_it(grid, env):
    told = CliRunner().invoke(command, ["status", "--folder", str(grid.folder)])
    assert told.exit_code == 0
    assert re.search(r"^db +postgres$", told.output, re.MULTILINE)
    before = server(grid)[0]
    grid.up(env=env)  # which is "already up", whatever it is
    assert server(grid)[0] == before


def test_it_listens_on_no_port(grid):
    listening = listeners(server(grid) + Services(grid.folder, State.read(grid.folder), print).running())
    assert listening == {("127.0.0.1", State.read(grid.folder).port)}
    assert socket_name(grid) in Path("/proc/net/unix").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_account_of_this_machine_is_not_let_in(grid, env):
    alone = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all,+dac_override",
             "--ambient-caps=-all,+dac_override", "--securebits=+no_setuid_fixup"]  # fmt: skip
    words = [str(python_of(env)), "-c", ASK, "SELECT 6 * 7"]
    answers = [
        subprocess.run(
            [*who, *words], env=client_environment(grid), capture_output=True, text=True, timeout=60, check=False
        )
        for who in ([], alone)
    ]
    assert answers[0].stdout == "[(42,)]\n"
    assert answers[1].returncode
    assert 'Peer authentication failed for user "rucio"' in answers[1].stderr


def test_its_files_are_for_its_owner_only(grid):
    for path in (grid.folder, *(grid.folder / "postgres").rglob("*")):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue  # it is at work meanwhile
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path


def test_an_outage_of_the_database_is_told_and_afterwards_all_is_there(grid):
    before, client = datasets(grid), client_for(grid.config)
    there = server(grid)
    grid.stop_database()
    try:
        assert not alive(there)
        with pytest.raises(DatabaseException):
            client.get_replication_rule("0" * 32)
    finally:
        grid.start_database()
    until(lambda: answered(grid))
    assert datasets(grid) == before
    grid.settle()  # the daemons too work again


def test_daemons_that_start_while_the_database_is_away_wait_for_it(grid):
    log = grid.folder / "log" / "daemons.log"
    grid.stop_daemons()
    grid.stop_database()
    try:
        before = log.stat().st_size
        grid._services().start_daemons()
        until(lambda: b"OperationalError" in log.read_bytes()[before:])
    finally:
        grid.start_database()
    grid.settle()
    until(lambda: answered(grid))  # for the tests behind this one


def test_the_daemons_rest_until_anybody_writes_or_is_in_a_hurry(grid):
    rest_and_wake(grid)


def test_a_crashed_server_is_started_again_with_what_was_committed(grid):
    before, crashed = datasets(grid), server(grid)[0]
    os.kill(crashed, signal.SIGKILL)
    until(lambda: first(grid) not in (None, crashed))  # children of the old one answer a moment longer
    until(lambda: Services(grid.folder, State.read(grid.folder), print).postgres_answers())
    until(lambda: answered(grid))
    assert datasets(grid) == before


def test_the_server_does_not_outlive_its_keeper(grid):
    before, there = datasets(grid), server(grid)
    (keeper,) = set(processes.marked(State.read(grid.folder).marker, POSTGRES)) - set(there)
    os.kill(keeper, signal.SIGKILL)
    try:
        until(lambda: not alive(there))
    finally:
        grid.start_database()
    until(lambda: answered(grid))
    assert datasets(grid) == before


def test_ctrl_c_while_coming_up_leaves_nothing(env, small_grid, tmp_path):
    there = []

    def interrupt(line: str) -> None:
        if line == "database created":
            there.extend((socket_name(grid), *server(grid)))
            raise KeyboardInterrupt

    grid = Sandbox(tmp_path / "sandbox", interrupt)
    with pytest.raises(KeyboardInterrupt):
        grid.up(grid=small_grid, env=env, db="postgres")
    name, *pids = there
    assert not alive(pids)
    assert name not in Path("/proc/net/unix").read_text()
    assert list(tmp_path.iterdir()) == []


def test_rules_whose_rows_somebody_else_holds_are_made_later(grid, tmp_path):
    """Rucio answers with its database's lock error; the tool takes that as "again later" and loses nothing."""
    source, destination = "T2_HELD_From", "T2_HELD_To"
    add_stock(grid, [source], [destination])
    tool, campaign, cycle = Tool(tmp_path, grid.config), "postgres-held", this_cycle(CYCLE)
    menu = tool.menu(
        campaign, {(source, destination): "6 Gb/s"}, start=cycle.start, cycles=3, cycle=CYCLE, dwell=3600
    )
    try:
        with holding(grid, f"SELECT 1 FROM dids WHERE name LIKE '/E2E_{source}/%' FOR UPDATE"):
            said = tool.run("run", "--once", menu, now=cycle.start).err
        assert "canceling statement due to lock timeout" in (grid.folder / "log" / "postgres.log").read_text()
        assert "DatabaseException" in said
        assert rules(grid.config, campaign) == given(tool.entries(campaign)) == []
        tool.run("run", "--once", menu, now=cycle.end)
    finally:
        tool.kill()
    first, second = tool.rows(campaign)
    assert (first.held.hold, first.injected) == (Hold.API_ERRORS, 0)
    assert second.injected > 0
    there = given(tool.entries(campaign))
    assert asked(rules(grid.config, campaign)) == there != []
    remembered = PostgresTruth(grid.folder, "dcops").rules(campaign)  # what `make chaos` compares with
    made = {entry.external_id: entry for entry in tool.entries(campaign) if entry.accepted_at}
    assert set(remembered) == set(made)
    for key, rule in remembered.items():
        assert (rule.item, rule.bytes, rule.ended) == (made[key].injection.item.name, made[key].injected, None)


@pytest.mark.parametrize("database", ["oracle", ""])
def test_a_database_that_is_not_known_is_refused(database, tmp_path, wording):
    with pytest.raises(UsageError) as refused:
        Sandbox(tmp_path / "sandbox").up(db=database)
    wording(refused.value)
    assert list(tmp_path.iterdir()) == []
