"""What stands beside a report: another campaign, readings of a site's WAN, and repeats of a step."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.apps.report import overlay as wan
from dc_inject.apps.report import sections, text
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.series import Period, Window
from dc_inject.model import Cycle
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.services import SIMULATED
from dc_inject.summary import repeats
from tests.cli.ledgers import CYCLE, FNAL, GB, ME, START, run
from tests.engine import world as simulated
from tests.engine.world import flow, items, world

Told = dict[str, Any]
PERIOD = Period(START, START + timedelta(days=1))


def simulate(folder: Path, rate: float, pool: int, *, more: str = "") -> Path:
    """The ledger of a campaign of four cycles, with a second scenario if one is named."""
    flows = [flow("A", "B", rate, scenario="export"), *([flow("C", "B", 4, scenario=more)] if more else [])]
    made = world(folder, simulated.campaign(flows), {"A": items("A", pool), "C": items("C", 300)})
    made.run(4)
    made.ledger.close()
    return folder / "test.sqlite"


def told(path: Path, *more: str | Path) -> Told:
    done = run("report", path, "--format", "json", *more)
    assert done.exit_code == 0, done.exception
    found: Told = json.loads(done.stdout)
    return found


# --------------------------------------------------------------------------- another campaign


def test_two_campaigns_stand_side_by_side(tmp_path: Path) -> None:
    """Each with its own figures, and the difference of their ratios; what only one of them has is there, too."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = simulate(tmp_path / "one", 8, 300), simulate(tmp_path / "two", 8, 2, more="mesh")
    made, other = told(one, "--compare", two), told(two)
    compared = made["compared"]
    assert compared["campaign"] == other["campaign"]
    assert compared["counted"]["other"]["moved"] == other["counted"]["moved"]
    assert compared["counted"]["difference"] == made["counted"]["ratio"] - other["counted"]["ratio"]
    assert [(pair["name"], pair["this"] is None) for pair in compared["scenarios"]] == [
        ("export", False),
        ("mesh", True),
    ]
    assert [pair["name"] for pair in compared["sources"]] == ["A", "C"]
    shown = run("report", one, "--compare", two).stdout
    assert "## Compared with test" in shown
    assert "| mesh | - | - | - |" in shown
    assert told(one)["compared"] is None
    made["compared"]["counted"]["difference"] = -0.0001
    made["compared"]["campaign"] = "<b>two"
    shown = text.markdown(made)
    assert "-0.0 |" not in shown
    assert "<b>" not in shown


def test_what_did_not_move_is_compared_where_only_the_other_campaign_lost_anything(tmp_path: Path) -> None:
    one = simulate(tmp_path, 8, 300)
    made = told(one, "--compare", one)
    assert not any("not moved" in section.table.heads for section in _compared(made))
    made["compared"]["counted"]["other"]["not_moved"] = 3 * GB
    (section,) = (section for section in _compared(made) if "other: not moved" in section.table.heads)
    at = section.table.heads.index("other: not moved")
    assert section.table.rows[0][at].value == 3 * GB


def _compared(report: Told) -> list[Any]:
    return [section for section in sections.sections(report) if section.name.startswith("compared")]


def test_another_campaign_that_is_a_simulation_is_told_as_one(tmp_path: Path) -> None:
    one = simulate(tmp_path, 8, 300)
    assert told(one, "--compare", one)["compared"]["simulated_in"] is None
    grid = tmp_path / "trial.sqlite"
    with Ledger.open(grid, synchronous="OFF") as ledger:
        identity = replace(ME, address=SIMULATED + "one-link")
        ledger.bind("dc27", CYCLE.length, [identity], START)
        ledger.open_cycle(CYCLE, {FNAL: (GB, None)}, START)
        ledger.close_cycle(CYCLE, CYCLE.end)
    assert told(one, "--compare", grid)["compared"]["simulated_in"] == "one-link"
    shown = run("report", one, "--compare", grid).stdout
    assert "## Compared with a simulation of dc27" in shown
    assert "was simulated in the grid one-link: no real transfer is in it. It stands to the right." in shown


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    """A campaign that is not there, one without a cycle, and CSV."""
    one = simulate(tmp_path, 8, 300)
    Ledger.open(tmp_path / "new.sqlite").close()
    assert isinstance(run("report", one, "--compare", tmp_path / "none.sqlite").exception, LedgerError)
    assert isinstance(run("report", one, "--compare", tmp_path / "new.sqlite").exception, UsageError)
    assert isinstance(run("report", one, "--compare", one, "--format", "csv").exception, UsageError)


