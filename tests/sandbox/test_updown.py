"""The sandbox comes and goes without a trace, whatever happens to the one who starts it."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rucio.common.exception import AccessDenied

from dc_inject.apps.sandbox.command_sandbox import sandbox as command
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.sandbox import Dataset, Sandbox, processes, read_grid
from dc_inject.sandbox.contents import datasets_plain
from dc_inject.sandbox.state import State
from tests.conftest import client_for
from tests.sandbox.rules import inject, locks, rest_and_wake, run_in_server, state, until

pytestmark = pytest.mark.sandbox


@pytest.fixture
def small(generic_grid):
    return generic_grid


def everything_of(grid: Sandbox) -> list[int]:
    return processes.marked(State.read(grid.folder).marker)


def test_its_files_are_for_its_owner_only(small):
    for path in (small.folder, *small.folder.rglob("*")):
        with suppress(FileNotFoundError):  # a database's journal comes and goes
            mode = path.stat().st_mode
            assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path


def test_no_secret_is_in_a_process_argument(small):
    secrets = {
        line.split(" = ")[1] for line in small.config.read_text().splitlines() if line.startswith("password")
    }
    assert len(secrets) == 1
    for pid in everything_of(small):
        assert not any(secret in Path(f"/proc/{pid}/cmdline").read_text() for secret in secrets)


def test_up_on_a_running_sandbox_changes_nothing(small, sandbox_env):
    before = everything_of(small), small.config.read_text()
    said: list[str] = []
    Sandbox(small.folder, said.append).up(env=sandbox_env)
    assert (everything_of(small), small.config.read_text()) == before
    assert "up already" in said[-1]


def test_with_rucios_generic_policy_an_owner_cannot_end_its_rule(small):
    client = client_for(small.config)
    first = next(iter(client.list_datasets_per_rse("T2_CH_CERN")))
    rule = inject(client, first["scope"], first["name"], "T2_CH_CERN", "T1_DE_KIT_Disk")
    until(lambda: state(client, rule) == "OK")
    with pytest.raises(AccessDenied):
        client.update_replication_rule(rule, {"lifetime": 0})
    with pytest.raises(AccessDenied):
        client.delete_replication_rule(rule)
    with pytest.raises(AccessDenied):  # so the right can be asked for without harm
        client.update_replication_rule(uuid.uuid4().hex, {"lifetime": 0})
    client_for(small.root_config).update_replication_rule(rule, {"lifetime": 0})
    until(lambda: state(client, rule) == "GONE")


def test_paused_daemons_move_nothing_until_they_go_on(small):
    client = client_for(small.config)
    second = list(client.list_datasets_per_rse("T2_CH_CERN"))[1]
    small.pause_daemons()
    rule = inject(client, second["scope"], second["name"], "T2_CH_CERN", "T1_DE_KIT_Disk")
    assert locks(client, rule)[:1] == (0,)
    small.resume_daemons()
    until(lambda: state(client, rule) == "OK")


def test_the_daemons_rest_until_anybody_writes_or_is_in_a_hurry(small):
    rest_and_wake(small)


def test_a_dataset_added_leaves_those_of_its_name_in_other_scopes_to_the_daemons(small):
    client, scope, name = client_for(small.root_config), "user.dcops", f"shared.{uuid.uuid4().hex}"
    (dataset, *_) = client.list_datasets_per_rse("T2_CH_CERN")
    (file, *_) = client.list_files(dataset["scope"], dataset["name"])
    client.add_dataset(scope, name)
    rule = inject(client, scope, name, "T2_CH_CERN", "T1_DE_KIT_Disk")
    until(lambda: state(client, rule) == "OK")
    small.pause_daemons()
    client.attach_dids(scope, name, [{"scope": file["scope"], "name": file["name"]}])
    added = {"T2_CH_CERN": [Dataset("cms", name, (10**9,))]}
    small._services().order({"datasets": datasets_plain(small.folder, small._state(), added)})
    small.resume_daemons()
    until(lambda: locks(client, rule) == (1, 0, 0))


def test_a_rucio_whose_validation_cannot_be_replaced_is_not_served(small):
    again = "import importlib, rucio.common.schema as s, sandbox_server.names as n; importlib.reload(n); print(1)"
    done = run_in_server(small, f"{again}; del s.validate; importlib.reload(n)")
    assert done.stdout == "1\n"
    assert "ImportError" in done.stderr


def test_commits_do_not_wait_for_the_disk(small):
    code = (
        "import rucio.web.rest.flaskapi.v1.main, rucio.db.sqla.session as s\n"
        "print(s.get_engine().connect().exec_driver_sql('PRAGMA synchronous').scalar())"
    )
    assert run_in_server(small, code).stdout == "0\n"


def test_the_server_comes_back_at_the_same_address(small):
    address = small.url
    client = client_for(small.config)
    small.stop_server()
    assert (small.status().up, small.status().server, small.status().daemons) == (False, False, True)
    small.start_server()
    assert small.status().up
    assert small.url == address
    assert client.whoami()["account"] == "dcops"


def test_files_on_their_way_arrive_though_the_daemons_were_restarted(small):
    client = client_for(small.config)
    third = list(client.list_datasets_per_rse("T2_CH_CERN"))[2]
    small.stop_daemons()
    rule = inject(client, third["scope"], third["name"], "T2_CH_CERN", "T1_DE_KIT_Disk")
    small.start_daemons()
    until(lambda: state(client, rule) == "OK")


def test_after_a_crash_of_the_starter_up_clears_and_works_and_down_leaves_nothing(
    sandbox_env, small_grid, tmp_path
):
    folder = tmp_path / "sandbox"
    words = ["up", "--folder", str(folder), "--env", str(sandbox_env), "--grid", str(small_grid)]
    starter = [
        sys.executable,
        "-c",
        "from dc_inject.apps.sandbox.command_sandbox import sandbox; sandbox()",
        *words,
    ]
    with subprocess.Popen(starter, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        for line in process.stderr:
            if line.startswith("T2_CH_CERN"):  # server and daemons live
                process.send_signal(signal.SIGKILL)
                break
    grid = Sandbox(folder)
    assert not grid.status().up
    orphans = State.read(grid.folder).marker
    with ThreadPoolExecutor() as pool:  # two at a time, as two terminals would
        said: list[str] = []
        both = [pool.submit(Sandbox(folder, said.append).up, grid=small_grid, env=sandbox_env) for _ in range(2)]
    assert [up.result() for up in both] == [None, None]
    assert sum("up already" in line for line in said) == 1
    assert processes.marked(orphans) == []
    assert grid.status().up
    marker = State.read(grid.folder).marker
    assert grid.down()
    assert processes.marked(marker) == []
    assert list(tmp_path.iterdir()) == []
    assert not grid.down()


def test_a_failure_while_coming_up_is_told_and_leaves_nothing(sandbox_env, tmp_path):
    broken = tmp_path / "grid.yaml"
    broken.write_text(
        "seed: 1\nscopes: ['no scope']\naccount: {name: dcops, quota: 1 TB}\n"
        "rses: {A: {space: 1 TB, type: FLOPPY}}\ndefault_link: {rate: 1 Gb/s}\n"
    )
    grid = Sandbox(tmp_path / "sandbox")
    with pytest.raises(ServiceError, match="FLOPPY"):
        grid.up(grid=broken, env=sandbox_env)
    assert list(tmp_path.iterdir()) == [broken]


def test_a_folder_with_other_things_is_never_touched(tmp_path, sandbox_env):
    (tmp_path / "thesis.tex").write_text("years of work")
    for act in (lambda grid: grid.up(env=sandbox_env), lambda grid: grid.down()):
        with pytest.raises(UsageError, match="something else"):
            act(Sandbox(tmp_path))
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_status_tells_by_its_exit_code_whether_it_is_up(small, tmp_path):
    def run(folder: Path) -> int:
        return CliRunner().invoke(command, ["status", "--format", "json", "--folder", str(folder)]).exit_code

    assert run(small.folder) == 0
    assert run(tmp_path / str(uuid.uuid4())) == 4


def test_the_same_seed_makes_the_same_grid():
    assert read_grid() == read_grid()


@pytest.mark.parametrize("change", ["seed: 1", "quota: 1 TB", "[]", "", "{unclosed"])
def test_a_file_that_is_no_grid_is_refused(tmp_path, change, wording):
    (tmp_path / "grid.yaml").write_text(change)
    with pytest.raises(UsageError) as refused:
        read_grid(tmp_path / "grid.yaml")
    cause = refused.value.__cause__
    theirs = {"YAML": cause} if isinstance(cause, yaml.YAMLError) else {}
    wording(refused.value, **theirs)
