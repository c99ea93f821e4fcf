"""The database in the service's folder: it is what survives a stop, a start and a kill."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
  job_id TEXT PRIMARY KEY, job_state TEXT NOT NULL, job_type TEXT NOT NULL, vo_name TEXT NOT NULL,
  user_dn TEXT NOT NULL, cred_id TEXT NOT NULL, source_se TEXT, dest_se TEXT, submit_time REAL NOT NULL,
  job_finished REAL, priority INT NOT NULL, retry INT NOT NULL, retry_delay INT NOT NULL,
  overwrite INT NOT NULL, checksum_method TEXT NOT NULL, strict_copy INT NOT NULL, cleanup INT NOT NULL,
  timeout INT NOT NULL, expires REAL, job_metadata TEXT NOT NULL, reason TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_of_vo ON job (vo_name, job_state, submit_time);
CREATE INDEX IF NOT EXISTS job_expiring ON job (expires) WHERE job_finished IS NULL AND expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS file (
  file_id INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL REFERENCES job, file_index INT NOT NULL,
  vo_name TEXT NOT NULL, file_state TEXT NOT NULL, priority INT NOT NULL,
  source_surl TEXT NOT NULL, dest_surl TEXT NOT NULL, source_se TEXT NOT NULL, dest_se TEXT NOT NULL,
  source_token TEXT, destination_token TEXT, checksum TEXT NOT NULL, user_filesize INT NOT NULL,
  file_metadata TEXT NOT NULL, activity TEXT NOT NULL, scitag INT, selection_strategy TEXT,
  filesize INT, throughput REAL, tx_duration REAL, start_time REAL, finish_time REAL, reason TEXT,
  retry INT NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0,
  asked REAL  -- since when bytes of ours may be at the destination; NULL when there are none for certain
);
CREATE INDEX IF NOT EXISTS file_of_job ON file (job_id, file_state);
CREATE INDEX IF NOT EXISTS file_in_state ON file (file_state, source_se, dest_se);
CREATE TABLE IF NOT EXISTS tape (  -- of files that are staged before their copy; seconds
  file_id INTEGER PRIMARY KEY REFERENCES file, bring_online INT NOT NULL, pin INT NOT NULL,
  uri TEXT, request TEXT, staging_start REAL, staging_finished REAL
);
CREATE TABLE IF NOT EXISTS archive (  -- of files whose job waits until they are on tape; seconds
  file_id INTEGER PRIMARY KEY REFERENCES file, archive_timeout INT NOT NULL,
  archive_start_time REAL, archive_finish_time REAL
);
CREATE TABLE IF NOT EXISTS attempt (
  file_id INT NOT NULL REFERENCES file, attempt INT NOT NULL, datetime REAL NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (file_id, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS credential (
  delegation_id TEXT PRIMARY KEY, user_dn TEXT NOT NULL, private_key TEXT NOT NULL, request TEXT NOT NULL,
  proxy TEXT, expires REAL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS link_config (
  symbolicname TEXT PRIMARY KEY, source TEXT NOT NULL, destination TEXT NOT NULL,
  min_active INT NOT NULL, max_active INT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS storage_config (
  storage TEXT PRIMARY KEY, inbound_max_active INT, outbound_max_active INT
) WITHOUT ROWID;
"""


def open_database(file: Path) -> sqlite3.Connection:
    """Open it, and make it when it is not there; only its owner can read it."""
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(file, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;")
    connection.executescript(_SCHEMA)
    return connection
