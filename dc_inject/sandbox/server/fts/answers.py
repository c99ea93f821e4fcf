"""How jobs and files look in answers; times are UTC without a zone, as FTS3 writes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

_JOB = (
    "job_id", "job_state", "job_type", "vo_name", "user_dn", "cred_id", "source_se", "dest_se", "priority",
    "retry", "retry_delay", "reason",
)  # fmt: skip
_FILE = (
    "file_id", "file_index", "job_id", "vo_name", "file_state", "priority", "source_surl", "dest_surl",
    "source_se", "dest_se", "checksum", "user_filesize", "filesize", "throughput", "tx_duration", "reason",
    "retry", "activity", "scitag", "selection_strategy",
)  # fmt: skip
_OF_TAPE = ("staging_start", "staging_finished", "archive_start_time", "archive_finish_time")
_NOTHING = (
    "transfer_host", "staging_host", "internal_file_params", "pid", "log_file", "log_file_debug", "recoverable",
)  # fmt: skip


def moment(seconds: float | None) -> str | None:
    """Write a time."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def job_plain(row: sqlite3.Row) -> dict[str, Any]:
    """Write a job."""
    return {key: row[key] for key in _JOB} | {
        "submit_time": moment(row["submit_time"]),
        "job_finished": moment(row["job_finished"]),
        "job_metadata": json.loads(row["job_metadata"]),
        "max_time_in_queue": None if row["expires"] is None else int(row["expires"]),
        "overwrite_flag": "Y" if row["overwrite"] else None,
        "verify_checksum": row["checksum_method"],
        "cancel_job": False,
        "dst_file_report": False,
        "source_spacetoken": "",
        "destination_spacetoken": "",
        "os_project_id": None,
        "target_qos": None,
        "copy_pin_lifetime": -1,
        "bring_online": -1,
        "archive_timeout": -1,
        "submit_host": "localhost",
        "internal_job_params": None,
    }


def file_plain(row: sqlite3.Row) -> dict[str, Any]:
    """Write a file; without its tokens."""
    known = set(row.keys())  # with the times of tape where the job is shown, as FTS3 shows them everywhere
    tape = {key: moment(row[key]) if key in known else None for key in _OF_TAPE}
    return {key: row[key] for key in _FILE} | dict.fromkeys(_NOTHING) | tape | {
        "filesize": row["filesize"] or 0,  # of what was never read, too
        "start_time": moment(row["start_time"]),
        "finish_time": moment(row["finish_time"]),
        "file_metadata": json.loads(row["file_metadata"]),
        "staging_metadata": None,
        "archive_metadata": None,
    }  # fmt: skip


def only(plain: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Keep some fields; unknown ones are left out without a word."""
    return {field: plain[field] for field in fields if field in plain}
