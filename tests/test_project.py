"""The project keeps its own rules: locks, packaging, versions, and a core that is pure."""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from dc_inject.model import Hold
from dc_inject.model.causes import FILE_CLASSES
from tests import size, unit

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = (
    *("requirements.txt", "requirements-dev.txt", "requirements-docs.txt", "requirements-fts.txt"),
    "requirements-release.txt",
    *("dc_inject/sandbox/requirements.txt", "dc_inject/sandbox/requirements-postgres.txt"),
)
CONTRACTS = {contract["id"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
LAYERS = CONTRACTS["layers"]["layers"]
CORE = [module.strip() for layer in LAYERS[LAYERS.index("analysis") :] for module in layer.split("|")]


def tracked() -> list[Path]:
    """Name the files that belong to the project."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def sources(*modules: str) -> list[Path]:
    """Name the source files of modules of dc_inject, be they files or folders."""
    found = []
    for module in modules:
        place = ROOT / "dc_inject" / module
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return found


# The core


def impurities(source: str) -> list[str]:
    """Name the calls that ask a clock, chance, a file or a terminal, each with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, name = called.rpartition(".")
        if (
            called in {"open", "print", "input", "__import__", "eval", "exec"}
            or name in {"now", "utcnow", "today", "uuid1", "uuid4", "urandom", "read_text", "write_text"}
            or owner in {"time", "random"}
            or (name == "astimezone" and not node.args and not node.keywords)
        ):
            found.append(f"line {node.lineno}: {called}")
    return found


@pytest.mark.parametrize(
    "call",
    [
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "time.monotonic()",
        "random.random()",
        "uuid.uuid4()",
        "open('menu')",
        "print(1)",
        "Path('menu').read_text()",
        "when.astimezone()",
    ],
)
def test_an_impure_call_is_seen(call):
    assert impurities(f"def decide(when):\n    return {call}\n") == [f"line 2: {call.rpartition('(')[0]}"]


def test_the_core_asks_no_clock_no_chance_and_no_file():
    found = {path: impurities(path.read_text()) for path in sources(*CORE)}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_the_contract_of_the_core_holds_for_everything_from_analysis_down():
    pure = {f"dc_inject.{module}" for module in [*CORE, "apps.link.judging", "apps.twin.grid"]}
    assert set(CONTRACTS["core"]["source_modules"]) == pure


# Who decides, and who prints


TERMINAL = re.compile(r"^ *(?:import|from) (?:click|rich)\b", re.MULTILINE)
# The package `cli` hands out what it makes of click: options, questions, commands.
COMMANDING = re.compile(r"^ *(?:import|from) dc_inject(?:\.cli\b| import (?:\([^)]*|.*)\bcli\b)", re.MULTILINE)
ROOMS = r"(?:planning|backends|storage|engine)\b"
DECIDING = re.compile(rf"^ *(?:import|from) dc_inject(?:\.{ROOMS}| import (?:\([^)]*|.*)\b{ROOMS})", re.MULTILINE)
PRINTING = re.compile(r"\bprint\(|\bsys\.std(?:out|err)\b|^ *from sys import .*\bstd(?:out|err)\b", re.MULTILINE)
PRINTERS = {
    "sandbox/server/": "programs of their own, whose output the sandbox keeps in files",
    "sandbox/settings.py": "has the text of such a program",
}


@pytest.mark.parametrize(
    ("pattern", "source", "found"),
    [
        (TERMINAL, "def show():\n    from rich.text import Text\n", True),
        (TERMINAL, "import clicks\n", False),
        (COMMANDING, "def ask():\n    from dc_inject.cli.shared import common\n", True),
        (COMMANDING, "from dc_inject import (\n    cli,\n    menu,\n)\n", True),
        (COMMANDING, "from dc_inject.apps.report import client\n", False),
        (DECIDING, "def plan():\n    from dc_inject.planning import pace\n", True),
        (DECIDING, "if TYPE_CHECKING:\n    from dc_inject import backends\n", True),
        (DECIDING, "from dc_inject import (\n    menu,\n    storage,\n)\n", True),
        (DECIDING, "from dc_inject.model import plan, storage\n", False),
        (DECIDING, "from dc_inject import menu\n\n\ndef storage(): ...\n", False),
        (PRINTING, "def f():\n    print(1)\n", True),
        (PRINTING, "sys.stderr.write('')\n", True),
        (PRINTING, "from sys import stdout\n", True),
        (PRINTING, "def f():\n    blueprint(stdout=1)\n", False),
    ],
)
def test_who_decides_and_who_prints_is_seen(pattern, source, found):
    assert bool(pattern.search(source)) is found


def test_what_imports_click_or_rich_or_a_command_decides_nothing_and_all_else_prints_nothing():
    """Only direct imports count: a command calls functions that decide, and those import planning."""
    texts = {path.relative_to(ROOT / "dc_inject").as_posix(): path.read_text() for path in sources(".")}
    on_terminal = {name for name, text in texts.items() if TERMINAL.search(text)}
    commands = on_terminal | {name for name, text in texts.items() if COMMANDING.search(text)}
    assert {name for name in commands if DECIDING.search(texts[name])} == set()
    printing = {name for name in texts.keys() - on_terminal if PRINTING.search(texts[name])}
    assert {name for name in printing if not name.startswith(tuple(PRINTERS))} == set()
    assert {place for place in PRINTERS if not any(name.startswith(place) for name in printing)} == set()


# Size


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""Docs.\n\nMore."""\n\nx = """a\nb"""  # c\n# d\n\ndef f():\n    """Docs."""\n    return 1\n', 4),
        ('class A(\n    B\n):  # c\n    """Docs."""\n', 3),
        ('async def f(\n    self,\n) -> "A":\n    "Docs."\n', 3),
        ('texts = {\n    "key":\n        "value",\n    KEY:\n        """a\n        b""",\n}\n', 7),
        ("def f(a):\n    if a:\n        'no docs'\n", 3),
    ],
)  # fmt: skip
def test_code_lines_are_without_blanks_comments_and_docstrings(source, lines):
    assert size.code_lines(source) == lines


def test_no_part_is_larger_than_it_may_be():
    lines, bounds = size.sums(size.now(), size.part), size.bounds()
    assert lines.keys() == bounds.keys()
    assert {part: lines[part] for part in bounds if lines[part] > size.SLACK * bounds[part]} == {}, "make size"


# Regular expressions


def possessive_lookarounds(source: str) -> list[str]:
    """Name the regular expressions in which a possessive group holds a lookaround.

    They never match before Python 3.11.4 (github.com/python/cpython/issues/106052); Debian 12 has 3.11.2.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        for repeat in re.finditer(r"\)(?:[*+?]|\{[0-9,]+\})\+", text):
            inside, depth = text[: repeat.start() + 1], 0
            for at in range(len(inside) - 1, -1, -1):
                depth += {")": 1, "(": -1}.get(inside[at], 0)
                if depth == 0:
                    found += [text] if re.search(r"\(\?<?[=!]", inside[at:]) else []
                    break
    return found


def test_a_lookaround_in_a_possessive_group_is_seen():
    assert possessive_lookarounds(r"""re.compile(r"(?<!\S)((?:(?!://)\S)++://\S++) is banned")""")
    assert not possessive_lookarounds(r"""re.compile(r"(?<!\S)(bearer)(?:\s|%20)++(?=x)\S++")""")


def test_no_regular_expression_needs_a_newer_python():
    texts = [text for path in sources(".") if re.search(r"[*+?}]\+", text := path.read_text())]  # others have none
    assert [found for text in texts for found in possessive_lookarounds(text)] == []


# Locks


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_everything_by_hash_and_names_no_host_and_no_path(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-\w|--(?!hash))", text, re.MULTILINE), "an option, an index or a path"
    requirements = [
        part for part in re.split(r"\n(?=\w)", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)) if part
    ]
    assert len(requirements) > (2 if "postgres" in name else 20)
    for requirement in requirements:
        assert re.match(r"[\w.-]+==[\w.+!]+( ;[^\\]+)? \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n?)+$", requirement)


def pins(name: str) -> dict[str, str]:
    """Read a lock's versions by name."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    """Name the packages that requirements are about, as locks write them."""
    return {re.split(r"[^\w.-]", one)[0].lower().replace("_", "-") for one in requirements}


def test_the_lowest_versions_that_are_allowed_are_those_of_their_lock():
    lowest = pins("requirements-lowest.txt")
    for one in PROJECT["project"]["dependencies"]:
        (name,), bound = names([one]), re.search(r">=([\d.]+)", one)
        assert bound
        assert re.fullmatch(rf"{re.escape(bound[1])}(\.0)*", lowest[name]), f"make lock: {one}, {lowest[name]}"


def test_what_the_project_asks_for_is_in_its_locks_in_one_version():
    run, dev = pins("requirements.txt"), pins("requirements-dev.txt")
    assert names(PROJECT["project"]["dependencies"]) <= run.keys()
    groups = PROJECT["dependency-groups"]
    for one in (groups["test"], [tool for tool in groups["dev"] if isinstance(tool, str)]):
        assert names(one) <= dev.keys()
    assert run.items() <= dev.items()
    fts = pins("requirements-fts.txt")
    assert names(PROJECT["project"]["optional-dependencies"]["fts"]) <= fts.keys()
    assert run.items() <= fts.items()
    assert {(name, fts[name]) for name in fts.keys() & dev.keys()} <= dev.items()


# Packaging


def test_each_section_of_the_changelog_is_a_version_with_its_date_and_only_the_newest_may_lack_it():
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "changelog.md").read_text(), re.MULTILINE)
    sections = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((unreleased|\d{4}-\d\d-\d\d)\)", one) for one in headings]
    assert sections
    assert None not in sections, headings
    found = [section for section in sections if section is not None]
    versions = [tuple(map(int, section.groups()[:3])) for section in found]
    assert versions == sorted(set(versions), reverse=True)
    assert [section[4] for section in found[1:] if section[4] == "unreleased"] == []


def test_every_data_file_of_the_package_is_installed_with_it():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    data = [path for path in tracked() if path.is_relative_to(ROOT / "dc_inject") and path.suffix != ".py"]
    missing = [path for path in data if not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)]
    assert {path.suffix for path in missing} == {".in"}  # only `make lock` reads them


def test_every_folder_of_the_package_is_a_package():
    for path in sources(""):
        assert (path.parent / "__init__.py").exists(), path


def test_the_image_copies_only_what_is_here_and_let_in():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    copied = {name for line in copies for name in line.split()}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_runs_as_nobody_special_from_hashes_only():
    text = (ROOT / "Dockerfile").read_text()
    assert "://" not in text
    assert re.search(r"^USER (?!root)\w+", text, re.MULTILINE)
    for line in re.findall(r"pip (?:install|wheel) .*", text):
        assert "--no-deps" in line, line


def test_what_installs_from_a_lock_installs_nothing_else():
    """A lock is complete; to resolve it anew fails once a package that is asked for with an extra is released."""
    code = ["Makefile", "Dockerfile", "dc_inject/sandbox/environment.py", "tests/release/check.py"]
    pages = [str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")]
    lines = {place: (ROOT / place).read_text().splitlines() for place in code + pages}
    installing = {place: [line for line in lines[place] if "--require-hashes" in line] for place in lines}
    assert all(installing[place] for place in code)
    for place in lines:
        assert all("--no-deps" in line for line in installing[place]), place


# Habits


def test_ci_runs_what_a_developer_runs():
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert re.findall(r"\bmake .*", run.read_text()) == ["make test </dev/null"]


def test_what_a_quick_run_leaves_out_is_there():
    names = (*unit.FOLDERS, *unit.LEFT_OUT, *unit.TESTS_LEFT_OUT)
    assert [name for name in names if not (ROOT / "tests" / name).exists()] == []
    for file, tests in unit.TESTS_LEFT_OUT.items():
        text = (ROOT / "tests" / file).read_text()
        assert [test for test in tests if f"def {test}(" not in text] == []


def test_every_target_says_what_it_does():
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert phony
    assert set(re.findall(r"^([a-z-]+):.* ## \w", text, re.MULTILINE)) == set(phony[1].split())


def test_the_environment_of_the_clone_has_the_man_pages(tmp_path: Path) -> None:
    """It is an editable install, which brings none along."""
    (tmp_path / ".installed").touch()
    page = tmp_path / "share" / "man" / "man1" / "dc-inject.1"
    subprocess.run(["make", "--silent", f"VENV={tmp_path}", str(page)], cwd=ROOT, check=True, timeout=60)
    assert {path.name: path.read_text() for path in page.parent.iterdir()} == {
        path.name: path.read_text() for path in (ROOT / "docs" / "man").glob("*.1")
    }


def test_the_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text


def test_every_hold_is_explained_once_and_in_the_order_of_precedence():
    text = (ROOT / "docs" / "reference" / "holds.md").read_text()
    sections = re.findall(r"^## (\S+)\n\n(\S.+)", text, re.MULTILINE)
    assert [name for name, _ in sections] == [hold.value for hold in Hold], "explain it: ## NAME, in this order"


def test_every_class_of_failure_is_explained():
    page = (ROOT / "docs" / "reference" / "fts.md").read_text()
    assert [word for word in FILE_CLASSES if f"\n| `{word}` | " not in page] == []


def test_no_path_of_this_machine_is_committed():
    mine = [f"{place}/".encode() for place in (ROOT, Path.home()) if len(place.parts) > 1]
    for path in tracked():
        content = path.read_bytes()  # of pictures, too
        assert not [place for place in mine if place in content], path


def test_every_rule_that_is_off_says_why():
    settings = (ROOT / "pyproject.toml").read_text()
    ignored = re.search(r"^ignore = \[\n(.+?)^\]", settings, re.MULTILINE | re.DOTALL)
    assert ignored
    bare = [line for line in ignored[1].splitlines() if not re.search(r"#.+\w", line)]
    assert bare == []
    silent = re.compile(r"# *(noqa(: [A-Z]+\d+(, [A-Z]+\d+)*)?|type: ignore(\[[\w, -]+\])?) *$", re.MULTILINE)
    assert [path.name for path in sources("") if silent.search(path.read_text())] == []


@pytest.mark.parametrize("folder", ["dc_inject", "tests"])
def test_every_module_reads_in_one_sitting(folder):
    long = [str(path) for path in (ROOT / folder).rglob("*.py") if len(path.read_text().splitlines()) > 450]
    assert long == []


def test_in_ci_nothing_is_left_out_for_want_of_an_extra() -> None:
    """Tests of extras, and of versions, skip themselves where a library is missing."""
    libraries = ("XRootD", "cryptography", "distributed", "fts3", "numpy", "openpyxl", "pyarrow", "scipy")
    libraries += ("jinja2", "setuptools_scm", "textual", "vl_convert")
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    assert not (os.environ.get("CI") and missing)
