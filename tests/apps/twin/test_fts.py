"""FTS in the twin: jobs that are submitted directly wait in the same queues as the files of rules."""

from __future__ import annotations

import json

import pytest

from dc_inject.apps.twin.grid.description import Fts, LinkTraits, Rucio
from dc_inject.apps.twin.grid.grid_file import read
from dc_inject.apps.twin.grid.jobs import Job
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World
from dc_inject.model.errors import MenuError, UsageError
from tests.apps.twin.grids import GB, arrived, grid, rule, storage
from tests.cli import ledgers

FREE = Fts(per_storage=100_000, operations=1e6)
GRID = """\
grid: 1
name: two
fts: {{actives: 2..400, per_storage: 2000}}
sites:
  A: {{storages: {{SOURCE: {{host: one.example.org}}}}}}
  B: {{storages: {{GOAL: {{host: two.example.org{more}}}}}}}
defaults: {{link: {{file_speed: 100 MB/s{link}}}}}
datasets: [{{sources: [SOURCE], count: 40, files: 10..50, file_size: 1..3 GB}}]
troubles: [{troubles}]
"""
MENU = """\
menu: 1
campaign: direct
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 13:00
fts: {{endpoint: "https://fts3.example.org:8446"}}
defaults:
  cycle: 15 min
  lifetime: {{min: 1 h, max: 2 h}}
scenarios:
  direct:
    through: fts
    files: {{folder: data, pattern: "*.root"}}
    jobs: {{files: 20}}
    from: "davs://one.example.org/a"
    to: "davs://two.example.org/b"
    rate: 4 Gb/s
{more}
"""
RULES = """\
  rules:
    from: SOURCE
    to: GOAL
    rate: 4 Gb/s
    datasets: {did: "cms:*", files: 1..1000, mean_file: 1..20 GB}
"""


def world(link: LinkTraits, **more) -> World:
    return World(grid(storage("A"), storage("B"), default_link=link, **({"fts": FREE} | more)), 1)


def submit(made: World, files: int, size: float = GB, *, priority: int = 3, retries: int | None = None) -> Job:
    job = Job(Queue("A", "B", "test", priority), files, int(files * size))
    made.jobs.submit(f"job {len(made.jobs.jobs)}", job, retries)
    return job


def test_a_job_needs_no_submitter():
    made = world(LinkTraits(rate=GB, file_speed=GB, overhead=0.0), rucio=Rucio(submit_every=3600))
    job = submit(made, 100)
    made.advance(200)
    made.jobs.look(job)
    assert job.done == 100
    assert job.is_over
    assert arrived(made) == pytest.approx(100 * GB)


def test_jobs_and_rules_share_a_link_by_their_transfers():
    made = world(LinkTraits(rate=GB, file_speed=0.05 * GB, overhead=0.0, actives=(40, 40)))
    job, other = submit(made, 10_000), rule(made, "A", "B", 10_000)
    made.advance(4000)
    made.jobs.look(job)
    made.rucio.look(other)
    assert job.done + other.done == pytest.approx(4000, rel=0.05)
    assert job.waiting > 0


def test_a_job_of_higher_priority_goes_first():
    made = world(LinkTraits(rate=GB, file_speed=GB, overhead=0.0, actives=(5, 5)))
    low, high = submit(made, 500, priority=2), submit(made, 500, priority=4)
    made.advance(480)
    for job in (low, high):
        made.jobs.look(job)
    assert high.done >= 440
    assert low.done <= 10


def test_a_file_is_tried_as_often_as_its_job_says():
    made = world(LinkTraits(rate=GB, file_speed=GB, overhead=0.0, failures=0.5))
    never, often = submit(made, 2000, 0.01 * GB, retries=0), submit(made, 2000, 0.01 * GB, retries=3)
    made.advance(1200)
    for job in (never, often):
        made.jobs.look(job)
    assert never.failed == pytest.approx(1000, rel=0.1)
    assert often.failed == pytest.approx(125, rel=0.4)


def test_a_cancelled_job_stops_costs_fts_work_and_leaves_what_has_arrived_to_be_deleted():
    made = world(LinkTraits(rate=GB, file_speed=GB, overhead=0.0, actives=(5, 5)))
    job = submit(made, 1000)
    made.advance(300)
    made.jobs.end(job)
    done = job.done
    assert 250 <= done <= 300
    assert made.transfers.cancelling == 1000 - done
    made.advance(600)
    assert arrived(made) == pytest.approx(done * GB)
    made.jobs.delete(job, made.now)
    made.jobs.delete(job, made.now)  # twice is once
    made.advance(900)
    assert job.is_gone
    assert arrived(made) == 0


