-- The tables of a ledger, version 2.
--
-- One file holds one campaign: what every link was due, every injection with its states and times, and one row for
-- each link and cycle. Three rules make it worth trusting.
--
-- 1. Nothing is guessed about types. SQLite would store a text in a column of integers, so every column is checked.
--    No statement is newer than SQLite 3.34, the one of EL9, which cannot make tables strict.
-- 2. Totals are never computed by the program. Triggers update them in the transaction of the event itself: whatever
--    statement changes an injection or a row, the account follows. `dc-inject ledger check` recomputes them all.
-- 3. What was written once stays. Triggers refuse to delete an injection, to change what was due, and to change
--    anything of a closed cycle.
--
-- Times and durations are integers: microseconds, times since 1970-01-01T00:00Z. They compare, add and subtract in
-- SQL as they do in Python, without any text that a time zone or a rounding could change. To read one:
-- datetime(t / 1000000, 'unixepoch'). Sizes are bytes.

-- ------------------------------------------------------------------ what the ledger is bound to, and what people do

CREATE TABLE campaign (  -- one row
  id INTEGER PRIMARY KEY CHECK (id = 1),
  name TEXT CHECK (typeof(name) IN ('text', 'null') AND length(name) > 0),
  cycle_length INTEGER CHECK (typeof(cycle_length) IN ('integer', 'null') AND cycle_length >= 1),
  bound_at INTEGER CHECK (typeof(bound_at) IN ('integer', 'null')),
  since INTEGER CHECK (typeof(since) IN ('integer', 'null'))  -- nothing is due before
);

INSERT INTO campaign (id) VALUES (1);

CREATE TABLE identity (  -- as whom we inject: another account, VO or host is refused
  service TEXT PRIMARY KEY NOT NULL,
  address TEXT CHECK (typeof(address) = 'text'),
  vo TEXT CHECK (typeof(vo) = 'text'),
  account TEXT CHECK (typeof(account) = 'text'),
  version TEXT CHECK (typeof(version) = 'text'),
  may_end INTEGER CHECK (may_end IN (0, 1)),  -- NULL: not known
  credentials_until INTEGER CHECK (typeof(credentials_until) IN ('integer', 'null')),
  seen_at INTEGER CHECK (typeof(seen_at) = 'integer')
);

CREATE TABLE menu (  -- the texts that are, or were, in force
  id INTEGER PRIMARY KEY,
  name TEXT CHECK (typeof(name) = 'text'),
  digest TEXT CHECK (typeof(digest) = 'text'),
  text TEXT CHECK (typeof(text) = 'text'),
  since INTEGER CHECK (typeof(since) = 'integer'),
  until INTEGER CHECK (typeof(until) IN ('integer', 'null'))
);
CREATE UNIQUE INDEX menu_in_force ON menu (name) WHERE until IS NULL;

CREATE TABLE menu_part (  -- the files that a menu brought in, by its digest, compressed by zlib (since version 2)
  digest TEXT CHECK (typeof(digest) = 'text'),
  path TEXT CHECK (typeof(path) = 'text'),
  content BLOB CHECK (typeof(content) = 'blob'),
  PRIMARY KEY (digest, path)
) WITHOUT ROWID;

CREATE TABLE resolution (  -- what an RSE expression meant when its menu came into force
  service TEXT CHECK (typeof(service) = 'text'),
  expression TEXT CHECK (typeof(expression) = 'text'),
  names TEXT CHECK (typeof(names) = 'text'),  -- a JSON list
  at INTEGER CHECK (typeof(at) = 'integer'),
  PRIMARY KEY (service, expression)
) WITHOUT ROWID;

CREATE TABLE change (  -- who did what, and why
  id INTEGER PRIMARY KEY,
  at INTEGER CHECK (typeof(at) = 'integer'),
  who TEXT CHECK (typeof(who) = 'text'),
  what TEXT CHECK (typeof(what) = 'text'),
  why TEXT CHECK (typeof(why) = 'text')
);

