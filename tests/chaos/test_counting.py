"""What the chaos campaigns count, and where they let lives die."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from datetime import timedelta

import pytest

from tests.chaos import driver
from tests.chaos.crashes import FIRST, Aim
from tests.chaos.rows import Row, save, summed, table, tell_violations


def _death(aim, step, work=3, heard=None):
    with aim.deaths.open("a") as out:
        out.write(json.dumps({"step": step, "count": 1, "work": work, "heard": heard or {step: 2}}) + "\n")


def test_lives_die_at_steps_that_earlier_ones_came_to_and_mostly_at_those_met_least(tmp_path):
    aim = Aim(tmp_path / "deaths", random.Random(1), after=2.0)
    assert "step" not in aim.wish()["die"]
    for _ in range(FIRST):
        _death(aim, "Calling", heard={"Calling": 5, "Answered": 3})
    wishes = [aim.wish()["die"] for _ in range(200)]
    chosen = Counter(wish["step"] for wish in wishes if "step" in wish)
    assert set(chosen) == {"Calling", "Answered"}
    assert chosen["Answered"] > 5 * chosen["Calling"]
    assert {wish["count"] for wish in wishes if wish.get("step") == "Answered"} == {1, 2, 3}


def test_only_deaths_after_work_count_as_such(tmp_path):
    aim = Aim(tmp_path / "deaths", random.Random(1), after=2.0)
    _death(aim, "sent:GET", work=0, heard={})
    _death(aim, "Calling", work=1)
    aim.learn()
    aim.learn()
    assert (aim.at_work, aim.met) == (1, {"sent:GET": 1, "Calling": 1})


@pytest.fixture
def killed(monkeypatch):
    """The signals that a driver sends to its own process."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda _pid, number: sent.append(number))
    return sent


def test_a_life_dies_at_its_step_counted_from_its_first_work(tmp_path, killed):
    deaths = tmp_path / "deaths"
    wish = {"deaths": str(deaths), "die": {"step": "Answered", "count": 2, "after": 3600.0}}
    one = driver.Driver(wish)
    for name, work in [("Answered", 0), ("Answered", 0), ("Calling", 4), ("Answered", 0)]:
        one.hear(name, work)
    assert killed == []
    one.hear("Answered")
    assert killed == [signal.SIGKILL]
    told = {"step": "Answered", "count": 4, "work": 4, "heard": {"Calling": 1, "Answered": 2}}
    assert json.loads(deaths.read_text()) == told


def test_a_life_whose_step_does_not_come_dies_at_another_one(killed):
    one = driver.Driver({"die": {"step": "Answered", "count": 2, "after": -1.0}})
    one.hear("Observed")
    assert killed == [], "it has not done anything yet"
    one.hear("Calling", 1)
    assert killed == [signal.SIGKILL]


def test_records_of_several_seeds_add_up(tmp_path, capsys):
    first = Row("rucio: SIGKILL at a step", 1, 12, 10, 9, 11, 50, 300, Counter({"504": 7}), Counter(Calling=10))
    other = Row(
        "rucio: SIGKILL at a step", 1, 6, 5, 5, 6, 20, 100, Counter({"504": 1, "401": 2}), Counter(Ended=5)
    )
    other.violations.append("bytes: lost")
    save(tmp_path / "1", [first, Row("fts: fault 401", 1)])
    save(tmp_path / "2", [other])
    rows = summed([tmp_path / "1", tmp_path / "2"])
    assert [row.name for row in rows] == ["rucio: SIGKILL at a step", "fts: fault 401"]
    assert (rows[0].kills, rows[0].at_work, rows[0].faulty, rows[0].steps) == (
        15,
        14,
        10,
        {"Calling": 10, "Ended": 5},
    )
    told = table(rows)
    assert "kills by step (15): Calling 10, Ended 5" in told
    assert "faulty calls by class (10): 504 8, 401 2" in told
    assert tell_violations(rows) == 1
    assert "bytes: lost" in capsys.readouterr().out


def test_a_clock_that_steps_for_a_while_steps_back(monkeypatch):
    """However little happens meanwhile: no step of the process is waited for."""
    later = []
    monkeypatch.setattr(
        driver.threading, "Timer", lambda seconds, do, args: later.append((seconds, do, args)) or Mute()
    )
    one = driver.Driver({"accidents": [{"event": "Observed", "count": 1, "clock": 3600, "lasting": 10}]})
    one.hear("Observed")
    assert one.offset == timedelta(hours=1)
    ((seconds, do, args),) = later
    do(*args)
    assert (seconds, one.offset) == (10, timedelta(0))


class Mute:
    """A timer that never fires."""

    daemon = False

    def start(self):
        pass
