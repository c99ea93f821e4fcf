"""What is submitted, read and refused as FTS3 does: a body becomes a job and its files."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from .people import TOKEN, Person
from .refusals import Refused
from .settings import Json, Settings

Row = dict[str, Any]
_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0}


def build(body: bytes, person: Person, settings: Settings, now: float) -> tuple[Row, list[Row]]:
    """Make the rows of a job and of its files; raises Refused."""
    try:
        submitted = json.loads(body)
    except ValueError:
        raise Refused(400, "Badly formatted JSON request") from None
    try:
        return _job(submitted, person, settings, now)
    except KeyError as error:
        raise Refused(400, f"Missing parameter: {error}") from None
    except ValueError as error:
        raise Refused(400, f"Invalid value within the request: {error}") from None
    except (TypeError, AttributeError) as error:
        raise Refused(400, f"Malformed request: {error}") from None


def _job(submitted: Json, person: Person, settings: Settings, now: float) -> tuple[Row, list[Row]]:
    params = {key: value for key, value in (submitted.get("params") or {}).items() if value is not None}
    if submitted.get("delete") is not None:
        raise Refused(405, "Deletion jobs are no longer supported by FTS")
    if submitted.get("files") is None:
        raise Refused(400, "No transfers operations specified")
    if params.get("multihop"):
        raise Refused(400, "Multihop jobs are not supported by the sandbox's FTS")
    metadata = _metadata(params.get("job_metadata"), settings) or {}
    job_id = _job_id(params, person)
    priority = max(1, min(5, int(params.get("priority", 3))))
    files = [
        row
        for index, entry in enumerate(submitted["files"])
        for row in _files(entry, person, settings, {"job_id": job_id, "file_index": index, "priority": priority})
    ]
    if not files:
        raise Refused(400, "No valid pairs available")
    files = [row | _waiting(row, settings, now) for row in files]
    replicas = len(files) != len({row["file_index"] for row in files})
    if replicas and len({row["file_index"] for row in files}) > 1:
        raise Refused(400, "Multiple replica jobs must only have one unique file")
    waiting = _hours(params.get("max_time_in_queue"))
    tape = {"bring_online": int(params.get("bring_online", 0)), "pin": int(params.get("copy_pin_lifetime", 0))}
    if max(tape.values()) > 0:
        files = [row | {"file_state": "STAGING"} if row["file_state"] == "SUBMITTED" else row for row in files]
    job = {
        "job_id": job_id,
        "job_state": "STAGING" if max(tape.values()) > 0 else "SUBMITTED",
        "job_type": "R" if replicas else "N",
        "vo_name": person.vo,
        "user_dn": person.dn,
        "cred_id": person.delegation_id,
        "source_se": _common(row["source_se"] for row in files),
        "dest_se": _common(row["dest_se"] for row in files),
        "submit_time": now,
        "priority": priority,
        "retry": int(params.get("retry", 0)),
        "retry_delay": int(params.get("retry_delay", 0)),
        "overwrite": _flag(params.get("overwrite", False)),
        "checksum_method": _checksum_method(params.get("verify_checksum", False), files),
        "strict_copy": _flag(params.get("strict_copy", False)),
        "cleanup": not _flag(params.get("disable_cleanup", False)),
        "timeout": int(params.get("timeout", 0)),
        "expires": None if waiting is None else now + waiting * 3600 * settings.time_scale,
        "job_metadata": json.dumps(metadata | {"auth_method": person.method}),
    }
    return job | tape | {"archive_timeout": int(params.get("archive_timeout") or -1)}, files


def _job_id(params: Mapping[str, Any], person: Person) -> str:
    if params.get("id_generator") != "deterministic":
        return str(uuid.uuid1())
    if params.get("sid") is None:
        raise Refused(400, "Need sid for deterministic job id generation")
    return str(uuid.uuid5(person.vo_id, str(params["sid"])))


def _files(entry: Mapping[str, Any], person: Person, settings: Settings, common: Row) -> list[Row]:
    """Make one row per pair of a source and a destination; of several sources the first is tried first."""
    sources, destinations = entry["sources"], entry["destinations"]
    source_tokens, destination_tokens = _tokens(entry, person)
    rows: list[Row] = []
    for source, source_token in zip(sources, source_tokens, strict=True):
        for destination, destination_token in zip(destinations, destination_tokens, strict=True):
            rows.append(
                common
                | {
                    "file_state": "NOT_USED" if rows else "SUBMITTED",
                    "source_surl": source.strip(),
                    "dest_surl": destination.strip(),
                    "source_se": storage(source, settings),
                    "dest_se": storage(destination, settings),
                    "vo_name": person.vo,
                    "user_filesize": int(_number(entry.get("filesize") or 0)),
                    "checksum": entry.get("checksum") or "ADLER32",
                    "file_metadata": json.dumps(_metadata(entry.get("metadata"), settings)),
                    "activity": entry.get("activity") or "default",
                    "scitag": _scitag(entry.get("scitag")),
                    "selection_strategy": entry.get("selection_strategy", "auto"),
                    "source_token": source_token,
                    "destination_token": destination_token,
                }
            )
    return rows


def _waiting(row: Row, settings: Settings, now: float) -> Row:
    """Return what a file waits for before its turn: its tokens, or the end of a ban with WAIT_AS."""
    state, not_before = row["file_state"], 0.0
    if state == "SUBMITTED" and row["source_token"] and settings.token_prep:
        state, not_before = "TOKEN_PREP", now + settings.token_prep
    elif state == "SUBMITTED" and {row["source_se"], row["dest_se"]} & set(settings.held):
        state, not_before = "ON_HOLD", now
    return {"file_state": state, "not_before": not_before}


def _tokens(entry: Mapping[str, Any], person: Person) -> tuple[list[str | None], list[str | None]]:
    """Return the tokens of sources and destinations; without any, the one that FTS was asked with is used."""
    sources, destinations = entry["sources"], entry["destinations"]
    of_sources, of_destinations = entry.get("source_tokens"), entry.get("destination_tokens")
    if not of_sources and not of_destinations:
        token = person.token if person.method == TOKEN else None
        return [token] * len(sources), [token] * len(destinations)
    if not (of_sources and of_destinations):
        raise Refused(400, "Both source_tokens and destination_tokens are required if one of them is present.")
    for name, tokens, urls in (("source", of_sources, sources), ("destination", of_destinations, destinations)):
        if len(tokens) != len(urls):
            raise Refused(400, f"Length of {name}_tokens should be equal to the length of {name}s.")
        if not all(isinstance(token, str) and token for token in tokens):
            raise Refused(400, f"A token of a {name} is missing.")
    return of_sources, of_destinations


def storage(url: str, settings: Settings) -> str:
    """Name a URL's storage: scheme and host without the port. Raises ValueError, and Refused when it is banned."""
    parts = urlsplit(url.strip())
    parts.port  # noqa: B018 (raises ValueError for what is no port)
    if not parts.scheme:
        raise ValueError(f"Missing scheme ({url.strip()})")
    if parts.scheme == "file":
        raise ValueError(f"Can not transfer local files ({url.strip()})")
    if not parts.hostname:
        raise ValueError(f"Missing host ({url.strip()})")
    if parts.path in ("", "/") and not parts.query:
        raise ValueError(f"Missing path ({url.strip()})")
    named = f"{parts.scheme}://{parts.hostname}"
    if named in settings.banned:
        raise Refused(403, f"{named} is banned")
    return named


