"""The gate of deletion: only what is ours by its names gets an address there, and there is no way round it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rucio.client import Client

import dc_inject
from dc_inject.model import Bundle, Dataset, Injection, Link, Slice, deletion, naming
from dc_inject.model.deletion import (
    CopiedFile,
    CopyFolder,
    Job,
    NotOurs,
    ObservedRule,
    RegisteredFile,
    Rule,
    SampleDataset,
    SampleFile,
    SampleFolder,
    SliceDataset,
)
from dc_inject.model.items import Range, SliceId, Slicing
from dc_inject.model.samples import FileSet
from tests.backends.support import CYCLE, injection

PREFIX = "davs://b:8443/dc"
JOB = injection(Bundle("bundle", 3, 3), Link("davs://a/data", PREFIX, "fts"))
FILE = naming.copies(JOB)[1]
OWN = FILE.removeprefix(PREFIX)
FOLDER = naming.folder(JOB)
SET = FileSet("one", 7, 1000)
IN_RUCIO = FileSet("one", 7, 1000, 3, "pre.")
LINK = Link("A_DISK", "B_DISK")
MADE = injection(Dataset("cms:/data/1", 10, 2), LINK)
SEEN = ObservedRule("r1", "dcops", "cms:/data/1", "B_DISK", MADE.key)
RULE = Rule("r1", "dcops", MADE, SEEN)
PART = Slice(SliceId(Range("cms:/data/BIG", 1, 3, 9)), 10)
CUT = naming.build_slice(PART, Slicing("user.dcops"), "test", "s", CYCLE.start, LINK)
SLICE = injection(CUT, LINK)


def test_what_is_ours_has_an_address() -> None:
    assert [deletion.address(one) for one in deletion.copies(JOB)] == naming.copies(JOB)
    assert deletion.address(deletion.folder(JOB)) == FOLDER
    assert deletion.address(CopyFolder(PREFIX, f"{PREFIX}/dc_inject/test", "test")) == f"{PREFIX}/dc_inject/test"
    own = f"{PREFIX}/dc_inject-data/one"
    assert deletion.address(SampleFile(PREFIX, SET, 7)) == f"{own}/7x1000/000007.dat"
    assert deletion.address(SampleFolder(PREFIX, SET)) == f"{own}/7x1000"
    assert deletion.address(SampleFolder(PREFIX, SET, whole_name=True)) == own
    url = f"{PREFIX}/user/ab/{IN_RUCIO.file(3)}"
    assert deletion.address(RegisteredFile(PREFIX, url, IN_RUCIO, 3)) == url
    job = naming.job_id("dteam", JOB.key)
    assert deletion.address(Job(job, "dteam", JOB.key)) == job
    assert deletion.address(RULE) == "r1"
    assert deletion.address(replace(RULE, observed=replace(SEEN, key=None))) == "r1"
    assert deletion.address(SliceDataset(SLICE)) == SLICE.item.name.partition(" ")[0]
    assert deletion.address(SampleDataset("user.x", IN_RUCIO.dataset_of(1), IN_RUCIO)).endswith("by3.000001")


NEVER: list[Any] = [
    FILE,  # a URL is no proof
    None,
    JOB,
    SEEN,
    CopiedFile(PREFIX, FILE, "other"),
    CopiedFile(PREFIX, FILE, "test", naming.key("test", "s", CYCLE.start, LINK, "x")),
    CopiedFile("davs://b:8443/d", FILE, "test"),
    CopiedFile(f"{PREFIX}/dc_inject", FILE, "test"),
    CopiedFile(PREFIX, FILE.replace("davs", "https"), "test"),
    CopiedFile(PREFIX, FILE.replace("b:8443", "b:8443/"), "test"),
    CopiedFile(PREFIX, FILE.replace("b:8443", "B:8443"), "test"),
    CopiedFile(PREFIX, FILE.replace("/dc_inject/", "/%64c_inject/"), "test"),
    CopiedFile(PREFIX, f"{PREFIX}/x/..{OWN}", "test"),
    CopiedFile(PREFIX, f"{PREFIX}/%2e%2e{OWN}", "test"),
    CopiedFile(PREFIX, f"{FILE}?x=1", "test"),
    CopiedFile(PREFIX, f"{FILE}#x", "test"),
    CopiedFile(PREFIX, f"{FILE}/", "test"),
    CopiedFile(PREFIX, f"{FILE}\n", "test"),
    CopiedFile("", OWN, "test"),
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject", "test"),  # all campaigns share it
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject", ""),
    CopyFolder(PREFIX, PREFIX, "test"),
    CopyFolder(PREFIX, "davs://b:8443", "test"),
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject/other", "test"),
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject/test2/s", "test"),
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject/test/s/mine", "test"),
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject/test/..", "test"),
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject/..", ".."),
    CopyFolder(PREFIX, f"{PREFIX}/dc_inject/a/b", "a/b"),
    CopyFolder(PREFIX, FILE, "test"),
    SampleFile(PREFIX, SET, 0),
    SampleFile(PREFIX, SET, 8),
    SampleFile(PREFIX, replace(SET, before="/atlas/"), 1),
    SampleFile("davs://b/..", SET, 1),
    SampleFolder("davs://me:x@b", SET),
    SampleFolder(PREFIX, replace(SET, before="x")),
    RegisteredFile(PREFIX, f"{PREFIX}/user/ab/{IN_RUCIO.file(2)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}/user/ab/x{IN_RUCIO.file(3)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}/user/ab/{IN_RUCIO.file(3)}/x", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}/user//ab/{IN_RUCIO.file(3)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}/user/./ab/{IN_RUCIO.file(3)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}/user/%61b/{IN_RUCIO.file(3)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}/user/%2e%2e/{IN_RUCIO.file(3)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}2/ab/{IN_RUCIO.file(3)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"davs://c/dc/{IN_RUCIO.file(3)}", IN_RUCIO, 3),
    RegisteredFile(PREFIX, f"{PREFIX}/{IN_RUCIO.file(8)}", IN_RUCIO, 8),
    RegisteredFile(PREFIX, f"{PREFIX}/{SET.file(1)}", SET, 1),  # of which nothing is in Rucio
    replace(RULE, id=""),
    replace(RULE, id="r2"),
    replace(RULE, account=""),
    replace(RULE, observed=replace(SEEN, account="production")),
    replace(RULE, observed=replace(SEEN, did="cms:/data/2")),
    replace(RULE, observed=replace(SEEN, rse="C_DISK")),
    replace(RULE, observed=replace(SEEN, key="")),
    replace(RULE, observed=replace(SEEN, key=JOB.key)),
    replace(RULE, injection=replace(MADE, campaign="other")),
    replace(RULE, injection=replace(MADE, key=JOB.key)),
    Job("94560f60-9c9f-11e5-8994-feffffffffff", "dteam", JOB.key),
    Job(naming.job_id("atlas", JOB.key), "dteam", JOB.key),
    Job(naming.job_id("dteam", MADE.key), "dteam", JOB.key),
    Job(naming.job_id("", JOB.key), "", JOB.key),
    Job(naming.job_id("dteam", ""), "dteam", ""),
    SliceDataset(MADE),
    SliceDataset(replace(SLICE, campaign="other")),
    SliceDataset(replace(SLICE, item=replace(CUT, id=CUT.id._replace(did="cms:theirs")))),
    SliceDataset(replace(SLICE, item=replace(CUT, id=CUT.id._replace(range=CUT.range._replace(last=4))))),
    SampleDataset("user.x", "theirs", IN_RUCIO),
    SampleDataset("user.x", IN_RUCIO.dataset_of(1).replace("000001", "000009"), IN_RUCIO),
    SampleDataset("", IN_RUCIO.dataset_of(1), IN_RUCIO),
    SampleDataset("user.x", IN_RUCIO.dataset_of(1), replace(IN_RUCIO, files=8)),
]


@pytest.mark.parametrize("thing", NEVER, ids=range(len(NEVER)))
def test_what_is_not_ours_has_none(thing: Any) -> None:
    with pytest.raises(NotOurs) as caught:
        deletion.address(thing)
    assert "not deleted" in caught.value.message
    assert "hunter2" not in str(caught.value)


PIECES = st.sampled_from(
    ["/", "//", "..", ".", "%2e", "%2E%2e", "%2F", "%252F", "%00", "%", "?", "#", ";", "\\", "dc_inject", "test",
     "0000", "0001", "é", "É", " ", "\n", "\x00", "@", ":", "A", "a", "0", "f", "-"]
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, len(FILE)), st.integers(0, 3), PIECES | st.characters()), min_size=1, max_size=5
)


def edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for place, taken, put in edits:
        text = text[:place] + put + text[place + taken :]
    return text


@given(edits=EDITS)
@example(edits=[(88, 0, "0")])  # another way to write the number
def test_no_other_name_passes_for_a_copy(edits: list[tuple[int, int, str]]) -> None:
    """What passes lies below the prefix in our folder, and has campaign, key and number that its mark proves."""
    url = edited(FILE, edits)
    try:
        assert deletion.address(CopiedFile(PREFIX, url, "test")) == url
    except NotOurs:
        return
    theirs = url.removeprefix(f"{PREFIX}/").split("/")
    assert len(theirs) == 6
    assert theirs[:2] == ["dc_inject", "test"]
    number = int(theirs[5].partition("-")[0])
    assert theirs[5] == f"{number:04}-{naming._mark('test', theirs[4], number)}"


@given(edits=EDITS, campaign=st.sampled_from(["test", "", "..", "a/b", "x"]) | st.text(max_size=5))
def test_no_other_folder_passes_for_one_of_ours(edits: list[tuple[int, int, str]], campaign: str) -> None:
    """What passes is the campaign's own folder or one below it, by the form of its name; never the one above."""
    url = edited(FOLDER, edits)
    for one in (url, f"{PREFIX}/dc_inject/{campaign}"):
        try:
            assert deletion.address(CopyFolder(PREFIX, one, campaign)) == one
        except NotOurs:
            continue
        assert f"{one}/".startswith(f"{PREFIX}/dc_inject/{campaign}/")
        assert naming.NAME.fullmatch(campaign)
        assert ".." not in one.split("/")


