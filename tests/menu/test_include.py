"""Menus are put together from files: what the menu says itself counts before what it includes."""

from __future__ import annotations

from tests.menu.texts import draft, problems, rates, read, text

SITES = "sites:\n  KIT: {wan: 100 Gb/s, rses: {K: {}}}\n"


def test_an_include_adds_keys() -> None:
    """Mappings are joined key by key, lists of exclusions one after the other, and the menu's own word wins."""
    part = """campaign: other
sites:
  KIT: {wan: 100 Gb/s, rses: {K: {}}}
  RAL: {wan: 10 Gb/s, rses: {B: {}}}
scenarios:
  two: {from: B, to: A, rate: 2 Gb/s}
  one: {from: A, to: C, rate: 3 Gb/s}
accept: [smallest-first]
"""
    own = "include: parts/a.yaml\nsites: {RAL: {wan: 20 Gb/s, rses: {B: {}}}}\naccept: [rate-outlier]"
    made = draft(text(x=own), {"menus/parts/a.yaml": part}, name="menus/m.yaml").preview
    assert made.campaign == "rehearsal"
    assert rates(made) == {"A:B": 10, "B:A": 2}
    assert {site.name: site.wan for site in made.sites} == {"RAL": 20e9 / 8, "KIT": 100e9 / 8}
    assert made.accept == {"rate-outlier", "smallest-first"}
    assert {flow.menu for flow in made.flows} == {"menus/m.yaml", "menus/parts/a.yaml"}


def test_problems_of_an_included_file_name_it() -> None:
    """File and line are those where the problem stands."""
    (problem,) = problems(text(x="include: [a.yaml]"), {"a.yaml": "\nsites: {KIT: {wan: 10}}\n"})
    assert (problem.file, problem.line) == ("a.yaml", 2)


def test_paths_count_from_the_file_that_names_them() -> None:
    """Includes of includes, and files of links and datasets."""
    files = {
        "parts/a.yaml": "include: deep/b.yaml\n",
        "parts/deep/b.yaml": "scenarios: {two: {links: {file: ../l.csv}, datasets: {file: d.txt}}}\n",
        "parts/l.csv": "from,to,rate\nC,D,1 Gb/s\n",
        "parts/deep/d.txt": "cms:x\n",
    }
    made = read(text(x="include: parts/a.yaml"), files)
    assert rates(made) == {"A:B": 10, "C:D": 1}
    assert made.flows[1].datasets.dids == ("cms:x",)


def test_a_circle_is_found() -> None:
    """A file that includes itself, also by way of another one, is one problem."""
    (problem,) = problems(
        text(x="include: a.yaml"), {"a.yaml": "include: b.yaml\n", "b.yaml": "include: m.yaml\n"}
    )
    assert (problem.file, problem.line) == ("b.yaml", 1)
    assert "m.yaml -> a.yaml -> b.yaml -> m.yaml" in problem.message


def test_depth_is_bounded() -> None:
    """Includes within includes end somewhere."""
    files = {f"{i}.yaml": f"include: {i + 1}.yaml\n" for i in range(30)}
    (problem,) = problems(text(x="include: 0.yaml"), files)
    assert "deep" in problem.message


def test_the_number_of_files_is_bounded() -> None:
    """A tree of includes does not grow without end."""
    files = {
        f"{i}.yaml": f"include: [{i + 1}.yaml, {i + 1}.yaml, {i + 1}.yaml, {i + 1}.yaml]\n" for i in range(30)
    }
    found = problems(text(x="include: 0.yaml"), files)
    assert any("more than 100 files" in problem.message for problem in found)


def test_two_includes_may_not_contradict_each_other() -> None:
    """What two included files both say is a problem, unless the menu says it too; one file twice is none."""
    files = {"a.yaml": SITES, "b.yaml": SITES, "c.yaml": "include: a.yaml\n"}
    (problem,) = problems(text(x="include: [a.yaml, b.yaml]"), files)
    assert (problem.file, problem.line) == ("b.yaml", 2)
    assert "also in a.yaml:2" in problem.message
    assert not problems(text(x="include: [a.yaml, b.yaml]\n" + SITES), files)
    assert not problems(text(x="include: [a.yaml, c.yaml]"), files)


def test_a_missing_file_has_a_line(wording) -> None:
    """Includes, links and datasets that cannot be read are told where they are named."""
    content = text(
        x="include: none.yaml\nscenarios:\n  one: {links: {file: none.csv}, datasets: {file: none.txt}}",
        scenarios="",
    )
    assert [problem.line for problem in problems(content)][:3] == [9, 11, 11]
    wording([problem for problem in problems(content) if "none." in problem.message])


def test_exclusions_of_a_shared_file_need_not_hit() -> None:
    """A list of downtimes that all days include may name what is in another day."""
    downtimes = "exclude: [{rse: Q, from: 2027-02-01 10:00, to: 2027-02-02 10:00, reason: x}]"
    assert not problems(text(x="include: a.yaml"), {"a.yaml": downtimes})
    assert problems(text(x=downtimes))


def test_the_digest_is_of_everything_that_was_read() -> None:
    """It changes with the menu, with what it includes, and with its lists; and with nothing else."""
    content = text(x="include: a.yaml", defaults="defaults: {datasets: {file: d.txt}}")
    files = {"a.yaml": SITES, "d.txt": "cms:a\n"}
    first = draft(content, files).digest
    assert draft(content, files | {"other": "x"}).digest == first
    digests = {
        draft(content + "\n", files).digest,
        draft(content, files | {"a.yaml": SITES + "\n"}).digest,
        draft(content, files | {"d.txt": "cms:b\n"}).digest,
        first,
    }
    assert len(digests) == 4
