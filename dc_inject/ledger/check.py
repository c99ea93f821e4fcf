"""Check a ledger without any service: its files, whether it is a ledger, and whether it agrees with itself."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from dc_inject.ledger import database, in_place, lock
from dc_inject.ledger.accounts import recomputed
from dc_inject.ledger.cycles import REPORTED
from dc_inject.ledger.database import flow_key, moment
from dc_inject.ledger.errors import translated
from dc_inject.ledger.ledger import LedgerView
from dc_inject.ledger.types import Finding, Totals
from dc_inject.ledger.uniqueness import UNIQUE
from dc_inject.model import Bundle, Entry, Hold, State, naming, units
from dc_inject.model.errors import LedgerError
from dc_inject.system import disk

_ENDINGS = ("", "-wal", "-shm", ".lock")  # what belongs to a ledger, by the end of its file's name
_OPEN = frozenset({State.INTENDED, State.CALLED})
_AFTER = {  # of each state: the times that it must have, of those below; it may not have the others
    State.LIVE: ("accepted_at", "expires_at"),
    State.COMPLETE: ("accepted_at", "expires_at", "completed_at"),
    State.ENDED: ("accepted_at", "expires_at", "ended_at"),
    State.GONE: ("accepted_at", "expires_at", "ended_at", "gone_at"),
}
_OF_STATES = ("accepted_at", "expires_at", "completed_at", "ended_at", "gone_at")
_IN_ORDER = ("called_at", "accepted_at", "completed_at", "ended_at", "gone_at")
_ACCOUNT = "scenario, source, destination, through"


_HOLDS = ", ".join(f"'{hold}'" for hold in Hold)
# Queries for code, subject and message of what cannot be.
_WRONG = f"""
  SELECT DISTINCT 'holds', hold, 'this hold is unknown' FROM cycle_row WHERE hold NOT IN ({_HOLDS});
  SELECT 'state-times', key, 'it was dropped, but has no time of that' FROM injection
  WHERE state IN ('refused', 'withdrawn') AND dropped_at IS NULL;
  SELECT 'members-left', key, 'it is ' || state || ', but its files are still listed' FROM injection
  WHERE (members IS NOT NULL AND (job IS NULL OR state NOT IN ('intended', 'called')
  AND NOT (keeps_files AND state IN ('live', 'complete')))) OR (undone IS NOT NULL AND members IS NULL);
  SELECT 'twice', item || ' to ' || destination, 'it is live ' || count(*) || ' times'
  FROM injection JOIN account ON account.id = account WHERE through IN {UNIQUE} AND state IN ('live', 'complete')
  GROUP BY item, destination HAVING count(*) > 1;
  SELECT 'twice', external_id, count(*) || ' injections have this rule or job'
  FROM injection JOIN account ON account.id = account WHERE external_id <> ''
  GROUP BY through, external_id HAVING count(*) > 1;
  SELECT 'state-counts', state,
  sum(kept) || ' with ' || sum(old) || ' bytes are counted, ' || sum(made) || ' with ' || sum(new) || ' are there'
  FROM (SELECT state, entries AS kept, 0 AS made, bytes AS old, 0 AS new FROM state_count
  UNION ALL SELECT state, 0, 1, 0, bytes FROM injection)
  GROUP BY state HAVING sum(kept) <> sum(made) OR sum(old) <> sum(new)
