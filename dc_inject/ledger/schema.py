"""The ledger's tables and their versions. No SQL here reads the time, and none is newer than SQLite 3.34."""

from __future__ import annotations

APPLICATION_ID = 0x64636A31  # "dcj1": tells a ledger from any other SQLite file

# Times are whole microseconds since 1970 in UTC: exact, sortable, and the same in every zone.
_V1 = """
CREATE TABLE facts (
    name TEXT PRIMARY KEY, value TEXT NOT NULL CHECK (typeof(value) = 'text')
) WITHOUT ROWID;

CREATE TABLE identities (
    service TEXT PRIMARY KEY, address TEXT NOT NULL, vo TEXT NOT NULL, account TEXT NOT NULL,
    version TEXT NOT NULL, may_end INTEGER CHECK (may_end IN (0, 1)),
    credentials_until INTEGER CHECK (typeof(credentials_until) IN ('integer', 'null')),
    since INTEGER NOT NULL CHECK (typeof(since) = 'integer')
) WITHOUT ROWID;

CREATE TABLE menus (
    name TEXT NOT NULL, digest TEXT NOT NULL, text TEXT NOT NULL,
    since INTEGER NOT NULL CHECK (typeof(since) = 'integer'),
    until INTEGER CHECK (typeof(until) IN ('integer', 'null'))
);

CREATE TABLE resolutions (
    service TEXT NOT NULL, expression TEXT NOT NULL, names TEXT NOT NULL,
    since INTEGER NOT NULL CHECK (typeof(since) = 'integer'),
    PRIMARY KEY (service, expression)
) WITHOUT ROWID;

CREATE TABLE changes (
    at INTEGER NOT NULL CHECK (typeof(at) = 'integer'), who TEXT NOT NULL, what TEXT NOT NULL, why TEXT NOT NULL
);

CREATE TABLE pauses (
    subject TEXT PRIMARY KEY, who TEXT NOT NULL, why TEXT NOT NULL,
    since INTEGER NOT NULL CHECK (typeof(since) = 'integer')
) WITHOUT ROWID;

CREATE TABLE notes (at INTEGER NOT NULL CHECK (typeof(at) = 'integer'), text TEXT NOT NULL);

CREATE TABLE quarantine (
    item TEXT NOT NULL, destination TEXT NOT NULL, why TEXT NOT NULL,
    since INTEGER NOT NULL CHECK (typeof(since) = 'integer'),
    until INTEGER CHECK (typeof(until) IN ('integer', 'null')),
    times INTEGER NOT NULL DEFAULT 1 CHECK (typeof(times) = 'integer'),
    PRIMARY KEY (item, destination)
) WITHOUT ROWID;

CREATE TABLE flows (
    id INTEGER PRIMARY KEY, scenario TEXT NOT NULL, source TEXT NOT NULL, destination TEXT NOT NULL,
    service TEXT NOT NULL,
    due INTEGER NOT NULL DEFAULT 0 CHECK (typeof(due) = 'integer'),
    injected INTEGER NOT NULL DEFAULT 0 CHECK (typeof(injected) = 'integer'),
    forgiven INTEGER NOT NULL DEFAULT 0 CHECK (typeof(forgiven) = 'integer'),
    in_doubt INTEGER NOT NULL DEFAULT 0 CHECK (typeof(in_doubt) = 'integer'),
    moved INTEGER NOT NULL DEFAULT 0 CHECK (typeof(moved) = 'integer'),
    estimated INTEGER NOT NULL DEFAULT 0 CHECK (typeof(estimated) = 'integer'),
    resident INTEGER NOT NULL DEFAULT 0 CHECK (typeof(resident) = 'integer'),
    rules INTEGER NOT NULL DEFAULT 0 CHECK (typeof(rules) = 'integer'),
    UNIQUE (scenario, source, destination, service)
);

CREATE TABLE cycles (
    start INTEGER PRIMARY KEY CHECK (typeof(start) = 'integer'),
    opened INTEGER NOT NULL CHECK (typeof(opened) = 'integer'),
    planned INTEGER CHECK (typeof(planned) IN ('integer', 'null')),
    closed INTEGER CHECK (typeof(closed) IN ('integer', 'null'))
);
CREATE INDEX cycles_open ON cycles (start) WHERE closed IS NULL;

CREATE TABLE rows (
    cycle INTEGER NOT NULL REFERENCES cycles (start), flow INTEGER NOT NULL REFERENCES flows (id),
    due INTEGER NOT NULL CHECK (typeof(due) = 'integer'),
    want INTEGER CHECK (typeof(want) IN ('integer', 'null')),
    cap INTEGER CHECK (typeof(cap) IN ('integer', 'null')),
    budget INTEGER CHECK (typeof(budget) IN ('integer', 'null')),
    lifetime INTEGER CHECK (typeof(lifetime) IN ('integer', 'null')),
    pool_items INTEGER CHECK (typeof(pool_items) IN ('integer', 'null')),
    pool_bytes INTEGER CHECK (typeof(pool_bytes) IN ('integer', 'null')),
    hold TEXT, numbers TEXT NOT NULL DEFAULT '{}',
    injected INTEGER CHECK (typeof(injected) IN ('integer', 'null')),
    forgiven INTEGER CHECK (typeof(forgiven) IN ('integer', 'null')),
    moved INTEGER CHECK (typeof(moved) IN ('integer', 'null')),
    estimated INTEGER CHECK (typeof(estimated) IN ('integer', 'null')),
    rules INTEGER CHECK (typeof(rules) IN ('integer', 'null')),
    closed INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
    PRIMARY KEY (cycle, flow)
) WITHOUT ROWID;
CREATE TRIGGER rows_never_change BEFORE UPDATE ON rows WHEN OLD.closed = 1
    BEGIN SELECT RAISE(ABORT, 'a closed row never changes'); END;
CREATE TRIGGER rows_never_go BEFORE DELETE ON rows WHEN OLD.closed = 1
    BEGIN SELECT RAISE(ABORT, 'a closed row never goes'); END;

CREATE TABLE closed_totals (
    flow INTEGER PRIMARY KEY REFERENCES flows (id),
    injected INTEGER NOT NULL, forgiven INTEGER NOT NULL, moved INTEGER NOT NULL, estimated INTEGER NOT NULL,
    rules INTEGER NOT NULL
);

CREATE TABLE injections (
    key TEXT PRIMARY KEY, flow INTEGER NOT NULL REFERENCES flows (id),
    cycle INTEGER NOT NULL CHECK (typeof(cycle) = 'integer'),
    item TEXT NOT NULL, bytes INTEGER NOT NULL CHECK (typeof(bytes) = 'integer' AND bytes > 0),
    files INTEGER NOT NULL CHECK (typeof(files) = 'integer' AND files > 0),
    release INTEGER NOT NULL CHECK (typeof(release) = 'integer'),
    lifetime INTEGER NOT NULL CHECK (typeof(lifetime) = 'integer'),
    activity TEXT NOT NULL, service_priority INTEGER NOT NULL, contact TEXT NOT NULL,
    state TEXT NOT NULL, external_id TEXT NOT NULL DEFAULT '', attempt INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER, called_at INTEGER, accepted_at INTEGER, expires_at INTEGER, completed_at INTEGER,
    end_asked_at INTEGER, ended_at INTEGER, gone_at INTEGER, observed_at INTEGER,
    present INTEGER NOT NULL DEFAULT 0 CHECK (typeof(present) = 'integer'),
    moved INTEGER NOT NULL DEFAULT 0 CHECK (typeof(moved) = 'integer'),
    moved_exact INTEGER NOT NULL DEFAULT 0 CHECK (moved_exact IN (0, 1)),
    files_done INTEGER NOT NULL DEFAULT 0, files_stuck INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
-- Work per cycle must not grow with the campaign: what is over is in none of these.
CREATE INDEX injections_alive ON injections (state)
    WHERE state IN ('intended', 'called', 'live', 'complete', 'ended');
CREATE INDEX injections_cycle ON injections (cycle);
CREATE INDEX injections_completed ON injections (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX injections_called ON injections (called_at) WHERE called_at IS NOT NULL;

CREATE TABLE inventories (
    id INTEGER PRIMARY KEY, service TEXT NOT NULL, source TEXT NOT NULL, filter TEXT NOT NULL,
    read_at INTEGER NOT NULL CHECK (typeof(read_at) = 'integer'), UNIQUE (service, source, filter)
);
CREATE TABLE inventory_items (
    inventory INTEGER NOT NULL REFERENCES inventories (id) ON DELETE CASCADE,
    name TEXT NOT NULL, bytes INTEGER NOT NULL, files INTEGER NOT NULL,
    PRIMARY KEY (inventory, name)
) WITHOUT ROWID;

CREATE TABLE signals (
    name TEXT NOT NULL, subject TEXT NOT NULL, value, why TEXT NOT NULL,
    at INTEGER NOT NULL CHECK (typeof(at) = 'integer'), PRIMARY KEY (name, subject)
) WITHOUT ROWID;
"""

MIGRATIONS: tuple[str, ...] = (_V1,)  # the n-th brings a ledger from version n to n + 1
VERSION = len(MIGRATIONS)
