"""Menus through FTS: URL prefixes as ends, and where FTS is; the rest is as with Rucio."""

from __future__ import annotations

import pytest

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.model import DatasetFilter, JobOptions, Link, RseSpec
from dc_inject.model.errors import MenuError, Problem
from tests.menu.texts import DEFAULTS, LIST, RIGHT, A, B, C, draft, fts, problems, rates, read, text

# --------------------------------------------------------------------------- ends


def test_every_form_of_a_scenario_takes_urls():
    made = read(
        fts(
            f'{{from: "{A}", to: {{"{B}": 3, "{C}": 1}}, rate: 4 Gb/s}}\n'
            f'  two: {{mesh: ["{A}", "{B}"], rate: 2 Gb/s}}\n'
            f'  three: {{from: ["{A}"], to: "{B}", rate: 1 Gb/s, both_ways: true}}\n'
            f"  four: {{links: [{{from: {A}, to: {C}, rate: 1 Gb/s}}]}}\n"
            "  five: {links: {file: links.csv}}"
        ),
        LIST | {"links.csv": f"from,to,rate,priority\n{C},{B},3 Gb/s,5\n"},
    )
    found = {}
    for flow in made.flows:
        found.setdefault(flow.scenario, {})[flow.link] = round(flow.rate * 8 / 1e9, 6)
    assert found == {
        "one": {Link(A, B, "fts"): 3, Link(A, C, "fts"): 1},
        "two": {Link(A, B, "fts"): 1, Link(B, A, "fts"): 1},
        "three": {Link(A, B, "fts"): 1, Link(B, A, "fts"): 1},
        "four": {Link(A, C, "fts"): 1},
        "five": {Link(C, B, "fts"): 3},
    }
    assert made.flows[-1].priority == 5


def test_urls_are_written_in_one_form_everywhere():
    other = "DAVS://A.example.org:8443//dc/"
    made = read(
        fts(
            f'{{from: "{other}", to: "HTTPS://b.example.org:443/./dc/", rate: 4 Gb/s}}',
            x=f"""sites:
  S: {{rses: {{"{other}": {{space: 5 TB}}}}}}
tape: {{"{other}": Ada}}
exclude:
  - {{rse: "{other}", from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}}
  - {{link: "{other}:https://B.example.org:443/dc/", from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}}""",
        ),
        LIST,
    )
    assert made.flows[0].link == Link(A, B, "fts")
    assert made.sites[0].rses == {A: RseSpec(5 * 10**12)}
    assert made.tape_agreed == {A: "Ada"}
    assert [(one.rse, one.link) for one in made.exclusions] == [(A, ""), ("", str(made.flows[0].link))]


@pytest.mark.parametrize(
    ("a", "b"), [(A, B), (B, C), (C, "root://d.example.org:1095//x:y/z"), (C, A), (C, C + "2")]
)
@pytest.mark.parametrize("arrow", [":", "->", " -> "])
def test_a_link_of_an_exclusion_splits_where_the_second_url_begins(a, b, arrow):
    made = read(
        fts(
            f'{{from: "{a}", to: "{b}", rate: 4 Gb/s}}',
            x=f"exclude:\n  - {{link: '{a}{arrow}{b}', from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}}",
        ),
        LIST,
    )
    assert made.exclusions[0].link == str(made.flows[0].link) == f"{a}:{b}"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (fts(RIGHT, DEFAULTS.replace("fts", "ftp")), 9),
        (fts(RIGHT.replace("}", ", through: ftp}"), DEFAULTS.replace("through: fts", "dwell: 1 h")), 12),
        (fts(RIGHT.replace("}", ", through: fts}"), DEFAULTS.replace("fts", "ftp")), 9),
    ],
)
def test_a_misspelt_service_is_one_error(content, line):
    """What is wrong with its files and ends would follow from it."""
    assert [(problem.line, "fts" in problem.hint) for problem in problems(content, LIST)] == [(line, True)]


