"""Whatever is given as a menu: back comes a menu, or a MenuError with place and hint for each problem."""

from __future__ import annotations

import json
from collections.abc import Mapping as Files_

from hypothesis import strategies as st

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.menu.schema import (
    Datasets,
    Defaults,
    Document,
    ExcludeEntry,
    Files,
    FtsEntry,
    Jobs,
    Lifetime,
    LimitsEntry,
    LinkEntry,
    RseEntry,
    Scenario,
    SiteEntry,
)
from dc_inject.menu.validation import MenuModel
from dc_inject.model.errors import MenuError, Problem
from tests.fuzz.cases import fuzz
from tests.menu.texts import PARTS, draft

WORDS = st.sampled_from(
    [
        "A", "B", "C", "KIT", "one", "tier=1", "A|B", "*", "", "~", "0", "-1", "1", "5", "7", "1.5",
        "nan", "inf Gb/s", "10 Gb/s", "-10 Gb/s", "1 Tb/s", "10", "1..1000", "9..1", "1..20 GB", "..",
        "500 TB", "15 min", "0 s", "3 h", "10 %", "200 %", "true", "no", "rucio", "fts",
        "https://a.b/c", "random", "2027-02-08 12:00", "2027-02-09 09:00", "2027-03-28 02:30",
        "2027-10-31 02:30", "1999-01-01", "2027-02-30", "2027-02-08T12:00+01:00", "Europe/Zurich",
        "UTC", "/etc", "..", "cms:*", "cms", "A:B", "links.csv", "dids.txt", "part.yaml", "m.yaml",
        "rate-outlier", "smallest-first", "\U0001f600", "\x85", "a" * 300, "\u2028", "a\nb",
        "\x1b[31m", "1e30 Gb/s", "9" * 50,
        "davs://a.b:8443/c", "DAVS://A.b:8443//c/", "davs://a.b:8443/c/d", "root://e//f", "root://e", "gsiftp://g/h",
        "http://a.b/c", "http://127.0.0.1/c", "davs://u:hunter2@a.b/c", "davs://a.b/c?t=hunter2", "davs://a.b/../c",
        "davs://a.b:8443/c:root://e//f", "davs:", "://", "files.yaml", "files.txt", "bad.csv", "bad.yaml",
        "files.csv", ".", "data", "/data", "*.root", "65", "200", "both", "adler32:0cc737eb",
    ]
)  # fmt: skip
CLASSES: list[type[MenuModel]] = [
    Document, Defaults, Scenario, LinkEntry, Datasets, Files, Jobs, Lifetime, SiteEntry, RseEntry, ExcludeEntry,
    FtsEntry, LimitsEntry,
]  # fmt: skip
KEYS = st.one_of(
    st.sampled_from(sorted({field.alias or name for one in CLASSES for name, field in one.model_fields.items()})),
    WORDS,
)
FILES = {
    "links.csv": "from,to,rate\nA,B,10 Gb/s\nB,A,1\n",
    "dids.txt": "cms:a\n# b\n\nbad\n",
    "files.csv": "url,size,checksum\ndavs://a.b:8443/c/1,1 GB,0cc737eb\nroot://e//f/1,,\n",
    "files.yaml": "- {path: a/1, size: 3}\n- davs://a.b:8443/c/1\n",
    "files.txt": "# a\ndavs://a.b:8443/c/d/1\n",
    "bad.csv": "url,size\ndavs://u:hunter2@a.b/c,0\n/x,1\n",
    "bad.yaml": "- {size: 3}\n- [\n",
    "part.yaml": "include: [m.yaml, part.yaml]\nsites: {KIT: {wan: 1 Tb/s, rses: {A: {}}}}\nscenarios: {one: 3}\n",
}


def flow_style(node: object) -> str:
    """Write a tree as YAML in flow style."""
    if isinstance(node, dict):
        return "{" + ", ".join(f"{quoted(key)}: {flow_style(value)}" for key, value in node.items()) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(flow_style, node)) + "]"
    return quoted(str(node))


