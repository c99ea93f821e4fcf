"""Lines and matrices become links: exact sums, and every problem with line, column and hint."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject import menu
from dc_inject.apps.menutools import importing
from dc_inject.apps.menutools.importing import Imported, Options
from dc_inject.apps.menutools.tables import Layout
from dc_inject.menu import writing
from dc_inject.menu.nodes import LARGEST_FILE
from dc_inject.model.errors import MenuError, Problem


def read(text: str | bytes, **options: object) -> Imported:
    data = text.encode() if isinstance(text, str) else text
    return importing.read(data, "in.csv", Options(**options))


def links(found: Imported) -> dict[str, str]:
    return {f"{source}:{destination}": str(amount) for source, destination, amount in found.links}


def problems(text: str | bytes, **options: object) -> list[Problem]:
    with pytest.raises(MenuError) as caught:
        read(text, **options)
    assert all(problem.hint for problem in caught.value.problems)
    return list(caught.value.problems)


# --------------------------------------------------------------------------- lines


@pytest.mark.parametrize(
    "text",
    [
        "A,B,100\nA,C,50.5\n",
        "# of day 1\n\nsrc, dst, Mbps\nA, B, 100   # agreed\n\n  A , C,50.5\n",
        "\ufeffsrc;dst;rate\r\nA;B;100\r\nA;C;50.5\r\n",
        "A\tB\t100\r\nA\tC\t50.5",
        '"source","destination","rate (Mb/s)"\n"A","B","100"\n"A","C","50.5"\n',
        "A,B,0.1 Gb/s\nA,C,50.5\nA,D,0\nA,E,0\n",
    ],
)
def test_lines_of_the_old_tool(text: str) -> None:
    """With or without a head, comments, empty lines, spaces, quotes; a rate of 0 is no link."""
    found = read(text)
    assert found.form == "lines"
    assert links(found) in (
        {"A:B": "100 Mb/s", "A:C": "50.5 Mb/s"},
        {"A:B": "0.1 Gb/s", "A:C": "50.5 Mb/s"},
    )
    assert Fraction(found.total.removesuffix(" Gb/s")) == Fraction("0.1505")


def test_the_head_of_lines_names_the_unit() -> None:
    """Else it is that of the option, else megabits per second, as the old tool had it."""
    assert links(read("from,to,GB/s\nA,B,1\n")) == {"A:B": "1 GB/s"}
    assert links(read("A,B,1\n", unit="MiB/s")) == {"A:B": "1 MiB/s"}
    assert links(read("A,B,1e3\n")) == {"A:B": "1000 Mb/s"}


def test_lines_through_fts_name_url_prefixes() -> None:
    """In the one form that menus have of them."""
    found = read("davs://A.example.org:443/x/, root://b.example.org//y, 8000\n")
    assert links(found) == {"davs://a.example.org/x:root://b.example.org//y": "8000 Mb/s"}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("A,B,-5\n", 1, 5),
        ("A,B,50,000\n", 1, 8),
        ('A,B,"50,000"\n', 1, 6),
        ("A;B;50.000\n", 1, 5),
        ("A;B;1,5\n", 1, 5),
        ("A,B,10 Gbyt/s\n", 1, 5),
        ("A,B,1\nA,C,fast\n", 2, 5),
        ("A,B,1e999\n", 1, 5),
        ("src,dst,rate [Gbit]\nA,B,1\n", 1, 9),
        ("dst,src,Mbps\nA,B,1\n", 1, 1),
        ("A,B,1\nA,C\n", 2, 3),
        ("A,B,1\n\nA,B,2\n", 3, 1),
        ("A,A,1\n", 1, 1),
        ("A,B,1\nA,,1\nA,C,1\nA,D,1\n", 2, 3),
        ("A,B C,1\n", 1, 3),
        ("A,B\u200b,1\n", 1, 3),
        ("A,\u0422B,1\n", 1, 3),
        ('A,"B,1\n', 1, 0),
        ("A B 100\n", 1, 0),
        ("A,B,0\n", 1, 1),
    ],
)  # fmt: skip
def test_what_is_wrong_with_lines(text: str, line: int, column: int, wording) -> None:
    """Is told where it stands, and how to mend it."""
    (problem,) = problems(text)
    assert (problem.file, problem.line, problem.column) == ("in.csv", line, column)
    wording(problem)
    assert str(problem).startswith(f"in.csv:{line}:{column}: " if column else f"in.csv:{line}: ")


def test_the_first_line_is_a_head_only_with_words_of_one() -> None:
    """Else it is a link whose rate is wrong, unless a person names its line."""
    (wrong,) = problems("CERN,KIT,ten\nA,B,1\n")
    assert (wrong.line, wrong.column) == (1, 10)
    text = "days 1, 2 and 3\norigin,goal,speed [Gb/s],by\nA,B,1,Ada\n"
    layout = Layout(header_row=2, ignore_columns=("BY",))
    assert links(read(text, layout=layout)) == {"A:B": "1 Gb/s"}
    (comment,) = problems(text, layout=Layout(header_row=2))
    assert (comment.line, comment.column, "--ignore-column by" in comment.hint) == (2, 26, True)
    (four,) = problems("A,B,1,Ada\n")
    assert "--ignore-column 4" in four.hint
    assert links(read("A,B,1,Ada\n", layout=Layout(ignore_columns=("4",)))) == {"A:B": "1 Mb/s"}


def test_an_unknown_site_is_told_with_the_nearest_known_one() -> None:
    """Where the names that may be ends are known."""
    (problem,) = problems("KIT,FNLA,1\n", names=("KIT", "FNAL"))
    assert problem.column == 5
    assert "FNAL?" in problem.hint
    assert links(read("KIT,FNAL,1\n", names=("KIT", "FNAL")))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"# only\n# comments\n\n",
        b"GIF89a\x00\x00",
        "A,B,1\n".encode("utf-16"),
        "Orléans,B,1\n".encode("latin-1"),
        b"A,B,1\n" * (LARGEST_FILE // 6 + 1),
        b"A,B,\x1b[2J\n",
        b"A" + b",B" * 1_000_000,
        (b"A" + b"," * 16_000 + b"\n") * 13,
    ],
    ids=range(9),
)
def test_what_is_no_table(data: bytes, wording) -> None:
    """A spreadsheet's own file, an empty one, a huge one: one problem."""
    (problem,) = problems(data)
    wording(problem)


