"""A certificate authority of a sandbox's own, made with the `openssl` command and thrown away with it."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dc_inject.model.errors import ServiceError

_DAYS = "30"
_NAME = "/O=dc_inject sandbox/CN="


@dataclass(frozen=True)
class Authority:
    """An authority in `folder`; everything in it is for its owner only."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """Its own certificate, which makes others trust those that it issues."""
        return self.folder / "ca.pem"

    @property
    def directory(self) -> Path:
        """The same certificate under the name of its hash, as grid software wants it (X509_CERT_DIR)."""
        return self.folder / "certificates"

    def issue(self, name: str, hosts: Iterable[str] = ()) -> tuple[Path, Path]:
        """Issue a certificate for `name`, a server at `hosts` (names or addresses) or a person; with its key.

        Both are valid for 30 days; the name becomes that of the files too, so it is a plain word.
        """
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "request"))
        _openssl("req", "-new", *_NEW_KEY, "-keyout", key, "-subj", f"{_NAME}{name}", "-out", request)
        extensions = self.folder / f"{name}.extensions"
        extensions.write_text(_extensions(hosts))
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.folder / "ca.key",
            "-CAcreateserial", "-sha256", "-days", _DAYS, "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        for used_up in (request, extensions):
            used_up.unlink()
        _private(certificate, key, self.folder / "ca.srl")
        return certificate, key


def create(folder: Path) -> Authority:
    """Make an authority in a new folder. Raises ServiceError when there is no `openssl`, or it fails."""
    made = Authority(folder)
    folder.mkdir(mode=0o700)
    made.directory.mkdir(mode=0o700)
    key = folder / "ca.key"
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", key, "-sha256", "-days", _DAYS, "-subj", f"{_NAME}authority",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", made.certificate)  # fmt: skip
    name = _openssl("x509", "-hash", "-noout", "-in", made.certificate).strip()
    hashed = made.directory / f"{name}.0"
    shutil.copyfile(made.certificate, hashed)
    _private(key, made.certificate, hashed)
    return made


# 2048 bits take a tenth of a second, and every client takes them
_NEW_KEY = ("-newkey", "rsa:2048", "-nodes")


def _extensions(hosts: Iterable[str]) -> str:
    lines = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature,keyEncipherment",
        "extendedKeyUsage=serverAuth,clientAuth",
    ]
    names = ",".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
    return "\n".join([*lines, *([f"subjectAltName={names}"] if names else [])]) + "\n"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _openssl(*words: str | Path) -> str:
    try:
        done = subprocess.run(
            ["openssl", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            umask=0o077, timeout=60,
        )  # fmt: skip
    except FileNotFoundError:
        raise ServiceError("there is no openssl command, which makes the sandbox's certificates") from None
    except subprocess.TimeoutExpired:
        raise ServiceError("openssl did not end within a minute") from None
    if done.returncode:
        raise ServiceError(f"openssl {words[0]} failed: {' '.join(done.stderr.split())[-300:]}")
    return done.stdout


def _private(*files: Path) -> None:
    for file in files:
        file.chmod(0o600)
