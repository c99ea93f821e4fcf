"""Sets of test files: content that is cheap, different and does not compress; names that tell all of it."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.model import samples
from dc_inject.model.content import PIECE, Content
from dc_inject.model.samples import FileSet

SETS = st.builds(
    FileSet,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", fullmatch=True),
    files=st.integers(1, 3000),
    bytes=st.integers(1, 10**17),
    per=st.integers(1, 4000),
    before=st.sampled_from(["", "user.me.", "/store/user/me/"]),
)


@given(st.text(), st.one_of(st.integers(0, 100), st.integers(PIECE - 1, PIECE + 1), st.integers(0, 3 * PIECE)))
def test_content_has_its_size_and_is_the_same_each_time(seed, size):
    content = Content(seed, size)
    whole = b"".join(content)
    assert len(whole) == len(content) == size
    assert whole == b"".join(Content(seed, size))
    assert content.adler32() == f"{zlib.adler32(whole):08x}"


def test_content_does_not_compress():
    whole = b"".join(Content("a", 8 * PIECE))
    assert len(zlib.compress(whole, 9)) > len(whole)


def test_no_piece_of_any_file_is_like_another():
    pieces = [piece for seed in range(20) for piece in Content(str(seed), 4 * PIECE)]
    assert len({piece[:512] for piece in pieces}) == len(pieces)
    assert len({piece[-512:] for piece in pieces}) == len(pieces)


@given(SETS)
def test_a_set_is_known_again_by_the_name_of_each_of_its_datasets_and_files(made):
    numbers = [number for some in made.datasets.values() for number in some]
    assert numbers == list(range(1, made.files + 1))
    for dataset, some in list(made.datasets.items())[:: max(1, len(made.datasets) // 5)]:
        assert samples.from_dataset(dataset, made.before) == made
        assert {made.dataset_of(some[0]), made.dataset_of(some[-1])} == {dataset}
        assert made.number_of(made.file(some[-1])) == some[-1]


@given(SETS)
def test_a_set_is_known_again_by_its_folders(made):
    *_, name, shape = made.folder("davs://host/base").split("/")
    assert samples.from_folder(name, shape) == FileSet(made.name, made.files, made.bytes, made.per)
    assert made.url("davs://host/base/", 1).startswith(f"davs://host/base/{samples.MARK}/{made.name}/")


@pytest.mark.parametrize(
    "name",
    [
        "dc_inject-data.x.3x5by2.000003",  # there are two
        "dc_inject-data.x.3x5by2.000000",
        "dc_inject-data.x.3x5.000001",
        "dc_inject-data.x.03x5by2.000001",
        "dc_inject-data.x.3x5by2.1",
        "dc_inject-data..3x5by2.000001",
        "dc_inject-data.x.3x5by2.000001.dat",
        "mine.dc_inject-data.x.3x5by2.000001",
        "/data/RAW#1",
    ],
)
def test_what_is_not_ours_to_the_letter_is_not_ours(name):
    assert samples.from_dataset("dc_inject-data.x.3x5by2.000002") == FileSet("x", 3, 5, 2)
    assert samples.from_dataset(name) is None


@pytest.mark.parametrize("name", ["000001.dat", "dc_inject-data.x.3x5by2.000004.dat", "", "x"])
def test_a_file_that_is_not_of_the_set_has_no_number(name):
    assert FileSet("x", 3, 5, 2).number_of(name) == 0


@pytest.mark.parametrize(
    "values",
    [
        ("a/b", 1, 1),
        ("..", 1, 1),
        ("a", 0, 1),
        ("a", 100_001, 1),
        ("a", 1, 0),
        ("a", 1, 1, 1, "x" * 250),
    ],
)
def test_a_set_that_cannot_be_is_refused_with_a_sentence(values, wording):
    with pytest.raises(ValueError) as refused:
        FileSet(*values)
    wording(refused.value)