def test_a_site_stands_for_its_rse_or_its_prefix_and_a_menu_mixes_services():
    made = read(
        fts(
            "{from: SRC, to: DST, rate: 1 Gb/s}\n  two: {from: SRC, to: DST, rate: 2 Gb/s, through: rucio, "
            "datasets: {did: 'a:*'}}",
            x=f'sites:\n  SRC: {{rses: {{R1: {{}}, "{A}": {{}}}}}}\n  DST: {{rses: {{R2: {{}}, "{B}": {{}}}}}}',
        ),
        LIST,
    )
    direct, rucio = made.flows
    assert (direct.link, rucio.link) == (Link(A, B, "fts"), Link("R1", "R2", "rucio"))
    assert rucio.datasets == DatasetFilter(("a:*",))
    assert (direct.job, rucio.job) == (JobOptions(), None)


def test_urls_are_no_expressions():
    made = draft(fts(f'{{from: "{A}", to: "{B}", rate: 1 Gb/s}}'), LIST)
    assert not made.expressions
    assert made.services == {"fts"}


def test_an_expression_may_hold_a_url():
    """Rucio's attribute `fts` has one."""
    made = draft(text(scenarios="scenarios: {one: {from: A, to: 'fts=https://fts3.cern.ch:8446', rate: 1 Gb/s}}"))
    assert made.expressions == (("rucio", "fts=https://fts3.cern.ch:8446"),)


SECRET = "hunter2"  # never repeated, whatever is wrong with what holds it


@pytest.mark.parametrize(
    "end",
    [
        "T1_DE_KIT_Disk",
        "tier=1&country=DE",
        "gsiftp://x.example.org/dc",
        "xrootd://x.example.org//dc",
        "davs:///dc",
        "davs:/x/dc",
        "http://x.example.org/dc",
        "dav://192.0.2.1/dc",
        f"davs://me:{SECRET}@x.example.org/dc",
        f"davs://me:{SECRET}{'x' * 100}@x.example.org/dc",
        f"davs://x.example.org/dc?authz={SECRET}",
        "davs://x.example.org/dc/../etc",
        "davs://x.example.org/a b",
        "root://x.example.org",
        "davs://x.example.org/" + "d" * 700,
        "EMPTY",
        "TWO",
    ],
)
@pytest.mark.parametrize(
    ("scenario", "line"),
    [
        ("\n    to: '{}'\n    from: '{}'\n    rate: 1 Gb/s", 13),
        ("{{links: [{{to: '{}', from: '{}', rate: 1 Gb/s}}]}}", 12),
    ],
    ids=["shared", "link"],
)
def test_wrong_ends(end, scenario, line, wording):
    """Each is told where it stands, once, with what to write instead."""
    sites = 'sites: {EMPTY: {rses: {R: {}}}, TWO: {rses: {"davs://x/1": {}, "davs://x/2": {}}}}'
    found = problems(fts(scenario.format(end, A), x=sites), LIST)
    assert [problem.line for problem in found] == [line], found
    wording(found[0])
    assert SECRET not in str(found)


def excluded(what: str) -> str:
    """Return a menu with one exclusion, in line 13."""
    return fts(RIGHT, x=f"exclude: [{{{what}, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}}]")


@pytest.mark.parametrize(
    "content",
    [
        fts(f"{{from: A, to: '{A}', rate: 1 Gb/s, through: rucio, datasets: {{did: 'a:*'}}}}"),
        fts(f"{{from: '{A}', to: '{A}/', rate: 1 Gb/s}}"),
        fts(f"{{from: '{A}', to: ['{B}', '{B}/'], rate: 1 Gb/s}}"),
        fts(f"{{links: [{RIGHT}, {RIGHT}]}}".replace("dc'", "dc/'", 1)),
        fts(RIGHT, x=f'sites: {{S: {{rses: {{"{A}": {{}}, "{A}/": {{}}}}}}}}'),
        fts(RIGHT, x=f"sites: {{S: {{rses: {{'{A}': {{}}}}}}, T: {{rses: {{'{A}/': {{}}}}}}}}"),
        fts(RIGHT, x="sites: {S: {rses: {'davs://u:hunter2@h/x': {}}}}"),
        excluded(f"rse: '{C}'"),
        excluded("rse: 'davs://u:hunter2@h/x'"),
        excluded(f"link: '{A}'"),
        excluded(f"link: '{B}:{A}'"),
        excluded(f"link: '{A}:davs://u:hunter2@h/x'"),
    ],
)
def test_wrong_uses_of_urls(content, wording):
    found = problems(content, LIST)
    assert [problem.line for problem in found] == [13 if "\nsites" in content or "\nexclude" in content else 12], (
        found
    )
    wording(found[0])
    assert found[0].hint
    assert SECRET not in str(found)