def test_no_password_of_a_url_is_told() -> None:
    """Wherever it stands, and however often."""
    for form in ("lines", "matrix"):
        text = "Gb/s,B,davs://u:hunter2@a.b/c,davs://u:hunter2@a.b/c\n" + "davs://u:hunter2@a.b/c,B,1\n" * 3
        assert "hunter2" not in "".join(str(problem) for problem in problems(text, form=form))


def test_cells_that_only_look_like_some(wording) -> None:
    """A line of separators of lines, say, is no line."""
    (problem,) = problems("\u2028,\u2028\n")
    wording(problem.message)


def test_many_problems_are_told_in_part() -> None:
    """Twenty, and how many more there are."""
    found = problems("A,B,1\n" + "A,B,x\n" * 50)
    assert len(found) == 21
    assert "and 30 more" in found[-1].message


# --------------------------------------------------------------------------- matrices

MATRIX = """\
src\\dst [Gb/s],KIT,FNAL,PIC
CERN,12.5,40,-
KIT,,n.a.,0
FNAL,2.5,,1e1
"""
MEANT = {
    "CERN:KIT": "12.5 Gb/s", "CERN:FNAL": "40 Gb/s", "FNAL:KIT": "2.5 Gb/s", "FNAL:PIC": "10 Gb/s",
}  # fmt: skip


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_matrix(separator: str) -> None:
    """Rows are sources, columns destinations; nothing, 0, - and n.a. are no link."""
    found = read(MATRIX.replace(",", separator))
    assert found.form == "matrix"
    assert links(found) == MEANT
    assert found.total == "65 Gb/s"


