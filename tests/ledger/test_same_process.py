"""A process that writes a ledger and looks at it as well, as an injector with metrics does."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

from dc_inject.ledger import Ledger, LedgerView

NOW = datetime(2027, 2, 8, tzinfo=UTC)
OTHER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from dc_inject.ledger import Ledger
with Ledger.open(Path(sys.argv[1])) as ledger:
    print(getattr(ledger, sys.argv[2])("*", "somebody", "why", datetime(2027, 2, 8, tzinfo=UTC)), ledger.notes())
"""


def test_a_look_from_the_same_process_hides_nothing_of_others_and_nothing_from_them(tmp_path):
    """Closing a handle of the file would drop this process's locks, and others would remove its log."""
    path = tmp_path / "x.sqlite"

    def other(what):
        return subprocess.run(
            [sys.executable, "-c", OTHER, path, what], capture_output=True, text=True, check=True
        )

    with Ledger.open(path) as ledger:
        ledger.note("first", NOW)
        LedgerView.open(path).close()
        other("pause")
        assert len(ledger.pauses()) == 1
        other("resume")
        assert ledger.pauses() == ()
        ledger.note("second", NOW)
        assert "second" in other("pause").stdout
