"""`python -m tests.docs` writes the generated files of docs/ anew; `make docs` runs it first."""

from __future__ import annotations

from tests.docs import DOCS
from tests.docs.generated import FILES

for name, make in FILES.items():
    (DOCS / name).write_text(make(), encoding="utf-8")
