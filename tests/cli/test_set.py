"""`set` and `unset`: rates that people change while it runs, kept with who, when and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.cli import actions
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import overrides, urls
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.overrides import Kind
from tests.cli.ledgers import FNAL, KIT, MESH, START, Made, make, run

LINK = "T2_CH_CERN:T1_US_FNAL_Disk"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A campaign in its default place."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "dc_inject").mkdir(mode=0o700)
    return make(tmp_path / "dc_inject" / "dc27.sqlite", {FNAL: 1, MESH: 1}, dry=(KIT,))


def what_is_set(made: Made) -> list[tuple[str, Kind, float, str]]:
    with LedgerView.open(made.path) as view:
        return [(one.subject, one.kind, one.value, one.why) for one in view.overrides()]


@pytest.mark.parametrize(
    "names",
    [
        ("T2_CH_CERN", "T1_US_FNAL_Disk"),
        ("T2_CH_CERN:T1_US_FNAL_Disk",),
        ("T2_CH_CERN -> T1_US_FNAL_Disk",),
        ("dc27", "T2_CH_CERN->T1_US_FNAL_Disk"),
        ("dc27", "T2_CH_CERN", "T1_US_FNAL_Disk"),
    ],
)
def test_a_link_is_named_in_any_form_and_its_rate_set_and_taken_back(made: Made, names: tuple[str, ...]) -> None:
    """With the reason, and nothing is left."""
    done = run("set", *names, "rate", "40Gb/s", "--why", "more")
    assert done.exit_code == 0, done.exception
    assert f"dc27: {urls.arrow(LINK)}: rate 40 Gb/s (last cycle: 4 Gb/s); no injector runs now" in done.stderr
    assert what_is_set(made) == [(LINK, Kind.RATE, 5e9, "more")]
    assert "already set" in run("set", *names, "rate", "40", "Gb/s").stderr
    assert "deleted rate 40 Gb/s; no injector runs now" in run("unset", *names).stderr
    assert what_is_set(made) == []
    assert "no rate or scale was set" in run("unset", *names).stderr


def test_a_rate_for_what_is_stopped_says_that_it_is(made: Made) -> None:
    """Also where the stop is of all, and until it is lifted."""
    assert run("pause", "dc27", "*").exit_code == 0
    assert "still stopped" in run("set", "us-mesh", "scale", "50%").stderr
    assert "still stopped" in run("unset", "us-mesh").stderr
    assert "still stopped" not in run("resume", "*").stderr


def test_an_injector_that_runs_is_told_to_stop_at_once(made: Made) -> None:
    """A rate is given from the next cycle on, a pause holds in this one."""
    with Ledger.open(made.path) as ledger, ledger.hold("me@vobox"):
        assert "next cycle" in run("set", "us-mesh", "scale", "2").stderr
        paused = run("pause", "us-mesh").stderr
    assert "releases nothing" in paused
    assert "next cycle" not in paused


def test_scenarios_and_all_of_it_are_scaled_and_stopped(made: Made) -> None:
    """Each is undone by itself, and what is still set is told."""
    assert run("set", "us-mesh", "scale", "50%").exit_code == 0
    assert run("set", "dc27", "*", "scale", "0.8").exit_code == 0
    assert run("pause", "us-mesh", "--why", "lunch").exit_code == 0
    assert "already stopped" in run("pause", "us-mesh").stderr
    shown = json.loads(run("status", "dc27", "--format", "json").stdout)
    assert [(one["subject"], one["what"]) for one in shown["overrides"]] == [
        ("*", "scale 0.8"),
        ("us-mesh", "scale 0.5"),
    ]
    assert [one["subject"] for one in shown["pauses"]] == ["us-mesh"]
    assert "everything  scale 0.8" in run("status", "dc27").stdout
    taken = run("unset", "us-mesh", "scale")
    assert "all of it: scale 0.8" in taken.stderr
    assert "no scale was set" in run("unset", "us-mesh", "scale").stderr
    assert run("unset", "*").exit_code == 0
    assert run("resume", "us-mesh").exit_code == 0
    with LedgerView.open(made.path) as view:
        assert (view.overrides(), view.pauses()) == ((), ())
        assert view.changes(100)[-1].what == "set us-mesh scale 0.5"


@pytest.mark.parametrize(
    "words",
    [
        ("us-mush", "rate", "1Gb/s"),
        ("T2_CH_CERN", "T1_US_FNAL", "rate", "1Gb/s"),
        ("us-mesh",),
        ("rate", "1Gb/s"),
        ("us-mesh", "rate", "40"),
        ("us-mesh", "rate"),
        ("us-mesh", "scale", "0"),
        ("us-mesh", "scale", "nan"),
        ("us-mesh", "scale", "-1"),
        ("us-mesh", "pause"),
        ("T2_CH_CERN", "T1_US_FNAL_Disk", "resume"),
        ("a", "b", "c", "rate", "1Gb/s"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(made: Made, words: tuple[str, ...], wording) -> None:
    """A rate that is set for nobody would be worse than an error."""
    error = run("set", "--", *words).exception
    assert isinstance(error, UsageError)
    wording(error)
    assert what_is_set(made) == []


def changes(made: Made) -> list[tuple[str, str]]:
    with LedgerView.open(made.path) as view:
        return [(one.what, one.why) for one in reversed(view.changes(100))]


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        (("us-mesh",), "us-mesh"),
        (("dc27", "us-mesh"), "us-mesh"),
        (("T2_CH_CERN", "T1_US_FNAL_Disk"), LINK),
        (("T2_CH_CERN->T1_US_FNAL_Disk",), LINK),
        (("dc27", LINK), LINK),
        (("*",), "*"),
        (("dc27", "*"), "*"),
        (("dc27",), "*"),
    ],
)
def test_every_command_names_its_subject_in_the_same_words(
    made: Made, names: tuple[str, ...], subject: str, wording
) -> None:
    """Of a scenario, a link and all of it, in whatever words, also with the ledger's file as an option."""
    for command in (("pause",), ("resume",), ("pause",), ("resume", "--ledger", str(made.path))):
        done = run(command[0], *names, *command[1:], "--why", "lunch")
        assert done.exit_code == 0, done.exception
    wording(done.stderr)
    assert "was not stopped" in run("resume", *names).stderr
    scaled = run("set", *names, "scale", "50%")
    assert scaled.exit_code == 0, scaled.exception
    assert f"{overrides.shown(subject)}: scale 0.5" in scaled.stderr
    assert f"{overrides.shown(subject)}: deleted scale 0.5" in run("unset", *names, "scale").stderr
    assert changes(made) == [
        *[(f"{verb} {overrides.shown(subject, '*')}", "lunch") for verb in ("stop", "resume", "stop", "resume")],
        (f"set {overrides.shown(subject, '*')} scale 0.5", ""),
        (f"unset {overrides.shown(subject, '*')} scale 0.5", ""),
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pause", "us-mush"), "us-mesh"),
        (("pause", KIT.link.destination), str(KIT.link)),  # a site is none: its links are named
        (("pause", "us-mesh", "lunch"), "us-mesh:lunch"),
        (("resume", "us-mush"), "us-mesh"),
        (("unset", "us-mush"), "us-mesh"),
        (("unset", "T2_CH_CERN", "T1_US_FNAL_Disk", "pause"), "dc-inject resume T2_CH_CERN T1_US_FNAL_Disk"),
        (("pause", ""), "neither a scenario"),
    ],
)
def test_a_pause_of_what_cannot_be_meant_is_refused(made: Made, words: tuple[str, ...], says: str) -> None:
    """And change nothing."""
    error = run(*words).exception
    assert isinstance(error, UsageError)
    assert says in f"{error.message} {error.hint}"
    assert changes(made) == []


