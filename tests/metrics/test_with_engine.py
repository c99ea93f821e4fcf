"""The engine's own events reach the counters: what it tells and what is counted have the same names."""

from __future__ import annotations

from pathlib import Path

from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine.engine import Engine
from dc_inject.ledger import LedgerView
from dc_inject.metrics import Metrics
from dc_inject.model import Hold
from dc_inject.model.errors import Temporary, TryOtherItem
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, world


def test_three_cycles_of_an_engine(tmp_path: Path) -> None:
    """Cycles, plans, errors and refusals are counted as they happen; the accounts are those of the ledger."""
    one = world(tmp_path, campaign([flow("A", "B", 1.0), flow("A", "C", 1.0)]), {"A": items("A", 200, 10 * GB)})
    metrics = Metrics(one.ledger.path)
    troubles = iter([TryOtherItem("still being deleted"), Temporary("busy")])

    def fault(method: str, _subject: object) -> None:
        if method == "submit" and (error := next(troubles, None)):
            raise error

    identity = one.backend.check()
    one.backend.fault = fault
    engine = Engine(
        menus=one.menus,
        ledger=one.ledger,
        backends={"rucio": one.backend},
        identities={"rucio": identity},
        clock=one.clock,
        executor=InlineExecutor(one.clock),
        observer=metrics,
        settings=one.settings,
    )
    engine.run(until=START + 3 * CYCLE)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"dc_inject_{name}", labels)

    assert value("cycles_closed_total") == 3
    assert value("cycle_overruns_total") == 0
    assert value("cycle_planning_seconds_count") == 3
    assert value("cycle_close_delay_seconds_count") == 3
    assert value("errors_total", service="rucio", kind="temporary") == 1
    assert (value("refusals_total", service="rucio", kind="another-now") or 0) >= 1
    assert value("unexpected_errors_total") == 0
    with LedgerView.open(one.ledger.path) as view:
        for key, totals in view.accounts().items():
            labels = {
                "scenario": key.scenario,
                "source": key.link.source,
                "destination": key.link.destination,
                "service": key.link.through,
            }
            assert totals.injected > 0
            assert value("injected_bytes_total", **labels) == totals.injected
            assert value("due_bytes_total", **labels) == totals.due
    held = {value("held_links", hold=hold.value, harmless=str(hold.harmless).lower()) for hold in Hold}
    assert held <= {0, 1, 2}