def simulated(tmp_path, *words: object, more: str = "", link: str = "", storage: str = "", troubles: str = ""):
    (tmp_path / "menu.yaml").write_text(MENU.format(more=more))
    (tmp_path / "grid.yaml").write_text(GRID.format(more=storage, link=link, troubles=troubles))
    return ledgers.run("simulate", tmp_path / "menu.yaml", "--grid", tmp_path / "grid.yaml", *words)


def told(*args: object, **how: str):
    done = simulated(*args, "--format", "json", **how)
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def test_a_menu_through_fts_moves_what_is_due_where_nothing_stands_in_its_way(tmp_path):
    total = told(tmp_path)["total"]
    assert total["moved"] == pytest.approx(total["due"], rel=0.03)
    assert total["moved"] == total["injected"]


def test_rules_and_jobs_are_simulated_together_and_are_short_together(tmp_path):
    made = told(tmp_path, more=RULES, link=", rate: 4 Gb/s")
    moved = {row["scenario"]: row["moved"] / row["due"] for row in made["links"]}
    assert 0.5 <= sum(moved.values()) / 2 <= 0.9
    assert any("the link itself" in row["why"] for row in made["forecast"])


def test_what_failed_is_injected_again(tmp_path):
    total = told(tmp_path, link=", failures: 40 %")["total"]  # 2.6 % fail in all attempts
    assert total["moved"] == pytest.approx(total["due"], rel=0.05)


def test_a_destination_that_does_not_answer_holds_its_link(tmp_path):
    down = "{fault: storage-down, subject: GOAL, at: 1 h, for: 1 h}"
    (row,) = told(tmp_path, troubles=down)["links"]
    assert row["held"]["destination-unavailable"] >= 2


def test_while_fts_is_down_links_are_held(tmp_path):
    (row,) = told(tmp_path, troubles="{fault: fts-down, at: 1 h, for: 1 h}")["links"]
    assert row["held"]["api-errors"] >= 2


def test_its_files_are_deleted_and_make_room(tmp_path):
    made = told(tmp_path, storage=", space: 8 TB")
    (goal,) = [row for row in made["storages"] if row["storage"] == "GOAL"]
    assert made["total"]["moved"] > 5e12
    assert 0 < goal["most_used"] <= 8e12


def test_control_reads_the_queue_of_fts(tmp_path):
    total = told(tmp_path, "--policy", "act", link=", rate: 2 Gb/s")["total"]
    assert total["moved"] / total["due"] == pytest.approx(0.55, abs=0.15)


def test_a_fixed_rate_takes_datasets_only(tmp_path):
    assert isinstance(simulated(tmp_path, "--policy", "fixed").exception, UsageError)


@pytest.mark.parametrize("host", ["https://one.example.org", "one.example.org:80", "a/b"])
def test_a_host_is_a_host_alone(host, wording):
    text = GRID.format(more="", link="", troubles="").replace("one.example.org", json.dumps(host))
    with pytest.raises(MenuError) as refused:
        read(text.encode(), "grid.yaml")
    wording(refused.value)


def test_a_host_is_that_of_one_storage():
    text = GRID.format(more="", link="", troubles="").replace("two.example.org", "one.example.org")
    with pytest.raises(MenuError, match="is SOURCE already"):
        read(text.encode(), "grid.yaml")


def test_a_grid_is_calibrated_from_jobs_too(tmp_path):
    past, fitted = tmp_path / "past.sqlite", tmp_path / "fitted.yaml"
    assert simulated(tmp_path, "--days", 0.1, "--ledger", past, link=", rate: 2 Gb/s").exit_code == 0
    done = ledgers.run("simulate", "--calibrate", past, "-o", fitted)
    assert done.exit_code == 0, done.exception
    made = read(fitted.read_bytes(), "fitted.yaml")
    assert made.links["one.example.org:two.example.org"].rate == pytest.approx(2e9 / 8, rel=0.1)  # in 9 cycles
    assert made.storage_at("davs://two.example.org/b") == "two.example.org"
    done = ledgers.run("simulate", tmp_path / "menu.yaml", "--grid", fitted, "--days", 0.05)
    assert done.exit_code == 0, done.exception