def _metadata(value: Json, settings: Settings) -> dict[str, Any] | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text.encode()) > settings.metadata_limit:
        raise Refused(
            400, f"Metadata too large ({len(text.encode())} bytes, {settings.metadata_limit} are allowed)"
        )
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {"label": value}
    return value if isinstance(value, dict) else {"label": value}


def _scitag(value: Json) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 65 <= value <= 65535:
        raise Refused(400, f"Invalid SciTag value: {value} (not in [65, 65535] range)")
    return value


def _number(value: Json) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"file size {value}")
    return number


def _flag(value: Json) -> bool:
    return value[:1].upper() == "Y" if isinstance(value, str) else bool(value)


def _checksum_method(wanted: Json, files: list[Row]) -> str:
    """Return which ends are compared: n(one), s(ource), t(arget) or b(oth)."""
    if isinstance(wanted, str):
        if wanted[:1] not in ("n", "s", "t", "b"):
            raise ValueError(f"verify_checksum {wanted}")
        return wanted[:1]
    if wanted:
        return "b"
    return "t" if any(":" in row["checksum"] for row in files) else "n"


def _hours(value: Json) -> float | None:
    """Read a duration in hours: an int is hours, a text has a unit s, m or h; 0 and nonsense are no limit."""
    if isinstance(value, int):
        return float(value) or None
    if not isinstance(value, str) or value[-1:].lower() not in _HOURS or not value[:-1].isdigit():
        return None
    return int(value[:-1]) * _HOURS[value[-1].lower()]


def _common(values: Iterable[str]) -> str | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None