""".split(";")  # noqa: S608  our own words


def check(path: Path) -> list[Finding]:
    """Return every contradiction of a ledger, errors first; one that is whole gives none, or notes only.

    Works while an injector runs: all is read from one state of it. Raises LedgerError when there is no such file.
    """
    findings = [*_files(path), *_left(path)]
    # Once SQLite has opened the ledger, a log that was truncated is forgotten.
    if not database.OPEN_HERE[disk.real(path)] and (lacks := in_place.missing_log(path)):
        findings.append(
            Finding("log-truncated", f"{path.name}-wal", f"{lacks} bytes are missing: its last transactions")
        )
    try:
        view = Contradictions.open(path)
    except LedgerError as error:
        code = in_place.find_defect(path)
        if code is None:
            raise
        return [*findings, Finding(code, path.name, f"{error.message}; {error.hint}")]
    try:
        with view, view.snapshot():
            findings += view.all()
    except LedgerError as error:
        if not getattr(error.__cause__, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise
        findings.append(Finding("damaged", path.name, f"{error.message}; {error.hint}"))
    return sorted(findings, key=lambda finding: finding.note)


def _files(path: Path) -> Iterator[Finding]:
    """Find files that others can read or write (addresses and menus are in them), or that have more names."""
    for end in _ENDINGS:
        file = path.with_name(path.name + end)
        if file.exists() and (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
            message = f"other users can access it (mode {mode:04o}): run `chmod 600`"
            yield Finding("permissions", file.name, message)
    if path.exists() and (names := path.stat().st_nlink) > 1:
        yield Finding("names", path.name, f"it has {names} names (hard links): delete the others")


def _left(path: Path) -> Iterator[Finding]:
    """Find a write-ahead log without a writer: its process died. SQLite reads it like the rest."""
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size and lock.holder(path) is None:
        message = (
            f"{size} bytes are left from a process that died; they belong to the ledger, so keep this file with it"
        )
        yield Finding("log-left", log.name, message, note=True)


class Contradictions(LedgerView):
    """Finds contradictions in one ledger; use it inside a snapshot."""

    def all(self) -> list[Finding]:
        """Return all of them; of a damaged file only the damage, since nothing else in it can be relied on."""
        damage = self._damage()
        if damage:
            return damage
        findings = [*self._references(), *self._cycles(), *self._rows(), *self._injections()]
        try:
            findings += self._entries_and_totals()
        except (KeyError, TypeError, ValueError, LedgerError) as error:
            findings.append(Finding("unreadable", "injection", f"one cannot be read: {error}"))
        return findings

    def _damage(self) -> list[Finding]:
        """Let SQLite look at the whole file, and at each table's own rules.

        Those it knows only where it might write. Our own connection, which is open meanwhile, keeps this one from
        clearing the write-ahead log at its end, so that nothing changes all the same.
        """
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        with translated(self.path), closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
            connection.execute("PRAGMA query_only = ON")
            lines = [row[0] for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        return [
            Finding("damaged", self.path.name, f"{line}; keep this file, and continue with a backup")
            for line in lines
        ]

    def _references(self) -> Iterator[Finding]:
        for row in self._db.rows("PRAGMA foreign_key_check"):
            which = "" if row["rowid"] is None else f" {row['rowid']}"
            yield Finding(
                "reference", f"{row['table']}{which}", f"names a row of {row['parent']} that is not there"
            )

    def _cycles(self) -> Iterator[Finding]:
        length = self._db.row("SELECT cycle_length FROM campaign")["cycle_length"]
        cycles = self._db.rows("SELECT * FROM cycle ORDER BY start")
        for row in cycles:
            name = _name(row["start"])
            if row["length"] != length:
                message = f"it is {row['length'] / 1e6:g} s long, the campaign's are {(length or 0) / 1e6:g} s"
                yield Finding("cycle-length", name, message)
            elif row["start"] % length:
                yield Finding("cycle-grid", name, "it does not start on the grid")
            if row["closed_at"] is None and row is not cycles[-1]:
                yield Finding("cycle-open", name, "it was never closed, although later ones have begun")
        for before, row in pairwise(cycles):
            missing = row["start"] - before["start"] - before["length"]
            if missing > 0:
                message = f"none follows it until {_name(row['start'])}; correct if no menu was in force"
                yield Finding("cycle-gap", _name(before["start"]), message, note=True)

    def _rows(self) -> Iterator[Finding]:
        """Compare accounts with the sums of their cycles' rows, and what they have reported with closed rows."""
        sums = ", ".join(
            f"coalesce(sum(r.{name}), 0) AS row_{name}" for name in ("due", "extra", "forgiven", *REPORTED)
        )
        for row in self._db.rows(
            f"SELECT a.*, {sums}, count(nullif(r.due, 0)) AS row_cycles FROM account AS a "  # noqa: S608  our own words
            "LEFT JOIN cycle_row AS r ON r.account = a.id GROUP BY a.id ORDER BY " + _ACCOUNT
        ):
            pairs = [(name, row[name], row[f"row_{name}"]) for name in ("due", "extra", "forgiven", "cycles")]
            for name, reported, summed in pairs:
                if reported != summed:
                    yield Finding("totals", str(flow_key(row)), f"{name} is {reported}, its rows sum to {summed}")
            for name in REPORTED:
                reported, summed = row[f"reported_{name}"], row[f"row_{name}"]
                if reported != summed:
                    message = f"{reported} of {name} was reported in closed rows, which sum to {summed}"
                    yield Finding("reported", str(flow_key(row)), message)
        yield from self._holds()

    def _holds(self) -> Iterator[Finding]:
        for row in self._db.rows(
            f"SELECT {_ACCOUNT}, h.hold, sum(kept) AS kept, sum(made) AS made FROM ("  # noqa: S608  our own words
            "SELECT account, hold, cycles AS kept, 0 AS made FROM account_hold UNION ALL "
            "SELECT account, hold, 0, 1 FROM cycle_row JOIN cycle ON start = cycle "
            "WHERE hold IS NOT NULL AND closed_at IS NOT NULL"
            ") AS h JOIN account ON id = account GROUP BY account, h.hold HAVING sum(kept) <> sum(made)"
        ):
            message = f"{row['hold']} led in {row['kept']} cycles, but in {row['made']} closed rows"
            yield Finding("holds", str(flow_key(row)), message)
        for row in self._db.rows(
            "SELECT cycle FROM cycle_row WHERE numbers IS NOT NULL AND NOT json_valid(numbers)"
        ):
            yield Finding("unreadable", _name(row["cycle"]), "the numbers of a hold are not JSON")

    def _injections(self) -> Iterator[Finding]:
        """Look for what one injection, or several together, cannot be."""
        for query in _WRONG:
            for code, subject, message in self._db.rows(query):
                yield Finding(code, subject, message)

    def _entries_and_totals(self) -> list[Finding]:
        """Read every injection once: what is wrong in it, and what all of them sum to."""
        findings: list[Finding] = []
        campaign = self.campaign

        def looked_at() -> Iterator[Entry]:
            for entry in self._entries():
                findings.extend(Finding(c, entry.injection.key, m, n) for c, m, n in _wrong(entry, campaign))
                yield entry

        stored_totals = self.accounts()
        dues = {flow: (totals.due, totals.forgiven) for flow, totals in stored_totals.items()}
        recounted = recomputed(dues, looked_at())
        for flow in recounted:
            for field in fields(Totals):
                was, now = getattr(stored_totals[flow], field.name), getattr(recounted[flow], field.name)
                if was != now:
                    findings.append(
                        Finding("totals", str(flow), f"{field.name} is {was}, its injections sum to {now}")
                    )
        return findings


