"""Pages and pictures with figures from simulations are fresh: it takes days of simulated time to see that."""

from __future__ import annotations

import pytest

from tests.docs import DOCS
from tests.docs.generated import FILES, MEASURED

pytest.importorskip("numpy")  # an extra


@pytest.mark.parametrize("name", MEASURED)
def test_what_is_measured_is_fresh(name: str):
    assert (DOCS / name).read_text() == FILES[name](), "run `make docs`"