@given(edits=EDITS)
def test_no_other_place_passes_for_a_file_that_rucio_has(edits: list[tuple[int, int, str]]) -> None:
    right = f"{PREFIX}/user/ab/cd/{IN_RUCIO.file(3)}"
    url = edited(right, edits)
    try:
        assert deletion.address(RegisteredFile(PREFIX, url, IN_RUCIO, 3)) == url
    except NotOurs:
        return
    assert url.startswith(f"{PREFIX}/")
    assert url.endswith(f"/{IN_RUCIO.file(3)}")


@given(
    prefix=st.sampled_from(["davs://b", "davs://b/x", "root://b//x", "http://127.0.0.1:1/x", "davs://b/a%20b"]),
    campaign=st.from_regex(naming.NAME, fullmatch=True),
    files=st.integers(1, 5),
    hours=st.integers(0, 10**6),
)
def test_all_that_we_make_can_be_deleted(prefix: str, campaign: str, files: int, hours: int) -> None:
    """A gate that refuses our own copies would leave them for good."""
    start = CYCLE.start + timedelta(hours=hours % 50_000)
    made: Injection = injection(
        Bundle("bundle", files, files),
        Link("davs://a/data", prefix, "fts"),
        campaign=campaign,
        cycle=replace(CYCLE, start=start),
    )
    assert [deletion.address(one) for one in deletion.copies(made)] == naming.copies(made)
    assert deletion.address(deletion.folder(made)) == naming.folder(made)


