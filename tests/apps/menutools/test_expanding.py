"""Menus written out: the same flows, one link a line, and everything else where it was."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject import menu
from dc_inject.apps.menutools import expanding
from dc_inject.menu import MenuDraft, differences
from dc_inject.model.errors import MenuError
from tests.menu.texts import A, B, draft, fts, scenarios, text

FILES = {
    "l.csv": "from,to,rate,priority\nA,D,3 Gb/s,4\nA,E,3 Gb/s,\n",
    "parts/p.yaml": "sites: {KIT: {rses: {T1_DE_KIT_Disk: {}}}}\n"
    "defaults: {datasets: {file: d.txt}}\n"
    "x-free: {any: thing}\n"
    "accept: [rate-outlier]\n"
    "scenarios: {inc: {from: A, to: [B, KIT], rate: 3 Gb/s, datasets: {file: d.txt}}}\n",
    "parts/d.txt": "a:*\n",
    "d.txt": "b:*\n",
    "s.csv": "url\ndavs://a.example.org:8443/dc/1\n",
}


def load(path: str, most: int) -> bytes:
    return FILES[path].encode()[:most]


def expanded(one: MenuDraft, names: Mapping[str, tuple[str, ...]] | None = None, to: str = "m.yaml") -> str:
    folder = posixpath.dirname(to)
    return expanding.expanded(one, load, names or {}, lambda path: posixpath.relpath(path, folder or "."))


def written_out(before: str, names: Mapping[str, tuple[str, ...]] | None = None) -> str:
    """Expand a menu, and see that all that has to hold then does."""
    old = draft(before, FILES)
    made = expanded(old, names)
    new = draft(made, FILES)
    one, other = (menu.campaign([resolved]) for resolved in (old.resolve(names or {}), new.resolve({})))
    assert differences.changes(one, other) == ()
    assert list(differences.others(one, other)) == []
    assert [flow.key for flow in one.flows] == [flow.key for flow in other.flows]
    assert [flow.rate for flow in other.flows] == [
        pytest.approx(flow.rate) if flow.goal else flow.rate for flow in one.flows
    ]
    assert expanded(new) == made, "expand of expand is itself"
    assert not new.expressions
    first = [flow for flow in other.flows if flow.goal is None or flow.goal.kind != "then"]
    for name, scenario in new.document.scenarios.items():
        assert len(scenario.links) == len([flow for flow in first if flow.scenario == name])
        assert not any(entry.both_ways for entry in scenario.links)
    comments = re.findall(r"# .*", before)
    assert [comment for comment in comments if comment not in made] == []
    return made


def body(made: str) -> list[str]:
    """The lines below `scenarios:` that are no comments."""
    lines = made[made.index("\nscenarios:") :].splitlines()[2:]  # the old ones stand above
    return [line for line in lines if not line.lstrip().startswith("#")]


def test_shares_become_links_and_stay_as_a_comment() -> None:
    """With all scenarios, and with their comments."""
    made = written_out(
        scenarios(
            "one:  # the first\n"
            "  priority: 4\n"
            "  from: A   # source\n"
            "  to:\n"
            "    B: 40\n"
            "    # ten each\n"
            "    C: 10\n"
            "  rate: 250 Gb/s   # agreed\n"
            "  lifetime: {min: 1 h}\n"
            "# the second\n"
            "two: {from: A, to: B, rate: 1 Gb/s}"
        )
    )
    assert made[made.index("scenarios:") :] == (
        "scenarios:\n"
        "#   one:  # the first\n"
        "#     priority: 4\n"
        "#     from: A   # source\n"
        "#     to:\n"
        "#       B: 40\n"
        "      # ten each\n"
        "#       C: 10\n"
        "#     rate: 250 Gb/s   # agreed\n"
        "#     lifetime: {min: 1 h}\n"
        "  # the second\n"
        "#   two: {from: A, to: B, rate: 1 Gb/s}\n"
        "scenarios:\n"
        "  one:\n"
        "    priority: 4\n"
        "    lifetime: {min: 1 h}\n"
        "    links:\n"
        "      - {from: A, to: B, rate: 200 Gb/s}\n"
        "      - {from: A, to: C, rate: 50 Gb/s}\n"
        "  two:\n"
        "    links:\n"
        "      - {from: A, to: B, rate: 1 Gb/s}\n"
    )


def test_a_list_of_links_keeps_its_order_and_its_other_keys() -> None:
    made = written_out(
        scenarios(
            "one:\n"
            "  links:\n"
            "  - {from: A, to: B, rate: 1000 Mbps, x-note: {a: b}}   # keep\n"
            "  # both\n"
            "  - from: A\n"
            "    to: C\n"
            "    rate: 2 Gb/s\n"
            "    both_ways: true\n"
            "    tape_agreed: 'a: b'\n"
            "two: {links: [{from: A, to: B, rate: 1 Gb/s, both_ways: true}, {from: A, to: C, rate: 1 Gb/s}]}"
        )
    )
    assert made[made.rindex("\nscenarios:\n") + 12 :] == (
        "  one:\n"
        "    links:\n"
        "      - {from: A, to: B, rate: 1000 Mbps, x-note: {a: b}}\n"
        '      - {from: A, to: C, rate: 2 Gb/s, tape_agreed: "a: b"}\n'
        '      - {from: C, to: A, rate: 2 Gb/s, tape_agreed: "a: b"}\n'
        "  two:\n"
        "    links:\n"
        "      - {from: A, to: B, rate: 1 Gb/s}\n"
        "      - {from: B, to: A, rate: 1 Gb/s}\n"
        "      - {from: A, to: C, rate: 1 Gb/s}\n"
    )


def test_what_is_written_out_stays_as_it_is() -> None:
    """To the last character."""
    before = scenarios("one:\n  links:   # mine\n  - {from: A, to: B, rate: 1000 Mbps}\n  # last")
    assert written_out(before) == before


def test_files_of_links_and_includes() -> None:
    """Come into the menu; what it goes on to name is called from where it is."""
    before = text(
        x="include: parts/p.yaml   # parts", scenarios="scenarios:\n  csv:\n    links: {file: l.csv}  # t1-t2"
    )
    made = written_out(before)
    assert body(made) == [
        "  csv:",
        "    links:",
        "      - {from: A, to: D, rate: 3 Gb/s, priority: 4}",
        "      - {from: A, to: E, rate: 3 Gb/s}",
        "  inc:  # from parts/p.yaml",
        "    datasets: {file: parts/d.txt}",
        "    links:",
        "      - {from: A, to: B, rate: 1.5 Gb/s}",
        "      - {from: A, to: T1_DE_KIT_Disk, rate: 1.5 Gb/s}",
        "sites:",
        "  KIT: {rses: {T1_DE_KIT_Disk: {}}}",
        "accept:",
        "  - rate-outlier",
    ]
    assert "# include: parts/p.yaml   # parts" in made
    assert 'defaults: {datasets: {did: "cms:*"}}' in made, "what the menu says itself counts"


def test_files_are_called_from_the_new_place() -> None:
    """Also those of the menu itself, and only where that differs."""
    before = text(
        defaults="defaults: {datasets: {file: d.txt}}  # mine",
        x="include: parts/p.yaml",
        scenarios="scenarios:\n  one: {from: A, to: B, rate: 1 Gb/s, datasets: {file: ./d.txt}}",
    )
    made = expanded(draft(before, FILES), to="out/m.yaml")
    assert "defaults: {datasets: {file: ../d.txt}}  # mine" in made
    assert "    datasets: {file: ../parts/d.txt}\n" in made
    assert "    datasets: {file: ../d.txt}\n" in made
    link = f"{{from: {A}, to: {B}, rate: 1 Gb/s, files: {{list: s.csv}}, both_ways: false}}"
    through_fts = expanded(draft(fts(f"{{links: [{link}]}}"), FILES), to="o/m.yaml")
    assert through_fts.count("../s.csv") == 3


def test_anchors_aliases_and_merges() -> None:
    """Are written out where they made links."""
    made = written_out(
        text(
            menu="menu: 1\nx-quick: &quick\n  lifetime: {min: 30 min, max: 1 h}\n  rate: 10 Gb/s",
            scenarios="scenarios:\n  one: {<<: *quick, from: &a A, to: B}\n  two: &two\n    <<: *quick\n"
            "    from: A\n    to: [C, D]   # both\n  three: *two\n"
            "  four:\n    links: [{from: *a, to: B, rate: 1 Gb/s}]",
        )
    )
    assert body(made) == [
        "  one:",
        "    lifetime: {min: 30 min, max: 1 h}",
        "    links:",
        "      - {from: A, to: B, rate: 10 Gb/s}",
        *(
            line
            for name in ("two", "three")
            for line in (
                f"  {name}:",
                "    lifetime: {min: 30 min, max: 1 h}",
                "    links:",
                "      - {from: A, to: C, rate: 5 Gb/s}",
                "      - {from: A, to: D, rate: 5 Gb/s}",
            )
        ),
        "  four:",
        "    links:",
        "      - {from: A, to: B, rate: 1 Gb/s}",
    ]
    menu = scenarios(
        "one: {from: A, to: &many [B, C], rate: 1 Gb/s}\n"
        "two: {x-y: *many, links: [{from: A, to: B, rate: 1 Gb/s}]}"
    )
    assert "    x-y: [B, C]\n" in written_out(menu), "what an alias stood for is written where it is used"


def test_an_anchor_of_a_scenario_that_is_used_below_is_written_out_too() -> None:
    made = written_out(scenarios("one: {from: A, to: [B, C], rate: &r 2 Gb/s}  # a") + "target: *r\n")
    assert made.startswith("# menu: 1\n")
    assert made.endswith("target: 2 Gb/s\n")


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n# the end", "\n\n\n"])
def test_scenarios_in_braces_and_ends_of_files(end: str) -> None:
    """However a file is written."""
    before = text(scenarios="").strip() + "\nscenarios: {one: {mesh: [A, B], rate: 1 Gb/s}}" + end
    assert body(written_out(before))[0:4] == [
        "  one:",
        "    links:",
        "      - {from: A, to: B, rate: 500 Mb/s}",
        "      - {from: B, to: A, rate: 500 Mb/s}",
    ]
    written_out(before.replace("\n", "\r\n"))
    written_out(before.replace("\n", "\r"))


@pytest.mark.parametrize(("first", "last"), [("---\n", ""), ("%YAML 1.1\n---\n", "")])
def test_marks_of_documents(first: str, last: str) -> None:
    """What is added comes before the end of the document."""
    before = text(x="include: parts/p.yaml", scenarios="scenarios:\n  one: {mesh: [A, B], rate: 1 Gb/s}")
    assert written_out(first + before + last).endswith(f"  - rate-outlier\n{last}")


def test_a_menu_as_json() -> None:
    """Is one too; written out it is in lines."""
    menu = {
        "menu": 1, "campaign": "x", "contact": "me", "start": "2027-02-08", "end": "2027-02-09", "x-mine": [1],
        "include": "parts/p.yaml", "scenarios": {"one": {"mesh": ["A", "B"], "rate": "1 Gb/s", "priority": 4}},
    }  # fmt: skip
    for indent in (None, 2):
        made = written_out(json.dumps(menu, indent=indent) + "\n")
        assert body(made)[:3] == ["  one:", "    priority: 4", "    links:"]


def test_levels_of_shapes_become_parts() -> None:
    """Where they were rates beside that of the whole scenario, also from `defaults`; a link's own stay."""
    steps = "shape: {steps: [2 Gb/s, 0.5, 8 Gb/s], hold: 1 h}"
    made = written_out(
        text(
            defaults=f"defaults: {{datasets: {{did: 'a:*'}}, {steps}}}",
            scenarios="scenarios:\n  one: {from: A, to: [B, C], rate: 8 Gb/s}\n"
            "  two:\n    mesh: [A, B]\n    shape: {ramp: 1 h, from: 1 Gb/s}\n    rate: 4 Gb/s\n"
            "  three: {links: [{from: A, to: B, rate: 8 Gb/s}]}",
        )
    )
    assert "    shape: {steps: [0.25, 0.5, 1], hold: 1 h}\n    links:" in made
    assert "    shape: {ramp: 1 h, from: 0.25}\n" in made
    assert sum(line.count("shape:") for line in made.splitlines() if not line.startswith("#")) == 3


