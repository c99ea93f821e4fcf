"""Debian's XRootD: the system's is used, else its packages are unpacked once, without root."""

from __future__ import annotations

import shutil
import stat

import pytest

from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.sandbox import xrootd

# stands in for apt-get and dpkg-deb: `update` makes lists, without which nothing is fetched
APT = """#!/bin/sh
echo "$@" >> {calls}
test -e {fail} && echo "E: Unable to locate package xrootd-server" >&2 && exit 100
for word in "$@"; do
  case "$word" in
    Dir::Cache=*) cache="${{word#Dir::Cache=}}" ;;
    Dir::State::lists=*) lists="${{word#Dir::State::lists=}}" ;;
    update) touch "$lists/fresh" ;;
    install) test -e {known} || test -e "$lists/fresh" || {{ echo "E: Unable to locate" >&2; exit 100; }}
             touch "$cache/archives/xrootd-server_5_all.deb" ;;
  esac
done
"""
DPKG = """#!/bin/sh
lib="$3/usr/lib/x86_64-linux-gnu"
mkdir -p "$3/usr/bin" "$lib" && touch "$3/usr/bin/xrootd" && test ! -e {broken} || exit 0
for plugin in Http HttpTPC Throttle; do touch "$lib/libXrd$plugin-5.so"; done
"""


class Machine:
    """A machine without XRootD, whatever this one has; its apt works or not."""

    def __init__(self, folder):
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name in ("mkdir", "touch"):
            (self.tools / name).symlink_to(shutil.which(name))
        self.places = {name: folder / name for name in ("calls", "fail", "known", "broken")}
        for name, text in (("apt-get", APT), ("dpkg-deb", DPKG)):
            self.program(self.tools / name, text.format(**self.places))

    def program(self, file, text="#!/bin/sh\n"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def set(self, name):
        self.places[name].touch()

    @property
    def calls(self):
        return self.places["calls"].read_text().splitlines() if self.places["calls"].exists() else []


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.tools))
    monkeypatch.setattr(xrootd, "SYSTEM", "")
    return made


def quiet(line: str) -> None:
    pass


def test_the_systems_is_used_when_it_has_the_plugins(machine, tmp_path, monkeypatch):
    usr = tmp_path / "usr"
    machine.program(usr / "bin" / "xrootd")
    monkeypatch.setenv("PATH", f"{usr / 'bin'}:{machine.tools}")
    assert xrootd.installed() is None
    (usr / "lib64").mkdir()
    for plugin in xrootd.PLUGINS:
        (usr / "lib64" / f"{plugin}-5.so").touch()
    assert xrootd.ensure_xrootd(tmp_path / "unpacked", quiet) == xrootd.Xrootd(usr / "bin" / "xrootd")
    assert machine.calls == []


def test_it_is_unpacked_once_from_what_the_system_knows(machine, tmp_path):
    machine.set("known")
    found = [xrootd.ensure_xrootd(tmp_path / "cache" / "xrootd", quiet) for _ in range(3)]
    usr = tmp_path / "cache" / "xrootd" / "usr"
    assert found == [xrootd.Xrootd(usr / "bin" / "xrootd", usr / "lib" / "x86_64-linux-gnu")] * 3
    assert len(machine.calls) == 1


def test_missing_lists_are_fetched_into_a_folder_of_our_own(machine, tmp_path):
    xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)
    assert [call.split()[-1] for call in machine.calls] == [xrootd.PACKAGES[-1], "update", xrootd.PACKAGES[-1]]
    assert all(f"Dir::State::lists={tmp_path}" in call for call in machine.calls[1:])


def test_what_is_half_unpacked_or_of_another_release_is_made_again(machine, tmp_path):
    machine.set("known")
    marker = tmp_path / "xrootd" / ".dc_inject-complete"
    xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)
    marker.unlink()
    xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)
    marker.write_text("debian1-pdp11")
    xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)
    assert len(machine.calls) == 3


def test_without_apt_the_install_line_is_told(machine, tmp_path):
    machine.set("fail")
    with pytest.raises(ServiceError, match="Unable to locate") as told:
        xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)
    assert told.value.hint == "apt install xrootd-server xrootd-server-plugins xrootd-plugins"


def test_a_machine_without_apt_is_told_the_same(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match="no apt-get"):
        xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)


def test_packages_without_the_plugins_are_not_taken_for_complete(machine, tmp_path, wording):
    machine.set("known")
    machine.set("broken")
    with pytest.raises(ServiceError) as refused:
        xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)
    wording(refused.value)
    assert xrootd.unpacked(tmp_path / "xrootd") is None


def test_a_folder_of_something_else_is_never_replaced(machine, tmp_path):
    (tmp_path / "xrootd").mkdir()
    (tmp_path / "xrootd" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="something else"):
        xrootd.ensure_xrootd(tmp_path / "xrootd", quiet)
    assert (tmp_path / "xrootd" / "thesis.tex").exists()
