"""Releases: which version a build has, and that what is published is equal whenever and wherever it is made."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

import dc_inject
from tests.release import build

ROOT = Path(__file__).resolve().parents[1]
GIT = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> None:
    """Run git in a folder, whatever this account has set for it."""
    own = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run([*GIT, *words], cwd=folder, env=own, check=True, capture_output=True, timeout=60)


def commit(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "a change")


def version(folder: Path) -> str:
    """The version that a build in a folder gets."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SETUPTOOLS_SCM")}
    done = subprocess.run(
        [sys.executable, "-m", "setuptools_scm"], cwd=folder, env=clean,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with our pyproject.toml, two commits, and a tag at the first."""
    pytest.importorskip("setuptools_scm")
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("pyproject.toml", ".gitattributes", ".git_archival.txt"):
        shutil.copy(ROOT / name, folder)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    commit(folder)
    git(folder, "tag", "--annotate", "v1.2.3", "--message", "v1.2.3")
    commit(folder)
    return folder


def test_a_version_is_the_tag_and_between_tags_it_names_the_commit(clone):
    assert version(clone).startswith("1.2.4.dev1+g")
    git(clone, "checkout", "--quiet", "v1.2.3")
    assert version(clone) == "1.2.3"


def test_a_shallow_clone_without_tags_has_a_version_with_its_commit(clone, tmp_path):
    git(tmp_path, "clone", "--quiet", "--depth", "1", "--no-tags", clone.as_uri(), "shallow")
    assert version(tmp_path / "shallow").startswith("0.1.dev1+unknown.g")


def test_without_git_the_version_is_what_an_sdist_has_or_what_is_said(clone, monkeypatch):
    shutil.rmtree(clone / ".git")
    (clone / ".git_archival.txt").unlink()  # as in the build of the image
    assert version(clone) == "0.0+unknown"
    (clone / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: dc-inject\nVersion: 1.2.3\n")
    assert version(clone) == "1.2.3"


def test_an_archive_of_a_tag_knows_its_version(clone, tmp_path):
    git(clone, "archive", f"--output={tmp_path / 'a.tar'}", "v1.2.3")
    with tarfile.open(tmp_path / "a.tar") as tar:
        tar.extractall(tmp_path / "archive", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    assert version(tmp_path / "archive") == "1.2.3"


def test_the_package_says_the_version_that_was_installed(monkeypatch):
    assert dc_inject.__version__ == metadata.version("dc-inject")

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert dc_inject.__version__ == "0.0+unknown"
    with pytest.raises(AttributeError):
        dc_inject.something_else  # noqa: B018


def sdist(path: Path, *, mtime: int, mode: int, reverse: bool) -> Path:
    """An sdist of three files, packed in some order, at some time, with some rights."""
    contents = {"p-1/PKG-INFO": b"Version: 1\n", "p-1/a.py": b"a = 1\n", "p-1/run": b"#!/bin/sh\n"}
    with tarfile.open(path, "w:gz") as tar:
        for name, content in sorted(contents.items(), reverse=reverse):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), mtime
            member.mode = mode | (0o100 if name.endswith("run") else 0)
            member.uname = str(mtime)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_an_sdist_packed_anew_is_the_same_whenever_and_by_whomever_it_was_packed(tmp_path):
    one = sdist(tmp_path / "one.tar.gz", mtime=10**9, mode=0o644, reverse=False)
    other = sdist(tmp_path / "other.tar.gz", mtime=10**9 + 5, mode=0o600, reverse=True)
    assert one.read_bytes() != other.read_bytes()
    build.pack_anew(one, 1_795_000_000)
    build.pack_anew(other, 1_795_000_000)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as tar:
        assert {member.name: (member.mode, member.mtime) for member in tar} == {
            "p-1/PKG-INFO": (0o644, 1_795_000_000),
            "p-1/a.py": (0o644, 1_795_000_000),
            "p-1/run": (0o755, 1_795_000_000),
        }


def test_files_that_differ_between_two_builds_are_named(tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        folder.mkdir()
        (folder / "same").write_text("same")
        (folder / "wheel").write_text(folder.name)
    (again / "more").touch()
    assert build.differing(first, again) == ["more", "wheel"]


def test_a_tag_that_the_changelog_the_chart_and_the_ledgers_do_not_know_is_not_ready(tmp_path):
    docs, ledgers = tmp_path / "docs", tmp_path / "tests" / "ledger" / "released"
    chart = docs / "deploy" / "helm" / "dc-inject" / "Chart.yaml"
    for folder in (chart.parent, ledgers):
        folder.mkdir(parents=True)
    (docs / "changelog.md").write_text("# Changelog\n\n## 1.3.0 (unreleased)\n\n## 1.2.0 (2027-01-01)\n")
    chart.write_text('appVersion: "1.2.0"\n')
    assert len(build.unready("1.3.0", tmp_path)) == 3
    (docs / "changelog.md").write_text("# Changelog\n\n## 1.3.0 (2027-03-01)\n\n## 1.2.0 (2027-01-01)\n")
    chart.write_text('appVersion: "1.3.0"\n')
    (ledgers / "1.3.0.sql").touch()
    assert build.unready("1.3.0", tmp_path) == []
