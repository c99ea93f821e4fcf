"""Menus through FTS: URL prefixes as ends, which files are taken, how they become jobs, where FTS is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject import menu
from dc_inject.errors import MenuError
from dc_inject.model import DatasetFilter, FileFilter, JobOptions, Link, RseSpec, Verify
from tests.menu.texts import draft, problems, rates, read, text

A, B, C = "davs://a.example.org:8443/dc", "https://b.example.org/dc", "root://c.example.org//eos/dc"
LIST = {"s.csv": f"url,size\n{A}/1,1 GB\n{A}/2,1 GB\n{B}/1,1 GB\n{C}/1,1 GB\n"}
DEFAULTS = "defaults:\n  through: fts\n  files: {list: s.csv}"  # begins in line 8


def fts(scenario: str, defaults: str = DEFAULTS, **parts: str) -> str:
    """Return a menu through FTS whose scenario `one` has this body."""
    return text(defaults=defaults, scenarios=f"scenarios:\n  one: {scenario}", **parts)


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
def test_a_link_of_an_exclusion_splits_where_the_second_url_begins(a, b):
    made = read(
        fts(
            f'{{from: "{a}", to: "{b}", rate: 4 Gb/s}}',
            x=f"exclude:\n  - {{link: '{a}:{b}', from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}}",
        ),
        LIST,
    )
    assert made.exclusions[0].link == str(made.flows[0].link) == f"{a}:{b}"


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
    ("end", "message", "hint"),
    [
        ("T1_DE_KIT_Disk", "is no URL, but the link goes through FTS", "through: rucio"),
        ("tier=1&country=DE", "is no URL, but the link goes through FTS", "davs://"),
        ("gsiftp://x.example.org/dc", "unknown scheme gsiftp://", "davs, https and root"),
        ("davs:///dc", "no host", "davs://"),
        ("davs:/x/dc", "not a URL", "davs://"),
        ("http://x.example.org/dc", "not encrypted", "https://"),
        ("dav://192.0.2.1/dc", "not encrypted", "davs://"),
        (f"davs://me:{SECRET}@x.example.org/dc", "user or password", "X509"),
        (f"davs://me:{SECRET}{'x' * 100}@x.example.org/dc", "user or password", "X509"),
        (f"davs://x.example.org/dc?authz={SECRET}", "query", "%3F"),
        ("davs://x.example.org/dc/../etc", "go up", "davs://"),
        ("davs://x.example.org/a b", "no spaces", "%20"),
        ("root://x.example.org", "no path", "root://"),
        ("davs://x.example.org/" + "d" * 700, "more than 700 characters", "shorter"),
        ("EMPTY", "the site EMPTY has no URL prefix", "sites"),
        ("TWO", "the site TWO has several URL prefixes", "name one"),
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
def test_wrong_ends(end, message, hint, scenario, line):
    """Each is told where it stands, once, with what to write instead."""
    sites = 'sites: {EMPTY: {rses: {R: {}}}, TWO: {rses: {"davs://x/1": {}, "davs://x/2": {}}}}'
    found = problems(fts(scenario.format(end, A), x=sites), LIST)
    assert [problem.line for problem in found] == [line], found
    assert message in found[0].message
    assert hint in found[0].hint
    assert SECRET not in str(found)


RIGHT = f"{{from: '{A}', to: '{B}', rate: 1 Gb/s}}"


def excluded(what: str) -> str:
    """Return a menu with one exclusion, in line 13."""
    return fts(RIGHT, x=f"exclude: [{{{what}, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}}]")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (fts(f"{{from: A, to: '{A}', rate: 1 Gb/s, through: rucio, datasets: {{did: 'a:*'}}}}"), "through Rucio"),
        (fts(f"{{from: '{A}', to: '{A}/', rate: 1 Gb/s}}"), "source and destination"),
        (fts(f"{{from: '{A}', to: ['{B}', '{B}/'], rate: 1 Gb/s}}"), f"{B} is named twice"),
        (fts(f"{{links: [{RIGHT}, {RIGHT}]}}".replace("dc'", "dc/'", 1)), "twice at one time"),
        (fts(RIGHT, x=f'sites: {{S: {{rses: {{"{A}": {{}}, "{A}/": {{}}}}}}}}'), f"{A} is here twice, first in"),
        (
            fts(RIGHT, x=f"sites: {{S: {{rses: {{'{A}': {{}}}}}}, T: {{rses: {{'{A}/': {{}}}}}}}}"),
            f"{A} is in two",
        ),
        (fts(RIGHT, x="sites: {S: {rses: {'davs://u:hunter2@h/x': {}}}}"), "user or password"),
        (excluded(f"rse: '{C}'"), f"no link of this menu touches {C}"),
        (excluded("rse: 'davs://u:hunter2@h/x'"), "user or password"),
        (excluded(f"link: '{A}'"), "a link has two ends"),
        (excluded(f"link: '{B}:{A}'"), f"no link {B}:{A} in this menu"),
        (excluded(f"link: '{A}:davs://u:hunter2@h/x'"), "user or password"),
    ],
)
def test_wrong_uses_of_urls(content, message):
    found = problems(content, LIST)
    assert [problem.line for problem in found] == [13 if "\nsites" in content or "\nexclude" in content else 12], (
        found
    )
    assert message in found[0].message
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


# --------------------------------------------------------------------------- files


def filter_of(body: str, defaults: str = "defaults: {through: fts}") -> FileFilter:
    made = read(fts(f"{{links: [{{from: '{A}', to: '{B}', rate: 1 Gb/s, {body}}}]}}", defaults), LIST)
    found = made.flows[0].datasets
    assert isinstance(found, FileFilter)
    return found


def test_a_folder():
    found = filter_of('files: {folder: data//2024/, pattern: "*.root", size: 500 MB..2 GB}')
    assert found == FileFilter(folder="data/2024", pattern="*.root", size=(500 * 10**6, 2 * 10**9))
    assert filter_of("files: {folder: .}") == FileFilter(folder="")


def test_a_list():
    found = filter_of("files: {list: s.csv}")
    assert found.listing is not None
    assert (found.listing.name, len(found.listing.files), found.folder) == ("s.csv", 4, None)
    assert len(found.listing.digest) == 64


def test_datasets_of_rucio():
    """Files are taken one by one, so the usual bounds on a dataset's shape hold only where they are written."""
    every = (1, 2**63 - 1)
    assert filter_of('datasets: {did: "b:*", exclude: "b:x"}, files: {pattern: "*.h5"}') == FileFilter(
        datasets=DatasetFilter(("b:*",), (), ("b:x",), every, every), pattern="*.h5"
    )
    found = filter_of('datasets: {containers: "b:c", files: 1..9}').datasets
    assert found == DatasetFilter((), ("b:c",), (), (1, 9), every)