# --------------------------------------------------------------------------- there is no other way

PACKAGE = Path(dc_inject.__file__).parent
TAKES_AWAY = ("delete", "erase", "remove", "detach", "move", "purge", "expire", "obsolete", "quarantine")
DANGEROUS = {name for name in dir(Client) if name.startswith(TAKES_AWAY)} | {
    "update_replication_rule", "set_metadata", "set_metadata_bulk", "set_dids_metadata_bulk", "set_tombstone",
    "DELETE", "MOVE", "rm", "rmdir", "mv", "truncate",
}  # fmt: skip
SENDERS = {
    ("storage/webdav.py", "_delete"),
    ("storage/xrootd.py", "delete"),
    ("storage/xrootd.py", "delete_folder_if_empty"),
    ("backends/rucio/deletion.py", "end_rule"),
    ("backends/rucio/deletion.py", "let_go"),
}
NO_SENDERS = {
    (
        "backends/rucio/connection.py",
        "_may_end",
    ),  # tries to end a rule that cannot exist, to learn of a right
    ("storage/http_transport.py", "of_status"),  # judges an answer
    ("storage/types.py", ""),  # names of verbs that a storage may allow
    ("apps/preview/online.py", "_check_destination"),  # asks whether it is allowed
    ("apps/report/live_view.py", "lines"),  # cuts a line of text, as does the next one
    ("apps/report/live_view.py", "_lines"),
}


def uses(file: Path) -> Iterator[tuple[str, ast.AST]]:
    """Give each word that takes something away at a service, with the function that it stands in."""

    def walk(node: ast.AST, inside: str, function: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from walk(child, child.name, child)
                continue
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value in DANGEROUS:
                yield inside, function
            called = isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute)
            if called and child.func.attr in DANGEROUS:  # type: ignore[attr-defined]
                yield inside, function
            yield from walk(child, inside, function)

    tree = ast.parse(file.read_text())
    yield from walk(tree, "", tree)


def test_every_deletion_goes_through_the_gate() -> None:
    """Whoever asks a service to delete takes the address from `deletion.address`, in the same function."""
    found, words = {}, re.compile(rf"\b(?:{'|'.join(DANGEROUS)})\b")
    for file in PACKAGE.rglob("*.py"):
        where = str(file.relative_to(PACKAGE))
        if not where.startswith("sandbox/") and words.search(file.read_text()):
            found |= {(where, name): function for name, function in uses(file)}
    assert set(found) == SENDERS | NO_SENDERS
    for sender in SENDERS:
        calls = [ast.unparse(node.func) for node in ast.walk(found[sender]) if isinstance(node, ast.Call)]
        assert "deletion.address" in calls, sender


def test_every_cancel_of_a_job_goes_through_the_gate() -> None:
    """FTS's client is told to cancel at one place, which takes the ids from `deletion.address`."""
    senders = {}
    for file in (PACKAGE / "backends").rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
                firsts = [node.args[0] for node in calls if node.args]
                if any(isinstance(first, ast.Constant) and first.value == "cancel" for first in firsts):
                    senders[file.name, function.name] = {ast.unparse(node.func) for node in calls}
    assert set(senders) == {("jobs.py", "_cancel")}
    assert "deletion.address" in senders["jobs.py", "_cancel"]


def test_a_verb_is_always_written_out() -> None:
    """Else one could be put together that the test above does not see."""
    for file in (PACKAGE / "storage").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._http.ask":
                assert isinstance(node.args[0], ast.Constant)
