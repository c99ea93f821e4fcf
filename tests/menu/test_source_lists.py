"""Source lists: YAML, CSV or plain, each file with what is told of it, each problem with its line and a hint."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.menu import nodes, source_lists
from dc_inject.model import File, Listing
from dc_inject.model.errors import Problem

U = "davs://se.example.org:8443/dc"


def read(content: str | bytes, file: str = "s.csv") -> tuple[Listing | None, list[Problem]]:
    """Return what a list holds, and what is wrong with it."""
    found: list[Problem] = []
    data = content if isinstance(content, bytes) else content.encode()
    listing = source_lists.read(
        data, file, file, lambda place, what, hint: found.append(Problem(place.file, place.line, what, hint))
    )
    return listing, found


def files(content: str, file: str = "s.csv") -> list[tuple[str, int, str]]:
    """Return the files of a list that is right."""
    listing, found = read(content, file)
    assert not found
    assert all(isinstance(one, File) for one in listing.files)
    return [(one.name, one.bytes, one.checksum) for one in listing.files]


# --------------------------------------------------------------------------- what is right


def test_csv():
    """Columns in any order, small or capital heads, those named x- ignored, comments and empty lines too."""
    content = f"""# made by hand
Checksum, size ,URL,x-site

adler32:0CC737EB,5 GB,{U}/a,IHEP
0cc737ec,1_000,{U}/b
,,"{U}/c,d"
md5:0CC175B9C0F1B6A831C399E269772661,12,{U}/e
# {U}/f
"""
    expected = [
        (f"{U}/a", 5 * 10**9, "adler32:0cc737eb"),
        (f"{U}/b", 1000, "adler32:0cc737ec"),
        (f"{U}/c,d", 0, ""),
        (f"{U}/e", 12, "md5:0cc175b9c0f1b6a831c399e269772661"),
    ]
    content = content.replace("1_000", "1000")
    assert files(content) == expected
    assert files(content.replace(",", ";").replace("c;d", "c,d")) == expected


def test_csv_of_paths():
    assert files("path,size\na/b,1 KiB\n./c//d,2\r\n") == [("a/b", 1024, ""), ("c/d", 2, "")]


@pytest.mark.parametrize("name", ["s.yaml", "s.YML", "dir.csv/s.yml"])
def test_yaml(name):
    content = f"""
- {{url: {U}/a, size: 5 GB, checksum: 00000001}}
- path: b/c
  size: 5000000000
