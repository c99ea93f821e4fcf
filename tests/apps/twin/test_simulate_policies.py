"""`simulate --policy` and `--seeds`: the same menus under other policies, and several seeds at a time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest

from dc_inject.apps.twin import printing, several_seeds
from dc_inject.apps.twin.shortfalls import Cause, ShortLink
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import FlowKey, Link, units
from dc_inject.model.errors import MenuError, UsageError
from dc_inject.summary.advice import Advice
from tests.cli import ledgers

pytest.importorskip("numpy")  # an extra
SCENARIOS = Path(__file__).parents[3] / "menus" / "twin"


def words(name: str, *more: object) -> list[str]:
    folder = SCENARIOS / name
    return [*map(str, ("simulate", folder / "menu.yaml", "--grid", folder / "grid.yaml", *more))]


def told(name: str, *more: object):
    done = ledgers.run(*words(name, *more, "--format", "json"))
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def test_a_fixed_rate_is_at_most_a_fifth_too_much_and_has_no_reasons():
    made = told("one-link", "--days", 0.25, "--policy", "fixed")
    total = made["total"]
    assert 1.0 <= total["injected"] / total["due"] <= 1.2
    assert total["moved"] == total["injected"]
    assert total["held"] == {}
    assert total["forgiven"] == 0
    assert made["policy"] == "fixed"


def test_a_fixed_rate_is_due_the_same_as_the_engine_is():
    dues = {policy: told("cut-link", "--days", 0.1, "--policy", policy)["links"] for policy in ("fixed", "act")}
    assert [row["due"] for row in dues["fixed"]] == [row["due"] for row in dues["act"]]


def test_a_fixed_rate_fills_the_queue_of_a_slow_link_until_it_expires():
    """At 0.7 of what is asked, 0.3 of it stays in the queue, less what is there at the end."""
    made = told("link-at-70-percent", "--days", 0.5, "--policy", "fixed")
    due, expired = made["total"]["due"], (made["lost"]["unsent_bytes"], made["lost"]["interrupted_bytes"])
    assert expired[0] > 0.01 * due
    assert sum(expired) > 0.3 * due
    lost = told("link-at-70-percent", "--days", 0.25, "--policy", "act")["lost"]
    assert lost["unsent_bytes"] == 0
    assert lost["interrupted_bytes"] < 0.001 * due


def test_files_that_are_tried_again_do_not_make_a_link_late(tmp_path):
    """Each file takes an hour; in a quarter of the datasets one fails and takes two: few bytes, but old ones."""
    grid = (SCENARIOS / "one-link" / "grid.yaml").read_text()
    grid += "fts: {per_storage: 2000}\nlinks: {'*:*': {rate: 12 Gb/s, overhead: 1 h, actives: 2..2000}}\n"
    (tmp_path / "grid.yaml").write_text(grid)
    menu = str(SCENARIOS / "one-link" / "menu.yaml")
    done = ledgers.run(
        "simulate", menu, "--grid", tmp_path / "grid.yaml", "--policy", "act", "--days", 0.25, "--format", "json"
    )
    total = json.loads(done.stdout)["total"]
    assert total["injected"] >= 0.7 * total["due"]


def test_what_a_fixed_rate_could_not_submit_is_not_made_up():
    """Rucio is down for 40 of 300 minutes: two or three cycles of twenty are lost."""
    fixed = told("rucio-down", "--days", 5 / 24, "--policy", "fixed")["total"]
    whole = told("one-link", "--days", 5 / 24, "--policy", "fixed")["total"]
    lost = 1 - (fixed["injected"] / fixed["due"]) / (whole["injected"] / whole["due"])
    assert 0.08 <= lost <= 0.18


def test_what_was_not_asked_for_and_what_comes_late_is_not_moved_of_the_target():
    made = told("one-link", "--days", 0.25, "--seeds", 2, "--policy", "fixed")["median"]
    assert made["moved_of_target"] == 1.0 < made["moved_of_due"]
    made = told("link-at-70-percent", "--days", 0.25, "--seeds", 2, "--policy", "fixed")["median"]
    assert made["moved_of_target"] < made["moved_of_due"] - 0.05


def test_goals_are_more_than_a_rate(tmp_path, wording):
    menu = (SCENARIOS / "one-link" / "menu.yaml").read_text()
    (tmp_path / "menu.yaml").write_text(menu.replace("rate: 10", "volume: 10 TB, rate: 10"))
    grid = SCENARIOS / "one-link" / "grid.yaml"
    error = ledgers.run("simulate", tmp_path / "menu.yaml", "--grid", grid, "--policy", "fixed").exception
    assert isinstance(error, MenuError)
    wording(str(error))


def test_the_last_lines_tell_what_was_moved_of_the_target_as_several_seeds_do(wording):
    """Also where control acts; what arrives after the end of the menu is not of the target."""
    ask = ("link-at-70-percent", "--days", 0.25, "--policy", "act")
    made = told(*ask)
    several = told(*ask, "--seeds", 2)["seeds"][0]
    assert made["moved_of_target"] == several["moved_of_target"]
    assert several["moved_of_target"] <= several["moved_of_due"] == made["moved_of_due"]
    *_, line, _ = ledgers.run(*words(*ask)).stdout.splitlines()
    assert [units.percent(made[name]) for name in ("moved_of_due", "moved_of_target")] == re.findall(
        r"[\d.]+ %", line
    )
    wording(re.sub(r"[\d.]+ %", "N %", line))


def test_no_link_is_short_where_what_is_due_arrives_after_the_menu_but_the_last_lines_say_so(wording):
    """Its queue is worked off after two hours, so that all has moved: a longer menu would fall behind."""
    ask = ("link-at-70-percent", "--days", 0.1)
    made, (*_, line, _) = told(*ask), ledgers.run(*words(*ask)).stdout.splitlines()
    late, due = made["late_bytes"], made["total"]["due"]
    assert late / due == pytest.approx(made["moved_of_due"] - made["moved_of_target"])
    both = {name.upper(): units.percent(made[name]) for name in ("moved_of_due", "moved_of_target")}
    wording(line, SIZE=units.format_size(late), PART=units.percent(late / due), **both)


def test_a_disk_that_was_above_98_percent_is_named_in_the_last_lines_whether_or_not_a_link_is_short(wording):
    """All that was due has moved, and the disk was full for hours: no all-clear."""
    *_, line, _ = ledgers.run(*words("tier2-at-3-hours", "--days", 0.4, "--policy", "fixed")).stdout.splitlines()
    shown = [line]
    *_, line, _ = ledgers.run(*words("tier2-at-3-hours", "--policy", "off")).stdout.splitlines()
    shown.append(line)
    both = ("tier2-at-3-hours", "--days", 0.4, "--policy", "fixed", "--seeds", 2)
    shown.append(ledgers.run(*words(*both)).stdout.splitlines()[-1])
    varying = r"(?<!above )\b\d[\d.]*(?= (?:%|h|min))"
    wording([re.sub(varying, "N", line) for line in shown])
    made = told(*both)
    hours = median(row["hours_nearly_full"] for row in made["seeds"])
    assert made["nearly_full"] == {"T2_US_MIT": hours}


def test_control_of_all_links_can_be_switched_off(tmp_path):
    """Whatever the menus say, so that what they do with control has something to be compared with."""
    menu = (SCENARIOS / "link-at-70-percent" / "menu.yaml").read_text()
    (acting := tmp_path / "menu.yaml").write_text(menu.replace("defaults:\n", "defaults:\n  control: act\n"))
    grid, more = SCENARIOS / "link-at-70-percent" / "grid.yaml", ("--days", 0.1, "--format", "json")

    def total(*policy: str):
        done = ledgers.run("simulate", acting, "--grid", grid, *more, *policy)
        assert done.exit_code == 0, done.exception
        return json.loads(done.stdout)["total"] | {"ledger": ""}

    off = told("link-at-70-percent", "--days", 0.1)["total"] | {"ledger": ""}
    assert total("--policy", "off") == off
    assert total() == total("--policy", "act") != off


@pytest.mark.parametrize("policy", ["advise", "act"])
def test_control_of_all_links_is_set_whatever_the_menus_say(policy, tmp_path):
    told("cut-link", "--days", 0.1, "--policy", policy, "--ledger", tmp_path / "kept.sqlite")
    with LedgerView.open(tmp_path / "kept.sqlite") as view:
        decisions = view.decisions()
    assert len({one.key for one in decisions}) == 2
    assert {one.mode for one in decisions} == {policy}


def test_without_a_policy_the_title_has_the_control_of_the_menus(tmp_path, wording):
    """Somebody who compares two outputs has to see which of them was controlled, and how."""
    place = SCENARIOS / "one-link"
    text = (place / "menu.yaml").read_text()
    (acting := tmp_path / "act.yaml").write_text(text.replace("defaults:\n", "defaults:\n  control: act\n"))
    # Another scenario of the same hours, and a day that is not simulated.
    (other := tmp_path / "off.yaml").write_text(text.replace("scenarios:\n  test:", "scenarios:\n  other:"))
    (later := tmp_path / "advise.yaml").write_text(
        re.sub(r"(start|end): 2027-02-\d\d", r"\1: 2027-03-01", text).replace(
            "defaults:\n", "defaults:\n  control: advise\n"
        )
    )

    def title(*more: object) -> str:
        words = ("simulate", *more, "--grid", place / "grid.yaml", "--days", 0.05)
        done = ledgers.run(*words)
        assert done.exit_code == 0, done.exception
        return str(done.stdout.splitlines()[0])

    assert title(place / "menu.yaml").endswith(": off")
    assert title(acting).endswith(": act")
    wording(title(acting, other, later))
    assert title(acting, "--policy", "off").endswith(" in one-link, policy off")
    assert title(acting, "--seeds", 2).endswith(": act")
    assert told("one-link", "--days", 0.05)["control"] == {"off": 1}


def test_what_the_rates_need_of_a_disk_differs_by_policy_only_as_the_disk_does():
    """The debt that is made up beside the rates does not count: without control it was half of the figure.

    98 % of a disk may be filled with control, and deletions take ten minutes; without it the menu's none count.
    """

    def percent(policy: str) -> int:
        (row,) = told("tier2-at-3-hours", "--policy", policy)["holds"][:1]
        return int(re.findall("([0-9]+) %", row["why"])[0])

    stay, cycles = 10e12 / (10e9 / 8 * 900), {"off": 12 + 1, "act": 12 + 1 + 1}
    assert percent("off") == pytest.approx(100 * stay / cycles["off"], abs=4)
    assert percent("act") == pytest.approx(100 * 0.98 * stay / cycles["act"], abs=4)


def test_advice_changes_nothing():
    made = [told("link-at-70-percent", "--days", 0.1, *more) for more in ((), ("--policy", "advise"))]
    assert made[0]["total"] | {"ledger": ""} == made[1]["total"] | {"ledger": ""}


@pytest.mark.usefixtures("real_processes")
def test_several_seeds_give_what_each_gives_alone_and_their_median():
    made = told("link-at-70-percent", "--days", 0.05, "--seed", 4, "--seeds", 2)
    assert [row["seed"] for row in made["seeds"]] == [4, 5]
    alone = told("link-at-70-percent", "--days", 0.05, "--seed", 5)
    moved = alone["total"]["moved"] / alone["total"]["due"]
    assert made["seeds"][1]["moved_of_due"] == moved
    assert made["median"]["moved_of_due"] == median(row["moved_of_due"] for row in made["seeds"])
    assert made["seeds"][1]["links_short"] == len(alone["forecast"])


def test_several_seeds_for_people_and_as_csv():
    done = ledgers.run(*words("link-at-70-percent", "--days", 0.25, "--seeds", 2, "--policy", "fixed"))
    assert done.stdout.startswith("2 seeds of twin-link-at-70-percent in link-at-70-percent, policy fixed\n")
    for word in ("moved/due", "median", "hours above 98 %", "T1_DE_KIT_Disk"):
        assert word in done.stdout
    assert "2 seeds: 100 %" in done.stderr
    done = ledgers.run(*words("tier2-at-3-hours", "--days", 0.1, "--seeds", 2, "--policy", "act"))
    assert ", medians of 2 seeds\nheld by " in done.stdout
    assert "the space" in done.stdout
    done = ledgers.run(*words("one-link", "--days", 0.05, "--seeds", 2, "--format", "csv"))
    head, *rows = done.stdout.splitlines()
    assert head.startswith("seed,moved_of_due,moved_of_target,hours_within,")
    assert [row.split(",")[0] for row in rows] == ["1", "2"]


def test_hours_are_those_of_cycles_also_where_menus_begin_within_one(tmp_path):
    """What the first cycle is due counts in the first hour, of which 5 minutes are before the menus."""
    key, cycle = FlowKey("test", Link("A", "B")), ledgers.CYCLE
    start = cycle.start + timedelta(minutes=5)
    samples = [SimpleNamespace(at=3600.0 * hour - 300, arrived=400.0 * hour - 33) for hour in range(1, 6)]
    with Ledger.open(tmp_path / "made.sqlite", synchronous="OFF") as ledger:
        ledger.bind("dc27", cycle.length, [ledgers.ME], start)
        for due in (67, *[100] * 19):
            ledger.open_cycle(cycle, {key: (due, None)}, cycle.start)
            ledger.close_cycle(cycle, cycle.end)
            cycle = cycle.next
        world = SimpleNamespace(samples=samples)
        assert several_seeds.compute_hours_within(ledger, world, start, cycle.start) == 1.0
        late = SimpleNamespace(samples=samples[1:])
        assert several_seeds.compute_hours_within(ledger, late, start, cycle.start) == 0.8


def test_why_a_link_is_short_is_told_as_most_seeds_have_it(capsys):
    """What held it, and what it waited for in the grid: a hold such as `backlog` is no cause."""
    full, nearly = Cause("full", "(60 % of the time)"), "B above 98 %"
    causes = (
        (Cause("backlog", "in 3 of 8 cycles"), full, Cause(nearly, "for 1 h 30 min")),
        (Cause("backlog", "in 5 of 8 cycles"), full, Cause(nearly, "for 1 min")),
        (Cause("the link itself", "(9 % of the time)"),),
    )
    key = FlowKey("test", Link("A", "B"))
    runs = [
        several_seeds.SeedRun(
            "c",
            "g",
            seed,
            dict.fromkeys(several_seeds.FIGURES, 0.0),
            [ShortLink(key, 2, 1, why)],
            [],
            Advice(False, []),
            {},
            [],
            [],
        )
        for seed, why in enumerate(causes)
    ]
    for some, why in (
        (runs, "backlog; full; B above 98 %"),
        (runs[1:], "backlog; full; B above 98 %; the link itself"),
    ):
        printing.show_seeds("json", some, None)
        (link,) = json.loads(capsys.readouterr().out)["forecast"]
        assert link["why"] == why == "; ".join(cause["what"] for cause in link["causes"])
    assert [cause["seeds"] for cause in link["causes"]] == [1, 1, 1, 1]


@pytest.mark.usefixtures("real_processes")
def test_what_is_wrong_is_told_once_whatever_process_found_it(tmp_path):
    (grid := tmp_path / "grid.yaml").write_text("grid: one")
    menu = SCENARIOS / "one-link" / "menu.yaml"
    one, two = (ledgers.run("simulate", menu, "--grid", grid, "--seeds", seeds).exception for seeds in (1, 2))
    assert isinstance(two, MenuError)
    assert two.problems == one.problems
    error = ledgers.run("simulate", menu, "--grid", grid, "--seeds", 2, "--ledger", tmp_path / "x").exception
    assert isinstance(error, UsageError)


@pytest.mark.usefixtures("signals_of_a_terminal")
@pytest.mark.parametrize(("seeds", "again"), [(1, False), (2, True)])
def test_an_interrupt_ends_it_and_leaves_nothing(seeds, again, tmp_path):
    """However often it comes: what removes the ledgers is not interrupted."""
    command = [sys.executable, "-m", "dc_inject", *words("slow-deletions", "--seeds", seeds)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()  # it has begun; how far it is by then differs
    assert re.search(r": [1-9]0 %", first), first + process.stderr.read()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
    while again and process.poll() is None:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "dc-inject: interrupted"
    assert list(tmp_path.iterdir()) == []
