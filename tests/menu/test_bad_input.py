"""What has to be refused: each with its line, what is wrong, and a hint."""

from __future__ import annotations

import pytest

from tests.menu.texts import draft, problems, scenarios, text

SITE = "sites:\n  KIT: {wan: 100 Gb/s, rses: {K1: {}, K2: {}}}\n  RAL: {wan: 100 Gb/s, rses: {R: {}}}\n"
SCENARIO = "scenarios:\n  one:\n    from: A\n    to: B\n    rate: 10 Gb/s"  # begins in line 9


@pytest.mark.parametrize(
    ("content", "line", "message", "hint"),
    [
        (text(scenarios=SCENARIO.replace("10 Gb/s", "10")), 13, "`rate`: '10' has no unit", "10 Gb/s"),
        (
            text(scenarios=SCENARIO.replace("10 Gb/s", "10 Gbd/s")),
            13,
            "`rate`: '10 Gbd/s' is not a rate",
            "10 Gb/s",
        ),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "10 GB")), 13, "`rate`: '10 GB' is not a rate", "10 Gb/s"),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "-10 Gb/s")), 13, "negative", "10 Gb/s"),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "inf Gb/s")), 13, "is not a rate", "10 Gb/s"),
        (text(scenarios=SCENARIO.replace("10 Gb/s", ".nan")), 13, "is not a rate", "10 Gb/s"),
        (text(scenarios=SCENARIO.replace("10 Gb/s", "0 Gb/s")), 13, "must be above 0", "exclude"),
        (
            text(scenarios=SCENARIO.replace("10 Gb/s", "{a: 1}")),
            13,
            "`rate`: expected one value, got a mapping",
            "one value",
        ),
        (
            text(scenarios=SCENARIO.replace("to: B", "to: A")),
            12,
            "A is both source and destination",
            "must differ",
        ),
        (
            scenarios(
                "one:\n  links:\n    - {from: A, to: B, rate: 1 Gb/s}\n    - {from: A, to: A, rate: 1 Gb/s}"
            ),
            13,
            "A is both source and destination",
            "must differ",
        ),
        (
            scenarios(
                "one:\n  links:\n    - {from: A, to: B, rate: 1 Gb/s}\n    - {from: A, to: B, rate: 1 Gb/s}"
            ),
            13,
            "A -> B is in the scenario one twice at the same time, first in line 12",
            "add up",
        ),
        (text(scenarios=SCENARIO.replace("to: B", "to: {B: 0, C: 0}")), 12, "shares sum to 0", "above 0"),
        (text(scenarios=SCENARIO.replace("to: B", "to: {B: -1, C: 2}")), 12, "negative share", "from 0 on"),
        (text(scenarios=SCENARIO.replace("to: B", "to: [B, B]")), 12, "B is named twice", "once"),
        (text(scenarios=SCENARIO.replace("to: B", "to: []")), 12, "expected at least one RSE", "name RSEs"),
        (scenarios("one: {mesh: [A], rate: 1 Gb/s}"), 10, "a mesh of one, A", "two RSEs"),
        (
            scenarios("one: {mesh: {A: 1, B: 2}, rate: 1 Gb/s}"),
            10,
            "`mesh`: expected a list, got a mapping",
            "list",
        ),
        (scenarios("one: {mesh: [A, B], rate: 1 Gb/s, both_ways: true}"), 10, "both ways already", "remove"),
        (scenarios("one: {from: [A, B], to: [A, B], rate: 1 Gb/s, both_ways: true}"), 10, "a second time", "mesh"),
        (
            scenarios("one: {mesh: [A, B], from: A, rate: 1 Gb/s}"),
            10,
            "the scenario has `from` and `to` and `mesh`",
            "or",
        ),
        (scenarios("one: {priority: 3}"), 10, "the scenario has no links", "links"),
        (scenarios("one: {from: A, to: B}"), 10, "`rate` is missing", "10 Gb/s"),
        (scenarios("one: {from: A, rate: 1 Gb/s}"), 10, "`to` is missing", "shares"),
        (
            scenarios("one: {rate: 1 Gb/s, links: [{from: A, to: B, rate: 1 Gb/s}]}"),
            10,
            "`rate` cannot go with",
            "each link",
        ),
        (scenarios("one: {links: []}"), 10, "`links` is empty", "from"),
        (scenarios("one: {links: [{from: A, to: B}]}"), 10, "`rate` is missing", "rate: 10 Gb/s"),
        (
            scenarios("one: {links: [{from: [A], to: B, rate: 1 Gb/s}]}"),
            10,
            "`from`: expected one value, got a list",
            "one value",
        ),
        (scenarios("one: {links: 3}"), 10, "`links`: expected a list, got '3'", "list"),
        (scenarios("one: 3"), 10, "`one`: expected a mapping, got '3'", "key: value"),
        (scenarios("'bad name': {mesh: [A, B], rate: 1 Gb/s}"), 10, "'bad name' is not a name", "letters"),
        (text(scenarios="scenarios: {}"), 9, "there is no scenario", "scenarios"),
        (text(scenarios="scenarios: []"), 9, "`scenarios`: expected a mapping, got a list", "key: value"),
        (text(end="end: 2027-02-08 10:00"), 6, "ends before it starts", "later"),
        (text(end="end: 2027-02-07 10:00"), 6, "ends before it starts", "later"),
        (
            text(start="start: 2027-03-28 02:30", end="end: 2027-03-29"),
            5,
            "does not exist in Europe/Zurich",
            "03:30",
        ),
        (text(end="end: 2027-10-31 02:30"), 6, "happens twice in Europe/Zurich", "+02:00 or"),
        (
            text(timezone="timezone: Mars/Olympus"),
            4,
            "`timezone`: 'Mars/Olympus' is not a known time zone",
            "Europe/Zurich",
        ),
        *(
            (text(timezone=f"timezone: {name}"), 4, name, "Europe/Zurich")
            for name in ("localtime", "posixrules", "Factory", "right/Europe/Zurich")
        ),
        (scenarios("one: {from: \u0422A, to: B, rate: 1 Gb/s}"), 10, "U+0422 CYRILLIC CAPITAL LETTER TE", "RSE"),
        (scenarios("one: {from: A\u200b, to: B, rate: 1 Gb/s}"), 10, "'A<U+200B>'", "RSE"),
        (
            scenarios("one: {from: A, to: [B\u200b, C], rate: 1 Gb/s}"),
            10,
            "character 2 is U+200B ZERO WIDTH",
            "RSE",
        ),
        (scenarios("one: {from: A B, to: C, rate: 1 Gb/s}"), 10, "character 2 is ' '", "RSE"),
        (text(x="acc\u0435pt: []"), 14, "unknown here: character 4 is U+0435 CYRILLIC", "did you mean"),
        (scenarios("one: {through: ruci\u043e, from: A, to: B, rate: 1 Gb/s}"), 10, "no service", "U+043E"),
        (
            text(defaults="defaults: {datasets: {did: '\u0441ms:*'}}"),
            8,
            "U+0441 CYRILLIC SMALL LETTER ES",
            "scope",
        ),
        (text(campaign="campaign: Z\xfcrich"), 2, "U+00FC LATIN SMALL LETTER U WITH DIAERESIS", "letters"),
        (text(end=""), 1, "`end` is missing", "2027-02-09"),
        (text(contact=""), 1, "`contact` is missing", "contact"),
        (text(contact="contact:"), 3, "`contact` has no value", "remove"),
        (text(limits="limts: {total: 1 Tb/s}"), 7, "the key `limts` is unknown", "did you mean `limits`?"),
        (
            text(defaults="defaults: {mean_file: 1..2 GB, datasets: {did: 'a:b'}}"),
            8,
            "`mean_file` is unknown",
            "`datasets`",
        ),
        (text(x="colour: blue"), 14, "the key `colour` is unknown", "known here"),
        (text(x="start: 2027-02-08 11:00"), 14, "the key `start` appears twice, first in line 5", "keep one"),
        (text(menu="menu: 2", x="colour: blue"), 1, "`menu: 2` is from a newer dc_inject", "reads version 1"),
        (
            text(menu="grid: 1", x="colour: blue"),
            1,
            "this is a grid file, not a menu",
            "simulate MENU --grid GRID",
        ),
        (text(menu="menu: one"), 1, "`menu`: 'one' is not a version", "reads version 1: write 1"),
        (text(menu="menu: 1.0"), 1, "`menu`: '1.0' is not a version", "reads version 1: write 1"),
        (text(menu="menu: 2.0"), 1, "`menu`: '2.0' is not a version", "reads version 1: write 1"),
        (text(menu="menu: 0"), 1, "`menu`: '0' is not a version", "reads version 1: write 1"),
        (text(menu="menu: [1]"), 1, "`menu`: expected one value, got a list", "one value"),
        (text(menu=""), 1, "`menu` is missing", "menu: 1"),
        (
            text(x=SITE, scenarios="scenarios: {one: {from: A, to: R, rate: 200 Gb/s}}"),
            9,
            "WAN of RAL",
            "sites.RAL.wan",
        ),
        (
            text(x=SITE, scenarios="scenarios: {one: {from: KIT, to: A, rate: 1 Gb/s}}"),
            9,
            "several RSEs: K1, K2",
            "one",
        ),
        (
            text(x="sites: {KIT: {}}", scenarios="scenarios: {one: {from: KIT, to: A, rate: 1 Gb/s}}"),
            9,
            "no RSE",
            "sites",
        ),
        (
            text(x="sites:\n  P: {rses: {X: {}}}\n  Q: {rses: {X: {}}}"),
            16,
            "X is in two sites, P and Q",
            "one site",
        ),
        (text(limits="limits: {total: 9 Gb/s}"), 7, "above limits.total, 9 Gb/s", "limits: {total: 10 Gb/s}"),
        (
            text(limits="", scenarios=SCENARIO.replace("10 Gb/s", "101 Gb/s")),
            1,
            "above limits.total, 100 Gb/s",
            "total",
        ),
        (text(x="accept: [rate-outliers]"), 14, "no finding has the code 'rate-outliers'", "rate-outlier"),
        (text(x="above_production: maybe"), 14, "expected true or false, got 'maybe'", "true or false"),
        (
            text(scenarios=SCENARIO + "\n    service_priority: 4"),
            14,
            "would overtake production",
            "above_production: true",
        ),
        (
            text(scenarios=SCENARIO + "\n    priority: 6"),
            14,
            "expected a whole number from 1 to 5, got '6'",
            "1 to 5",
        ),
        (text(scenarios=SCENARIO + "\n    lifetime: {min: 3 h}"), 14, "min, 3 h, is above max, 2 h", "both"),
        (text(scenarios=SCENARIO + "\n    lifetime: {max: 999999999 d}"), 14, "999999999 d", "shorter"),
        (
            text(scenarios=SCENARIO + "\n    start: 2027-02-10"),
            14,
            "`start` lies outside of the menu's window",
            "within",
        ),
        (
            text(scenarios=SCENARIO + "\n    end: 2027-02-10"),
            14,
            "`end` lies outside of the menu's window",
            "within",
        ),
        (
            text(scenarios=SCENARIO + "\n    start: 2027-02-09 01:00\n    end: 2027-02-09 00:00"),
            15,
            "the window ends before it starts",
            "later",
        ),
        (text(scenarios=SCENARIO + "\n    wave: {ramp: 1 h}"), 14, "the key `wave` is unknown", "known here"),
        (text(scenarios=SCENARIO + "\n    through: gridftp"), 14, "'gridftp' is no service", "known: fts, rucio"),
        (text(defaults=""), 9, "no datasets are named for it", "datasets"),
        (text(defaults="defaults: {datasets: {did: cms}}"), 8, "'cms' is not a DID", "scope:name"),
        (
            text(defaults="defaults: {datasets: {did: 'a:b', files: 9..1}}"),
            8,
            "has its lower bound above its upper bound",
            "smaller",
        ),
        (
            text(defaults="defaults: {datasets: {did: 'a:b', files: 1..1000000000000}}"),
            8,
            "`files`: '1..1000000000000' is not within 0 to 1000000000",
            "2..200",
        ),
        (
            text(defaults="defaults: {datasets: {did: 'a:b', mean_file: 0..0 GB}}"),
            8,
            "`mean_file`: '0..0 GB' lets nothing pass but 0",
            "above 0",
        ),
        (text(defaults="defaults: {cycle: 0 s, datasets: {did: 'a:b'}}"), 8, "shorter than a second", "15 min"),
        (
            text(x="exclude:\n  - {from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
            "names one of",
            "each",
        ),
        (
            text(x="exclude:\n  - {rse: C, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
            "no link of this menu touches C",
            "known: A, B",
        ),
        (
            text(x="exclude:\n  - {link: 'B:A', from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
            "no link B:A",
            "A:B",
        ),
        (
            text(x="exclude:\n  - {scenario: on, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
            "no scenario on",
            "did you mean one?",
        ),
        (
            text(x="exclude:\n  - {site: KIT, from: 2027-02-08 12:00, to: 2027-02-08 13:00, reason: x}"),
            15,
            "no site KIT",
            "there is none",
        ),
        (
            text(x="exclude:\n  - {rse: A, from: 2027-02-08 13:00, to: 2027-02-08 13:00, reason: x}"),
            15,
            "the exclusion ends before it starts",
            "later",
        ),
        (
            text(x="exclude:\n  - {rse: A, from: 2027-02-08 13:00, to: 2027-02-08 14:00}"),
            15,
            "`reason` is missing",
            "add",
        ),
    ],
)
def test_refused(content: str, line: int, message: str, hint: str) -> None:
    """A menu with this one thing wrong has this one problem."""
    found = problems(content)
    assert [problem.line for problem in found] == [line], found
    assert message in found[0].message
    assert hint in found[0].hint
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


def test_what_was_refused_is_not_said_to_miss() -> None:
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
    assert [(problem.line, problem.message) for problem in problems(content)] == [
        (8, "`datasets`: expected a mapping, got '3'"),
        (8, "`steps`: '1 x' is not a level"),
        (8, "`steps`: '2 y' is not a level"),
        (10, "`from`: 'x' is not a share"),
        (10, "the shape has no `rate`"),
        (11, "`bad`: expected a mapping, got '3'"),
        (12, "`rate`: '1' has no unit"),
        (12, "`to`: expected one value, got a list"),
        (13, "A is both source and destination"),
        (13, "`scenarios`: 'bad name' is not a name"),
        (14, "`did`: 'x' is not a DID"),
        (14, "`lifetime`: expected a mapping, got '3'"),
        (15, "`K`: expected a mapping, got '3'"),
        (15, "`RAL`: expected a mapping, got '3'"),
    ]
