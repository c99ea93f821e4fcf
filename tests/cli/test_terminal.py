"""What services say never moves the cursor of a terminal, whatever way it takes there."""

from __future__ import annotations

import pytest

from dc_inject.cli.shared import exits, tables

EVIL = "T2_\x1b[2J\x9b1mEvil"


def test_an_error_that_ends_a_command_is_printed_without_escape_sequences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exits._report(f"no RSE {EVIL}\nsecond line", f"try {EVIL}", 4) == 4
    said = capsys.readouterr().err
    assert said.replace("\n", "").isprintable()
    assert "T2_ [2J 1mEvil" in said
    assert said.count("\n") == 3, "lines of a message stay"


def test_csv_has_no_escape_sequences_in_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [tables.Column("rse", "RSE"), tables.Column("bytes", "bytes"), tables.Column("held", "held")]
    tables.emit("csv", columns, [{"rse": EVIL, "bytes": 5, "held": {EVIL: 1}}])
    told = capsys.readouterr().out
    assert told.replace("\n", "").isprintable()
    assert told.splitlines()[1].startswith("T2_?[2J?1mEvil,5,")