- {U}/d
- e
"""
    assert files(content, name) == [
        (f"{U}/a", 5 * 10**9, "adler32:00000001"), ("b/c", 5 * 10**9, ""), (f"{U}/d", 0, ""), ("e", 0, ""),
    ]  # fmt: skip


def test_json():
    content = f'["{U}/a", {{"url": "{U}/b", "size": 5}}]'
    assert files(content, "s.json") == [(f"{U}/a", 0, ""), (f"{U}/b", 5, "")]


@pytest.mark.parametrize("name", ["s.txt", "s", "s.lst", "csv"])
def test_plain(name):
    content = f"# comment\n\n  {U}/a  \r\nb/c\nroot://h:1094//x%20y\n"
    assert files(content, name) == [(f"{U}/a", 0, ""), ("b/c", 0, ""), ("root://h//x%20y", 0, "")]


def test_urls_are_written_in_one_form():
    """Also of the second file of a folder, which is read in a quicker way."""
    content = "DAVS://SE.example.org:8443//dc/a b\n".replace(" ", "%20")
    content += content.replace("a%20b", "c")
    more = [f"{U}/x.1", f"{U}/x.2", f"{U}/%7Ex", f"{U}/./y", f"{U}//z", f"{U}/\u00e9", "p/q", "p/./r"]
    assert [name for name, *_ in files(content + "\n".join(more), "s.txt")] == [
        f"{U}/a%20b", f"{U}/c", f"{U}/x.1", f"{U}/x.2", f"{U}/~x", f"{U}/y", f"{U}/z", f"{U}/%C3%A9", "p/q", "p/r",
    ]  # fmt: skip


def test_a_list_knows_its_name_and_the_digest_of_its_bytes():
    one, _ = read(f"url\n{U}/a\n")
    same, _ = read(f"url\n{U}/a\n")
    other, _ = read(f"url\n{U}/a\n\n")
    named, _ = read(f"url\n{U}/a\n", "t.csv")
    assert one == same
    assert len({one, other, named}) == 3
    assert one.files == other.files == (File(f"{U}/a", 0),)


def test_lists_that_are_in_use_are_not_read_again_however_many_and_others_are_not_kept():
    texts = [f"url\n{U}/{number}\n" for number in range(20)]
    in_use = [read(text)[0] for text in texts]
    assert all(source_lists.unsized(one) == 1 and source_lists.has_any_below(one, U) for one in in_use)
    assert all(read(text)[0] is one for text, one in zip(texts, in_use, strict=True))
    there = [weakref.ref(one) for one in in_use]
    del in_use
    gc.collect()
    assert not any(one() for one in there)


def test_what_is_below_a_source():
    listing, _ = read(f"url,size\n{U}/a/1,1\n{U}/a/2,\n{U}b/3,1\nroot://h//x/4,\n")
    assert source_lists.unsized(listing) == 2
    below = [U, f"{U}/a", f"{U}b", "root://h//x", "root://h", "davs://se.example.org:8443"]
    assert all(source_lists.has_any_below(listing, source) for source in below)
    others = [
        f"{U}/a/1",
        f"{U}/b",
        f"{U}/a/",
        "davs://se.example.org",
        "https://se.example.org:8443/dc",
        "root://h//",
    ]
    assert not any(source_lists.has_any_below(listing, source) for source in others)
    paths, _ = read("path\na/1\n")
    assert source_lists.has_any_below(paths, "davs://anything")


# --------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("content", "file", "line"),
    [
        ("", "s.csv", 1),
        ("# nothing\n\n", "s.txt", 1),
        ("", "s.yaml", 1),
        ("[]", "s.yaml", 1),
        ("a: 1", "s.yaml", 1),
        ("abc", "s.yaml", 1),
        ("- [", "s.yaml", 2),
        (f"- {U}/a\n- [b]", "s.yaml", 2),
        (f"- {U}/a\n- {{url: {U}/b, sise: 3}}", "s.yaml", 2),
        (
            f"- {U}/a\n- {{url: {U}/b, x: 3}}",
            "s.yaml",
            2,
        ),
        (f"- {U}/a\n- {{url: {U}/b, path: b}}", "s.yaml", 2),
        (f"- {U}/a\n- {{size: 1 GB}}", "s.yaml", 2),
        (f"- {U}/a\n- {{url: [b]}}", "s.yaml", 2),
        (f"- {U}/a\n- {{url: {U}/b, url: {U}/c}}", "s.yaml", 2),
        (f"- {U}/a\n- ''", "s.yaml", 2),
        (f"[{U}/a, {U}/a]", "s.yaml", 1),
        ("size,checksum\n1,2\n", "s.csv", 1),
        (f"url,path\n{U}/a,b\n", "s.csv", 1),
        (f"url,size,size\n{U}/a,1,1\n", "s.csv", 1),
        (f"{U}/a,1\n", "s.csv", 1),
        (f"url,size\n{U}/a,1,2\n", "s.csv", 2),
        (f'url\n{U}/a\n"x\n', "s.csv", 3),
        ("url\n" + "x" * 200_000, "s.csv", 2),
        ("url,size\n,1\n", "s.csv", 2),
        (f"url,size,checksum\n{U}/a,1,0cc737eb\n", "s.txt", 1),
        (f"url;size\n{U}/a;1\n", "s.txt", 1),
        (f"{U}/a\n- {U}/b\n", "s.txt", 2),
        ('{"a":1}', "s.lst", 1),
        ('{"a":1}', "s.json", 1),
        (f"url,cksum\n{U}/a,0cc737eb\n", "s.csv", 1),
        (f"url,size,\n{U}/a,1,note\n", "s.csv", 2),
        (f"url,size\n{U}/a,1\n{U}/b,0\n", "s.csv", 3),
        (f"url,size\n{U}/a,-1\n", "s.csv", 2),
        (f"url,size\n{U}/a,0 GB\n", "s.csv", 2),
        (f"url,size\n{U}/a,-5 GB\n", "s.csv", 2),
        (f"url,size\n{U}/a,1.5\n", "s.csv", 2),
        (f"url,size\n{U}/a,{10**13 + 1}\n", "s.csv", 2),
        (f"url,size\n{U}/a,big\n", "s.csv", 2),
        (f"url,checksum\n{U}/a,adler32:cc737eb\n", "s.csv", 2),
        (f"url,checksum\n{U}/a,0cc737eg\n", "s.csv", 2),
        (f"url,checksum\n{U}/a,md5:0cc737eb\n", "s.csv", 2),
        (f"url,checksum\n{U}/a,sha1:0cc737eb\n", "s.csv", 2),
        (f"{U}/a\nb\n{U}//a\n", "s.txt", 3),
        ("a/b\na/./b\n", "s.txt", 2),
        ("gsiftp://x/y\n", "s.txt", 1),
        ("davs:///y\n", "s.txt", 1),
        ("http://se.example.org/y\n", "s.txt", 1),
        ("davs://u:hunter2@h/y\n", "s.txt", 1),
        ("davs://h/y?authz=hunter2\n", "s.txt", 1),
        ("davs://h/../y\n", "s.txt", 1),
        (f"{U}/a\n{U}/..\n", "s.txt", 2),
        ("../y\n", "s.txt", 1),
        ("/store/y\n", "s.txt", 1),
        ("a b\n", "s.txt", 1),
        ("a%2\n", "s.txt", 1),
        (".\n", "s.txt", 1),
        ("davs://h\n", "s.txt", 1),
        ("davs://h/data/\n", "s.txt", 1),
        (f"{U}/a\n{U}/{'x' * 700}\n", "s.txt", 2),
        (b"url\n\xff\n", "s.csv", 2),
        ("url\nx\n".encode("utf-16"), "s.csv", 1),
        (b"url\n\0\n", "s.csv", 1),
        (b"- \xff\n", "s.yaml", 1),
        ("url\n\x1b[31m\n", "s.csv", 2),
    ],
)
def test_what_is_wrong(content, file, line, wording):
    listing, found = read(content, file)
    assert listing is None
    assert [problem.line for problem in found] == [line], found
    assert found[0].file == file
    wording(found[0])
    assert "hunter2" not in str(found)


def test_all_problems_are_counted_and_the_first_are_told(wording):
    listing, found = read("url,size\n" + "".join(f"{U}/{n},0\n" for n in range(100)))
    assert listing is None
    assert [problem.line for problem in found] == list(range(2, 2 + nodes.FirstComplaints.MOST + 1))
    assert found == sorted(found)
    wording(found[-1].message)


def test_a_list_that_is_wrong_is_read_again():
    assert read("url\n/x\n")[1] == read("url\n/x\n")[1] != []


def test_the_number_of_files_is_bounded(monkeypatch, wording):
    monkeypatch.setattr(source_lists, "MOST", 3)
    assert read(f"url\n{U}/1\n{U}/2\n{U}/3\n")[0]
    listing, (problem,) = read(f"url\n{U}/1\n{U}/2\n{U}/3\n{U}/4\n{U}/5\n")
    assert listing is None
    wording(problem)


def test_the_size_of_a_list_is_bounded(monkeypatch, wording):
    monkeypatch.setattr(source_lists, "LARGEST", 10**6)
    _, (problem,) = read(f"url\n{U}/1\n" + "#" * 10**6)
    wording(problem.message)


# --------------------------------------------------------------------------- anything

CELL = st.sampled_from(
    [f"{U}/a", f"{U}/b", f"{U}/", "b/c", "/x", "", "5 GB", "-1", "0", "0cc737eb", "md5:x", "url", "path", "size",
     "checksum", '"', "#", "- ", "{", "]", ": ", "davs://u:p@h/x", "\u00e9", "\n", "\n", ",", ","]
)  # fmt: skip


@settings(deadline=None)
@given(
    st.binary() | st.text().map(str.encode) | st.lists(CELL, max_size=20).map(lambda all_: "".join(all_).encode())
)
def test_anything_is_a_list_or_has_problems_with_hints(content):
    for file in ("s.csv", "s.yaml", "s.txt"):
        listing, found = read(content, file)
        assert (listing is None) == bool(found)
        assert all(one.message and one.hint and one.line >= 1 for one in found)
        if listing is not None:
            assert listing.files
            assert len({one.name for one in listing.files}) == len(listing.files)