def test_volumes_and_bytes_to_keep_are_shared() -> None:
    """As rates are, to the byte; a volume without a rate stays one."""
    made = written_out(
        scenarios(
            "one: {from: A, to: {B: 1, C: 2}, volume: 1 TB}\n"
            "two:\n  from: A\n  to: [B, C]\n  volume: 2 PiB   # all\n  rate: 80 Gb/s\n"
            "three: {mesh: [A, B], keep: 3 TB, rate: 8 Gb/s}\n"
            "four: {links: [{from: A, to: B, keep: 2 TiB, rate: 8 Gb/s, both_ways: true}]}\n"
            "five: {from: A, to: [B, C], again: true, rate: 8 Gb/s}"
        )
    )
    assert body(made) == [
        "  one:",
        "    links:",
        "      - {from: A, to: B, volume: 333.333333333 GB}",
        "      - {from: A, to: C, volume: 666.666666667 GB}",
        "  two:",
        "    links:",
        "      - {from: A, to: B, rate: 40 Gb/s, volume: 1.125899906842624 PB}",
        "      - {from: A, to: C, rate: 40 Gb/s, volume: 1.125899906842624 PB}",
        "  three:",
        "    links:",
        "      - {from: A, to: B, rate: 4 Gb/s, keep: 1.5 TB}",
        "      - {from: B, to: A, rate: 4 Gb/s, keep: 1.5 TB}",
        "  four:",
        "    links:",
        "      - {from: A, to: B, rate: 8 Gb/s, keep: 2 TiB}",
        "      - {from: B, to: A, rate: 8 Gb/s, keep: 2 TiB}",
        "  five:",
        "    links:",
        "      - {from: A, to: B, rate: 4 Gb/s, again: true}",
        "      - {from: A, to: C, rate: 4 Gb/s, again: true}",
    ]


