"""Names that we give are read back as what they were; names of others are not ours, and never an exception."""

from __future__ import annotations

import string
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from dc_inject.model import Bundle, Cycle, File, Link, naming, units
from tests.backends.support import injection

from .broken import no_secret
from .cases import fuzz

WORD = st.from_regex(naming.NAME, fullmatch=True)
MOMENTS = st.integers(0, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
LENGTHS = st.sampled_from([timedelta(minutes=15), timedelta(hours=1), timedelta(seconds=12)])


@fuzz(200, campaign=WORD, scenario=WORD, cycle=MOMENTS)
def test_a_comment_of_ours_is_read_back(campaign: str, scenario: str, cycle: datetime) -> None:
    """Campaign, scenario and cycle come back, and Rucio has room for them."""
    text = naming.comment(campaign, scenario, cycle)
    assert naming.read_comment(text) == (campaign, scenario, cycle)
    assert len(text) <= naming.COMMENT_LIMIT


STAMPS = st.sampled_from(
    ["2027-02-08T10:00:00Z", "2027-13-45T99:00:00Z", "0000-00-00T00:00:00Z", "٢٠٢٧-02-08T10:00:00Z",
     "9999-12-31T23:59:60Z", "2027-02-30T00:00:00Z"]
)  # fmt: skip
NEAR = st.lists(
    st.sampled_from(["dc_inject/1", "dc_inject/2", "a", "b", "", "\x00", " "]) | STAMPS | st.text(max_size=5)
)


@fuzz(250, text=st.none() | st.text() | NEAR.map(" ".join) | STAMPS.map("dc_inject/1 a b {}".format))
def test_whatever_somebody_writes_into_a_comment(text: str | None) -> None:
    """It says whose rule it is, or it is not ours."""
    said = naming.read_comment(text)
    assert said is None or naming.comment(*said) == text


@fuzz(200, campaign=WORD, scenario=WORD, moment=MOMENTS, length=LENGTHS, files=st.integers(1, 20))
def test_copies_are_read_back(
    campaign: str, scenario: str, moment: datetime, length: timedelta, files: int
) -> None:
    """Each copy's URL says whose it is and which, below its own prefix only."""
    link = Link("davs://a/data", "davs://b:1095/dc", "fts")
    members = tuple(File(f"davs://a/data/{n}", 1) for n in range(files))
    made = injection(Bundle("bundle", files, files, members=members), link, campaign=campaign, scenario=scenario,
                     cycle=Cycle.at(moment, length))  # fmt: skip
    copies = naming.copies(made)
    assert len(set(copies)) == files
    for number, url in enumerate(copies):
        assert naming.read_copy(link.destination, url) == (campaign, scenario, made.cycle.start, made.key, number)
        assert naming.read_copy("davs://b:1095/d", url) is None
        other = naming.copies(replace(made, key=made.key[::-1]))[number]
        assert naming.read_copy(link.destination, other) is None


BASE = naming.copies(injection(Bundle("bundle", 1, 1), Link("davs://a/data", "davs://b/dc", "fts")))[0]


@fuzz(
    250,
    changes=st.lists(
        st.tuples(st.integers(0, len(BASE)), st.characters() | st.sampled_from(string.hexdigits)), max_size=4
    ),
    end=st.none() | st.integers(0, len(BASE)),
)
def test_whatever_lies_at_a_destination(changes: list[tuple[int, str]], end: int | None) -> None:
    """A path that was changed is not ours, or says the same campaign, key and number."""
    url = BASE
    for place, character in changes:
        url = url[:place] + character + url[place + 1 :]
    url = url[:end]
    copy = naming.read_copy("davs://b/dc", url)
    assert copy is None or url == BASE or _scenario_only(url)


def _scenario_only(url: str) -> bool:
    """Whether only the scenario or the cycle differ: they are told, and not vouched for by the mark."""
    ours, theirs = BASE.split("/"), url.split("/")
    return [ours[n] for n in (5, 8, 9)] == [theirs[n] for n in (5, 8, 9)]


@fuzz(
    200,
    text=st.text(max_size=30)
    | st.from_regex(r"[0-9]{1,400}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,6})? ?[kMGTPE]?i?[bB](/s|ps|)"),
)
def test_whatever_is_given_as_a_quantity(text: str) -> None:
    """A rate, size or duration, or a ValueError with a sentence."""
    for parse in (units.parse_rate, units.parse_size, units.parse_duration):
        try:
            assert parse(text) is not None
        except ValueError as error:
            no_secret(error)
