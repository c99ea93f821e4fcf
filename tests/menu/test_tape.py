"""Tape systems in menus: what becomes of links from and to them."""

from __future__ import annotations

from dc_inject.model import FileFilter, Mode
from tests.menu.texts import problems, read, text

CTA, DISK, EOS = "davs://cta.example.org/dc", "davs://disk.example.net/dc", "davs://eos.example.org/dc"
TAPE = "tape: {drives: 4, rate: 300 MB/s, buffer: 20 TB}"
SITES = f'sites: {{CERN: {{rses: {{"{CTA}": {{}}, "{EOS}": {{}}}}, {TAPE}}}}}'
PARTS = {
    "fts": 'fts: {endpoint: "https://fts.example.org:8446"}',
    "defaults": "defaults: {through: fts, control: act, files: {folder: in}}",
    "sites": SITES,
    "tape": f'tape: {{"{CTA}": "CERN\'s tape team"}}',
    "scenarios": f"""scenarios:
  recall: {{from: "{CTA}", to: "{DISK}", rate: 8 Gb/s}}
  export: {{from: "{EOS}", to: "{DISK}", rate: 8 Gb/s}}
  archive: {{from: "{DISK}", to: "{CTA}", rate: 8 Gb/s}}""",
}


def test_only_links_from_and_to_tape_wait_for_it() -> None:
    """Control is off for a recall: its windows would keep the drives' queue short."""
    made = {flow.scenario: flow for flow in read(text(**PARTS)).flows}
    waits = {name: (flow.job.recalls, flow.job.archives) for name, flow in made.items() if flow.job}
    assert waits == {"recall": (True, False), "export": (False, False), "archive": (False, True)}
    assert {name: flow.control.mode for name, flow in made.items()} == {
        "recall": Mode.OFF,
        "export": Mode.ACT,
        "archive": Mode.ACT,
    }
    files = [flow.datasets for flow in made.values()]
    assert [one.recalls for one in files if isinstance(one, FileFilter)] == [True, False, False]


def test_a_site_has_the_rate_of_all_its_drives() -> None:
    (site,) = read(text(**PARTS)).sites
    assert site.tape is not None
    assert (site.tape.rate, site.tape.buffer, site.tape.ends) == (1.2e9, 20 * 10**12, {CTA})


def test_a_tape_system_without_an_end_that_somebody_agreed_to_is_refused() -> None:
    (problem,) = problems(text(**PARTS | {"tape": ""}))
    assert (problem.line, problem.hint.count("`tape`")) == (14, 1)
    assert problems(text(**PARTS | {"sites": SITES.replace(", buffer: 20 TB", "")})), "all three are needed"