def test_the_word_of_a_link_counts_before_that_of_the_defaults():
    defaults = (
        'defaults: {through: fts, datasets: {did: "a:*"}, files: {folder: x, size: 1..2 GB, pattern: "*.h5"}}'
    )
    assert filter_of("priority: 1", defaults).folder == "x"
    assert filter_of('files: {pattern: "*"}', defaults) == FileFilter(folder="x", size=(10**9, 2 * 10**9))
    other = filter_of('datasets: {did: "b:*"}', defaults)
    assert (other.folder, other.datasets.dids, other.pattern) == (None, ("b:*",), "*.h5")
    assert filter_of("files: {list: s.csv}", defaults).folder is None


def test_the_digest_of_a_menu_covers_its_lists():
    content = fts(f"{{from: '{A}', to: '{B}', rate: 1 Gb/s}}")
    digests = {draft(content, {"s.csv": f"url,size\n{A}/{n},1 GB\n"}).digest for n in (1, 2)}
    assert len(digests) == 2


def test_a_list_that_many_links_name_is_read_once():
    """Also by an anchor; so it is one list, and does not count as many files."""
    links = "\n".join(f"      - {{from: '{A}', to: '{B}{n}', rate: 1 Gb/s, <<: *common}}" for n in range(150))
    made = read(
        text(defaults="", x="x-c: &common {through: fts, files: {list: s.csv}}", scenarios="")
        + f"scenarios:\n  one:\n    links:\n{links}\n",
        LIST,
    )
    assert len({id(flow.datasets.listing) for flow in made.flows}) == 1


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ("priority: 1", "no source files are named", "`files: {folder: data}`, or `datasets: {did: ...}`"),
        ("files: {pattern: '*.root'}", "no source files are named", "`files: {list: sources.csv}`"),
        ("files: {list: s.csv, folder: x}", "`files` has a list and a folder", "keep one"),
        ("files: {folder: /data}", "begins with a slash", "data/2024"),
        ("files: {folder: a/../b}", "go up", "davs://"),
        ("files: {folder: davs://a/b}", "a URL stands where a path", "data/2024"),
        ("files: {folder: 'a b'}", "no spaces", "%20"),
        ("files: {folder: x, pattern: /data/*}", "begins like a whole path", "*.root"),
        ("files: {folder: x, size: 1..2}", "has no unit", "500 TB"),
        ("files: {folder: x, size: 2..1 GB}", "ends below its beginning", "smaller"),
        ("files: {folder: x, patern: x}", "the key `patern` is unknown", "`pattern`"),
        ("files: x", "'x' stands where a mapping belongs", "key: value"),
        ("files: {list: none.csv}", "none.csv cannot be read", "the path counts from"),
        ("files: {list: [s.csv]}", "a list where one value is expected", "one value"),
        ("files: {folder: x}, jobs: {files: 0}", "'0' is not the number of a job's files", "from 1 to 5000"),
        ("files: {folder: x}, jobs: {files: 5001}", "'5001' is not", "from 1 to 5000"),
        ("files: {folder: x}, jobs: {retry: 11}", "'11' is not a number of tries", "from 0 to 10"),
        ("files: {folder: x}, jobs: {retry: -1}", "'-1' is not a number of tries", "from 0 to 10"),
        ("files: {folder: x}, jobs: {scitag: 64}", "'64' is not a scitag", "from 65 to 65535"),
        ("files: {folder: x}, jobs: {scitag: 65536}", "'65536' is not a scitag", "from 65 to 65535"),
        ("files: {folder: x}, jobs: {verify: all}", "'all' is not known", "none or source or target or both"),
        ("files: {folder: x}, jobs: {longest_transfer: 1}", "has no unit", "1 h 30 min"),
        ("files: {folder: x}, jobs: {longest_transfer: 0 s}", "shorter than a second", "15 min"),
        ("files: {folder: x}, jobs: {retries: 3}", "`retries` is unknown", "`retry`"),
        (
            "through: rucio, datasets: {did: 'a:b'}, files: {folder: x}",
            "`files` is only for links through FTS",
            "fts",
        ),
        (
            "through: rucio, datasets: {did: 'a:b'}, jobs: {retry: 1}",
            "`jobs` is only for links through FTS",
            "fts",
        ),
    ],
)
def test_wrong_files_and_jobs(body, message, hint):
    ends = "from: R1, to: R2" if "rucio" in body else f"from: '{A}', to: '{B}'"
    found = problems(fts(f"{{links: [{{{ends}, rate: 1 Gb/s, {body}}}]}}", "defaults: {through: fts}"), LIST)
    assert [problem.line for problem in found] == [10], found
    assert message in found[0].message
    assert hint in found[0].hint


