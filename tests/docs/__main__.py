"""`python -m tests.docs` writes the generated files of docs/ anew; `make docs` runs it first."""

from __future__ import annotations

from tests.docs import DOCS
from tests.docs.command_reference import MAN, man_pages
from tests.docs.generated import FILES

for name, make in FILES.items():
    (DOCS / name).write_text(make(), encoding="utf-8")
for path in MAN.glob("*.1"):
    path.unlink()
for name, page in man_pages().items():
    (MAN / name).write_text(page, encoding="utf-8")