CREATE TABLE pause (  -- the subject is *, a scenario, or a link SRC:DST
  id INTEGER PRIMARY KEY,
  subject TEXT CHECK (typeof(subject) = 'text'),
  who TEXT CHECK (typeof(who) = 'text'),
  why TEXT CHECK (typeof(why) = 'text'),
  since INTEGER CHECK (typeof(since) = 'integer'),
  until INTEGER CHECK (typeof(until) IN ('integer', 'null'))
);
CREATE UNIQUE INDEX pause_in_force ON pause (subject) WHERE until IS NULL;

CREATE TABLE override (  -- rates that people set over the menus
  id INTEGER PRIMARY KEY,
  subject TEXT CHECK (typeof(subject) = 'text' AND length(subject) > 0),
  kind TEXT NOT NULL CHECK (kind IN ('rate', 'scale')),
  value REAL NOT NULL CHECK (typeof(value) = 'real' AND value > 0),  -- bytes per second, or a factor
  who TEXT CHECK (typeof(who) = 'text'),
  why TEXT CHECK (typeof(why) = 'text'),
  since INTEGER CHECK (typeof(since) = 'integer'),
  until INTEGER CHECK (typeof(until) IN ('integer', 'null'))
);
CREATE UNIQUE INDEX override_in_force ON override (subject, kind) WHERE until IS NULL;

CREATE TABLE start (  -- each start of an injector; its rules and jobs carry the id (since version 2)
  id TEXT PRIMARY KEY NOT NULL,
  who TEXT CHECK (typeof(who) = 'text'),
  at INTEGER CHECK (typeof(at) = 'integer')
) WITHOUT ROWID;

CREATE TABLE note (  -- traces of unexpected errors, and what a rebuilt ledger cannot know
  id INTEGER PRIMARY KEY,
  at INTEGER CHECK (typeof(at) = 'integer'),
  text TEXT CHECK (typeof(text) = 'text')
);

CREATE TABLE challenge (  -- a mini-challenge: its settings and its readings, from which its verdict follows
  id INTEGER PRIMARY KEY,
  at INTEGER CHECK (typeof(at) = 'integer'),
  kind TEXT NOT NULL CHECK (kind IN ('asked', 'reading', 'stopped')),
  text TEXT CHECK (typeof(text) = 'text')  -- JSON
);

-- ------------------------------------------------------------------ what is known of the services

CREATE TABLE signal (  -- the last value of what was read, such as the free space of an RSE
  name TEXT CHECK (typeof(name) = 'text'),
  subject TEXT CHECK (typeof(subject) = 'text'),
  value CHECK (typeof(value) IN ('integer', 'real', 'text', 'null')),
  at INTEGER CHECK (typeof(at) = 'integer'),
  why TEXT CHECK (typeof(why) = 'text'),  -- why there is no value
  PRIMARY KEY (name, subject)
) WITHOUT ROWID;

CREATE TABLE quarantine (  -- items that are set aside for a destination
  item TEXT CHECK (typeof(item) = 'text' AND length(item) > 0),
  destination TEXT CHECK (typeof(destination) = 'text' AND length(destination) > 0),
  why TEXT CHECK (typeof(why) = 'text'),
  since INTEGER CHECK (typeof(since) = 'integer'),
  until INTEGER CHECK (typeof(until) IN ('integer', 'null')),
  times INTEGER CHECK (typeof(times) = 'integer' AND times >= 1),
  PRIMARY KEY (item, destination)
) WITHOUT ROWID;
CREATE INDEX quarantine_until ON quarantine (until);

CREATE TABLE pool (  -- an inventory: what a source holds for a filter
  id INTEGER PRIMARY KEY,
  service TEXT CHECK (typeof(service) = 'text'),
  source TEXT CHECK (typeof(source) = 'text'),
  datasets TEXT CHECK (typeof(datasets) = 'text'),  -- the filter as JSON
  read_at INTEGER CHECK (typeof(read_at) = 'integer'),
  UNIQUE (service, source, datasets)
);