def test_a_ledger_of_another_campaign_is_refused(made: Made) -> None:
    """Both were named, and only one of them can be meant."""
    other = make(made.path.with_name("other.sqlite"), {FNAL: 1})
    error = run("pause", "other", "us-mesh", "--ledger", made.path).exception
    assert isinstance(error, LedgerError), error
    assert changes(made) == changes(other) == []


def test_of_several_campaigns_the_one_with_an_injector_is_meant(made: Made) -> None:
    """And with none, nobody guesses."""
    other = make(made.path.with_name("other.sqlite"), {FNAL: 1})
    error = run("set", "t0-export", "scale", "2").exception
    assert isinstance(error, UsageError)
    assert "dc27, other" in (error.hint or "")
    with Ledger.open(other.path) as ledger, ledger.hold("me@vobox"):
        assert "me@vobox" in run("set", "t0-export", "scale", "2").stderr
    assert (what_is_set(made), len(what_is_set(other))) == ([], 1)
    assert run("set", "t0-export", "scale", "2", "--ledger", made.path).exit_code == 0
    assert len(what_is_set(made)) == 1


MENU = """
menu: 1
campaign: dc27
contact: dc@example.org
start: 2027-02-08 10:00
end: 2027-02-09 10:00
limits: {total: 60 Gb/s, per_site: 30 Gb/s}
include: [sites.yaml]
defaults: {datasets: {did: "cms:*"}}
scenarios:
  t0-export: {from: T2_CH_CERN, to: [T1_US_FNAL_Disk, T1_DE_KIT_Disk], rate: 8 Gb/s}
  us-mesh: {mesh: [T2_US_MIT, T2_US_Nebraska], rate: 8 Gb/s}
"""
SITES = "sites: {KIT: {wan: 100 Gb/s, max_ingress: 9 Gb/s, rses: {T1_DE_KIT_Disk: {}}}}"


