"""Rates, sizes and durations: what a menu may write, what it may not, and what is written back."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dc_inject.model.units import (
    counted,
    exact_rate,
    exact_size,
    format_duration,
    format_rate,
    format_size,
    nearest,
    parse_duration,
    parse_rate,
    parse_size,
    rate_unit,
    rate_units,
    ratio,
    times,
)

PARSERS = (parse_rate, parse_size, parse_duration)


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("10 Gb/s", 1.25e9),
        ("1.25 GB/s", 1.25e9),
        ("512 MiB/s", 512 * 1024**2),
        ("450 GiB/h", 450 * 1024**3 / 3600),
        ("8000 Mbps", 1e9),
        ("1 TBps", 1e12),
        ("8 Kib/s", 1024),
        ("8 kb/s", 1000),
        ("8 Kb/s", 1000),
        ("86.4 TB/day", 1e9),
        ("86.4 TB/d", 1e9),
        ("6 MB/min", 1e5),
        ("1_000 MB/s", 1e9),
        ("1e3 MB/s", 1e9),
        ("  10Gb/s\n", 1.25e9),
        ("0 Gb/s", 0),
        ("3 Gbit/s", 3e9 / 8),
        ("3 GBit/s", 3e9 / 8),
        ("3 Gbits/s", 3e9 / 8),
        ("3 Gbit/sec", 3e9 / 8),
        ("8 kbitps", 1000),
        ("2 GByte/s", 2e9),
        ("2 Gbytes/s", 2e9),
        ("8 Kibit/s", 1024),
        ("2 MiByte/s", 2 * 1024**2),
        ("3.6 GB/hour", 1e6),
    ],
)
def test_a_rate_is_read_to_bytes_per_second(text, bytes_per_second):
    assert parse_rate(text) == pytest.approx(bytes_per_second, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500 TB", 500 * 10**12),
        ("2 PiB", 2 * 1024**5),
        ("1.5 PB", 1_500_000_000_000_000),
        ("5 kB", 5000),
        ("5 KiB", 5120),
        ("1 B", 1),
        ("0.6 B", 1),
        ("1 EB", 10**18),
        ("3 TByte", 3 * 10**12),
        ("2 PiBytes", 2 * 1024**5),
    ],
)
def test_a_size_is_read_to_whole_bytes(text, size):
    assert parse_size(text) == size
    assert isinstance(parse_size(text), int)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90 s", 90),
        ("15 min", 900),
        ("15m", 900),
        ("2 h", 7200),
        ("1 h 30 min", 5400),
        ("1h30min", 5400),
        ("1.5 d", 129600),
        ("1 day", 86400),
        ("1 w", 604800),
        ("0 s", 0),
        ("0.25 s", 0.25),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_rate, "10"),
        (parse_rate, "1_0.5e3"),
        (parse_rate, "-10 Gb/s"),
        (parse_rate, "nan Gb/s"),
        (parse_rate, "inf Gb/s"),
        (parse_rate, "1e30 Gb/s"),
        (parse_rate, "1e99 Gb/s"),
        (parse_rate, "10 Gb"),
        (parse_rate, "10 gb/s"),
        (parse_rate, "10 Gbit"),
        (parse_rate, "10 Gbyt/s"),
        (parse_rate, "10 GBIT/s"),
        (parse_size, "500 Tbit"),
        (parse_rate, "10 GB/S"),
        (parse_rate, "1 kiB/s"),
        (parse_rate, "1 iB/s"),
        (parse_rate, "1__0 GB/s"),
        (parse_rate, "1_ GB/s"),
        (parse_rate, "1,5 GB/s"),
        (parse_rate, "\N{FULLWIDTH DIGIT ONE} GB/s"),
        (parse_rate, ""),
        (parse_size, "500"),
        (parse_size, "500 Tb"),
        (parse_size, "500 TB/s"),
        (parse_size, "-1 B"),
        (parse_duration, "15"),
        (parse_duration, "15 parsecs"),
        (parse_duration, "1 h -5 min"),
        (parse_duration, "1 h 5"),
        (parse_duration, "-1 h"),
        (parse_duration, "1e12 d"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(parse, text, wording):
    with pytest.raises(ValueError) as refused:
        parse(text)
    wording(refused.value)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("Gbps", "Gb/s"),
        ("Gbit/s", "Gb/s"),
        ("GBytes/sec", "GB/s"),
        ("MiB/s", "MiB/s"),
        ("GB/hour", "GB/h"),
        ("Gb", ""),
    ],
)
def test_a_unit_of_rates_has_one_spelling(text, unit):
    assert rate_unit(text) == unit
    assert rate_units(f"to [{text}]") == ((unit,) if unit else ())


OUR_WORDS = re.compile(
    r" is not a (rate|size|duration); a | has no unit; | is negative; | is out of any real range$"
    r"| is too long for a duration$| is no number that a menu needs$"
)
PIECES = st.sampled_from(
    ["1", "0", "_", ".", "e", "+", "-", "9" * 45, " ", "k", "K", "Gi", "i", "b", "B", "/", "s", "h"]
)


@given(st.one_of(st.text(), st.lists(PIECES, max_size=8).map("".join)))
@example("1__0 GB/s")
@example("1 kiB/s")
@example("1 s 1__0 min")
@example("1e" + "9" * 5000 + " s")
def test_any_text_at_all_is_read_or_refused_in_our_words(text):
    for parse in PARSERS:
        try:
            value, said = parse(text), ""
        except ValueError as error:
            value, said = None, str(error)
        if value is None:
            assert OUR_WORDS.search(said), said
            assert len(said) < 250
        else:
            assert type(value)() <= value <= (timedelta.max if parse is parse_duration else 1e24)


@given(st.floats(min_value=1e-3, max_value=1e23))
def test_what_is_written_reads_back_to_its_three_digits(value):
    assert parse_rate(format_rate(value)) == pytest.approx(value, rel=0.0051)
    if value >= 100:
        assert parse_size(format_size(value)) == pytest.approx(value, rel=0.0051)


@given(st.integers(min_value=60, max_value=10**9))
def test_a_written_duration_reads_back_to_its_two_largest_units(seconds):
    back = parse_duration(format_duration(timedelta(seconds=seconds))).total_seconds()
    assert back <= seconds
    assert seconds - back < max(1, seconds / 24)


@given(
    st.integers(min_value=0, max_value=10**5),
    st.sampled_from("kMGTPE"),
    st.sampled_from(["/s", "/min", "/h", "/d"]),
)
def test_a_byte_is_eight_bits_and_binary_is_not_decimal(count, prefix, per):
    assert parse_rate(f"{8 * count} {prefix}b{per}") == parse_rate(f"{count} {prefix}B{per}")
    if count:
        assert parse_rate(f"{count} {prefix.upper()}iB{per}") > parse_rate(f"{count} {prefix}B{per}")


@pytest.mark.parametrize(
    ("value", "rate", "size"),
    [(0, "0 b/s", "0 B"), (1.25e9, "10 Gb/s", "1.25 GB"), (999.6, "8 kb/s", "1 kB"), (-5e9, "-40 Gb/s", "-5 GB")],
)
def test_amounts_are_written_with_three_digits_and_a_decimal_prefix(value, rate, size):
    assert (format_rate(value), format_size(value)) == (rate, size)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (45, "45 s"), (0.25, "0.25 s"), (5400, "1 h 30 min"), (90061, "1 d 1 h"), (-90, "-1 min 30 s")],
)
def test_a_duration_is_written_by_its_two_largest_units(seconds, text):
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("number", "things", "one", "said"),
    [
        (0, "links", "", "0 links"),
        (1, "links", "", "1 link"),
        (2, "links", "", "2 links"),
        (1, "more links", "", "1 more link"),
        (1, "rules and jobs", "", "1 rule or job"),
        (3, "rules and jobs", "", "3 rules and jobs"),
        (1, "copies", "copy", "1 copy"),
        (2, "copies", "copy", "2 copies"),
    ],
)
def test_what_is_counted_is_singular_where_there_is_one(number: int, things: str, one: str, said: str) -> None:
    assert counted(number, things, one) == said


@given(rate=st.floats(1e-3, 1e18, allow_nan=False))
@example(64989807.1592581)  # which no number of digits with a prefix gives back
def test_an_exact_rate_is_read_back_as_it_was(rate):
    assert parse_rate(exact_rate(rate)) == rate


@given(size=st.integers(1, 10**18))
@example(size=2**53 + 1)  # no float
def test_an_exact_size_is_read_back_as_it_was(size):
    assert parse_size(exact_size(size)) == size


@pytest.mark.parametrize(
    ("text", "factor", "expected"),
    [
        ("9 Gb/s", Fraction(1, 2), "4.5 Gb/s"),
        ("450 GiB/h", Fraction(2), "900 GiB/h"),
        ("1 TB", Fraction(1, 3), "0.33333333333333333 TB"),
    ],
)
def test_a_rate_or_size_is_multiplied_in_its_own_unit(text, factor, expected):
    assert times(text, factor) == expected


def test_only_what_begins_with_a_number_is_multiplied(wording):
    with pytest.raises(ValueError) as refused:
        times("Gb/s", Fraction(2))
    wording(refused.value)


def test_units_of_rates_are_compared_exactly(wording):
    assert ratio("GB/s", "Gb/s") == 8
    assert ratio("GiB/h", "B/s") == Fraction(2**30, 3600)
    with pytest.raises(ValueError) as refused:
        ratio("GB", "Gb/s")
    wording(refused.value)


RSES = ("T0_CH_CERN_Disk", "T1_UK_RAL_Disk", "T1_UK_RAL_Tape", "T2_UK_London_IC", "T2_UK_London_Brunel")


@pytest.mark.parametrize(
    ("text", "most", "near"),
    [
        ("ral", 1, ["T1_UK_RAL_Disk"]),
        ("RAL", 3, ["T1_UK_RAL_Disk", "T1_UK_RAL_Tape"]),
        ("ic", 1, ["T2_UK_London_IC"]),
        ("T2_UK_Londn_IC", 1, ["T2_UK_London_IC"]),
        ("xyzzy", 3, []),
    ],
)
def test_a_short_name_is_near_to_those_of_which_it_is_a_part(text: str, most: int, near: list[str]) -> None:
    assert nearest(text, RSES, most) == near