def test_a_link_needs_a_file_below_its_source():
    files = {"s.csv": f"url\n{A}x/1\nhttps://a.example.org:8443/dc/1\n{B}/1\n"}
    (found,) = problems(fts(f"{{from: ['{A}', '{B}'], to: '{C}', rate: 1 Gb/s}}"), files)
    assert (found.line, found.message) == (12, f"none of the 3 files of s.csv is below {A}")
    assert not problems(fts(f"{{from: '{A}', to: '{C}', rate: 1 Gb/s}}"), {"s.csv": "path\nx/1\n"})


# --------------------------------------------------------------------------- copies apart from sources


@pytest.mark.parametrize(
    ("source", "folder", "destination", "message"),
    [
        (A, ".", f"{A}/x", f"copies to {A}/x land in {A},"),
        (A, "data", f"{A}/data", f"copies to {A}/data land in {A}/data,"),
        (A, "data", f"{A}/data/x/y", "land in"),
        ("davs://h.example.org", ".", "davs://h.example.org/x", "land in"),
        (C, ".", f"{C}/x", "land in"),
        (A, "dc_inject/old/x", A, f"our own copies to {A}"),
        (A, "b/dc_inject", f"{A}/b", f"our own copies to {A}/b"),
        (A, "data", A, ""),
        (A, "data", f"{A}/data2", ""),
        (A, "data", f"{B}/data/x", ""),
        (A, "dc_inject2", f"{A}/x", ""),
    ],
)
def test_copies_do_not_land_among_sources(source, folder, destination, message):
    """Through one link or through two."""
    other = "davs://other.example.org/dc"
    if source != destination:
        one = fts(f"{{from: '{source}', to: '{destination}', rate: 1 Gb/s, files: {{folder: {folder}}}}}")
        assert [message in p.message for p in problems(one, LIST)] == [True] * bool(message)
    two = fts(
        f"{{links: [{{from: '{source}', to: '{other}', rate: 1 Gb/s, files: {{folder: {folder}}}}},"
        f" {{from: '{B}', to: '{destination}', rate: 1 Gb/s}}]}}"
    )
    assert [message in p.message for p in problems(two, LIST)] == [True] * bool(message)