CREATE TABLE pool_item (
  pool INTEGER NOT NULL REFERENCES pool (id),
  item TEXT CHECK (typeof(item) = 'text' AND length(item) > 0),
  bytes INTEGER CHECK (typeof(bytes) = 'integer' AND bytes >= 0),
  files INTEGER CHECK (typeof(files) = 'integer' AND files >= 0),
  checksum TEXT CHECK (typeof(checksum) IN ('text', 'null')),
  PRIMARY KEY (pool, item)
) WITHOUT ROWID;

-- ------------------------------------------------------------------ accounts: running totals, kept by triggers

CREATE TABLE account (  -- one for each link of each scenario; it goes on across menus
  id INTEGER PRIMARY KEY,
  scenario TEXT CHECK (typeof(scenario) = 'text' AND length(scenario) > 0),
  source TEXT CHECK (typeof(source) = 'text' AND length(source) > 0),
  destination TEXT CHECK (typeof(destination) = 'text' AND length(destination) > 0),
  through TEXT CHECK (typeof(through) = 'text' AND length(through) > 0),
  goal TEXT CHECK (typeof(goal) IN ('text', 'null') AND length(goal) > 0),  -- beside its rate: volume, keep, ...
  goal_bytes INTEGER CHECK (typeof(goal_bytes) IN ('integer', 'null') AND goal_bytes >= 0),
  -- the sums of its rows
  due INTEGER NOT NULL DEFAULT 0 CHECK (typeof(due) = 'integer' AND due >= 0),
  extra INTEGER NOT NULL DEFAULT 0 CHECK (typeof(extra) = 'integer' AND extra >= 0),
  forgiven INTEGER NOT NULL DEFAULT 0 CHECK (typeof(forgiven) = 'integer' AND forgiven >= 0),
  cycles INTEGER NOT NULL DEFAULT 0 CHECK (typeof(cycles) = 'integer' AND cycles >= 0),  -- with any due
  -- the sums of its injections
  injected INTEGER NOT NULL DEFAULT 0 CHECK (typeof(injected) = 'integer' AND injected >= 0),
  in_doubt INTEGER NOT NULL DEFAULT 0 CHECK (typeof(in_doubt) = 'integer' AND in_doubt >= 0),
  moved INTEGER NOT NULL DEFAULT 0 CHECK (typeof(moved) = 'integer' AND moved >= 0),
  estimated INTEGER NOT NULL DEFAULT 0 CHECK (typeof(estimated) = 'integer' AND estimated >= 0),
  failed INTEGER NOT NULL DEFAULT 0 CHECK (typeof(failed) = 'integer' AND failed >= 0),
  resident INTEGER NOT NULL DEFAULT 0 CHECK (typeof(resident) = 'integer' AND resident >= 0),
  coming INTEGER NOT NULL DEFAULT 0 CHECK (typeof(coming) = 'integer' AND coming >= 0),
  files_in_flight INTEGER NOT NULL DEFAULT 0 CHECK (typeof(files_in_flight) = 'integer' AND files_in_flight >= 0),
  rules INTEGER NOT NULL DEFAULT 0 CHECK (typeof(rules) = 'integer' AND rules >= 0),
  -- what its closed rows have reported of these sums: the next one reports the rest
  reported_injected INTEGER NOT NULL DEFAULT 0 CHECK (typeof(reported_injected) = 'integer' AND reported_injected >= 0),
  reported_moved INTEGER NOT NULL DEFAULT 0 CHECK (typeof(reported_moved) = 'integer' AND reported_moved >= 0),
  reported_estimated INTEGER NOT NULL DEFAULT 0 CHECK (typeof(reported_estimated) = 'integer' AND reported_estimated >= 0),
  reported_rules INTEGER NOT NULL DEFAULT 0 CHECK (typeof(reported_rules) = 'integer' AND reported_rules >= 0),
  UNIQUE (scenario, source, destination, through)
);