# --------------------------------------------------------------------------- readings of a WAN


STEPS: Told = {
    "step_seconds": 3600,
    "steps": [
        {"start": f"2027-02-08T{hour}:00:00Z", "end": f"2027-02-08T{hour + 1}:00:00Z"} for hour in (10, 11, 12)
    ],
}
AT = "2027-02-08T10:{:02}:00Z"


def document(minute: int, into: object = 1e9, out: object = 2e9) -> Told:
    return {"Description": "KIT", "UpdatedLast": AT.format(minute), "InBytesPerSec": into, "OutBytesPerSec": out}


def test_readings_are_those_of_sites_or_a_csv() -> None:
    """A list of documents, one a line, only one, or columns; a step has their mean."""
    both = [document(1), document(2, 3e9, 4e9)]
    lines = "\n".join(json.dumps(one) for one in both)
    table = f"time,in,out\n{AT.format(1)},1e9,2e9\n2027-02-08T11:02:00+01:00,3000000000,4e9\n"
    for content in (json.dumps(both), lines, table):
        found = wan.overlay(content.encode(), "kit", STEPS)
        assert (found["in"], found["out"]) == ([2e9, None, None], [3e9, None, None])
        assert (found["readings"], found["dropped"]) == (2, {})
    assert wan.overlay(json.dumps(document(1)).encode(), "kit", STEPS)["in"] == [1e9, None, None]


@pytest.mark.parametrize("indent", ["\t", 4, None])
@pytest.mark.parametrize("between", ["\n", ""])
@pytest.mark.parametrize("offset", [".430697+00:00", ".430697", "Z"])
def test_documents_are_read_as_the_three_exporters_write_them(
    indent: str | int | None, between: str, offset: str
) -> None:
    """Collected one after another: indented by tabs or spaces, or on one line without an end."""
    written = [
        json.dumps(
            {
                "Description": "Network statistics for a site",
                "UpdatedLast": f"2027-02-08T10:{minute:02}:45{offset}",
                "InBytesPerSec": 1358020.25 * minute,
                "OutBytesPerSec": 2e9,
                "UpdateInterval": "60 seconds",
                "MonitoredInterfaces": ["rtr-1.local_Ethernet1/51", "rtr-2.local_Ethernet1/52"],
            },
            indent=indent,
        )
        for minute in (1, 2, 3)
    ]
    found = wan.overlay(between.join(written).encode(), "site", STEPS)
    assert (found["readings"], found["in"][0]) == (3, 1358020.25 * 2)


def test_what_is_no_reading_is_dropped_and_counted() -> None:
    """No rate, the same time again, and another time than the report's."""
    wrong = [document(3, into=value) for value in (-1, "x", None, True, 1e15, "nan", [1])]
    many = [document(1), document(1, 2e9), *wrong, {"UpdatedLast": "late"}, 7]
    outside = {**document(1), "UpdatedLast": "2027-02-09T10:00:00Z"}
    found = wan.overlay(json.dumps([*many, outside]).encode(), "kit", STEPS)
    assert found["in"] == [2e9, None, None], "the last one of a time counts"
    assert (found["readings"], found["dropped"]) == (1, {"repeated": 1, "no rate": 9, "outside": 1})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has no reading"),
        (b"\xff", "is not UTF-8"),
        (b'{"a": 1}\n{', "kit:2: this is no JSON"),
        (b"[" * 100_000, "kit:1: this is no JSON"),
        (b"time,in\n1,2\n", "has no reading"),
        (b"x" * (wan.LARGEST + 1), "more than 64 MB"),
    ],
)
def test_a_file_without_readings_is_refused(content: bytes, says: str) -> None:
    """With what it should have."""
    with pytest.raises(UsageError) as caught:
        wan.overlay(content, "kit", STEPS)
    assert says in caught.value.message
    assert caught.value.hint