@pytest.fixture
def in_force(made: Made, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the menu that is in force in the campaign, with the sites that it includes."""
    monkeypatch.setattr(actions, "SystemClock", lambda: SimClock(START))
    folder = made.path.parent
    (folder / "sites.yaml").write_text(SITES)
    with Ledger.open(made.path) as ledger:
        ledger.put_in_force([(str(folder / "m.yaml"), "digest", MENU)], START)
    return folder


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        (("T2_CH_CERN->T1_US_FNAL_Disk", "rate", "20Gb/s"), []),
        (
            ("T2_CH_CERN->T1_US_FNAL_Disk", "rate", "29Gb/s"),
            ["egress of T2_CH_CERN sums to 33 Gb/s, above limits."],
        ),
        (
            ("t0-export", "rate", "19Gb/s"),
            ["ingress of KIT sums to 9.5 Gb/s, above sites.KIT.max_ingress, 9 Gb/s"],
        ),
        (
            ("us-mesh", "rate", "53Gb/s"),
            ["61 Gb/s, above limits.total, 60 Gb/s"],
        ),
        (("us-mesh", "scale", "10"), ["above limits.per_site"] * 4 + ["above limits.total"]),
        (("us-mesh", "scale", "0.5"), []),
    ],
)
def test_a_rate_above_a_limit_names_the_limit_that_holds_it(
    made: Made, in_force: Path, words: tuple[str, ...], limits: list[str]
) -> None:
    """Of sites and in total, as the menus in force have them; it is set all the same."""
    assert (in_force / "sites.yaml").exists()
    for _ in range(2):  # also when it is so already
        done = run("set", *words)
        assert done.exit_code == 0, done.exception
        warned = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
        for line, limit in zip(sorted(warned), sorted(limits), strict=True):
            assert limit in line
    assert len(what_is_set(made)) == 1


def test_a_limit_that_others_exceed_is_not_told_of_this_link(made: Made, in_force: Path) -> None:
    """And nothing is said of menus that are over."""
    assert run("set", "T2_CH_CERN->T1_US_FNAL_Disk", "rate", "35Gb/s").stderr.count("warning: ") == 2
    assert "warning" not in run("set", "us-mesh", "rate", "9Gb/s").stderr
    over = MENU.replace("2027-02", "2027-01")
    with Ledger.open(made.path) as ledger:
        ledger.put_in_force([(str(in_force / "m.yaml"), "other", over)], START)
    assert "warning" not in run("set", "us-mesh", "rate", "90Gb/s").stderr


def test_menus_that_cannot_be_read_keep_nothing_from_being_set(made: Made, in_force: Path, wording) -> None:
    """It is said that the limits are not known here."""
    (in_force / "sites.yaml").unlink()
    done = run("set", "us-mesh", "rate", "90Gb/s")
    assert done.exit_code == 0, done.exception
    wording(done.stderr)
    assert "sites.yaml" in done.stderr
    assert len(what_is_set(made)) == 1
