"""Authorities, certificates and proxies for one test session, made with the `openssl` command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

EXTENSIONS = {
    "authority": "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n",
    "server": "subjectAltName=IP:127.0.0.1,DNS:localhost\n",
    "person": "keyUsage=critical,digitalSignature\n",
    "proxy": "proxyCertInfo=critical,language:id-ppl-inheritAll\nkeyUsage=critical,digitalSignature\n",
}


def openssl(*arguments: object) -> str:
    """Run openssl and return what it says."""
    return subprocess.run(
        ["openssl", *map(str, arguments)], check=True, capture_output=True, text=True, timeout=60
    ).stdout


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path
    subject: str


def make(folder: Path, name: str, kind: str, *, days: int, by: Pair | None = None) -> Pair:
    """Make a certificate that is valid for so many days, signed by another one or itself."""
    folder.mkdir(parents=True, exist_ok=True)
    key, request, certificate, extensions = (folder / f"{name}.{end}" for end in ("key", "csr", "pem", "ext"))
    # A proxy's name is its owner's with one more part.
    subject = f"{by.subject}/CN=42" if by and kind == "proxy" else f"/O=Test/CN={name}"
    extensions.write_text(EXTENSIONS[kind])
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
    signer = ("-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial") if by else ("-signkey", key)
    openssl("x509", "-req", "-in", request, *signer, "-days", days, "-extfile", extensions, "-out", certificate)
    key.chmod(0o600)
    return Pair(certificate, key, subject)


def make_between(folder: Path, name: str, kind: str, *, start: str, end: str, by: Pair, bits: int = 0) -> Pair:
    """Make a certificate that is valid from `start` to `end`, like 20270208100000Z; `bits` are of an RSA key."""
    folder.mkdir(parents=True, exist_ok=True)
    key, request, certificate, extensions = (folder / f"{name}.{end}" for end in ("key", "csr", "pem", "ext"))
    extensions.write_text(EXTENSIONS[kind])
    (folder / f"{name}.db").write_text("")
    (folder / f"{name}.cnf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/{name}.db\nnew_certs_dir={folder}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=p\n[p]\nO=optional\nCN=optional\n"
    )
    kind_of_key = ("RSA", f"rsa_keygen_bits:{bits}") if bits else ("EC", "ec_paramgen_curve:P-256")
    openssl("genpkey", "-algorithm", kind_of_key[0], "-pkeyopt", kind_of_key[1], "-out", key)
    openssl("req", "-new", "-key", key, "-subj", f"/O=Test/CN={name}", "-out", request)
    times = ("-startdate", start, "-enddate", end)
    signer = ("-cert", by.certificate, "-keyfile", by.key, "-notext", "-batch")
    openssl("ca", "-config", folder / f"{name}.cnf", "-in", request, *signer, *times,
            "-extfile", extensions, "-out", certificate)  # fmt: skip
    key.chmod(0o600)
    return Pair(certificate, key, f"/O=Test/CN={name}")


def make_proxy(folder: Path, name: str, owner: Pair, *, days: int = 1) -> Path:
    """Make a proxy as grid tools write it: its certificate, its key, and its owner's certificate, in one file."""
    pair = make(folder, name, "proxy", days=days, by=owner)
    whole = folder / f"{name}.proxy"
    whole.write_text(pair.certificate.read_text() + pair.key.read_text() + owner.certificate.read_text())
    whole.chmod(0o600)
    return whole


def end_of(certificate: Path) -> str:
    """Return a certificate's end as openssl tells it, `Nov 22 15:28:29 2026 GMT`."""
    return openssl("x509", "-in", certificate, "-noout", "-enddate").strip().partition("=")[2]
