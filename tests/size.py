"""`python -m tests.size` (`make size`): code lines of each room, beside those of the last tag.

Code lines are lines of `*.py` without blanks, comments and docstrings. How many each part may have stands in
`[tool.dc_inject.size]` of pyproject.toml, with what users get for it; a test fails above 2 % more.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.pinned import TOKEN

ROOT = Path(__file__).resolve().parents[1]
SLACK = 1.02
# A docstring, where each line of a string has become a \0: after the beginning, or the last line of a header that
# begins with `def`, `class`, or a closing bracket. Asking `ast` takes ten times as long.
DOCSTRING = re.compile(r"(\A|^[ \t]*(?:(?:async )?def |class |[)\]]).*:[ \t]*\n)\s*\0(?:\n\0)*", re.MULTILINE)


def code_lines(source: str) -> int:
    """Count the lines of a module that have code."""
    text = TOKEN.sub(lambda token: "" if token["prefix"] is None else _lines_of(token[0]), source)
    return sum(bool(line.strip()) for line in DOCSTRING.sub(r"\1", text).split("\n"))


def _lines_of(string: str) -> str:
    return "\n".join("\0" * (string.count("\n") + 1))


def part(path: str) -> str:
    """Return the part of the house that a file of dc_inject/ belongs to: core, control, apps or sandbox."""
    top = path.split("/", maxsplit=1)[0]
    return top if top in {"apps", "control", "sandbox"} else "core"


def room(path: str) -> str:
    """Return the folder of a file of dc_inject/: an app by its own name."""
    *folders, _ = path.split("/")
    return "/".join(folders[: 2 if folders[:1] == ["apps"] else 1]) or "."


def now() -> dict[str, int]:
    """Return the code lines of each file of the package, by its path below dc_inject/."""
    package = ROOT / "dc_inject"
    return {str(p.relative_to(package)): code_lines(p.read_text("utf-8")) for p in sorted(package.rglob("*.py"))}


def then(commit: str) -> dict[str, int]:
    """Return the same for a commit."""
    names = _git("ls-tree", "-r", "--name-only", commit, "dc_inject").splitlines()
    return {
        name.removeprefix("dc_inject/"): code_lines(_git("show", f"{commit}:{name}"))
        for name in names
        if name.endswith(".py")
    }


def sums(files: Mapping[str, int], of: Callable[[str], str]) -> Counter[str]:
    """Add up code lines by the room or the part of each file."""
    added: Counter[str] = Counter()
    for name, lines in files.items():
        added[of(name)] += lines
    return added


def bounds() -> dict[str, int]:
    """Return how many code lines each part may have."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dc_inject"]["size"]
    return {name: entry["lines"] for name, entry in tables.items()}


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


def main(words: list[str]) -> int:
    """Print the table; a commit may be named instead of the last tag."""
    tags = _git("tag", "--list", "v*", "--sort=-version:refname").split()
    before = words[0] if words else tags[0] if tags else ""
    files, old = now(), then(before) if before else {}
    print(f"{'code lines':<24} {'now':>7} {before[:12] or 'no tag':>12}")
    for of in (room, part):
        mine, other = sums(files, of), sums(old, of)
        for name in sorted({*mine, *other}):
            most = f"  of at most {bounds()[name]}" if of is part else ""
            print(f"{name:<24} {mine[name]:>7} {other[name]:>12}{most}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
