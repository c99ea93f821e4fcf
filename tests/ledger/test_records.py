"""Binding, menus, what people do, inventories, signals and quarantine."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.ledger import Ledger, Pause
from dc_inject.ledger.records import LONGEST_NOTE, NOTES_FOR, NOTES_KEPT
from dc_inject.model import Dataset, File, FileFilter, Listing, PoolKey
from dc_inject.model.errors import LedgerError, Temporary
from dc_inject.model.overrides import Kind, Override
from tests.ledger.world import LENGTH, ME, MINUTE, POOL, START, opened

LATER = START + LENGTH


@pytest.fixture
def ledger(tmp_path):
    with opened(tmp_path) as made:
        yield made


def test_a_ledger_is_bound_at_its_first_run(ledger):
    assert (ledger.campaign, ledger.cycle_length, ledger.since, ledger.identities()) == (None, None, None, ())
    ledger.bind("dc27", LENGTH, (ME,), START)
    ledger.bind("dc27", LENGTH, (replace(ME, version="42", may_end=None, credentials_until=LATER),), LATER)
    assert (ledger.campaign, ledger.cycle_length) == ("dc27", LENGTH)
    (known,) = ledger.identities()
    assert (known.service, known.account, known.vo, known.address) == ("rucio", "dcops", "def", ME.address)
    assert (known.version, known.may_end, known.credentials_until) == ("42", None, LATER), (
        "what may change follows"
    )


@pytest.mark.parametrize(
    ("campaign", "length", "identity", "says"),
    [
        ("dc28", LENGTH, ME, "another campaign: dc27, not dc28"),
        ("dc27", 2 * LENGTH, ME, "another cycle length: 15 min, not 30 min"),
        ("dc27", LENGTH, replace(ME, account="root"), "another account at rucio: dcops, not root"),
        ("dc27", LENGTH, replace(ME, vo="atl"), "another VO at rucio: def, not atl"),
        (
            "dc27",
            LENGTH,
            replace(ME, address="https://other:443"),
            "another host at rucio: rucio.example.org, not other",
        ),
    ],
    ids=["campaign", "cycle", "account", "vo", "host"],
)
def test_a_ledger_refuses_another_one_and_says_which(ledger, campaign, length, identity, says):
    ledger.bind("dc27", LENGTH, (ME,), START)
    with pytest.raises(LedgerError, match=says) as error:
        ledger.bind(campaign, length, (identity,), LATER)
    assert error.value.hint
    ledger.bind("dc27", LENGTH, (ME,), LATER)
    assert [known.account for known in ledger.identities()] == ["dcops"], "a refusal changes nothing"


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("https://fts:8446", "https://fts:8447", False),
        ("https://fts:8446", "https://other:8446", False),
        ("https://fts:8446", "https://FTS:8446/", True),
        ("https://fts", "https://fts:443", True),
        ("http://[::1]:8446", "http://[::1]:8447", False),
    ],
)
def test_another_port_is_another_fts(ledger, before, after, same):
    """A test instance on the host of the real one knows none of its jobs: all of them would look lost."""
    fts = replace(ME, service="fts", address=before)
    ledger.bind("dc27", LENGTH, (fts,), START)
    if same:
        ledger.bind("dc27", LENGTH, (replace(fts, address=after),), LATER)
    else:
        with pytest.raises(LedgerError, match="another host at fts"):
            ledger.bind("dc27", LENGTH, (replace(fts, address=after),), LATER)


def test_rucio_may_move_to_another_port(ledger):
    ledger.bind("dc27", LENGTH, (ME,), START)
    ledger.bind("dc27", LENGTH, (replace(ME, address="https://rucio.example.org:8443"),), LATER)
    assert ledger.identities()[0].address == "https://rucio.example.org:8443"


def test_another_port_or_path_of_the_same_host_is_the_same_service(ledger):
    ledger.bind("dc27", LENGTH, (ME,), START)
    ledger.bind("dc27", LENGTH, (replace(ME, address="https://rucio.example.org/api"),), LATER)
    with pytest.raises(LedgerError, match="another account"):
        ledger.identify(replace(ME, account="root"), LATER)


def test_a_service_can_be_added_later(ledger):
    ledger.bind("dc27", LENGTH, (ME,), START)
    ledger.bind("dc27", LENGTH, (replace(ME, service="fts", address="https://fts:8446"),), LATER)
    assert [known.service for known in ledger.identities()] == ["fts", "rucio"]


def test_the_first_run_is_written_once(ledger):
    assert ledger.begin(START) == START
    assert ledger.begin(LATER) == START
    assert ledger.since == START


def test_menus_in_force_are_those_of_the_last_reading(ledger):
    ledger.put_in_force([("a.yaml", "1", "menu: 1"), ("b.yaml", "2", "menu: 2")], START)
    ledger.put_in_force([("a.yaml", "1", "menu: 1"), ("b.yaml", "3", "menu: 3")], LATER)
    ledger.put_in_force([("a.yaml", "1", "menu: 1"), ("b.yaml", "3", "menu: 3")], LATER + MINUTE)
    assert [(m.name, m.digest, m.text, m.since) for m in ledger.menus_in_force()] == [
        ("a.yaml", "1", "menu: 1", START),
        ("b.yaml", "3", "menu: 3", LATER),
    ]
    ledger.put_in_force([], LATER)
    assert ledger.menus_in_force() == ()


def test_what_an_expression_meant_first_stays(ledger):
    assert ledger.resolution("rucio", "tier=1") is None
    ledger.record_resolution("rucio", "tier=1", ["A", "B"], START)
    ledger.record_resolution("rucio", "tier=1", ["C"], LATER)
    assert ledger.resolution("rucio", "tier=1") == ("A", "B")
    assert ledger.resolution("fts", "tier=1") is None


def test_a_stop_holds_until_it_is_lifted_and_both_are_changes(ledger):
    assert ledger.pause("*", "me", "too much", START)
    assert not ledger.pause("*", "you", "still", LATER)
    assert ledger.pause("A:B", "me", "", START + MINUTE)
    assert ledger.pauses() == (Pause("*", "me", "too much", START), Pause("A:B", "me", "", START + MINUTE))
    assert ledger.resume("*", "you", "enough", LATER)
    assert not ledger.resume("*", "you", "enough", LATER)
    assert [pause.subject for pause in ledger.pauses()] == ["A:B"]
    ledger.change("me", "scale 0.5", "gently", LATER)
    assert [(c.at, c.who, c.what, c.why) for c in ledger.changes()] == [
        (LATER, "me", "scale 0.5", "gently"),
        (LATER, "you", "resume *", "enough"),
        (START + MINUTE, "me", "stop A -> B", ""),
        (START, "me", "stop *", "too much"),
    ]
    assert len(ledger.changes(2)) == 2


def test_notes_are_told_newest_first(ledger):
    ledger.note("one", START)
    ledger.note("two", LATER)
    assert ledger.notes() == ((LATER, "two"), (START, "one"))
    assert ledger.notes(1) == ((LATER, "two"),)


def test_a_bug_that_shows_at_every_step_for_days_does_not_fill_the_disk_with_notes(ledger):
    """Of one text the first and the last are kept, of others the newest, and of a long one its two ends."""
    ledger.note("first of all", START)
    for number in range(3 * NOTES_KEPT):
        ledger.note("the same trace", START + number * MINUTE)
    later = START + 3 * NOTES_KEPT * MINUTE
    assert ledger.notes(NOTES_KEPT) == (
        (later - MINUTE, "the same trace"),
        (START, "the same trace"),
        (START, "first of all"),
    )
    for number in range(3 * NOTES_KEPT):
        ledger.note(f"trace {number}", later)
    assert [text for _, text in ledger.notes(10 * NOTES_KEPT)] == [
        f"trace {number}" for number in reversed(range(2 * NOTES_KEPT, 3 * NOTES_KEPT))
    ]
    ledger.note("begin " + "x" * 10 * LONGEST_NOTE + " end", later)
    text = ledger.notes(1)[0][1]
    assert (text[:6], text[-4:], len(text) <= LONGEST_NOTE) == ("begin ", " end", True)


def test_notes_of_long_ago_are_dropped_with_the_next_one(ledger):
    """Whatever the clock says meanwhile: a note from the future, of a clock that was set back, stays."""
    ledger.note("of tomorrow", START + 2 * NOTES_FOR)
    ledger.note("long ago", START)
    ledger.note("now", START + NOTES_FOR)
    assert {text for _, text in ledger.notes()} == {"long ago", "of tomorrow", "now"}
    ledger.note("later", START + NOTES_FOR + MINUTE)
    assert {text for _, text in ledger.notes()} == {"of tomorrow", "now", "later"}


def test_a_pair_is_set_aside_until_the_latest_end_that_was_named(ledger):
    pair = ("cms:/a#1", "B")
    assert ledger.times_set_aside(*pair) == 0
    ledger.quarantine(*pair, "being deleted", START, until=START + 5 * MINUTE)
    ledger.quarantine(*pair, "again", START, until=START + 2 * MINUTE)
    assert set(ledger.quarantined(START + 4 * MINUTE)) == {pair}
    assert not ledger.quarantined(START + 5 * MINUTE)
    assert ledger.times_set_aside(*pair) == 2
    ledger.quarantine(*pair, "never", LATER)
    ledger.quarantine(*pair, "a while", LATER, until=LATER + MINUTE)
    assert ledger.quarantined(LATER + timedelta(days=400)) == {pair: "a while"}
    assert ledger.times_set_aside(*pair) == 4


def test_the_latest_reading_of_a_signal_is_kept(ledger):
    ledger.signal("free", "B", 10**30, START)
    ledger.signal("free", "C", 5, START)
    ledger.signal("free", "C", None, LATER, "403")
    ledger.signal("quota", "B", math.inf, START)
    ledger.signal("load", "B", math.nan, START)
    ledger.signal("mode", "B", "read-only", START)
    told = {(s.name, s.subject): (s.value, s.at, s.why) for s in ledger.signals()}
    assert told == {
        ("free", "B"): (1e30, START, ""),
        ("free", "C"): (None, LATER, "403"),
        ("quota", "B"): (math.inf, START, ""),
        ("load", "B"): (None, START, "it is not a number"),
        ("mode", "B"): ("read-only", START, ""),
    }


# --------------------------------------------------------------------------- inventories


def test_an_inventory_is_replaced_as_a_whole(ledger):
    assert ledger.inventory("rucio", POOL) == []
    assert ledger.inventory_read_at("rucio", POOL) is None
    ledger.store_inventory("rucio", POOL, (Dataset(f"cms:/{n}", n, 1) for n in (3, 1, 2)), START)
    ledger.store_inventory("rucio", PoolKey("Z", POOL.datasets), [Dataset("cms:/z", 1, 1)], START)
    assert [item.bytes for item in ledger.inventory("rucio", POOL)] == [1, 2, 3]
    ledger.store_inventory("rucio", POOL, [Dataset("cms:/9", 9, 1), Dataset("cms:/9", 8, 2)], LATER)
    assert ledger.inventory("rucio", POOL) == [Dataset("cms:/9", 8, 2)]
    assert ledger.inventory_read_at("rucio", POOL) == LATER
    assert ledger.inventory("fts", POOL) == []
    assert len(ledger.inventory("rucio", PoolKey("Z", POOL.datasets))) == 1


def test_the_inventory_of_a_source_list_is_known_by_its_digest(ledger):
    """Not by its files, of which there may be a million."""
    files = (File("davs://a/dc/1", 5),)
    one, same, other = (
        PoolKey("davs://a/dc", FileFilter(listing=Listing("s.csv", digest, some)))
        for digest, some in (("1f", files), ("1f", ()), ("2f", files))
    )
    ledger.store_inventory("fts", one, files, START)
    assert ledger.inventory("fts", same) == ledger.inventory("fts", one) != []
    assert not ledger.inventory("fts", other)


def test_an_inventory_that_breaks_off_leaves_the_old_one(ledger):
    ledger.store_inventory("rucio", POOL, [Dataset("cms:/1", 1, 1)], START)

    def broken():
        yield Dataset("cms:/2", 2, 1)
        raise Temporary("the stream broke")

    with pytest.raises(Temporary, match="the stream broke"):
        ledger.store_inventory("rucio", POOL, broken(), LATER)
    assert ledger.inventory("rucio", POOL) == [Dataset("cms:/1", 1, 1)]
    assert ledger.inventory_read_at("rucio", POOL) == START
    ledger.store_inventory("rucio", POOL, [], LATER)
    assert ledger.inventory("rucio", POOL) == []


def test_others_can_write_while_an_inventory_is_streamed(ledger):
    with opened(ledger.path.parent, patience=timedelta(0)) as other:

        def slow():
            yield Dataset("cms:/1", 1, 1)
            assert other.pause("*", "me", "stop it now", START)
            yield Dataset("cms:/2", 2, 1)

        ledger.store_inventory("rucio", POOL, slow(), START)
    assert len(ledger.inventory("rucio", POOL)) == 2


def test_writes_can_be_put_together_and_fail_together(ledger):
    with ledger.together():
        ledger.note("one", START)
        ledger.signal("free", "B", 1, START)

    def interrupted():
        with ledger.together():
            ledger.note("two", START)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [text for _, text in ledger.notes()] == ["one"]
    ledger.note("three", START)
    assert len(ledger.notes()) == 2


def test_what_is_set_replaces_what_was_set_and_all_of_it_is_kept_with_its_times(ledger):
    assert ledger.override("A:B", Kind.RATE, 5e9, "me", "more", START)
    assert not ledger.override("A:B", Kind.RATE, 5e9, "you", "again", START + MINUTE)
    assert ledger.override("A:B", Kind.SCALE, 0.5, "me", "", START + MINUTE)
    assert ledger.override("A:B", Kind.RATE, 1e9, "you", "less", LATER)
    scale = Override("A:B", Kind.SCALE, 0.5, "me", "", START + MINUTE)
    assert ledger.overrides() == (Override("A:B", Kind.RATE, 1e9, "you", "less", LATER), scale)
    assert ledger.overrides(START) == (Override("A:B", Kind.RATE, 5e9, "me", "more", START),)
    assert ledger.unset("A:B", Kind.SCALE, "you", "done", LATER) == (scale,)
    assert ledger.unset("A:C", None, "you", "done", LATER) == ()
    assert [one.value for one in ledger.unset("A:B", None, "you", "done", LATER)] == [1e9]
    assert ledger.overrides() == ()
    assert [change.what for change in ledger.changes()] == [
        "unset A -> B rate 8 Gb/s",
        "unset A -> B scale 0.5",
        "set A -> B rate 8 Gb/s",
        "set A -> B scale 0.5",
        "set A -> B rate 40 Gb/s",
    ]


def test_a_mini_challenge_is_kept_in_the_order_in_which_it_was_written(ledger):
    assert ledger.challenge() == ()
    ledger.keep_challenge("asked", {"first": 1e9}, LATER)
    ledger.keep_challenge("reading", {"moved": 7}, START)
    assert [(one.at, one.kind, one.values) for one in ledger.challenge()] == [
        (LATER, "asked", {"first": 1e9}),
        (START, "reading", {"moved": 7}),
    ]


def test_sources_tell_the_sizes_of_what_they_held(ledger):
    ledger.store_inventory("rucio", POOL, [Dataset("cms:/1", 10, 2), Dataset("cms:/2", 20, 4)], START)
    assert {source: sorted(sizes) for source, sizes in ledger.sizes_at_sources().items()} == {
        POOL.source: [(2, 10), (4, 20)]
    }


def test_the_last_turn_is_that_of_the_injector_or_of_the_last_cycle(ledger):
    before = ledger.last_turn()
    ledger.turned(LATER + timedelta(days=1))
    assert ledger.last_turn() == LATER + timedelta(days=1) != before


def test_what_people_set_is_seen_whoever_sets_it(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.bind("dc27", LENGTH, (ME,), START)
        assert ledger.pauses() == ledger.overrides() == ()
        with Ledger.open(ledger.path) as other:
            other.pause("day", "me", "", LATER)
            other.override("day", Kind.SCALE, 0.5, "me", "", LATER)
        assert [len(ledger.pauses()), len(ledger.overrides())] == [1, 1]
        ledger.pause("night", "me", "", LATER)
        ledger.override("night", Kind.SCALE, 0.5, "me", "", LATER)
        assert [len(ledger.pauses()), len(ledger.overrides())] == [2, 2]
        ledger.resume("day", "me", "", LATER)
        ledger.unset("day", None, "me", "", LATER)
        assert [len(ledger.pauses()), len(ledger.overrides())] == [1, 1]