def test_second_hops_and_data_that_go_round() -> None:
    """Second hops follow from the first ones, so they stay as they are; `again` is said of each link."""
    made = written_out(
        scenarios(
            "one: {from: A, to: [B, C], rate: 8 Gb/s, then: {to: {B: D, C: E}, rate: 4 Gb/s}}\n"
            "two:\n  from: A\n  to: [B, C]\n  rate: 8 Gb/s\n  again: true   # round\n"
            "three:\n  then: {to: D}\n  links:\n  - {from: A, to: B, rate: 1 Gb/s, both_ways: true}"
        )
    )
    assert body(made) == [
        "  one:",
        "    then: {to: {B: D, C: E}, rate: 4 Gb/s}",
        "    links:",
        "      - {from: A, to: B, rate: 4 Gb/s}",
        "      - {from: A, to: C, rate: 4 Gb/s}",
        "  two:",
        "    links:",
        "      - {from: A, to: B, rate: 4 Gb/s, again: true}",
        "      - {from: A, to: C, rate: 4 Gb/s, again: true}",
        "  three:",
        "    then: {to: D}",
        "    links:",
        "      - {from: A, to: B, rate: 1 Gb/s}",
        "      - {from: B, to: A, rate: 1 Gb/s}",
    ]


def test_expressions(wording) -> None:
    """Are written out as they are said to be; in a link they divide its rate, with the levels of its shape."""
    names = {"tier=2": ("T2_A", "T2_B")}
    made = written_out(
        scenarios(
            'mesh: {mesh: [A, "tier=2"], rate: 6 Gb/s}\n'
            'one: {links: [{from: A, to: "tier=2", rate: 6 Gb/s, shape: {ramp: 1 h, from: 3 Gb/s}},'
            " {from: A, to: B, rate: 1 Gb/s}]}\n"
            'two: {shape: {ramp: 1 h, from: 3 Gb/s}, links: [{from: A, to: "tier=2", rate: 6 Gb/s}]}'
        ),
        names,
    )
    assert body(made)[2:] == [
        *(f"      - {{from: {a}, to: {b}, rate: 1 Gb/s}}"
          for a in ("A", "T2_A", "T2_B") for b in ("A", "T2_A", "T2_B") if a != b),
        "  one:",
        "    links:",
        "      - {from: A, to: T2_A, rate: 3 Gb/s, shape: {ramp: 1 h, from: 0.5}}",
        "      - {from: A, to: T2_B, rate: 3 Gb/s, shape: {ramp: 1 h, from: 0.5}}",
        "      - {from: A, to: B, rate: 1 Gb/s}",
        "  two:",
        "    shape: {ramp: 1 h, from: 3 Gb/s}",
        "    links:",
        "      - {from: A, to: T2_A, rate: 3 Gb/s, shape: {ramp: 1 h, from: 0.5}}",
        "      - {from: A, to: T2_B, rate: 3 Gb/s, shape: {ramp: 1 h, from: 0.5}}",
    ]  # fmt: skip
    with pytest.raises(MenuError) as refused:
        written_out(scenarios('one: {from: A, to: "tier=3", rate: 1 Gb/s}'), names)
    wording(refused.value)