@pytest.mark.parametrize(
    "body",
    [
        "fts: 'https://u:hunter2@h/'",
        f"fts: 'https://u:hunter2{'x' * 80}@h/'",
        f"'https://u:hunter2{'x' * 80}@h/': 1",
        f"above_production: 'https://u:hunter2{'x' * 80}@h/'",
        "'https://u:hunter2@h/': 1",
        "fts: {endpoint: https://u:hunter2@h}",
        "fts: {endpoint: 'https://h/?token=hunter2'}",
        "fts: {'https://u:hunter2@h': x}",
        "target: https://u:hunter2@h",
        "accept: https://u:hunter2@h",
        "exclude: [{site: 'https://u:hunter2@h/x', from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}]",
        "sites: {'https://u:hunter2@h/x': {}}",
        "include: https://u:hunter2@h",
    ],
)
def test_no_password_is_repeated_from_wherever_it_was_written(body):
    found = problems(text(x=body))
    assert found
    assert SECRET not in "".join(map(str, found)), found


# --------------------------------------------------------------------------- the service


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("https://FTS3.example.org:8446/", "https://fts3.example.org:8446"),
        ("https://fts3.example.org:443", "https://fts3.example.org"),
        ("http://127.0.0.1:8446", "http://127.0.0.1:8446"),
    ],
)
def test_the_endpoint(written, read_as):
    assert read(text(fts=f"fts: {{endpoint: '{written}'}}")).endpoint == read_as


def test_no_endpoint_is_needed():
    assert read(text()).endpoint == ""


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://fts3.example.org:8446",
        "davs://fts3.example.org:8446",
        "fts3.example.org:8446",
        "https:///jobs",
        "https://u:hunter2@fts3.example.org",
        "https://fts3.example.org/?a=hunter2",
        "https://fts3.example.org/a/../b",
        "https://fts3.example.org:8449/fts3/ftsmon/",
        "https://fts3.example.org/fts3/ftsmon",
    ],
)
def test_wrong_endpoints(endpoint, wording):
    (found,) = problems(text(fts=f"fts: {{endpoint: '{endpoint}'}}"))
    assert found.line == 14
    wording(found)
    assert SECRET not in str(found)


def test_an_endpoint_that_is_missing():
    (found,) = problems(text(fts="fts: {}"))
    assert "`endpoint` is missing" in found.message
    assert "https://fts3.example.org:8446" in found.hint


def test_a_campaign_has_one_fts():
    """A menu that names none is of the same."""
    ends = ["https://one.example.org", "", "https://one.example.org:443/", "https://two.example.org"]
    made = []
    for number, end in enumerate(ends):
        scenario = f"scenarios: {{s{number}: {{from: A, to: B, rate: 1 Gb/s}}}}"
        service = f"fts: {{endpoint: '{end}'}}" if end else ""
        made.append(read(text(fts=service, scenarios=scenario), name=f"{number}.yaml"))
    menu.campaign(made[:3])
    with pytest.raises(MenuError, match=r"3\.yaml:1: FTS is https://two.example.org, but https://one.example.org"):
        menu.campaign(made)


def test_an_included_file_may_name_the_endpoint():
    assert read(text(x="include: p.yaml"), {"p.yaml": "fts: {endpoint: https://fts/}"}).endpoint == "https://fts"


# --------------------------------------------------------------------------- what is as with Rucio


def test_limits_targets_and_sums_hold_for_urls():
    scenario = f"{{from: '{A}', to: ['{B}', '{C}'], rate: 10 Gb/s}}"
    assert rates(read(fts(scenario, x="target: 10 Gb/s"), LIST)) == {f"{A}:{B}": 5, f"{A}:{C}": 5}
    found = lint.findings(menu.campaign([read(fts(scenario, x="target: 12 Gb/s"), LIST)]))
    assert [one.code for one in found] == ["unused-files", "target-differs"]
    assert "limits.total" in problems(fts(scenario, limits="limits: {total: 9 Gb/s}"), LIST)[0].message
    sites = f'sites: {{S: {{wan: 9 Gb/s, rses: {{"{A}": {{}}}}}}}}'
    found = lint.findings(menu.campaign([read(fts(scenario, x=sites), LIST)]))
    assert [one.code for one in found] == ["site-over-wan", "unused-files"]


