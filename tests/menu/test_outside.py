"""What a menu brings in lies in its own folder, or in one that a person named."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dc_inject.apps.preview.command_check import check
from dc_inject.model.errors import MenuError
from dc_inject.system import files

MENU = """menu: 1
campaign: a
contact: a@example.org
start: 2027-02-08 10:00
end: 2027-02-09 10:00
{}
defaults: {{datasets: {{did: "cms:*"}}}}
scenarios:
  s:
    links: {}
"""
LINKS = "[{from: A, to: B, rate: 1 Gb/s}]"


@pytest.fixture
def menu(tmp_path):
    """Return what makes a menu in a folder of its own, beside a file that it must not show."""
    (tmp_path / "secret.csv").write_text("root:x:0:0\nhunter2-and-more\n")
    (tmp_path / "mine").mkdir()

    def make(more="", links=LINKS):
        file = tmp_path / "mine" / "menu.yaml"
        file.write_text(MENU.format(more, links))
        return file

    files.allow(())
    yield make
    files.allow(())


@pytest.mark.parametrize("way", ["dots", "absolute", "link"])
@pytest.mark.parametrize("key", ["include", "links", "datasets"])
def test_a_file_outside_is_not_read(menu, tmp_path, way, key, wording):
    (tmp_path / "mine" / "link.csv").symlink_to(tmp_path / "secret.csv")
    name = {"dots": "../secret.csv", "absolute": str(tmp_path / "secret.csv"), "link": "link.csv"}[way]
    file = {
        "include": lambda: menu(more=f"include: {name}"),
        "links": lambda: menu(links=f"{{file: {name}}}"),
        "datasets": lambda: menu(links=f"[{{from: A, to: B, rate: 1 Gb/s, datasets: {{file: {name}}}}}]"),
    }[key]()
    with pytest.raises(MenuError) as error:
        files.read_menus([file])
    wording(error.value)
    assert "hunter2" not in str(error.value)
    assert "root:x" not in str(error.value)


def test_a_link_that_leads_to_itself_is_a_problem_of_the_menu(menu, tmp_path):
    (tmp_path / "mine" / "loop").symlink_to("loop")
    with pytest.raises(MenuError) as error:
        files.read_menus([menu(more="include: loop")])
    assert [problem.line for problem in error.value.problems] == [6]


def test_a_person_can_name_more_folders(menu, tmp_path):
    (tmp_path / "l.csv").write_text("from,to,rate\nA,B,1 Gb/s\n")
    file = menu(links="{file: ../l.csv}")
    run = CliRunner().invoke
    assert "--include-from" in run(check, [str(file)]).output
    assert run(check, [str(file), "--include-from", str(tmp_path)]).exit_code == 0
    assert run(check, [str(file)]).exit_code == 2  # it holds for one command


def test_the_folders_of_all_that_is_named_count(menu, tmp_path):
    (tmp_path / "l.csv").write_text("from,to,rate\nA,B,1 Gb/s\n")
    other = tmp_path / "other.yaml"
    other.write_text(MENU.format("", LINKS).replace("  s:", "  t:"))
    assert len(files.read_menus([menu(links="{file: ../l.csv}"), other])) == 2


def test_what_is_quoted_of_a_value_is_short_and_without_secrets(menu):
    secret = "token=" + "x" * 40
    with pytest.raises(MenuError) as error:
        files.read_menus([menu(links=f"[{{from: A, to: B, rate: '{secret} {'y ' * 500}'}}]")])
    assert "x" * 16 not in str(error.value)
    assert max(map(len, str(error.value).splitlines())) < 400