# --------------------------------------------------------------------------- properties

RSES = ("A", "B_1", "T1_DE_KIT_Disk", "D.x", "E-e")
RATES = st.tuples(st.integers(1, 9999), st.sampled_from(["Mb/s", "MB/s", "MiB/s", "GiB/h", "Gbps"])).map(
    lambda pair: f"{pair[0]} {pair[1]}"
)
ENDS = st.lists(st.sampled_from(RSES), min_size=1, max_size=4, unique=True)
EXTRA = st.sampled_from([
    "", "priority: 4", "lifetime: {min: 1 h, max: 3 h}", "shape: {burst: 1 h, pause: 2 h}", "overhead: 5 %",
    "start: 2027-02-08 12:00", "shape: {steps: [1 kb/s, 50 %], hold: [1 h]}", "activity: 'Data #1: \"x\"'",
    "datasets: {did: [\"a:/b/c#*\", 'd*:*'], exclude: 'x:*'}",
])  # fmt: skip


@st.composite
def forms(draw: st.DrawFn) -> list[str]:
    """The keys of a scenario, each a line."""
    kind = draw(st.sampled_from(["shares", "mesh", "links"]))
    rate = f"rate: {draw(RATES)}"
    names = list(RSES)
    if kind == "mesh":
        return [f"mesh: [{', '.join(draw(st.lists(st.sampled_from(names), min_size=2, unique=True)))}]", rate]
    if kind == "shares":
        sources = draw(ENDS.filter(lambda ends: len(ends) < 4))
        others = [name for name in names if name not in sources]
        shares = {name: draw(st.integers(1, 99)) for name in draw(ENDS) if name in others} or {others[0]: 1}
        to = "{" + ", ".join(f"{name}: {share}" for name, share in shares.items()) + "}"
        turned = draw(st.sampled_from([[], ["both_ways: true"]]))
        return [f"from: [{', '.join(sources)}]", f"to: {to}", rate, *turned]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    links = []
    for a, b in draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=4, unique=True)):
        more = draw(EXTRA.filter(lambda one: "1 kb/s" not in one))
        turned = draw(st.sampled_from(["", ", both_ways: true"]))
        links.append(f"{{from: {a}, to: {b}, rate: {draw(RATES)}{turned}{', ' if more else ''}{more}}}")
    return [f"links: [{', '.join(links)}]"]


@st.composite
def menus(draw: st.DrawFn) -> str:
    """Menus whose scenarios are written in braces or in lines, with comments."""
    parts = []
    for number in range(draw(st.integers(1, 3))):
        lines = [*draw(forms()), *filter(None, [draw(EXTRA)])]
        lines = draw(st.permutations(lines))
        if draw(st.booleans()):
            parts.append(f"  s{number}: {{{', '.join(lines)}}}  # c{number}\n")
        else:
            parts.append(
                f"  s{number}:  # c{number}\n" + "".join(f"    {line}  # l{i}\n" for i, line in enumerate(lines))
            )
    top = text(limits="limits: {total: 1e6 Gb/s, per_site: 1e6 Gb/s}", scenarios="")
    return f"{top}scenarios:\n{''.join(parts)}"


@given(menus())
def test_a_menu_written_out_asks_for_the_same(before: str) -> None:
    """Whatever it is made of; written out once more it does not change, and no comment is lost."""
    written_out(before)
