"""`dc-inject menu new`: out of options or answers a menu that `check` accepts, or nothing at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dc_inject.apps.menutools.new_menus import MORE
from dc_inject.backends.sim import SimClock
from dc_inject.cli.shared import params
from dc_inject.model.errors import MenuError, UsageError
from dc_inject.system import files
from tests.cli.ledgers import run
from tests.menu.texts import draft, rates
from tests.wording import lines

ROOT = Path(__file__).parents[3]
LINK = ("--from", "A", "--to", "B", "--rate", "5Gb/s")
ANSWERS = {
    "Campaign": "dc27",
    "Contact": "",
    "Time zone": "Europe/Zurich",
    "Start": "2027-02-08 10:00",
    "End": "",
    "Datasets": "cms:/*/RAW#* data:*",
    "Scenario": "t0-export",
    "Sources": "T2_CH_CERN",
    "Destinations": "T1_US_FNAL_Disk@40 T1_DE_KIT_Disk",
    "Rate": "82 Gb/s",
    "Another": "n",
}


def answers(*again: str, **other: str) -> str:
    """What a person types; `again` comes after all that."""
    return "".join(f"{one}\n" for one in (*(ANSWERS | other).values(), *again))


def test_options_alone_make_a_menu(tmp_path: Path) -> None:
    """What was assumed is marked and told; shares, lists and meshes."""
    goal = tmp_path / "m.yaml"
    done = run(
        "menu", "new", "--no-ask", "--from", "A", "--to", "B@3", "--to", "C", "--rate", "8000Mbps", "-o", goal
    )
    assert (done.exit_code, done.stdout) == (0, "")
    assert "assumed: main (--campaign)" in done.stderr
    assert goal.read_text().count("# assumed") == 6
    assert run("check", goal).exit_code == 0
    assert rates(files.read_menus([goal])[0].preview) == {"A:B": 6, "A:C": 2}
    mesh = run("menu", "new", "--no-ask", "--mesh", "A", "--mesh", "B", "--rate", "8 Gb/s", "--did", "a:*")
    assert rates(draft(mesh.stdout).preview) == {"A:B": 4, "B:A": 4}


def test_an_empty_answer_that_is_none_is_told(tmp_path: Path) -> None:
    """Instead of the same question once more, without a word."""
    goal = tmp_path / "m.yaml"
    typed = answers().replace("cms:/*/RAW#* data:*", "\ncms:/*/RAW#* data:*").replace("82 Gb/s", "\n82 Gb/s")
    done = run("menu", "new", "--ask", "-o", goal, text=typed)
    assert done.exit_code == 0, done.exception
    assert done.stderr.count("Error: ") == 2
    assert goal.exists()


def test_through_fts() -> None:
    """Sources and destinations are URL prefixes."""
    ends = ("--from", "davs://a.example.org:8443/x", "--to", "davs://b.example.org/y@2", "--rate", "8Gb/s")
    done = run("menu", "new", "--no-ask", *ends, "--through", "fts", "--fts", "https://fts.example.org:8446")
    made = draft(done.stdout)
    assert made.services == {"fts"}
    assert made.preview.endpoint == "https://fts.example.org:8446"


def test_answers_make_a_menu(tmp_path: Path) -> None:
    """Each is checked at once; usual ones are offered; no question is on stdout."""
    goal = tmp_path / "m.yaml"
    done = run("menu", "new", "--ask", "-o", goal, text=answers())
    assert (done.exit_code, done.stdout) == (0, "")
    (made,) = files.read_menus([goal])
    assert rates(made.preview) == {"T2_CH_CERN:T1_US_FNAL_Disk": 80, "T2_CH_CERN:T1_DE_KIT_Disk": 2}
    assert made.campaign == "dc27"
    assert f"{made.preview.end:%H:%M}" == "09:00"
    assert set(made.preview.flows[0].datasets.dids) == {"cms:/*/RAW#*", "data:*"}
    assert "assumed" not in goal.read_text()
    assert run("menu", "new", "--ask", text=answers()).stdout == goal.read_text()


def test_wrong_answers_are_asked_for_again(wording) -> None:
    """One by one, and a scenario that cannot be, as a whole."""
    again = ("two", "mesh", "A", "1 Gb/s", "t0-export", "A", "B", "1 Gb/s", "two", "A B", "C", "1 Gb/s", "n")
    done = run(
        "menu",
        "new",
        "--ask",
        text=answers(*again, Campaign="dc 27\ndc27", Rate="82\n-5 Gb/s\n82 Gb/s", Another="y"),
    )
    wording(lines(done.stderr, "Error: ") + lines(done.stderr, "a mesh"))
    assert "the key `t0-export` appears twice" in done.stderr
    found = draft(done.stdout)
    assert list(found.document.scenarios) == ["t0-export", "two"]
    assert found.preview.target * 8e-9 == pytest.approx(83)


def test_options_are_not_asked_for() -> None:
    """They are answers that were given before."""
    done = run("menu", "new", "--ask", *LINK, "--campaign", "x", "--contact", "me", "--timezone", "UTC",
               "--start", "2027-02-08", "--end", "2027-02-09", "--did", "a:*", text="n\n")  # fmt: skip
    assert done.exit_code == 0
    assert "Campaign" not in done.stderr
    assert rates(draft(done.stdout).preview) == {"A:B": 5}


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_an_end_before_the_last_answer_leaves_nothing(number: int, tmp_path: Path) -> None:
    """Not even a part of a file."""
    given = "".join(answers().splitlines(keepends=True)[:number])
    done = run("menu", "new", "--ask", "-o", tmp_path / "m.yaml", text=given)
    assert done.exit_code == 1
    assert "Aborted" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """And ends with the exit code of an interruption."""
    command = [sys.executable, "-m", "dc_inject", "menu", "new", "--ask", "-o", str(tmp_path / "m.yaml")]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stderr is not None
        assert process.stderr.read(8) == b"`back` a"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_not_asked_about(tmp_path: Path) -> None:
    """It is refused before the first question, unless --force says otherwise."""
    goal = tmp_path / "m.yaml"
    goal.write_text("mine")
    done = run("menu", "new", "--ask", "-o", goal, text=answers())
    assert isinstance(done.exception, UsageError)
    assert "Campaign" not in done.stderr
    assert goal.read_text() == "mine"
    assert run("menu", "new", *LINK, "-o", goal, "--force").exit_code == 0
    assert goal.read_text() != "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "A", "--to", "B"),
        ("--from", "A", "--rate", "1Gb/s"),
        (*LINK, "--mesh", "A"),
        (*LINK, "--folder", "x"),
        (*LINK, "--timezone", "Europe/Zurich", "--start", "2027-03-28 02:30"),
        (*LINK, "--end", "2020-01-01"),
        ("--from", "A", "--to", "A", "--rate", "1Gb/s"),
        ("--from", "A", "--to", "B@0", "--rate", "1Gb/s"),
    ],
)
def test_what_cannot_be_a_menu(arguments: tuple[str, ...], wording) -> None:
    """Is said, and nothing is printed."""
    done = run("menu", "new", *arguments)
    assert isinstance(done.exception, UsageError | MenuError)
    wording(done.exception)
    assert done.stdout == ""


def test_what_stands_there_as_a_comment_can_be_used() -> None:
    """The parts that a new menu offers are right when their marks are taken away."""
    link = ("--from", "A", "--to", "T1_DE_KIT_Disk", "--rate", "1Gb/s", "--did", "a:*")
    done = run("menu", "new", *link, "--start", "2027-02-08 10:00")
    assert done.stdout.endswith(MORE)
    parts = "\n".join(line.removeprefix("# ") for line in MORE.strip().splitlines()[1:])
    assert draft(done.stdout + parts).preview.exclusions


def test_back_returns_to_the_question_before() -> None:
    """From the first scenario into the heading, too; what was answered is offered again."""
    heading = ("wrong", "back", "dc27", "", "", "now", "2099-01-01", "cms:*")
    typed = (*heading, "back", "", "main", "A", "back", "B", "C", "back", "D", "5 Gbit/s", "n")
    done = run("menu", "new", "--ask", text="".join(f"{one}\n" for one in typed))
    assert done.exit_code == 0, done.stderr
    made = draft(done.stdout)
    assert made.campaign == "dc27"
    assert rates(made.preview) == {"B:D": 5}
    assert "[cms:*]" in done.stderr


def test_back_at_the_first_question_asks_it_again() -> None:
    """There is nothing before it."""
    typed = ("back", "dc27", "", "", "", "", "a:*", "n")
    done = run("menu", "new", "--ask", *LINK, text="".join(f"{one}\n" for one in typed))
    assert done.exit_code == 0, done.stderr
    assert draft(done.stdout).campaign == "dc27"


def test_back_leads_out_of_another_scenario() -> None:
    done = run("menu", "new", "--ask", text=answers("back", "n", Another="y"))
    assert done.exit_code == 0, done.stderr
    assert list(draft(done.stdout).document.scenarios) == ["t0-export"]


def test_a_menu_may_start_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2027, 2, 8, 10, 11, 12, tzinfo=UTC)
    monkeypatch.setattr(params, "SystemClock", lambda: SimClock(now))
    done = run("menu", "new", "--no-ask", *LINK, "--timezone", "Europe/Zurich", "--start", "now")
    assert done.exit_code == 0, done.stderr
    assert draft(done.stdout).preview.start == now
