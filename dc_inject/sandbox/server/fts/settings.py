"""What can be changed while the service runs: settings.json and tokens.json, read again when they change."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

log = logging.getLogger("fts")
T = TypeVar("T")
Json = Any  # what json.loads returns


@dataclass(frozen=True)
class Settings:
    """Everything in settings.json; what is not named has these defaults. Times are in seconds."""

    # who may do what
    anonymous: bool = True  # plain http without a token is a user of `vo`
    vo: str = "sandbox"
    vos: Mapping[str, str] = field(default_factory=dict)  # VO by DN, for certificates
    config_users: tuple[str, ...] = ()  # DNs with the config right

    # how much at a time
    max_active: int = 24  # copies into a storage that really run; XRootD fails with many more on one machine
    link_active: int = 130  # the most copies of a link, unless /config/links has another limit
    storage_active: int = 200  # copies into, and copies out of, a storage, unless /config/se has another limit
    retries: int = 0  # for jobs that leave it to the server

    # patience
    time_scale: float = 1.0  # what all times of the real service are multiplied with, and those that jobs name
    scheduler_interval: float = 2.0  # between two passes that start copies
    optimizer_interval: float = 60.0
    retry_pause: float = 120.0  # before the next attempt, in addition to the delay that the job names
    connect_timeout: float = 10.0
    idle_timeout: float = 60.0  # the longest silence of a storage
    copy_timeout: float = 3600.0  # a whole copy, unless the job has its own

    # what is refused
    banned: tuple[str, ...] = ()  # storages
    held: tuple[str, ...] = ()  # storages that are banned with WAIT_AS: files are taken, and are ON_HOLD
    hold_timeout: float = 0.0  # after which files on hold are cancelled; 0: never
    token_prep: float = 0.0  # how long files with tokens are TOKEN_PREP
    metadata_limit: int = 1024  # bytes
    max_body: int = 64 * 2**20  # bytes
    max_ids: int = 100  # job ids in one call

    # accidents for tests; the two numbers count down in the service and are read again when the file changes
    submit_503: int = 0  # so many next submits are answered 503
    lose_answers: int = 0  # so many next submits are carried out and their connection is dropped
    forget: tuple[str, ...] = ()  # job ids that the service has forgotten
    delay: float = 0.0  # before each answer
    copy_delay: float = 0.0  # before each copy
    standstill: bool = False  # nothing is started, and the optimizer does not look, while jobs are taken and shown
    database_down: bool = False  # every request is answered 500, and nothing is started

    @classmethod
    def parse(cls, content: Json) -> Settings:
        """Take what the file holds; raises TypeError for an unknown key."""
        named: Json = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
        return cls(**named)


@dataclass(frozen=True)
class Token:
    """Whose a bearer token is."""

    vo: str
    user: str
    expires: float | None = None  # seconds since 1970
    config: bool = False


def parse_tokens(content: Json) -> dict[str, Token]:
    """Take what the file holds."""
    return {token: Token(**whose) for token, whose in content.items()}


class Watched(Generic[T]):
    """A JSON file that is read again when it has changed; when it cannot be read, what was read last holds."""

    def __init__(self, file: Path, parse: Callable[[Json], T], default: T) -> None:
        """Name the file, how to take its content, and what holds without it."""
        self._file = file
        self._parse = parse
        self._default = default
        self._value = default
        self._seen: tuple[int, ...] | None = None
        self.version = 0  # goes up with every change

    def value(self) -> T:
        """Return the settings of the file as it is now."""
        try:
            stat = self._file.stat()
        except FileNotFoundError:
            if self._seen is not None:
                self._seen, self._value = None, self._default
                self.version += 1
            return self._value
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            self._seen = seen
            try:
                self._value = self._parse(json.loads(self._file.read_text()))
            except (OSError, ValueError, TypeError, AttributeError) as error:
                log.warning("%s cannot be read and stays as it was: %s", self._file.name, type(error).__name__)
            else:
                self.version += 1
        return self._value


class Knobs:
    """The settings, and the accidents that count down."""

    def __init__(self, folder: Path) -> None:
        """Name the folder of settings.json, and of defaults.json, which has the values that it leaves out."""
        defaults = folder / "defaults.json"
        usual = json.loads(defaults.read_text()) if defaults.exists() else {}
        self._watched = Watched(
            folder / "settings.json", lambda content: Settings.parse(usual | content), Settings.parse(usual)
        )
        self._version = -1
        self._left = {"submit_503": 0, "lose_answers": 0}

    @property
    def now(self) -> Settings:
        """The settings in force."""
        settings = self._watched.value()
        if self._version != self._watched.version:
            self._version = self._watched.version
            self._left = {name: getattr(settings, name) for name in self._left}
        return settings

    def happens(self, accident: str) -> bool:
        """Return whether `submit_503` or `lose_answers` happens now, and count it."""
        self.now  # noqa: B018 (reads a changed file)
        if self._left[accident] <= 0:
            return False
        self._left[accident] -= 1
        return True
