"""Defaults of options come from files and from the environment; the command line counts before them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import click
import pytest

from dc_inject.cli.root import root
from dc_inject.cli.shared import defaults
from dc_inject.model.errors import UsageError
from dc_inject.registry import COMMANDS
from tests.cli.ledgers import FNAL, make, run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without configuration, on a machine without any; and a campaign there."""
    for name in [name for name in os.environ if name.startswith("DC_INJECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(defaults, "SYSTEM", tmp_path / "etc" / "dc_inject.toml")
    make(tmp_path / "state" / "dc_inject" / "dc27.sqlite", {FNAL: 1})
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def user(home: Path, text: str) -> Path:
    return write(home / ".config" / "dc_inject" / "dc_inject.toml", text)


def is_json(*arguments: str) -> bool:
    done = run(*arguments, "status", "dc27")
    assert done.exit_code == 0
    try:
        json.loads(done.stdout)
    except ValueError:
        return False
    return True


def test_the_command_line_counts_before_the_environment_the_user_and_the_system(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_json()
    write(defaults.SYSTEM, '[status]\nformat = "json"\n')
    assert is_json()
    user(home, '[status]\nformat = "csv"\n')
    assert not is_json()
    assert "injected_ratio" in run("status", "dc27", "--summary").stdout
    monkeypatch.setenv("DC_INJECT_STATUS_FORMAT", "json")
    assert is_json()
    assert run("status", "dc27", "--format", "csv").stdout.startswith("scenario,")


def test_a_named_file_counts_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user(home, "[status]\nsummary = true\n")
    other = write(home / "other.toml", '[status]\nformat = "json"\n')
    assert is_json("--config", str(other))
    assert "due" not in json.loads(run("--config", other, "status", "dc27").stdout)
    monkeypatch.setenv("DC_INJECT_CONFIG", str(other))
    assert is_json()


def test_commands_in_groups_flags_and_repeated_options(home: Path) -> None:
    user(home, '[menu.new]\nfrom = ["A", "B"]\nto = "C"\nrate = "5 Gb/s"\ncontact = "me"\nask = false\n')
    done = run("menu", "new")
    assert done.exit_code == 0, done.stderr
    assert "from: [A, B]" in done.stdout
    assert "contact: me" in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "[statu]\n",
        "[status]\nfromat = 'json'\n",
        "[status]\nsummary = 'yes'\n",
        "[status]\nformat = ['json']\n",
        "format = 'json'\n",
        "[status\n",
    ],
)
def test_what_is_wrong_in_a_file_is_told(home: Path, text: str, wording) -> None:
    path = user(home, text)
    done = run("status", "dc27")
    assert isinstance(done.exception, UsageError)
    assert str(path) in done.exception.message
    wording(done.exception)


def test_a_named_file_that_is_not_there_is_told(home: Path) -> None:
    done = run("--config", home / "nowhere.toml", "status", "dc27")
    assert isinstance(done.exception, UsageError)
    assert "nowhere.toml cannot be read" in done.exception.message


def options(command: click.Command, *path: str) -> dict[str, tuple[str, ...]]:
    """The environment's name of each option, and where it is; but for options that name one themselves."""
    found = {
        str(option.envvar): (*path, str(option.name))
        for option in command.params
        if isinstance(option, click.Option)
        and option.envvar == "_".join((defaults.PREFIX, *path, defaults.name_of(option))).upper().replace("-", "_")
    }
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        more = options(part, *path, name)
        assert not found.keys() & more.keys()
        found |= more
    return found


def test_no_variable_has_two_meanings() -> None:
    """Neither those of two options, nor one of an option and one that the code reads for something else."""
    context = click.Context(root)
    names: dict[str, tuple[str, ...]] = {}
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        more = options(command, name)
        assert not names.keys() & more.keys()
        names |= more
    assert names["DC_INJECT_RUN_METRICS_ADDRESS"] == ("run", "metrics_address")
    assert names["DC_INJECT_RUN_LEDGER"] == ("run", "ledger_path")
    others = set()
    for folder in ("dc_inject", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            if file != Path(__file__):
                others |= set(re.findall(r"\bDC_INJECT_[A-Z_]+\b", file.read_text()))
    assert "DC_INJECT_SANDBOX_ENV" in others
    assert not others & names.keys()


def test_the_example_of_the_docs_is_right(home: Path) -> None:
    """Every table and option of it is known."""
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    path = write(home / "example.toml", example)
    context = click.Context(root)
    for name in re.findall(r"^\[(\w+)", example, re.MULTILINE):
        assert defaults.read(root, context, name, path)[name]


def shown(*arguments: object) -> dict[tuple[str, str], tuple[str, str]]:
    """What `config show` tells: value and origin by command and option."""
    done = run(*arguments, "config", "show", "--format", "json")
    assert done.exit_code == 0, done.stderr
    return {
        (row["command"], row["option"] if row["command"] != "dc-inject" else f"{row['option']} {row['value']}"): (
            row["value"],
            row["origin"],
        )
        for row in json.loads(done.stdout)
    }


def test_what_is_in_force_is_shown_with_its_origin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown() == {}
    write(defaults.SYSTEM, 'trust-host = ["fts.a.org"]\n[status]\nformat = "json"\nsummary = true\n')
    mine = user(home, '[status]\nformat = "csv"\n[menu.new]\nfrom = ["A", "B"]\n[run]\nthreads = 4\n')
    monkeypatch.setenv("DC_INJECT_RUN_THREADS", "2")
    monkeypatch.setenv("DC_INJECT_TRUST", "fts.b.org")
    assert shown() == {
        ("run", "threads"): ("2", "DC_INJECT_RUN_THREADS"),
        ("menu new", "from"): ("A B", str(mine)),
        ("status", "format"): ("csv", str(mine)),
        ("status", "summary"): ("true", str(defaults.SYSTEM)),
        ("dc-inject", "trust-host fts.a.org"): ("fts.a.org", "configuration file"),
        ("dc-inject", "trust-host fts.b.org"): ("fts.b.org", "DC_INJECT_TRUST"),
    }
    assert f"files read: {defaults.SYSTEM}, {mine}" in run("config", "show").stderr


def test_only_a_named_file_is_shown_and_files_that_are_not_there_are_named(home: Path) -> None:
    assert f"files read: none\nnot there: {defaults.SYSTEM}, {home}/.config" in run("config", "show").stderr
    user(home, "[status]\nsummary = true\n")
    other = write(home / "other.toml", "[run]\nquiet = true\n")
    assert shown("--config", other) == {("run", "quiet"): ("true", str(other))}


def test_a_wrong_table_of_any_command_is_found(home: Path) -> None:
    user(home, "[status]\nfromat = 'json'\n")
    assert isinstance(run("config", "show").exception, UsageError)


@pytest.mark.parametrize("where", ["file", "environment"])
def test_a_value_that_no_option_takes_is_found_with_its_place(
    home: Path, monkeypatch: pytest.MonkeyPatch, where: str, wording
) -> None:
    if where == "file":
        path = user(home, "[run]\nlog-format = 'xml'\n")
        place = f"{path}: run.log-format"
    else:
        place = "DC_INJECT_RUN_LOG_FORMAT"
        monkeypatch.setenv(place, "xml")
    error = run("config", "show").exception
    assert isinstance(error, UsageError)
    wording(error.message)


def test_a_variable_that_nothing_reads_is_named(home: Path, monkeypatch: pytest.MonkeyPatch, wording) -> None:
    """A unit with a word mistyped would run with other settings, and nobody would know."""
    for name, value in {
        "DC_INJECT_RUN_QUITE": "1", "DC_INJECT_MENU_NEW_CONTACT": "me", "DC_INJECT_SHARD": "0/4",
        "DC_INJECT_TRUST": "a.org", "DC_INJECT_FTS_ENDPOINT": "https://fts.a.org:8446",
        "DC_INJECT_FTS_TOKEN_FILE": "/run/token", "DC_INJECT_CONFIG": str(user(home, "")),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    told = [line for line in run("config", "show").stderr.splitlines() if line.startswith("nothing reads")]
    wording(told)


# --------------------------------------------------------------------------- whose file it is


@pytest.mark.parametrize(
    ("rights", "group", "read"), [(0o644, 0, True), (0o664, 0, True), (0o664, 1, False), (0o666, 0, False)]
)
def test_a_file_that_others_can_write_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, rights: int, group: int, read: bool
) -> None:
    """One that belongs to our own group may be written by it: on many systems nobody else is in it."""
    mine = user(home, 'trust-host = ["evil.example.org"]\n')
    mine.chmod(rights)
    monkeypatch.setattr(defaults.os, "getegid", lambda: mine.stat().st_gid + group)
    for done in (run("config", "show"), run("--config", mine, "config", "show")):
        assert ("evil.example.org" in done.stdout) is read
        assert read or isinstance(done.exception, UsageError)


@pytest.mark.parametrize(("uid", "read"), [(0, True), (1234, False)])
def test_a_file_of_another_user_is_refused_but_for_that_of_root(
    home: Path, monkeypatch: pytest.MonkeyPatch, uid: int, read: bool
) -> None:
    mine = user(home, 'trust-host = ["evil.example.org"]\n')
    usual = Path.stat

    def theirs(path: Path, **more: bool) -> os.stat_result:
        found = list(usual(path, **more))
        return os.stat_result([*found[:4], uid if path == mine else found[4], *found[5:]])

    monkeypatch.setattr(Path, "stat", theirs)
    monkeypatch.setattr(defaults.os, "geteuid", lambda: 4321)
    done = run("config", "show")
    assert ("evil.example.org" in done.stdout) is read
    assert read or isinstance(done.exception, UsageError)