def _wrong(entry: Entry, campaign: str | None) -> Iterable[tuple[str, str, bool]]:
    """Return code, message, and whether it is a note, of each contradiction in an injection."""
    injection, state = entry.injection, entry.state
    must = _AFTER.get(state, ())
    optional = {"completed_at"} if {"ended_at"} & set(must) else set()
    for name in _OF_STATES:
        is_set, word = getattr(entry, name) is not None, name.removesuffix("_at")
        if is_set and name not in must and name not in optional:
            yield "state-times", f"it is {state}, but has a time for {word}", False
        if not is_set and name in must:
            yield "state-times", f"it is {state}, but has no time for {word}", False
    times = [(name, at) for name in _IN_ORDER if (at := getattr(entry, name)) is not None]
    for (name, at), (later, then) in pairwise(times):
        if then < at:
            words = f"{later.removesuffix('_at')} is before {name.removesuffix('_at')}; was the clock set back?"
            yield "order-of-times", words, True
    whole = injection.item.bytes - entry.present - entry.failed
    if state is State.COMPLETE and (entry.moved != whole or not entry.moved_exact):
        yield "moved", f"it is complete, but moved {entry.moved} of {whole} bytes", False
    if must and not entry.external_id:
        yield "no-id", f"it is {state}, but has no id of a rule or job", False
    item = injection.item
    if isinstance(item, Bundle) and state in _OPEN and len(item.members) != item.files:
        yield ("members-missing", f"of its {item.files} files {len(item.members)} are named", False)
    # The name of a bundle does not show all that its key was made of when its job was found, not made.
    named = (injection.campaign, injection.scenario, injection.cycle.start, injection.link, item.name)
    if injection.campaign != campaign:
        yield "campaign", f"it belongs to campaign {injection.campaign}, not to {campaign}", False
    elif not isinstance(item, Bundle) and naming.key(*named) != injection.key:
        yield "key", "its key does not match its scenario, cycle, link and dataset", False


def _name(start: int) -> str:
    return units.format_time(moment(start))
