"""What has to be refused: each with its line, what is wrong, and a hint."""

from __future__ import annotations

import pytest

from tests.menu.texts import draft, problems, scenarios, text

SITE = "sites:\n  KIT: {wan: 100 Gb/s, rses: {K1: {}, K2: {}}}\n  RAL: {wan: 100 Gb/s, rses: {R: {}}}\n"
SCENARIO = "scenarios:\n  one:\n    from: A\n    to: B\n    rate: 10 Gb/s"  # begins in line 9


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (text(scenarios=SCENARIO.replace("10 Gb/s", "10")), 13),
        (
            text(scenarios=SCENARIO.replace("10 Gb/s", "10 Gbd/s")),
            13,
        ),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "10 GB")), 13),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "-10 Gb/s")), 13),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "inf Gb/s")), 13),
        (text(scenarios=SCENARIO.replace("10 Gb/s", ".nan")), 13),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "0 Gb/s")), 13),
        (
            text(scenarios=SCENARIO.replace("10 Gb/s", "{a: 1}")),
            13,
        ),
        (
            text(scenarios=SCENARIO.replace("to: B", "to: A")),
            12,
        ),
        (
            scenarios(
                "one:\n  links:\n    - {from: A, to: B, rate: 1 Gb/s}\n    - {from: A, to: A, rate: 1 Gb/s}"
            ),
            13,
        ),
        (
            scenarios(
                "one:\n  links:\n    - {from: A, to: B, rate: 1 Gb/s}\n    - {from: A, to: B, rate: 1 Gb/s}"
            ),
            13,
        ),
        (text(scenarios=SCENARIO.replace("to: B", "to: {B: 0, C: 0}")), 12),
        (text(scenarios=SCENARIO.replace("to: B", "to: {B: -1, C: 2}")), 12),
        (text(scenarios=SCENARIO.replace("to: B", "to: [B, B]")), 12),
        (text(scenarios=SCENARIO.replace("to: B", "to: []")), 12),
        (scenarios("one: {mesh: [A], rate: 1 Gb/s}"), 10),
        (
            scenarios("one: {mesh: {A: 1, B: 2}, rate: 1 Gb/s}"),
            10,
        ),
        (scenarios("one: {mesh: [A, B], rate: 1 Gb/s, both_ways: true}"), 10),
        (scenarios("one: {from: [A, B], to: [A, B], rate: 1 Gb/s, both_ways: true}"), 10),
        (
            scenarios("one: {mesh: [A, B], from: A, rate: 1 Gb/s}"),
            10,
        ),
        (scenarios("one: {priority: 3}"), 10),
        (scenarios("one: {from: A, to: B}"), 10),
        (scenarios("one: {from: A, rate: 1 Gb/s}"), 10),
        (
            scenarios("one: {rate: 1 Gb/s, links: [{from: A, to: B, rate: 1 Gb/s}]}"),
            10,
        ),
        (scenarios("one: {links: []}"), 10),
        (scenarios("one: {links: [{from: A, to: B}]}"), 10),
        (
            scenarios("one: {links: [{from: [A], to: B, rate: 1 Gb/s}]}"),
            10,
        ),
        (scenarios("one: {links: 3}"), 10),
        (scenarios("one: 3"), 10),
        (scenarios("'bad name': {mesh: [A, B], rate: 1 Gb/s}"), 10),
        (text(scenarios="scenarios: {}"), 9),
        (text(scenarios="scenarios: []"), 9),
        (text(end="end: 2027-02-08 10:00"), 6),
        (text(end="end: 2027-02-07 10:00"), 6),
        (
            text(start="start: 2027-03-28 02:30", end="end: 2027-03-29"),
            5,
        ),
        (text(end="end: 2027-10-31 02:30"), 6),
        (
            text(timezone="timezone: Mars/Olympus"),
            4,
        ),
        *(
            (text(timezone=f"timezone: {name}"), 4)
            for name in ("localtime", "posixrules", "Factory", "right/Europe/Zurich")
        ),
        (scenarios("one: {from: \u0422A, to: B, rate: 1 Gb/s}"), 10),
        (scenarios("one: {from: A\u200b, to: B, rate: 1 Gb/s}"), 10),
        (
            scenarios("one: {from: A, to: [B\u200b, C], rate: 1 Gb/s}"),
            10,
        ),
        (scenarios("one: {from: A B, to: C, rate: 1 Gb/s}"), 10),
        (text(x="acc\u0435pt: []"), 14),
        (scenarios("one: {through: ruci\u043e, from: A, to: B, rate: 1 Gb/s}"), 10),
        (
            text(defaults="defaults: {datasets: {did: '\u0441ms:*'}}"),
            8,
        ),
        (text(campaign="campaign: Z\xfcrich"), 2),
        (text(end=""), 1),
        (text(contact=""), 1),
        (text(contact="contact:"), 3),
        (text(limits="limts: {total: 1 Tb/s}"), 7),
        (
            text(defaults="defaults: {mean_file: 1..2 GB, datasets: {did: 'a:b'}}"),
            8,
        ),
        (text(x="colour: blue"), 14),
        (text(x="start: 2027-02-08 11:00"), 14),
        (text(menu="menu: 2", x="colour: blue"), 1),
        (
            text(menu="grid: 1", x="colour: blue"),
            1,
        ),
        (text(menu="menu: one"), 1),
        (text(menu="menu: 1.0"), 1),
        (text(menu="menu: 2.0"), 1),
        (text(menu="menu: 0"), 1),
        (text(menu="menu: [1]"), 1),
        (text(menu=""), 1),
        (
            text(x=SITE, scenarios="scenarios: {one: {from: A, to: R, rate: 200 Gb/s}}"),
            9,
        ),
        (
            text(x=SITE, scenarios="scenarios: {one: {from: KIT, to: A, rate: 1 Gb/s}}"),
            9,
        ),
        (
            text(x="sites: {KIT: {}}", scenarios="scenarios: {one: {from: KIT, to: A, rate: 1 Gb/s}}"),
            9,
        ),
        (
            text(x="sites:\n  P: {rses: {X: {}}}\n  Q: {rses: {X: {}}}"),
            16,
        ),
        (text(limits="limits: {total: 9 Gb/s}"), 7),
        (
            text(limits="", scenarios=SCENARIO.replace("10 Gb/s", "101 Gb/s")),
            1,
        ),
        (text(x="accept: [rate-outliers]"), 14),
        (text(x="above_production: maybe"), 14),
        (
            text(scenarios=SCENARIO + "\n    service_priority: 4"),
            14,
        ),
        (
            text(scenarios=SCENARIO + "\n    priority: 6"),
            14,
        ),
        (text(scenarios=SCENARIO + "\n    lifetime: {min: 3 h}"), 14),
        (text(scenarios=SCENARIO + "\n    lifetime: {max: 999999999 d}"), 14),
        (
            text(scenarios=SCENARIO + "\n    start: 2027-02-10"),
            14,
        ),
        (
            text(scenarios=SCENARIO + "\n    end: 2027-02-10"),
            14,
        ),
        (
            text(scenarios=SCENARIO + "\n    start: 2027-02-09 01:00\n    end: 2027-02-09 00:00"),
            15,
        ),
        (text(scenarios=SCENARIO + "\n    wave: {ramp: 1 h}"), 14),
        (text(scenarios=SCENARIO + "\n    through: gridftp"), 14),
        (text(defaults=""), 9),
        (text(defaults="defaults: {control: {redistribute: true}, datasets: {did: 'a:b'}}"), 8),
        (text(defaults="defaults: {datasets: {did: cms}}"), 8),
        (
            text(defaults="defaults: {datasets: {did: 'a:b', files: 9..1}}"),
            8,
        ),
        (
            text(defaults="defaults: {datasets: {did: 'a:b', files: 1..1000000000000}}"),
            8,
        ),
        (
            text(defaults="defaults: {datasets: {did: 'a:b', mean_file: 0..0 GB}}"),
            8,
        ),
        (text(defaults="defaults: {cycle: 0 s, datasets: {did: 'a:b'}}"), 8),
        (
            text(x="exclude:\n  - {from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
        ),
        (
            text(x="exclude:\n  - {rse: C, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
        ),
        (
            text(x="exclude:\n  - {link: 'B:A', from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
        ),
        (
            text(x="exclude:\n  - {scenario: on, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
        ),
        (
            text(x="exclude:\n  - {site: KIT, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
        ),
        (
            text(x="exclude:\n  - {rse: A, from: 2027-02-08 13:00, to: 2027-02-08 13:00, reason: x}"),
            15,
        ),
        (
            text(x="exclude:\n  - {rse: A, from: 2027-02-08 13:00, to: 2027-02-08 14:00}"),
            15,
        ),
    ],
)
def test_refused(content: str, line: int, wording) -> None:
    """A menu with this one thing wrong has this one problem."""
    found = problems(content)
    assert [problem.line for problem in found] == [line], found
    wording(found[0])
    assert found[0].file == "m.yaml"
    assert not found[0].code


def test_the_menu_that_the_others_are_made_of_is_right() -> None:
    """Nothing else is wrong with them."""
    assert draft(text()).preview.flows


def test_every_problem_is_told_at_once() -> None:
    """Problems of form, of time, of links and of sums stand side by side, by line."""
    content = text(
        campaign="campaign: bad name",
        end="end: 2027-03-28 02:30",
        limits="limts: {}",
        scenarios="""scenarios:
  one: {from: A, to: A, rate: 10}
  two: {mesh: [B], rate: -1 Gb/s}
  three:
    links:
      - {from: A, to: B, rate: 10}
      - {from: A, to: B, rate: 10 Gb/s}
  four: 4
  five: {from: A, to: {B: 0}, rate: inf Gb/s}""",
    )
    assert [problem.line for problem in problems(content)] == [2, 6, 7, 10, 10, 11, 11, 14, 15, 16, 17, 17]


def test_a_repeated_anchor_is_complained_of_once() -> None:
    """A wrong value that aliases repeat is one problem, where it is written."""
    content = text(
        x="x-common: &common\n  priority: 9",
        scenarios="",
        last="scenarios:\n" + "".join(f"  {n}: {{<<: *common, from: A, to: B, rate: 1 Gb/s}}\n" for n in "ab"),
    )
    assert [problem.line for problem in problems(content)] == [10]


def test_a_huge_mesh_is_refused_quickly() -> None:
    """Lists whose product is beyond any menu are not multiplied out."""
    names = ", ".join(f"S{number}" for number in range(2000))
    (problem,) = problems(scenarios(f"one: {{mesh: [{names}], rate: 1 Gb/s}}"))
    assert "4000000 links" in problem.message


def test_a_problem_has_the_column_where_it_stands() -> None:
    """A value its own, a key its own, and what is missing that of the mapping."""
    line = "  one: {links: [{from: A, to: 'B', rate: 10, prio: 3}, {from: B, rate: 1 Gb/s}]}"
    columns = [(problem.line, problem.column) for problem in problems(scenarios(line.strip()))]
    assert sorted(columns) == [(10, line.index(what) + 1) for what in ("10,", "prio", "{from: B, rate")]


def test_what_was_refused_is_not_said_to_miss(wording) -> None:
    """What is left of a menu is looked at, and nothing follows from what was cut out of it."""
    content = text(
        x="sites: {KIT: {rses: {K: 3}}, RAL: 3}\n"
        "exclude:\n"
        "- {site: RAL, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}\n"
        "- {scenario: bad, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}",
        defaults="defaults: {datasets: 3, shape: {steps: [1 x, 2 y], hold: 1 h}}",
        scenarios="""scenarios:
  one: {from: {A: x}, to: {B: 1}, volume: 1 TB}
  bad: 3
  two: {from: A, to: KIT, rate: 1, then: {to: {B: [C], D: E}}}
  bad name: {from: A, to: A, rate: 1 Gb/s}
  three: {from: A, to: B, rate: 1 Gb/s, datasets: {did: x}, lifetime: 3}""",
    )
    found = problems(content)
    assert [problem.line for problem in found] == [8, 8, 8, 10, 10, 11, 12, 12, 13, 13, 14, 14, 15, 15]
    wording(found)
