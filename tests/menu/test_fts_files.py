"""Menus through FTS: which files are taken, where their copies may go, and how they become jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject import menu
from dc_inject.model import DatasetFilter, FileFilter, JobOptions, Verify
from dc_inject.model.errors import MenuError
from tests.menu.texts import DEFAULTS, LIST, A, B, C, draft, fts, problems, read, text

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
    "body",
    [
        "priority: 1",
        "files: {pattern: '*.root'}",
        "files: {list: s.csv, folder: x}",
        "files: {folder: /data}",
        "files: {folder: a/../b}",
        "files: {folder: davs://a/b}",
        "files: {folder: 'a b'}",
        "files: {folder: x, pattern: /data/*}",
        "files: {folder: x, size: 1..2}",
        "files: {folder: x, size: 2..1 GB}",
        "files: {folder: x, patern: x}",
        "files: x",
        "files: {list: none.csv}",
        "files: {list: [s.csv]}",
        "files: {folder: x}, jobs: {files: 0}",
        "files: {folder: x}, jobs: {files: 5001}",
        "files: {folder: x}, jobs: {retry: 11}",
        "files: {folder: x}, jobs: {retry: -1}",
        "files: {folder: x}, jobs: {scitag: 64}",
        "files: {folder: x}, jobs: {scitag: 65536}",
        "files: {folder: x}, jobs: {verify: all}",
        "files: {folder: x}, jobs: {longest_transfer: 1}",
        "files: {folder: x}, jobs: {longest_transfer: 0 s}",
        "files: {folder: x}, jobs: {retries: 3}",
        "through: rucio, datasets: {did: 'a:b'}, files: {folder: x}",
        "through: rucio, datasets: {did: 'a:b'}, jobs: {retry: 1}",
    ],
)
def test_wrong_files_and_jobs(body, wording):
    ends = "from: R1, to: R2" if "rucio" in body else f"from: '{A}', to: '{B}'"
    found = problems(fts(f"{{links: [{{{ends}, rate: 1 Gb/s, {body}}}]}}", "defaults: {through: fts}"), LIST)
    assert [problem.line for problem in found] == [10], found
    wording(found[0])


def test_a_link_needs_a_file_below_its_source(wording):
    files = {"s.csv": f"url\n{A}x/1\nhttps://a.example.org:8443/dc/1\n{B}/1\n"}
    (found,) = problems(fts(f"{{from: ['{A}', '{B}'], to: '{C}', rate: 1 Gb/s}}"), files)
    assert found.line == 12
    wording(found.message)
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


# --------------------------------------------------------------------------- jobs


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
