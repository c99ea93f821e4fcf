"""The pages hang together: links lead somewhere, the site lists every page, generated files are fresh."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dc_inject.registry import COMMANDS
from tests.docs import DOCS, ROOT, hooks
from tests.docs.command_reference import MAN, _roff, cli, man_pages
from tests.docs.generated import FILES, MEASURED

PAGES = sorted(DOCS.rglob("*.md"))
OUTSIDE = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "menus").rglob("README.md"))]


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """Return the anchor that a heading of Markdown is linked by."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_link_leads_somewhere():
    pages = [*PAGES, *OUTSIDE]
    headings = {
        page: {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)} for page in pages
    }
    assert len(pages) > 30
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            name, _, anchor = target.partition("#")
            goal = (page.parent / name).resolve() if name else page
            if not goal.exists() or (anchor and anchor not in headings.get(goal, ())):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_anchors_are_the_same_in_the_repository_and_on_the_site():
    """The site joins several hyphens into one."""
    headings = [heading for page in PAGES for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)]
    linked = {anchor for page in PAGES for anchor in re.findall(r"\]\([^)\s]*#([^)\s]+)\)", prose(page))}
    assert [slug(one) for one in headings if slug(one) in linked and re.search("--|-$|^-", slug(one))] == []


def entries(part: object) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for inner in part.values():
            yield from entries(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from entries(inner)


def test_every_page_is_in_the_navigation_once():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    names = [str(page.relative_to(DOCS)) for page in PAGES]
    decisions = {name for name in names if re.match(r"explanation/decisions/\d", name)}
    assert sorted(entries(config["nav"])) == sorted(set(names) - decisions)


def test_every_decision_has_its_number_and_its_line():
    folder = DOCS / "explanation" / "decisions"
    records = sorted(folder.glob("[0-9]*.md"))
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \|$", (folder / "index.md").read_text(), re.MULTILINE)
    titles = [page.read_text().splitlines()[0] for page in records]
    numbers = [int(page.name[:4]) for page in records]
    assert numbers == sorted(set(numbers))  # gaps are numbers of records that are being written
    assert [(f"# {number}. {title}", name) for number, title, name in listed] == [
        (title, page.name) for title, page in zip(titles, records, strict=True)
    ]


def test_the_site_needs_no_network():
    config = (ROOT / "mkdocs.yml").read_text()
    assert "://" not in config
    assert yaml.safe_load(config)["theme"]["font"] is False


@pytest.mark.parametrize("name", sorted(FILES.keys() - MEASURED))
def test_what_is_generated_is_fresh(name: str):
    assert (DOCS / name).read_text() == FILES[name](), "run `make docs`"


def test_the_man_pages_are_fresh():
    found = {path.name: path.read_text() for path in MAN.iterdir()}
    assert found == man_pages(), "run `make docs`"


def test_a_man_page_has_each_command_with_its_sections_and_no_line_that_roff_would_swallow():
    pages = man_pages()
    assert pages.keys() == {"dc-inject.1", *(f"dc-inject-{name}.1" for name in COMMANDS)}
    for name, page in pages.items():
        heads = re.findall(r"^\.SH (.+)$", page, re.MULTILINE)
        assert heads[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"], name
        requests = {line.split()[0] for line in page.splitlines() if line[:1] in {".", "'"}}
        assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".BR", ".nf", ".fi", ".nh", ".ad"}, name
        assert "`" not in page, name
    assert ".SS dc\\-inject menu import\n" in pages["dc-inject-menu.1"]


def test_what_roff_would_take_for_a_request_or_an_escape_is_printed():
    assert _roff(".hidden\n'quoted' -o a\\b") == "\\&.hidden\n\\&'quoted' \\-o a\\eb"


def test_man_formats_its_pages_without_a_warning():
    """Where there is a `man`: the CI of GitLab and GitHub has one."""
    if (man := shutil.which("man")) is not None:
        pages = sorted(map(str, MAN.iterdir()))
        command = [man, "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", *pages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout) > 10_000


def test_the_reference_has_every_command():
    assert re.findall(r"^## dc-inject (\S+)$", cli(), re.MULTILINE) == list(COMMANDS)


def test_the_readme_fits_on_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def where_is_x() -> list[tuple[str, str, str]]:
    """Return the rows of CONTRIBUTING's table: what it is about, file and function."""
    rows = r"^\| (.+) \| `(\S+\.py)` \| `(\w+)` \|$"
    return re.findall(rows, (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)


SMALL = {"what", "that", "when", "with", "this", "from", "there", "which", "inject", "engine"}


def words(text: str) -> set[str]:
    """Return the words of a text that mean something, the plural as the singular."""
    return {word.rstrip("s") for word in re.findall(r"[a-z]{4,}", text.lower())} - SMALL


def defined(node: ast.AST) -> set[str]:
    """Return what a statement defines: a function, a class, or a constant."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_what_contributing_names_is_there():
    """Each row of `Where is X`: the file has what is named. A room's name is the answer to all other questions."""
    assert 20 <= len(where_is_x()) <= 25
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) < 8000
    for _, path, function in where_is_x():
        tree = ast.parse((ROOT / path).read_text())
        found = [node for node in ast.walk(tree) if function in defined(node)]
        assert found, (path, function)


class Page:
    """What MkDocs tells a hook of a page."""

    class file:  # noqa: N801 - as MkDocs calls it
        src_uri = "how-to/one.md"


def test_files_outside_the_docs_are_named_on_the_site():
    text = (
        "see [menus/](../../menus/README.md), [a page](../reference/holds.md) and [the tests](../../tests/chaos)"
    )
    assert hooks.on_page_markdown(text, Page) == (
        "see menus/ (`menus/README.md`), [a page](../reference/holds.md) and the tests (`tests/chaos`)"
    )
    assert hooks.on_page_markdown("```csv a.csv\n```", Page) == '```csv title="a.csv"\n```'
