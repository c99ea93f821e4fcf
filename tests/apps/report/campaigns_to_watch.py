"""A campaign to watch: a morning of fourteen links, of which some are short, at a fixed time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dc_inject.apps.report import watch_figures
from dc_inject.apps.report.watch_figures import Standing
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Cycle, Dataset, FlowKey, Held, Hold, Injection, Link, naming
from dc_inject.model.overrides import Kind
from dc_inject.model.ports import Identity, Observation, Outcome, Status
from dc_inject.summary import first_lines

BEGIN = datetime(2027, 2, 8, 4, tzinfo=UTC)
LENGTH = timedelta(minutes=15)
SLOW = range(11, 14)  # cycles in which less moved everywhere
CYCLES = 24  # that are over; one more is open
NOW = BEGIN + CYCLES * LENGTH + timedelta(minutes=7, seconds=31)
GB = 10**9
LAST = timedelta(hours=24)
T1 = (
    "T1_US_FNAL_Disk",
    "T1_DE_KIT_Disk",
    "T1_ES_PIC_Disk",
    "T1_FR_CCIN2P3_Disk",
    "T1_IT_CNAF_Disk",
    "T1_UK_RAL_Disk",
)
LINKS = [
    *(FlowKey("t0-export", Link("T2_CH_CERN", rse)) for rse in T1),
    *(
        FlowKey("us-mesh", Link(f"T2_US_{source}", f"T2_US_{destination}"))
        for source, destination in (
            ("MIT", "Nebraska"),
            ("Nebraska", "MIT"),
            ("Caltech", "MIT"),
            ("MIT", "Caltech"),
        )
    ),
    *(
        FlowKey("uk", Link("T1_UK_RAL_Disk", f"T2_UK_{rse}"))
        for rse in ("London_IC", "London_Brunel", "SGrid_RALPP")
    ),
    FlowKey("uk", Link("T2_UK_London_IC", "T1_UK_RAL_Disk")),
]
QUALITY = {1: 0.55, 3: 0.8, 4: 0.0, 7: 0.72, 11: 0.93}  # number of a link -> the part that moves; else all of it
HELD = {
    1: Held(Hold.FAILING, {"failed_bytes": 51 * GB, "injected": 203 * GB}),
    4: Held(Hold.POOL_DRY, {"free": 0}),
    7: Held(Hold.DESTINATION_FULL, {"free": 12 * GB, "wanted": 90 * GB}),
    11: Held(Hold.TOO_COARSE, {"budget": 4 * GB, "smallest": 20 * GB}),
}
ME = Identity("rucio", "sim://", "41.5.1", "def", "dcops", admin=False, may_end=True, credentials_until=None)
MENU = """\
menu: 1
campaign: dc27-rehearsal
contact: dc-ops@example.org
start: 2027-02-08 04:00
end: 2027-02-09 04:00
timezone: UTC
scenarios:
  uk:
    from: T1_UK_RAL_Disk
    to: T2_UK_London_IC
    rate: 5 Gb/s
    datasets: {did: "cms:*"}
"""


def due(number: int) -> int:
    """Bytes that a link is due in a cycle."""
    return (450 - 25 * number) * GB


def campaign(path: Path) -> Path:
    """Make the ledger of it: CYCLES cycles that are over and one that is not."""
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27-rehearsal", LENGTH, [ME], BEGIN)
        ledger.begin(BEGIN)
        ledger.put_in_force([("day1.yaml", "0", MENU)], BEGIN)
        for number in range(CYCLES + 1):
            cycle = Cycle(BEGIN + number * LENGTH, LENGTH)
            is_open = number == CYCLES
            held = {LINKS[one]: hold for one, hold in HELD.items()}
            dues = {key: (due(one), held.get(key) if is_open else None) for one, key in enumerate(LINKS)}
            ledger.open_cycle(cycle, dues, cycle.start)
            for one, key in enumerate(LINKS):
                part = 0.25 if is_open else 1 - 0.05 * ((one + number) % 3) - (0.3 if number in SLOW else 0)
                _inject(ledger, cycle, key, int(due(one) * part * QUALITY.get(one, 1.0)))
            if not is_open:
                ledger.close_cycle(cycle, cycle.end, leading=held)
        ledger.pause("us-mesh", "dc@vobox", "lunch", NOW - timedelta(minutes=3))
        ledger.override("T2_CH_CERN:T1_US_FNAL_Disk", Kind.RATE, 5e9, "dc@vobox", "FNAL asks", NOW - 5 * LENGTH)
        ledger.change("dc@vobox", "note", "LHCOPN cut to KIT, ticket 4711", NOW - 2 * LENGTH)
    return path


def _inject(ledger: Ledger, cycle: Cycle, key: FlowKey, size: int) -> None:
    """Move one dataset of a size on a link at once."""
    if size == 0:
        return
    item = Dataset(f"cms:/{key.scenario}/{cycle.name}", size, 10)
    made = Injection(
        key=naming.key("dc27", key.scenario, cycle.start, key.link, item.name),
        campaign="dc27-rehearsal",
        cycle=cycle,
        scenario=key.scenario,
        link=key.link,
        item=item,
        release=cycle.start,
        lifetime=timedelta(hours=2),
        activity="Data Challenge",
        service_priority=3,
        contact="dc@example.org",
    )
    ledger.add_injections([made], cycle.start)
    ledger.call([made.key], cycle.start)
    ledger.answer([Outcome(made.key, f"sim-{made.key}")], cycle.start, {})
    ledger.observe([Observation(made.key, Status.COMPLETE, files_done=10)], cycle.start)


def standing(path: Path, now: datetime = NOW) -> Standing:
    """Read how it stands, as if somebody injected."""
    read = watch_figures.read(path, str(path), now)
    injector = {"who": "dc@vobox, process 4711 on vobox", "since": "2027-02-08T03:58:12Z"}
    told = {**read.status, "injector": injector, "cycle": {**read.status["cycle"], "planned": True}}
    with LedgerView.open(path) as view:
        lines = first_lines.lines(view, told, now) | {"more": "dc-inject explain dc27-rehearsal"}
        return replace(read, status={**told, **lines})