def quoted(word: str) -> str:
    return json.dumps(word)  # in YAML too a double-quoted scalar


TREES = st.recursive(
    WORDS, lambda node: st.lists(node, max_size=4) | st.dictionaries(KEYS, node, max_size=6), max_leaves=20
)


def fields_of(part: type[MenuModel], node: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = sorted(field.alias or name for name, field in part.model_fields.items())
    return st.dictionaries(st.sampled_from(keys), node, max_size=6)


LINKS = st.lists(fields_of(LinkEntry, WORDS), max_size=4) | st.just({"file": "links.csv"})
SCENARIO = st.fixed_dictionaries(
    {},
    optional={
        "from": WORDS | st.lists(WORDS, max_size=3) | st.dictionaries(WORDS, WORDS, max_size=3),
        "to": WORDS | st.lists(WORDS, max_size=3) | st.dictionaries(WORDS, WORDS, max_size=3),
        "mesh": WORDS | st.lists(WORDS, max_size=3),
        "rate": WORDS | st.just("10 Gb/s"),
        "links": LINKS,
        "both_ways": WORDS,
        "start": WORDS,
        "end": WORDS,
        "datasets": fields_of(Datasets, WORDS),
        "through": WORDS | st.just("fts"),
        "files": fields_of(Files, WORDS) | st.just({"folder": "data"}),
        "jobs": fields_of(Jobs, WORDS),
        "lifetime": fields_of(Lifetime, WORDS),
    },
)
MENUS = st.fixed_dictionaries(
    {},
    optional={
        "scenarios": st.dictionaries(WORDS, SCENARIO, max_size=3),
        "sites": st.dictionaries(WORDS, fields_of(SiteEntry, WORDS | st.just({"A": {}})), max_size=2),
        "exclude": st.lists(fields_of(ExcludeEntry, WORDS), max_size=3),
        "limits": fields_of(LimitsEntry, WORDS),
        "defaults": fields_of(Defaults, WORDS | TREES),
        "fts": fields_of(FtsEntry, WORDS),
        "tape": st.dictionaries(WORDS, WORDS, max_size=2),
        "accept": WORDS | st.lists(WORDS),
        "thresholds": WORDS | st.lists(WORDS | st.just('ratio{scenario="one"} >= 0.9 over 6h')),
        "include": WORDS | st.lists(WORDS, max_size=3),
        "timezone": WORDS,
        "start": WORDS,
        "end": WORDS,
        "target": WORDS,
    },
)


def only_menu_errors(text: str | bytes, files: Files_[str, str | bytes] = FILES) -> None:
    found: tuple[Problem, ...] = ()
    try:
        made = draft(text, files)
        lint.findings(
            menu.campaign([made.resolve({expression: ("X", "Y") for _, expression in made.expressions})])
        )
    except MenuError as error:
        found = error.problems
    for problem in found:
        assert problem.message
        assert problem.hint
        assert problem.line >= 1
        assert str(problem).isprintable()
        assert "hunter2" not in str(problem)


@fuzz(60, content=st.text() | st.binary())
def test_any_text_or_bytes(content: str | bytes) -> None:
    """Text and bytes of any kind lead to a MenuError, or to a menu."""
    only_menu_errors(content)


@fuzz(60, content=st.text(alphabet="&*!<>{}[]:,-?|#%@`'\"ab1 \n\t~", max_size=60))
def test_any_punctuation(content: str) -> None:
    """So does what looks like YAML to the parser."""
    only_menu_errors("a: " + content)


@fuzz(120, parts=MENUS)
def test_any_menu(parts: dict[str, object]) -> None:
    """So does a menu whose every part may be wrong."""
    lines = PARTS | {key: f"{key}: {flow_style(value)}" for key, value in parts.items()}
    only_menu_errors("\n".join(lines.values()))


URLS = st.sampled_from(
    ["davs://a.b:8443/c", "DAVS://A.b:8443//c/", "davs://a.b:8443/c/d", "davs://a.b:8443/c/d/dc_inject/x",
     "root://e//f", "https://g", "http://127.0.0.2:80/h", "KIT", "A"]
)  # fmt: skip
SOME = st.lists(URLS, min_size=1, max_size=3, unique=True)
ENDS = URLS | SOME | st.dictionaries(URLS, st.just("1"), min_size=1, max_size=3)
WAYS = st.fixed_dictionaries({"from": ENDS, "to": ENDS}, optional={"both_ways": st.just("true")}) | (
    st.fixed_dictionaries({"mesh": SOME})
)
WHAT = st.sampled_from([{"list": "files.csv"}, {"list": "files.yaml"}, {"folder": "."}, {"folder": "d"}, {}])
THROUGH_FTS = st.builds(
    lambda way, files: {"rate": "1 Gb/s", "through": "fts", "files": files, "jobs": {"files": "5"}} | way,
    WAYS,
    WHAT,
)
SITES = st.dictionaries(
    st.sampled_from(["KIT", "RAL"]),
    st.fixed_dictionaries({"rses": st.dictionaries(URLS, st.just({}), max_size=2)}),
)


@fuzz(120, scenarios=st.dictionaries(st.sampled_from(["one", "two"]), THROUGH_FTS, min_size=1), sites=SITES)
def test_any_menu_through_fts(scenarios: object, sites: object) -> None:
    """So does one that is nearly right: only ends, files and sites do not fit together."""
    lines = PARTS | {"scenarios": f"scenarios: {flow_style(scenarios)}", "sites": f"sites: {flow_style(sites)}"}
    only_menu_errors("\n".join(lines.values()))


@fuzz(80, tree=st.dictionaries(KEYS, TREES, max_size=8))
def test_any_tree(tree: dict[str, object]) -> None:
    """So does any tree of mappings and lists, with our keys in the wrong places."""
    only_menu_errors("\n".join(PARTS[key] for key in PARTS if key not in tree) + "\n" + "\n".join(
        f"{quoted(key)}: {flow_style(value)}" for key, value in tree.items()
    ))  # fmt: skip


HEADS = st.lists(st.sampled_from(["url", "path", "size", "checksum", "from", "to", "rate", "x", ""]), max_size=5)
CELLS = (
    WORDS | URLS | st.sampled_from(["1 GB", "-1", "9" * 40, "adler32:0cc737eb", "md5:7", '"', "'", "\x00", "é"])
)
ROWS = st.lists(st.lists(CELLS, max_size=5).map(",".join), max_size=6)
SHEETS = st.builds(
    lambda heads, rows, end: end.join([",".join(heads), *rows]), HEADS, ROWS, st.sampled_from(["\n", "\r\n", "\r"])
)
LISTS = st.binary(max_size=80) | (SHEETS | st.text(max_size=60) | TREES.map(flow_style)).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
ONE = "from: 'davs://a.b:8443/c', to: 'root://e//f', rate: 1 Gb/s, through: fts"
WITH_LIST = f"scenarios:\n  one: {{{{{ONE}, files: {{{{list: {{}}}}}}}}}}"


@fuzz(200, content=LISTS, name=st.sampled_from(["l.csv", "l.yaml", "l.txt", "l"]))
def test_any_source_list(content: bytes, name: str) -> None:
    """So does any list of source files, whatever it is called."""
    lines = PARTS | {"scenarios": WITH_LIST.format(name)}
    only_menu_errors("\n".join(lines.values()), {name: content})


@fuzz(120, content=LISTS)
def test_any_list_of_links(content: bytes) -> None:
    """And any list of links, and any of datasets."""
    lines = PARTS | {"scenarios": "scenarios:\n  one: {links: {file: l.csv}, datasets: {file: l.csv}}"}
    only_menu_errors("\n".join(lines.values()), {"l.csv": content})