def test_a_list_is_not_filled_up_by_copies():
    assert not problems(fts(f"{{from: '{A}', to: '{A}/x', rate: 1 Gb/s}}"), LIST)


def test_nor_do_they_where_another_menu_takes_files():
    made = [
        read(fts(f"{{from: '{a}', to: '{b}', rate: 1 Gb/s, files: {{folder: .}}}}"), files=LIST, name=f"{n}.yaml")
        for n, a, b in ((1, A, B), (2, C, f"{A}/x"))
    ]
    with pytest.raises(MenuError, match=r"2\.yaml:12: copies to"):
        menu.campaign(made)


# --------------------------------------------------------------------------- jobs and the service


def test_jobs_are_put_together_key_by_key():
    made = read(
        fts(
            f"""
    jobs: {{verify: target, longest_transfer: 2 h}}
    links:
      - {{from: '{A}', to: '{B}', rate: 1 Gb/s, jobs: {{files: 10, retry: 0}}}}
      - {{from: '{A}', to: '{C}', rate: 1 Gb/s}}""",
            f"{DEFAULTS}\n  jobs: {{files: 100, scitag: 65}}",
        ),
        LIST,
    )
    assert [flow.job for flow in made.flows] == [
        JobOptions(10, 0, Verify.TARGET, 65, timedelta(hours=2)),
        JobOptions(100, 3, Verify.TARGET, 65, timedelta(hours=2)),
    ]


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
    ("endpoint", "message"),
    [
        ("http://fts3.example.org:8446", "not encrypted"),
        ("davs://fts3.example.org:8446", "not spoken to over davs://"),
        ("fts3.example.org:8446", "not a URL"),
        ("https://u:hunter2@fts3.example.org", "user or password"),
        ("https://fts3.example.org/?a=hunter2", "query"),
        ("https://fts3.example.org/a/../b", "go up"),
    ],
)
def test_wrong_endpoints(endpoint, message):
    (found,) = problems(text(fts=f"fts: {{endpoint: '{endpoint}'}}"))
    assert found.line == 14
    assert message in found.message
    assert found.hint
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
    assert "target" in problems(fts(scenario, x="target: 12 Gb/s"), LIST)[0].message
    assert "limits.total" in problems(fts(scenario, limits="limits: {total: 9 Gb/s}"), LIST)[0].message
    sites = f'sites: {{S: {{wan: 9 Gb/s, rses: {{"{A}": {{}}}}}}}}'
    found = menu.findings(menu.campaign([read(fts(scenario, x=sites), LIST)]))
    assert [one.code for one in found] == ["site-over-wan"]


def test_files_without_a_size_are_a_finding():
    """One for each list, which says how many; it may be accepted, and is no outlier."""
    content = fts(f"{{from: '{A}', to: ['{B}', '{C}'], rate: 10 Gb/s}}\n  two: {RIGHT}")
    files = {"s.csv": f"url,size\n{A}/1,\n{A}/2,1 GB\n{A}/3,\n"}
    (found,) = menu.findings(menu.campaign([read(content, files)]))
    assert (found.code, found.outlier, found.line) == ("unsized-files", False, 12)
    assert "s.csv has no size for 2 of its 3 files" in found.message
    assert not menu.findings(menu.campaign([read(content + "accept: unsized-files\n", files)]))
    assert not menu.findings(menu.campaign([read(content, LIST)]))