def of_lists(content: str, files: dict[str, str]) -> list[Problem]:
    """The findings about source lists."""
    codes = {"unsized-files", "unused-files"}
    return [one for one in lint.findings(menu.campaign([read(content, files)])) if one.code in codes]


def test_files_without_a_size_are_a_finding(wording):
    """One for each list, which says how many; it may be accepted, and is no outlier."""
    content = fts(f"{{from: '{A}', to: ['{B}', '{C}'], rate: 10 Gb/s}}\n  two: {RIGHT}")
    files = {"s.csv": f"url,size\n{A}/1,\n{A}/2,1 GB\n{A}/3,\n"}
    (found,) = of_lists(content, files)
    assert (found.code, found.needs_accepting, found.line) == ("unsized-files", False, 12)
    wording(found.message)
    assert not of_lists(content + "accept: unsized-files\n", files)
    (other,) = of_lists(content, LIST)
    assert other.code == "unused-files"


def test_files_that_no_source_has_are_a_finding():
    """A typo in a host is seen, and a path counts for every source."""
    content = fts(f"{{from: '{A}', to: ['{B}', '{C}'], rate: 10 Gb/s}}")
    files = {"s.csv": f"url,size\n{A}/1,1 GB\n{A.replace('example', 'exmaple')}/2,1 GB\n3,1 GB\n"}
    (found,) = lint.findings(menu.campaign([read(content, files)]))
    assert (found.code, found.needs_accepting) == ("unused-files", False)
    assert "below no source: 1 of its 3 files" in found.message


RSE, URL, SITE = "T1_DE_KIT_Disk", "davs://a.example.org:8443/dc", "T2_DE_DESY"


BOUNDED = ("block: 0", "block: 1 B", "block: 1 GB", "fraction: 0", "fraction: 1.5", "think: -1 s")
BOUNDED += ("connections: 0",)


def reads(source: str, to: str, files: str) -> str:
    link = f'scenarios:\n  one: {{from: "{source}", to: {to}, rate: 1 Gb/s}}'
    return text(defaults=f"defaults: {{through: reads, {files}}}", scenarios=link)


@pytest.mark.parametrize(
    ("source", "to", "files"),
    [
        (RSE, SITE, "files: {folder: x}"),
        ("tier=1", SITE, 'datasets: {did: "a:b"}'),
        (URL, f'"{URL}"', "files: {folder: x}"),
        (URL, f"{SITE}, both_ways: true", "files: {folder: x}"),
        (URL.replace("davs", "http"), SITE, "files: {folder: x}"),
        *((URL, SITE, f"reads: {{{key}}}, files: {{folder: x}}") for key in BOUNDED),
    ],
    ids=["files of an RSE", "expression", "to a URL", "back", "http", *BOUNDED],
)
def test_reads_of_what_workers_cannot_read_are_refused(source, to, files, wording):
    wording(problems(reads(source, to, files)))


@pytest.mark.parametrize(("site", "rse"), [(RSE, RSE), ("T1_X", RSE), ("T1_X", URL)])
def test_reads_go_from_the_one_rse_or_url_of_a_site_also_of_the_same_name(site, rse):
    menu = reads(site, SITE, 'datasets: {did: "a:b"}') + f"sites: {{{site}: {{rses: {{'{rse}': {{}}}}}}}}\n"
    assert [flow.link.source for flow in read(menu).flows] == [rse]


@pytest.mark.parametrize(
    ("source", "files"),
    [
        (RSE, 'datasets: {did: "a:b"}'),
        (URL, "files: {folder: x}"),
        (URL, 'datasets: {did: "a:b"}'),
        ("http://127.0.0.2:22001/dc", "files: {folder: x}"),  # a storage of the sandbox
    ],
)
def test_reads_go_from_urls_and_from_rses_to_the_site_of_the_workers(source, files):
    (flow,) = read(reads(source, SITE, files)).flows
    assert (flow.link.source, flow.link.destination) == (source, SITE)
