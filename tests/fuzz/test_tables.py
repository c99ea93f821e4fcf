"""Whatever is given as lines or as a matrix: back come links that make a menu, or problems with place and hint."""

from __future__ import annotations

from hypothesis import strategies as st

from dc_inject import menu
from dc_inject.apps.menutools import importing
from dc_inject.apps.menutools.importing import Imported, Options
from dc_inject.menu import writing
from dc_inject.model.errors import MenuError, Problem
from tests.fuzz.broken import no_secret

from .cases import fuzz

CELLS = st.sampled_from(
    [
        *(
            "A",
            "B",
            "KIT",
            "T1_DE_KIT_Disk",
            "a b",
            "src",
            "dst",
            "Sum",
            "Total",
            "Gb/s",
            "to [Gb/s]",
            "GB/s",
            "Mbps",
        ),
        *(
            "1",
            "0",
            "7800",
            "12.5",
            "1,5",
            "50,000",
            "50.000",
            "1e3",
            "1e99",
            "-1",
            "-",
            "n.a.",
            "",
            " ",
            "inf",
            "nan",
        ),
        *("10 Gb/s", "5 Gbit/s", "8 MiB/s", "1 GB/h", "#REF!", "#n/a", "# c", '"', '"x"', '""', '"a"b', "9" * 40),
        *(
            "davs://a.b:8443/c",
            "davs://u:hunter2@a.b/c",
            "root://e//f",
            "davs://a.b/c?t=hunter2",
            "\u2028",
            "\x85",
        ),
        *(
            "\N{RIGHT-TO-LEFT OVERRIDE}x",
            "\U0001f600",
            "\x1b[31m",
            "\x00",
            "\N{NO-BREAK SPACE}",
            "1\N{NO-BREAK SPACE}000",
        ),
    ]
)
TABLES = st.builds(
    lambda rows, separator, end: end.join(separator.join(row) for row in rows),
    st.lists(st.lists(CELLS, min_size=1, max_size=5), max_size=7),
    st.sampled_from([",", ";", "\t", ", ", " "]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
)
OPTIONS = st.builds(
    Options,
    unit=st.sampled_from(["", "Gb/s", "MiB/s"]),
    decimal=st.sampled_from(["", ".", ","]),
    form=st.sampled_from(["", "lines", "matrix"]),
    names=st.sampled_from([(), ("A", "B")]),
)
HEADING = writing.Heading("c", "me", "2027-02-08", "2027-02-09", datasets=("a:*",))


def read(data: bytes, options: Options) -> tuple[Imported | None, tuple[Problem, ...]]:
    """Read a table; return what it holds, or what is wrong."""
    try:
        return importing.read(data, "in.csv", options), ()
    except MenuError as error:
        return None, error.problems


@fuzz(150, text=TABLES, options=OPTIONS)
def test_whatever_is_given_as_a_table(text: str, options: Options) -> None:
    """No secret, and nothing that moves the cursor, is told; the menu has the links and the sum of the table."""
    found, problems = read(text.encode(), options)
    for problem in problems:
        assert problem.message
        assert problem.hint
        assert str(problem).isprintable()
        no_secret(problem.message, problem.hint)
    if found is None:
        assert problems
        return
    lines = [writing.link(a, b, [("rate", str(amount))]) for a, b, amount in found.links]
    if not any("://" in line for line in lines):  # Rucio has no URLs
        made = menu.read(writing.menu(HEADING, [], found.total, writing.links("one", lines)), "m.yaml")
        assert [(f.link.ends, f.rate) for f in made.preview.flows] == [((a, b), r.rate) for a, b, r in found.links]


@fuzz(50, data=st.binary(max_size=100))
def test_whatever_bytes_are_given_as_a_table(data: bytes) -> None:
    """Are links, or are refused."""
    found, problems = read(data, Options())
    assert found.links if found else all(problem.hint for problem in problems)
