"""What cannot work is refused at the start, with its place and a hint, and nothing is left behind."""

from __future__ import annotations

import contextlib
import re
import socket
from datetime import UTC, datetime

import pytest
from rucio.common.exception import DatabaseException

from dc_inject.sandbox import Rse
from tests.conftest import client_for
from tests.e2e.tool import until

pytestmark = pytest.mark.sandbox

CERN, FNAL, TAPE = "T2_CH_CERN", "T1_US_FNAL_Disk", "T1_US_FNAL_Tape"


@pytest.fixture
def menu(tool):
    def make(source: str, destination: str):
        return tool.menu("refused", {(source, destination): "5 Gb/s"}, start=datetime(2027, 2, 8, tzinfo=UTC))

    return make


@pytest.fixture
def config(tool, sandbox):
    """Make another rucio.cfg from the sandbox's; its tokens have a place of their own."""

    def make(name, **values):
        text = sandbox.config.read_text()
        for key, value in ({"auth_token_file_path": tool.state / f"token.{name}"} | values).items():
            text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
            assert count == 1
        path = tool.state / f"{name}.cfg"
        path.write_text(text)
        return path

    return make


def _last_line(menu):
    return len(menu.read_text().splitlines())


@pytest.mark.parametrize("command", [["run", "--once"], ["run", "--dry-run"], ["plan"]], ids=" ".join)
def test_an_unknown_rse_is_found_at_the_start_with_its_line(tool, menu, command):
    path = menu(CERN, "T1_DE_KIT_Disc")
    done = tool.run(*command, path, code=2)
    (line,) = [one for one in done.err.splitlines() if f"{path}:{_last_line(path)}: rucio " in one]
    assert "T1_DE_KIT_Disc" in line
    assert not done.out
    assert not tool.ledger("refused").exists()


def test_a_name_that_means_more_than_its_rse_or_nothing_is_found_at_the_start(tool, sandbox, label):
    """Another RSE has an attribute of a destination's name, or the destination lacks its own."""
    shared, lacking = (f"T2_{label}_{end}" for end in ("Shared", "Lacking"))
    sandbox.add([Rse(name, 10**15) for name in (shared, lacking)], {})
    root = client_for(sandbox.root_config)
    for change, *of_what in (
        (root.add_rse_attribute, FNAL, shared, True),
        (root.delete_rse_attribute, lacking, lacking),
    ):

        def changed(change=change, of_what=of_what):
            with contextlib.suppress(DatabaseException):  # busy with the daemons
                change(*of_what)
                return True

        until(changed, "an attribute")
    links = {(CERN, shared): "1 Gb/s", (CERN, lacking): "1 Gb/s"}
    path = tool.menu("refused", links, start=datetime(2027, 2, 8, tzinfo=UTC))
    asking = [tool.start(*one, path) for one in (["run", "--once"], ["check", "--online"])]
    test = tool.start("link", CERN, shared, "--rate", "1 Gb/s", "--for", "1min", "--yes")
    for process in asking:
        done = process.ends(2)
        told = dict.fromkeys((shared, lacking), "")
        for line in (done.out + done.err).splitlines():
            told |= {name: line for name in told if name in line and f"{path}:" in line}
        assert f"{path}:{_last_line(path) - 1}: " in told[shared]
        assert f"{path}:{_last_line(path)}: " in told[lacking]
        assert FNAL in told[shared]
    assert FNAL in test.ends(2).err
    assert not tool.ledger("refused").exists()
    rules = client_for(sandbox.config).list_replication_rules({"rse_expression": shared})
    assert not list(rules)


def test_a_tape_end_needs_an_agreement(tool, menu):
    path = menu(CERN, TAPE)
    done = tool.run("run", "--once", path, code=2)
    assert f"{path}:{_last_line(path)}: {TAPE} is tape" in done.err
    assert "tape_agreed" in done.err


def test_a_wrong_password_ends_the_start_with_a_hint_and_is_not_told(tool, menu, config):
    wrong, path = config("wrong", password="tell-n0body-this"), menu(CERN, FNAL)
    for process in [tool.start(*command, config=wrong) for command in (["ping"], ["run", "--once", path])]:
        done = process.ends(4)
        assert "hint: " in done.err
    tool.state.joinpath("wrong.cfg").unlink()
    kept = [file for file in tool.state.rglob("*") if file.is_file()]
    assert not any(b"tell-n0body-this" in file.read_bytes() for file in kept)


def test_a_rucio_that_is_down_at_the_start_is_named_with_its_address_and_a_hint(tool, menu, config):
    path = menu(CERN, FNAL)
    with socket.socket() as nobody:  # has a port, and does not listen there
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        down = config("down", rucio_host=url, auth_host=url)
        commands = (["ping"], ["run", "--once", path], ["plan", path], ["ledger", "rebuild", "refused", path])
        for process in [tool.start(*command, config=down) for command in commands]:
            done = process.ends(4)
            assert url in done.err
            assert "hint: " in done.err


def test_an_admin_account_is_refused_unless_allowed(tool, menu, sandbox, wording):
    path = menu(CERN, FNAL)
    for process in [tool.start(*one, path, config=sandbox.root_config) for one in (["run", "--once"], ["plan"])]:
        wording(process.ends(2).err)
    tool.run("plan", path, "--at", "2027-02-08T00:00Z", "--allow-admin", config=sandbox.root_config)
