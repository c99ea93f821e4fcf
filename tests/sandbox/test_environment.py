"""The server's environment: made once, made again when it is half made or of another lock."""

from __future__ import annotations

import re
import threading
from importlib.resources import files

import pytest

from dc_inject.model.errors import DcInjectError, ServiceError, UsageError
from dc_inject.sandbox import environment
from dc_inject.sandbox.locking import locked


@pytest.fixture
def installs(monkeypatch):
    """Installations done, with the real installing left out."""
    done: list[str] = []

    def run(command: list[str]) -> None:
        if "venv" in command:
            python = environment.python_of(environment.Path(command[-1]))
            python.parent.mkdir(parents=True)
            python.touch()
            (python.parent.parent / "pyvenv.cfg").touch()
        else:
            assert "--require-hashes" in command
            done.append(command[0])

    monkeypatch.setattr(environment, "_run", run)
    return done


def quiet(line: str) -> None:
    pass


def test_an_environment_is_installed_once(tmp_path, installs):
    for _ in range(3):
        environment.ensure_environment(tmp_path / "env", quiet)
    assert len(installs) == 1
    assert environment.is_complete(tmp_path / "env")


def test_pip_installs_where_uv_cannot(tmp_path, installs, monkeypatch):
    run = environment._run

    def without_uv(command: list[str]) -> None:
        if "uv" in command:
            raise ServiceError("No module named uv", "")
        run(command)

    monkeypatch.setattr(environment, "_run", without_uv)
    environment.ensure_environment(tmp_path / "env", quiet)
    assert installs == [str(environment.python_of(tmp_path / "env"))]
    assert environment.is_complete(tmp_path / "env")


def test_a_half_environment_and_one_of_another_lock_are_made_again(tmp_path, installs):
    marker = tmp_path / "env" / ".dc_inject-complete"
    environment.ensure_environment(tmp_path / "env", quiet)
    marker.unlink()
    environment.ensure_environment(tmp_path / "env", quiet)
    marker.write_text("0" * 64)
    environment.ensure_environment(tmp_path / "env", quiet)
    assert len(installs) == 3


def test_each_release_of_rucio_has_an_environment_of_its_own(tmp_path, installs):
    places = {environment.default_environment(release) for release in environment.RELEASES}
    assert len(places) == len(environment.RELEASES) == 2
    environment.ensure_environment(tmp_path / "env", quiet, "38")
    assert environment.is_complete(tmp_path / "env", "38")
    assert not environment.is_complete(tmp_path / "env", "41")
    assert environment.installed_release(tmp_path / "env") == "38"
    assert environment.installed_release(tmp_path / "none") == "41"
    for release in environment.RELEASES:
        assert f"\nrucio=={release}." in environment.lock_of(release).read_text()


def test_a_release_that_the_sandbox_has_not_is_refused_with_those_that_it_has(tmp_path):
    with pytest.raises(UsageError) as caught:
        environment.ensure_environment(tmp_path / "env", quiet, "35")
    assert caught.value.hint == "known are 41, 38"
    assert not (tmp_path / "env").exists()


def test_postgresql_is_installed_on_top_once_and_again_in_an_environment_that_is_made_again(tmp_path, installs):
    env = tmp_path / "env"
    for _ in range(2):
        environment.ensure_environment(env, quiet)
        for _ in range(3):
            environment.ensure_postgres(env, quiet)
        assert environment.is_complete(env)
        (env / ".dc_inject-complete").unlink()
    assert len(installs) == 4


def test_a_folder_of_something_else_is_never_replaced(tmp_path, installs):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="something else"):
        environment.ensure_environment(tmp_path / "env", quiet)
    assert (tmp_path / "env" / "thesis.tex").exists()


def test_a_failing_installation_is_told_with_its_last_words(tmp_path, monkeypatch, wording):
    monkeypatch.setattr(environment.sys, "executable", "/bin/false")
    with pytest.raises(ServiceError) as refused:
        environment.ensure_environment(tmp_path / "env", quiet)
    wording(refused.value)
    assert not environment.is_complete(tmp_path / "env")


@pytest.mark.parametrize(
    ("name", "what"), [("requirements", "rucio==41.5.1"), ("requirements-postgres", "psycopg==3.2")]
)
def test_a_lock_has_hashes_for_everything_and_names_no_registry(name, what):
    text = (files("dc_inject.sandbox") / f"{name}.txt").read_text()
    assert "://" not in text
    assert what in text
    for requirement in re.split(r"\n(?=[a-z])", text):
        if "==" in requirement:
            assert "--hash=sha256:" in requirement, requirement.splitlines()[0]


def test_a_lock_lets_one_in_at_a_time_and_leaves_nothing(tmp_path):
    inside, most, said = [], [], []

    def work() -> None:
        with locked(tmp_path / "thing", said.append):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    with locked(tmp_path / "thing", said.append):
        for thread in threads:
            thread.start()
        while not said:  # one of them has to wait, and says so
            threading.Event().wait(0.01)
        assert most == []
    for thread in threads:
        thread.join(30)
    assert most == [1] * 8
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_held_for_ever_is_not_waited_for_for_ever(tmp_path, wording):
    with (
        locked(tmp_path / "thing", quiet),
        pytest.raises(DcInjectError) as refused,
        locked(tmp_path / "thing", quiet, patience=0.0),
    ):
        pass
    wording(refused.value)
