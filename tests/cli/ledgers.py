"""Ledgers for the tests of commands, made by the ledger's own methods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner, Result

from dc_inject.cli.root import root
from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, Dataset, Entry, FlowKey, Held, Hold, Injection, Link, naming
from dc_inject.model.plan import FlowDecision, Plan
from dc_inject.model.ports import Identity, Observation, Outcome, Status

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
CYCLE = Cycle(START, timedelta(minutes=15))
GB = 10**9
FNAL = FlowKey("t0-export", Link("T2_CH_CERN", "T1_US_FNAL_Disk"))
KIT = FlowKey("t0-export", Link("T2_CH_CERN", "T1_DE_KIT_Disk"))
MESH = FlowKey("us-mesh", Link("T2_US_MIT", "T2_US_Nebraska"))
ME = Identity("rucio", "sim://", "1", "def", "sim", admin=False, may_end=True, credentials_until=None)


def injection(flow: FlowKey, number: int, cycle: Cycle = CYCLE) -> Injection:
    """A dataset of 100 GB in 10 files for a flow."""
    name = f"cms:/{flow.scenario}/data#{number:03}"
    return Injection(
        key=naming.key("dc27", flow.scenario, cycle.start, flow.link, name),
        campaign="dc27",
        cycle=cycle,
        scenario=flow.scenario,
        link=flow.link,
        item=Dataset(name, 100 * GB, 10),
        release=cycle.start,
        lifetime=timedelta(hours=2),
        activity="Data Challenge",
        service_priority=3,
        contact="dc@example.org",
    )


@dataclass
class Made:
    """A ledger on disk and the injections that are live in it."""

    path: Path
    entries: list[Entry]


def make(
    path: Path, rules: dict[FlowKey, int], dry: tuple[FlowKey, ...] = (), begun: datetime | None = None
) -> Made:
    """A ledger after the plan of one cycle, with so many live rules for each flow, and flows that are dry."""
    content, entries = _written(tuple(rules.items()), dry, begun, ME)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(content)
    return Made(path, list(entries))


def make_moving(path: Path) -> Made:
    """A ledger of a link with three rules that have moved 150 GB, one with a rule, and one that is dry."""
    made = make(path, {FNAL: 3, MESH: 1}, dry=(KIT,))
    ours = [entry.injection.key for entry in made.entries if entry.injection.flow == FNAL]
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.observe([Observation(ours[0], Status.COMPLETE, files_done=10)], START)
        ledger.observe([Observation(ours[1], Status.MOVING, files_done=5, moved=50 * GB)], START)
    return made


@cache
def _written(
    rules: tuple[tuple[FlowKey, int], ...], dry: tuple[FlowKey, ...], begun: datetime | None, me: Identity
) -> tuple[bytes, list[Entry]]:
    """Return the file of such a ledger and what is in it; hundreds of tests begin with the same few."""
    flows = [*dict(rules), *dry]
    injections = [injection(flow, number) for flow, count in rules for number in range(count)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        with Ledger.open(path, synchronous="OFF") as ledger:
            if begun is not None:
                ledger.begin(begun)
            ledger.bind("dc27", CYCLE.length, [me], START)
            ledger.open_cycle(CYCLE, dict.fromkeys(flows, (450 * GB, None)), START)
            decisions = tuple(
                FlowDecision(
                    key=flow,
                    due=450 * GB,
                    want=450 * GB,
                    cap=900 * GB,
                    budget=0 if flow in dry else 450 * GB,
                    forgiven=0,
                    held=Held(Hold.POOL_DRY, {"free": 0}) if flow in dry else None,
                    lifetime=timedelta(hours=2),
                    items=(),
                    pool_items=0,
                    pool_bytes=0,
                )
                for flow in flows
            )
            ledger.record_plan(Plan(CYCLE, decisions, tuple(injections)), START)
            keys = [one.key for one in injections]
            ledger.call(keys, START)
            ledger.answer([Outcome(key, f"sim-{key}") for key in keys], START, {})
            entries = ledger.entries()
        return path.read_bytes(), entries


def run(*arguments: str | Path, text: str | None = None) -> Result:
    """Run a command as a user does; errors of ours come back as the result's exception."""
    return CliRunner().invoke(root, [str(argument) for argument in arguments], input=text)