CREATE TABLE account_hold (  -- in how many closed cycles each hold led, so that nobody has to count rows
  account INTEGER NOT NULL REFERENCES account (id),
  hold TEXT CHECK (typeof(hold) = 'text' AND length(hold) > 0),
  cycles INTEGER CHECK (typeof(cycles) = 'integer' AND cycles >= 1),
  PRIMARY KEY (account, hold)
) WITHOUT ROWID;

CREATE TABLE failure (  -- files that failed, by the class of the reason
  account INTEGER NOT NULL REFERENCES account (id),
  reason TEXT CHECK (typeof(reason) = 'text' AND length(reason) > 0),
  files INTEGER CHECK (typeof(files) = 'integer' AND files >= 1),
  PRIMARY KEY (account, reason)
) WITHOUT ROWID;

CREATE TABLE state_count (  -- how many injections are in each state, and their bytes
  state TEXT PRIMARY KEY NOT NULL,
  entries INTEGER NOT NULL DEFAULT 0 CHECK (typeof(entries) = 'integer' AND entries >= 0),
  bytes INTEGER NOT NULL DEFAULT 0 CHECK (typeof(bytes) = 'integer' AND bytes >= 0)
);

-- ------------------------------------------------------------------ cycles, and a row for each account in each

CREATE TABLE cycle (
  start INTEGER PRIMARY KEY NOT NULL,
  length INTEGER CHECK (typeof(length) = 'integer' AND length >= 1),
  opened_at INTEGER CHECK (typeof(opened_at) = 'integer'),
  planned_at INTEGER CHECK (typeof(planned_at) IN ('integer', 'null')),
  closed_at INTEGER CHECK (typeof(closed_at) IN ('integer', 'null'))
);
CREATE INDEX cycle_unclosed ON cycle (start) WHERE closed_at IS NULL;

CREATE TABLE cycle_row (
  cycle INTEGER NOT NULL REFERENCES cycle (start),
  account INTEGER NOT NULL REFERENCES account (id),
  -- known when the cycle opens
  due INTEGER CHECK (typeof(due) = 'integer' AND due >= 0),
  extra INTEGER NOT NULL DEFAULT 0 CHECK (typeof(extra) = 'integer' AND extra >= 0),  -- what the overhead adds
  -- known when it is planned
  want INTEGER CHECK (typeof(want) IN ('integer', 'null')),
  cap INTEGER CHECK (typeof(cap) IN ('integer', 'null')),
  budget INTEGER CHECK (typeof(budget) IN ('integer', 'null')),
  lifetime INTEGER CHECK (typeof(lifetime) IN ('integer', 'null') AND lifetime >= 0),
  pool_items INTEGER CHECK (typeof(pool_items) IN ('integer', 'null') AND pool_items >= 0),
  pool_bytes INTEGER CHECK (typeof(pool_bytes) IN ('integer', 'null') AND pool_bytes >= 0),
  -- known when it closes; what was injected can turn out to be less than an earlier row reported
  forgiven INTEGER NOT NULL DEFAULT 0 CHECK (typeof(forgiven) = 'integer' AND forgiven >= 0),
  injected INTEGER NOT NULL DEFAULT 0 CHECK (typeof(injected) = 'integer'),
  moved INTEGER NOT NULL DEFAULT 0 CHECK (typeof(moved) = 'integer'),
  estimated INTEGER NOT NULL DEFAULT 0 CHECK (typeof(estimated) = 'integer'),
  rules INTEGER NOT NULL DEFAULT 0 CHECK (typeof(rules) = 'integer'),
  hold TEXT CHECK (typeof(hold) IN ('text', 'null') AND length(hold) > 0),
  numbers TEXT CHECK (typeof(numbers) IN ('text', 'null')),  -- a JSON object: the numbers behind the hold
  PRIMARY KEY (cycle, account),
  CHECK ((hold IS NULL) = (numbers IS NULL))
) WITHOUT ROWID;

