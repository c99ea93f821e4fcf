"""`python -m tests.deploy.chart` (`make chart`) renders the Helm chart in its modes, and validates the result.

helm says whether the templates are right, and kubernetes-validate whether what they make is what Kubernetes takes.
What belongs to the Prometheus operator has no schema there; its fields are looked at by name.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

CHART = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "helm" / "dc-inject"
VERSIONS = ("1.25", "1.30", "1.34")  # of Kubernetes
NEEDED = ["--set", "image.repository=registry.example.org/dc-inject", "--set", "campaign=dc27"]
TEMPLATE = ["template", "dc27", str(CHART), "--kube-version", "1.30.0"]  # helm that Go built knows no release
MENU = ["--set", r"menus.day\.yaml=menu: 1"]
NOT_KEPT = ["--set", "ledger.keep=false"]
MONITORED = [
    word for part in ("serviceMonitor", "rules", "dashboard") for word in ("--set", f"metrics.{part}=true")
]
EVERYTHING = [
    *NEEDED, *MENU, *MONITORED,
    "--set", "secrets.rucio=a,secrets.proxy=b,secrets.token=c",
    "--set", "ftsEndpoint=https://fts.example.org:8446", "--set", "trustHosts={a.example.org,b.example.org}",
    "--set", "ledger.storageClass=block", "--set", "arguments={--no-drain}",
    "--set", "nodeSelector.disk=fast", "--set", "image.digest=sha256:" + 64 * "0",
]  # fmt: skip
CASES = {
    "least": [*NEEDED, *MENU],
    "everything": EVERYTHING,
    "once": [*NEEDED, *MENU, "--set", "mode=once"],
    "shards": [*EVERYTHING, "--set", "shards=4"],
    "own ConfigMap": [*NEEDED, "--set", "menusConfigMap=menus"],
    "least, not kept": [*NEEDED, *MENU, *NOT_KEPT],
    "once, not kept": [*NEEDED, *MENU, *NOT_KEPT, "--set", "mode=once"],
    "shards, not kept": [*NEEDED, *MENU, *NOT_KEPT, "--set", "shards=4"],
}
REFUSED = {
    "no image": ["--set", "campaign=dc27", *MENU],
    "no menus": NEEDED,
    "shards of runs from cron": [*NEEDED, *MENU, "--set", "mode=once,shards=4"],
    "an unknown value": [*NEEDED, *MENU, "--set", "menue=1"],
}
OPERATOR = {"ServiceMonitor": "endpoints", "PrometheusRule": "groups"}


def main() -> int:
    """Render and validate; the first thing that is wrong ends it."""
    helm = shutil.which("helm") or sys.exit("helm is missing: `make chart` builds it where there is Go")
    _run([helm, "lint", "--strict", str(CHART), *EVERYTHING])
    for name, values in CASES.items():
        objects = [one for one in yaml.safe_load_all(_run([helm, *TEMPLATE, *values])) if one]
        for one in objects:
            _validated(one)
        _keeps_ledgers(objects, keep="ledger.keep=false" not in values)
        print(f"{name}: {', '.join(sorted(one['kind'] for one in objects))}")
    for name, values in REFUSED.items():
        done = subprocess.run([helm, *TEMPLATE, *values], capture_output=True, check=False)
        if done.returncode == 0:
            sys.exit(f"{name}: it should have been refused")
        print(f"{name}: refused")
    return 0


def _validated(rendered: dict[str, Any]) -> None:
    """Check one object against the schemas of several releases of Kubernetes."""
    kind = rendered["kind"]
    if kind in OPERATOR:
        if not rendered["spec"].get(OPERATOR[kind]):
            sys.exit(f"{kind} has no {OPERATOR[kind]}")
        return
    for version in VERSIONS:
        kubernetes_validate.validate(rendered, version, strict=True)


def _keeps_ledgers(objects: Sequence[dict[str, Any]], *, keep: bool) -> None:
    """Find that `helm uninstall` leaves the volume with the ledgers, or deletes it.

    helm never deletes what a StatefulSet has made of its templates; Kubernetes does when its policy says so.
    """
    for one in objects:
        if one["kind"] == "PersistentVolumeClaim":
            kept = one["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
        elif one["kind"] == "StatefulSet":
            policy = one["spec"].get("persistentVolumeClaimRetentionPolicy", {})
            kept = policy.get("whenDeleted", "Retain") == "Retain"
        else:
            continue
        if kept != keep:
            sys.exit(f"the ledgers of the {one['kind']} are {'kept' if kept else 'deleted'} by helm uninstall")
        return
    sys.exit("nothing holds the ledgers")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