def test_decimal_commas() -> None:
    """As spreadsheets of many countries write them."""
    text = MATRIX.replace(",", ";").replace(".5", ",5")
    assert links(read(text, decimal=",")) == MEANT
    assert {problem.message.split()[0] for problem in problems(text)} == {"'12,5'", "'2,5'"}


def test_the_unit_of_a_matrix_is_in_the_corner_or_in_the_option(wording) -> None:
    """Never a guess; two that differ are refused."""
    bare = MATRIX.replace(" [Gb/s]", "")
    assert links(read(bare, unit="Gb/s")) == MEANT
    (missing,) = problems(bare)
    assert (missing.line, missing.column, "no unit" in missing.message) == (1, 1, True)
    (two,) = problems(MATRIX, unit="GB/s")
    assert "Gb/s, the option GB/s" in two.message
    (odd,) = problems(MATRIX.replace("Gb/s", "Gbyt/s"))
    wording(odd.message)


@pytest.mark.parametrize("name", ["Sum", "TOTAL", "", "\N{GREEK CAPITAL LETTER SIGMA} out", "total [Gb/s]"])
def test_sums_are_recognised_compared_and_left_out(name: str, wording) -> None:
    """As the last row and the last column; what a spreadsheet rounds may differ by 1 %."""
    head, *rows = MATRIX.splitlines()
    text = "\n".join(
        [f"{head},{name}", *(f"{row},{s}" for row, s in zip(rows, ("52.5", "0", "12.5"), strict=True))]
    )
    found = read(f"{text}\n{name},15,40,10,65\n")
    assert links(found) == MEANT
    assert len(found.remarks) == 2
    (wrong,) = problems(f"{text}\n{name},15,41,10,65\n")
    assert (wrong.line, wrong.column) == (5, len(name) + 5)
    wording(wrong.message)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("Gb/s,A,B\nA,,1\nB,-1,\n", 3, 3),
        ("Gb/s,A,B,A\nC,,1,2\n", 1, 10),
        ("Gb/s,A,B\nC,1,\nC,,1\n", 3, 1),
        ("Gb/s,A,B\nA,1,1\n", 2, 3),
        ("Gb/s,A,B\nC,1,1,000\n", 2, 7),
        ("Gb/s,A,Sum,B\nC,1,1,2\n", 1, 12),
        ("Gb/s,A,B\nSum,1,2\nC,1,2\n", 3, 1),
        ("Day 1\nGb/s,A,B\nC,1,1\n", 1, 1),
        ("Gb/s,A,by\nC,1,Ada\n", 1, 8),
        ("Gb/s,A,in\nC,1,2\n", 2, 5),
        ("Gb/s,A,B\nC,1,#N/A\n", 2, 5),
        ("to\\from [Gb/s],A,B\nC,1,1\n", 1, 1),
    ],
)
def test_what_is_wrong_with_a_matrix(text: str, line: int, column: int, wording) -> None:
    """Is told at its cell."""
    (problem,) = problems(text)
    assert (problem.line, problem.column) == (line, column)
    wording(problem)


def test_a_last_column_without_a_name_holds_sums(wording) -> None:
    """And these are none."""
    wording(problems("Gb/s,A,\nC,1,\nD,1,2\n"))


# --------------------------------------------------------------------------- properties

NAMES = st.lists(
    st.from_regex(r"T[0-3]_[A-Z]{2}_[A-Za-z]{2,8}", fullmatch=True), min_size=2, max_size=6, unique=True
)
NUMBERS = st.decimals(min_value="0.001", max_value="100000", places=3).map(lambda d: f"{d.normalize():f}")


@st.composite
def rates(draw: st.DrawFn) -> dict[tuple[str, str], str]:
    """Some pairs of names with numbers."""
    names = draw(NAMES)
    pairs = [(a, b) for a in names for b in names if a != b]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    return {pair: draw(NUMBERS) for pair in chosen}


