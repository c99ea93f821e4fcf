"""`python -m tests.ledger.released` (`make released-ledger`) keeps a ledger of the version that is released next.

It is the one that the changelog begins with; one that has its date already is released, and is not written again.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

from dc_inject.cli.root import root
from tests.engine.world import LEFT_OPEN
from tests.ledger.released import FOLDER, NAME, dumped, made

CHANGELOG = Path(__file__).resolve().parents[3] / "docs" / "changelog.md"


def main() -> int:
    """Write both files."""
    newest = re.search(r"^## (\S+) \((.+)\)$", CHANGELOG.read_text("utf-8"), re.MULTILINE)
    if newest is None or newest[2] != "unreleased":
        sys.exit("docs/changelog.md does not begin with a version that is unreleased")
    with LEFT_OPEN, tempfile.TemporaryDirectory() as name:
        ledger = Path(name) / NAME
        now = made(ledger.parent).clock.now()
        done = CliRunner().invoke(root, ["status", str(ledger), "--summary", "--format", "json"])
        assert done.exit_code == 0, done.output
        summary = json.loads(done.stdout)
        summary.pop("ledger", None)
        (FOLDER / f"{newest[1]}.sql").write_text("\n".join([*dumped(ledger), ""]), "utf-8")
    kept = {"at": now.isoformat(), "summary": summary}
    (FOLDER / f"{newest[1]}.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"kept a ledger of {newest[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