CREATE TABLE decision (  -- what control decided or advised of a link in a cycle that was planned, and on what that rests
  cycle INTEGER NOT NULL REFERENCES cycle (start),
  account INTEGER NOT NULL REFERENCES account (id),
  mode TEXT NOT NULL CHECK (mode IN ('advise', 'act')),
  hold TEXT CHECK (typeof(hold) IN ('text', 'null') AND length(hold) > 0),  -- the leading one; NULL: none
  target REAL CHECK (typeof(target) = 'real' AND target >= 0),  -- bytes per second
  bias REAL CHECK (typeof(bias) = 'real'),
  numbers TEXT CHECK (typeof(numbers) = 'text'),  -- a JSON object: window, in flight, and the other signals of the law
  guards TEXT CHECK (typeof(guards) = 'text'),  -- a JSON object: of each guard that holds, its reading
  PRIMARY KEY (cycle, account)
) WITHOUT ROWID;

-- ------------------------------------------------------------------ injections

CREATE TABLE injection (
  key TEXT PRIMARY KEY NOT NULL,
  account INTEGER NOT NULL REFERENCES account (id),
  cycle INTEGER NOT NULL REFERENCES cycle (start),
  campaign TEXT CHECK (typeof(campaign) = 'text' AND length(campaign) > 0),
  item TEXT CHECK (typeof(item) = 'text' AND length(item) > 0),
  bytes INTEGER CHECK (typeof(bytes) = 'integer' AND bytes >= 0),
  files INTEGER CHECK (typeof(files) = 'integer' AND files >= 0),
  release INTEGER CHECK (typeof(release) = 'integer'),
  lifetime INTEGER CHECK (typeof(lifetime) = 'integer' AND lifetime >= 0),
  activity TEXT CHECK (typeof(activity) = 'text'),
  service_priority INTEGER CHECK (typeof(service_priority) = 'integer' AND service_priority >= 0),
  contact TEXT CHECK (typeof(contact) = 'text'),
  job TEXT CHECK (typeof(job) IN ('text', 'null')),  -- through FTS: the options of its job, as JSON
  members TEXT CHECK (typeof(members) IN ('text', 'null')),  -- its files as JSON, while anything needs their names
  undone TEXT CHECK (typeof(undone) IN ('text', 'null')),  -- the numbers of files that did not arrive, as JSON
  keeps_files INTEGER NOT NULL DEFAULT 0 CHECK (keeps_files IN (0, 1)),  -- for a second hop
  state TEXT NOT NULL CHECK (
    state IN ('intended', 'called', 'live', 'complete', 'ended', 'gone', 'refused', 'withdrawn')
  ),
  external_id TEXT CHECK (typeof(external_id) = 'text'),  -- the rule's or the job's
  attempt INTEGER CHECK (typeof(attempt) = 'integer' AND attempt >= 0),
  not_before INTEGER CHECK (typeof(not_before) IN ('integer', 'null')),
  intended_at INTEGER CHECK (typeof(intended_at) = 'integer'),
  called_at INTEGER CHECK (typeof(called_at) IN ('integer', 'null')),
  accepted_at INTEGER CHECK (typeof(accepted_at) IN ('integer', 'null')),
  expires_at INTEGER CHECK (typeof(expires_at) IN ('integer', 'null')),
  completed_at INTEGER CHECK (typeof(completed_at) IN ('integer', 'null')),
  end_asked_at INTEGER CHECK (typeof(end_asked_at) IN ('integer', 'null')),
  ended_at INTEGER CHECK (typeof(ended_at) IN ('integer', 'null')),
  gone_at INTEGER CHECK (typeof(gone_at) IN ('integer', 'null')),
  dropped_at INTEGER CHECK (typeof(dropped_at) IN ('integer', 'null')),  -- refused or withdrawn
  observed_at INTEGER CHECK (typeof(observed_at) IN ('integer', 'null')),
  present INTEGER NOT NULL DEFAULT 0 CHECK (typeof(present) = 'integer' AND present >= 0),  -- there before us
  failed INTEGER NOT NULL DEFAULT 0 CHECK (typeof(failed) = 'integer' AND failed >= 0),
  moved INTEGER NOT NULL DEFAULT 0 CHECK (typeof(moved) = 'integer' AND moved >= 0),
  moved_exact INTEGER NOT NULL DEFAULT 0 CHECK (moved_exact IN (0, 1)),  -- 0: `moved` is an estimate
  files_done INTEGER NOT NULL DEFAULT 0 CHECK (typeof(files_done) = 'integer' AND files_done >= 0),
  files_stuck INTEGER NOT NULL DEFAULT 0 CHECK (typeof(files_stuck) = 'integer' AND files_stuck >= 0),
  error TEXT CHECK (typeof(error) = 'text'),
  CHECK ((state IN ('live', 'complete', 'ended', 'gone')) = (accepted_at IS NOT NULL)),
  CHECK (state <> 'called' OR called_at IS NOT NULL),
  CHECK (accepted_at IS NOT NULL OR (moved = 0 AND present = 0)),
  CHECK (moved + present + failed <= bytes AND files_done <= files)
);
CREATE INDEX injection_active ON injection (state) WHERE state NOT IN ('gone', 'refused', 'withdrawn');
CREATE INDEX injection_cycle ON injection (cycle);
CREATE INDEX injection_completed ON injection (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE once_only (  -- the datasets or files of injections whose scenario gives each of them only once
  key TEXT NOT NULL REFERENCES injection (key),
  item TEXT CHECK (typeof(item) = 'text' AND length(item) > 0),
  PRIMARY KEY (key, item)
) WITHOUT ROWID;

-- ------------------------------------------------------------------ totals follow what happens
--
-- What one injection adds to each total stands twice, for a new row and, with its old share taken out, for a changed
-- one. Only bytes that this injection has to move count as injected: not those that were present, nor failed ones.

CREATE TRIGGER injection_new AFTER INSERT ON injection BEGIN
  UPDATE account SET
    injected = injected + iif(NEW.accepted_at IS NULL, 0, NEW.bytes - NEW.present - NEW.failed),
    in_doubt = in_doubt + iif(NEW.state = 'called', NEW.bytes, 0),
    moved = moved + NEW.moved,
    estimated = estimated + iif(NEW.moved_exact, 0, NEW.moved),
    failed = failed + NEW.failed,
    resident = resident
      + iif(NEW.state IN ('gone', 'refused', 'withdrawn'), 0, NEW.bytes - NEW.present - NEW.failed),
    coming = coming + iif(NEW.state IN ('called', 'live'), NEW.bytes - NEW.present - NEW.failed - NEW.moved, 0),
    files_in_flight = files_in_flight + iif(NEW.state IN ('called', 'live'), NEW.files - NEW.files_done, 0),
    rules = rules + (NEW.accepted_at IS NOT NULL)
  WHERE id = NEW.account;
  INSERT INTO state_count VALUES (NEW.state, 1, NEW.bytes)
    ON CONFLICT (state) DO UPDATE SET entries = entries + 1, bytes = bytes + NEW.bytes;
END;

CREATE TRIGGER injection_moved_on
AFTER UPDATE OF state, bytes, files, accepted_at, present, failed, moved, moved_exact, files_done ON injection
WHEN NEW.state IS NOT OLD.state OR NEW.bytes IS NOT OLD.bytes OR NEW.files IS NOT OLD.files
  OR NEW.accepted_at IS NOT OLD.accepted_at OR NEW.present IS NOT OLD.present OR NEW.failed IS NOT OLD.failed
  OR NEW.moved IS NOT OLD.moved OR NEW.moved_exact IS NOT OLD.moved_exact OR NEW.files_done IS NOT OLD.files_done
BEGIN
  UPDATE account SET
    injected = injected + iif(NEW.accepted_at IS NULL, 0, NEW.bytes - NEW.present - NEW.failed)
      - iif(OLD.accepted_at IS NULL, 0, OLD.bytes - OLD.present - OLD.failed),
    in_doubt = in_doubt + iif(NEW.state = 'called', NEW.bytes, 0) - iif(OLD.state = 'called', OLD.bytes, 0),
    moved = moved + NEW.moved - OLD.moved,
    estimated = estimated + iif(NEW.moved_exact, 0, NEW.moved) - iif(OLD.moved_exact, 0, OLD.moved),
    failed = failed + NEW.failed - OLD.failed,
    resident = resident
      + iif(NEW.state IN ('gone', 'refused', 'withdrawn'), 0, NEW.bytes - NEW.present - NEW.failed)
      - iif(OLD.state IN ('gone', 'refused', 'withdrawn'), 0, OLD.bytes - OLD.present - OLD.failed),
    coming = coming
      + iif(NEW.state IN ('called', 'live'), NEW.bytes - NEW.present - NEW.failed - NEW.moved, 0)
      - iif(OLD.state IN ('called', 'live'), OLD.bytes - OLD.present - OLD.failed - OLD.moved, 0),
    files_in_flight = files_in_flight
      + iif(NEW.state IN ('called', 'live'), NEW.files - NEW.files_done, 0)
      - iif(OLD.state IN ('called', 'live'), OLD.files - OLD.files_done, 0),
    rules = rules + (NEW.accepted_at IS NOT NULL) - (OLD.accepted_at IS NOT NULL)
  WHERE id = NEW.account;
END;

CREATE TRIGGER injection_counted_anew
AFTER UPDATE OF state, bytes ON injection
WHEN NEW.state IS NOT OLD.state OR NEW.bytes IS NOT OLD.bytes
BEGIN
  UPDATE state_count SET entries = entries - 1, bytes = bytes - OLD.bytes WHERE state = OLD.state;
  INSERT INTO state_count VALUES (NEW.state, 1, NEW.bytes)
    ON CONFLICT (state) DO UPDATE SET entries = entries + 1, bytes = bytes + NEW.bytes;
END;

CREATE TRIGGER row_new AFTER INSERT ON cycle_row BEGIN
  UPDATE account SET due = due + NEW.due, extra = extra + NEW.extra, forgiven = forgiven + NEW.forgiven,
    cycles = cycles + (NEW.due > 0)
  WHERE id = NEW.account;
END;

CREATE TRIGGER row_forgiven AFTER UPDATE OF forgiven ON cycle_row BEGIN
  UPDATE account SET forgiven = forgiven + NEW.forgiven - OLD.forgiven WHERE id = NEW.account;
END;

-- ------------------------------------------------------------------ what was written once stays

CREATE TRIGGER injection_stays BEFORE DELETE ON injection BEGIN
  SELECT RAISE(ABORT, 'an injection is never forgotten');
END;

CREATE TRIGGER injection_is_one BEFORE UPDATE OF key, account, cycle, item ON injection BEGIN
  SELECT RAISE(ABORT, 'an injection stays what it is');
END;

CREATE TRIGGER row_due BEFORE UPDATE OF due, extra, cycle, account ON cycle_row BEGIN
  SELECT RAISE(ABORT, 'what was due does not change');
END;

CREATE TRIGGER row_insert BEFORE INSERT ON cycle_row
WHEN (SELECT closed_at FROM cycle WHERE start = NEW.cycle) IS NOT NULL BEGIN
  SELECT RAISE(ABORT, 'a closed cycle never changes');
END;

CREATE TRIGGER row_update BEFORE UPDATE ON cycle_row
WHEN (SELECT closed_at FROM cycle WHERE start = OLD.cycle) IS NOT NULL BEGIN
  SELECT RAISE(ABORT, 'a closed cycle never changes');
END;

CREATE TRIGGER row_delete BEFORE DELETE ON cycle_row BEGIN
  SELECT RAISE(ABORT, 'a closed cycle never changes');
END;

CREATE TRIGGER cycle_update BEFORE UPDATE ON cycle WHEN OLD.closed_at IS NOT NULL BEGIN
  SELECT RAISE(ABORT, 'a closed cycle never changes');
END;

CREATE TRIGGER cycle_delete BEFORE DELETE ON cycle BEGIN
  SELECT RAISE(ABORT, 'a closed cycle never changes');
END;