def as_lines(wanted: dict[tuple[str, str], str], separator: str) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=separator).writerows([(*ends, number) for ends, number in wanted.items()])
    return out.getvalue()


def as_matrix(wanted: dict[tuple[str, str], str], separator: str) -> str:
    sources, destinations = ({ends[i]: 0 for ends in wanted} for i in (0, 1))
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator)
    writer.writerow(["Mb/s", *destinations])
    writer.writerows([source, *(wanted.get((source, d), "") for d in destinations)] for source in sources)
    return out.getvalue()


@given(rates(), st.sampled_from(",\t"), st.sampled_from([as_lines, as_matrix]))
def test_what_was_written_is_read(wanted: dict[tuple[str, str], str], separator: str, write: object) -> None:
    """Import undoes writing; the menu that is made of it is right, and has the exact sum and links."""
    assert callable(write)
    found = read(write(wanted, separator))
    assert {(a, b): str(amount) for a, b, amount in found.links} == {
        ends: f"{number} Mb/s" for ends, number in wanted.items()
    }
    exact = sum(Fraction(number) for number in wanted.values())
    assert Fraction(found.total.removesuffix(" Gb/s")) * 1000 == exact
    heading = writing.Heading("c", "me", "2027-02-08 10:00", "2027-02-09 10:00", datasets=("a:*",))
    lines = [writing.link(a, b, [("rate", str(amount))]) for a, b, amount in found.links]
    made = menu.read(writing.menu(heading, ["made"], found.total, writing.links("one", lines)), "m.yaml")
    assert {flow.link.ends: flow.rate for flow in made.preview.flows} == {
        (a, b): amount.rate for a, b, amount in found.links
    }


@settings(max_examples=60)
@given(rates(), st.sampled_from(",\t"), st.sampled_from([as_lines, as_matrix]), st.data())
def test_every_cell_counts_or_is_reported(
    wanted: dict[tuple[str, str], str], separator: str, write: Callable[..., str], data: st.DataObject
) -> None:
    """Write something else into any cell: the links or remarks differ, or it is a problem."""
    table = list(csv.reader(io.StringIO(write(wanted, separator)), delimiter=separator))
    before = read(write(wanted, separator))
    row = data.draw(st.integers(0, len(table) - 1))
    column = data.draw(st.integers(0, len(table[row])))
    value = data.draw(st.sampled_from(["77.125", "IN2P3", "ten", "#N/A", "Sum", "x y"]))
    table[row][column : column + 1] = [value]
    out = io.StringIO()
    csv.writer(out, delimiter=separator).writerows(table)
    with contextlib.suppress(MenuError):
        assert read(out.getvalue()) != before


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_make_it_fall_over(data: bytes) -> None:
    """What is no table is a MenuError, whatever it is."""
    with contextlib.suppress(MenuError):
        assert importing.read(data, "in.csv", Options()).links


@given(st.text(max_size=30))
def test_a_scalar_is_read_as_it_was_written(text: str) -> None:
    """Whatever a description or a contact holds that a menu may hold."""
    printable = "".join(char for char in text if char.isprintable())
    found: list[str] = []
    read = menu.read(
        writing.menu(
            writing.Heading("c", "me", "2027-02-08", "2027-02-09", description=f"x{printable}", datasets=("a:*",)),
            [],
            "1 Gb/s",
            ["  one: {from: A, to: B, rate: 1 Gb/s}"],
        ),
        "m.yaml",
    )
    found.append(read.document.description)
    assert found == [f"x{printable}".strip()]


def test_units_may_be_written_out() -> None:
    """In a cell and in a head; they are written in one spelling."""
    lines = importing.read(b"A,B,10 Gbit/s\nA,C,1 GByte/s\n", "f.csv", importing.Options())
    assert [str(amount) for _, _, amount in lines.links] == ["10 Gb/s", "1 GB/s"]
    matrix = importing.read(MATRIX.replace("Gb/s", "Gbit/s").encode(), "f.csv", importing.Options())
    assert {amount.unit for _, _, amount in matrix.links} == {"Gb/s"}
