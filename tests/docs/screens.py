"""`python -m tests.docs.screens` makes the pictures of terminals in docs/ anew; `make docs` does so, too.

A picture is written only if its text has changed: another version of a library may draw the same text otherwise.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dc_inject.apps.report import live_view
from dc_inject.engine import closing
from dc_inject.ledger import LedgerView
from dc_inject.ledger.series import Period
from tests.apps.report import campaigns_to_watch as watching
from tests.cli.screens import app, on_screen, text
from tests.docs import DOCS

STOPPED = "02-08 10:04:32Z us-mesh is stopped by dc@vobox (lunch)"


def watch(ledger: Path, width: int, height: int) -> str:
    """Return `watch` on a terminal of a size."""
    return on_screen(app(ledger), (width, height))


def run(ledger: Path, width: int) -> str:
    """Return what `run` shows on a terminal."""
    size = {"width": width, "height": 50}  # both, or TERM=dumb has 80 columns
    console = Console(record=True, **size, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with LedgerView.open(ledger) as view:
        for cycle, _ in view.cycles(Period(watching.NOW - 3 * watching.LENGTH, watching.NOW))[:2]:
            sentence = closing.sentence(cycle, view.rows(cycle=cycle))
            console.print(Text(f"{cycle.next.start:%m-%d %H:%M:%SZ} {sentence}"))
    console.print(Text(STOPPED))
    for line in live_view.lines(watching.standing(ledger), width - 1):
        console.print(line)
    return console.export_svg(title="dc-inject run menus/dc27-rehearsal")


SCREENS: dict[str, Callable[[Path], str]] = {
    "how-to/watch-80.svg": lambda ledger: watch(ledger, 80, 24),
    "how-to/watch-200.svg": lambda ledger: watch(ledger, 200, 40),
    "how-to/run-80.svg": lambda ledger: run(ledger, 80),
    "how-to/run-200.svg": lambda ledger: run(ledger, 200),
}


def offline(picture: str) -> str:
    """Return a picture that fetches nothing: the fonts of this machine have to do."""
    picture = re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    return picture.replace("font-family: Fira Code, monospace", "font-family: DejaVu Sans Mono, monospace") + "\n"


def main() -> None:
    """Write the pictures whose text has changed."""
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as folder:
        ledger = watching.campaign(Path(folder) / "dc27.sqlite")
        for name, make in SCREENS.items():
            picture, file = offline(make(ledger)), DOCS / name
            if not file.exists() or text(file.read_text()) != text(picture):
                file.write_text(picture)
                print(f"wrote {file}")


if __name__ == "__main__":
    main()