def test_readings_stand_in_the_report(tmp_path: Path) -> None:
    """As a table, and as a picture where pictures are drawn."""
    path = simulate(tmp_path, 8, 300)
    (tmp_path / "kit.json").write_text(json.dumps([document(1), document(20)]))
    made = told(path, "--overlay", tmp_path / "kit.json")
    assert made["overlay"]["in"] == [1e9, 1e9, None, None]
    shown = run("report", path, "--overlay", tmp_path / "kit.json").stdout
    assert "2 readings of kit.json." in shown
    assert "| 2027-02-08 10:15 | 8 Gb/s | 16 Gb/s |" in shown
    pytest.importorskip("vl_convert")
    page = run("report", path, "--overlay", tmp_path / "kit.json", "--format", "html").stdout
    assert "WAN out</text>" in page
    drawn = page.partition('id="wan"')[2].partition("</svg>")[0]
    assert len(re.findall(r"<line [^>]*stroke=\"(?:currentColor|#D55E00)\" stroke-width=\"2\"", drawn)) == 4


# --------------------------------------------------------------------------- repeats


class Levels:
    """A ledger of one scenario: what it was due and what moved in cycles that follow each other; None is a gap."""

    def __init__(self, levels: list[tuple[int, int] | None]) -> None:
        self._levels = levels

    def by_scenario(self, chosen: object) -> Iterator[tuple[Cycle, str, int, int]]:
        for number, level in enumerate(self._levels):
            if level is not None:
                yield Cycle(START + number * CYCLE.length, CYCLE.length), "export", *level


def test_a_step_that_was_repeated_has_a_mean_and_an_interval() -> None:
    """Stretches at one rate, between which there was another one; the first cycle of a long one does not count."""
    high, low = [(900, 0), (900, 810), (900, 810)], [(450, 450)] * 2
    again = [(900, 99), (901, 900), (900, 900)]
    (step,) = repeats.repeats(Levels([*high, *low, *again, None, (900, 700), (900, 740)]), PERIOD)  # type: ignore[arg-type]
    assert (step["scenario"], step["repeats"], step["rate"]) == ("export", 3, pytest.approx(1, abs=0.01))
    assert step["each"] == pytest.approx([0.9, 1, 0.8], abs=0.001)
    assert step["mean"] == pytest.approx(0.9, abs=0.001)
    assert step["interval"] == pytest.approx([0.9 - 0.248, 0.9 + 0.248], abs=0.002), "4.303 x 0.1 / sqrt(3)"


@pytest.mark.parametrize("levels", [[], [(900, 900)] * 9, [(900, 900), (450, 450)] * 5, [(0, 0), None, (0, 0)]])
def test_without_repeats_there_is_nothing_to_tell(levels: list[tuple[int, int] | None]) -> None:
    """One stretch, two rates, and nothing due."""
    assert repeats.repeats(Levels(levels), PERIOD) == []  # type: ignore[arg-type]


def test_cycles_of_scenarios_add_up_to_the_report(tmp_path: Path) -> None:
    """They are the same rows, of which a report has what was made up after a window in that window."""
    path = simulate(tmp_path, 8, 300, more="mesh")
    window = Window(START, START + CYCLE.length)
    for excluded, options in (((), ()), ((window,), ("--exclude", "2027-02-08T10:00/10:15 x"))):
        made = told(path, *options)
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        with LedgerView.open(path) as view:
            for _, scenario, due, moved in view.by_scenario(Period(START, START + timedelta(hours=1), excluded)):
                sums[scenario] = [sums[scenario][0] + due, sums[scenario][1] + moved]
        counted = {one["name"]: [one["due"], one["moved"]] for one in made["scenarios"]}
        parts = slice(0, 1 if excluded else 2)
        assert {name: row[parts] for name, row in sums.items()} == {n: row[parts] for n, row in counted.items()}
        assert made["repeats"] == []
