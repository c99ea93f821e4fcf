"""Items: a name gives back the item that it was made from, and only names from outside are read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dc_inject
from dc_inject.model import Bundle, Dataset, File, Slice
from dc_inject.model.items import Range, SliceId, blocked, bundled, read, read_bundle, read_id, units_of

SOURCE = Path(dc_inject.__file__).parent
KEY = "0b1b1b0e-0000-5000-8000-000000000001"
PLACES = {  # where names come from outside, and what is read there
    "backends/rucio/rules.py": {"read_id"},  # what a rule says of its slice
    "ledger/entry_rows.py": {"read", "read_bundle"},
    "ledger/injections.py": {"read_id"},
    "ledger/uniqueness.py": {"read_id"},
}

words = st.text("abc:/#.-_0123456789", min_size=1, max_size=20)
ranges = st.builds(
    lambda parent, first, more, rest: Range(parent, first, first + more, first + more + rest),
    words,
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)


@given(st.builds(Slice, st.builds(SliceId, ranges, st.just("") | words), st.integers(0, 10**15)))
def test_the_name_of_a_slice_gives_back_the_slice(item: Slice) -> None:
    assert read(item.name, item.bytes, item.files) == item
    assert read_id(item.name) == item.id
    assert blocked(item.id) == (item.name, item.range.parent)


@given(st.builds(Dataset, words, st.integers(0, 10**15), st.integers(0, 10**6)))
def test_the_name_of_a_dataset_gives_back_the_dataset(item: Dataset) -> None:
    assert read(item.name, item.bytes, item.files) == item
    assert blocked(item.id) == (item.name,)


@pytest.mark.parametrize("copied_by", ["", KEY])
def test_the_name_of_a_bundle_gives_back_whose_copies_it_has(copied_by: str) -> None:
    item = Bundle("3 files 0123456789ab", 6, 3, copied_by=copied_by)
    assert read_bundle(item.name, 6, 3) == item


def test_a_bundle_goes_out_once_by_its_files_and_all_else_by_its_name() -> None:
    files = (File("davs://a/1", 1), File("davs://a/2", 2))
    assert (bundled(files).bytes, bundled(files).files) == (3, 2)
    assert units_of(bundled(files)) == ("davs://a/1", "davs://a/2")
    assert units_of(Dataset("cms:/a", 1, 1)) == ("cms:/a",)


def test_names_are_read_only_where_they_come_from_outside() -> None:
    """Whoever has an item asks the item."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name == "model/items.py":
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "model.items" in text or "items.read" in text else ():
            if isinstance(node, ast.ImportFrom) and node.module == "dc_inject.model.items":
                read_here = {one.name for one in node.names if one.name.startswith("read")}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "items":
                read_here = {node.attr} & {"read", "read_id", "read_bundle"}
            else:
                continue
            if read_here:
                found[name] = found.get(name, set()) | read_here
    assert found == PLACES
