"""Whatever Rucio answers: back comes a value that the ledger can keep, or a ServiceError, never a secret."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from dc_inject.backends.rucio import RucioBackend
from dc_inject.ledger import Ledger
from dc_inject.model import Dataset, DatasetFilter, Link, PoolKey, Slice, naming
from dc_inject.model.errors import ServiceError
from dc_inject.model.items import Range, SliceId, Slicing
from dc_inject.model.ports import Candidate
from tests.backends.fake import GB, FakeRse, FakeRucio
from tests.backends.support import ANYTHING, CYCLE, Heard, injection, live

from .broken import MUTATIONS, Breaker, Mutation, no_secret
from .cases import fuzz
from .ledgers import accepted, kept_open, tried

LINK = Link("T2_CH_CERN", "T1_DE_KIT_Disk")
NAMED = DatasetFilter(("cms:/data/RAW#0", "cms:/all"), ("cms:/all",), (), (1, 10**6), (1, 10**15))
PART = Slice(SliceId(Range("cms:/data/RAW#4", 2, 3, 3)), 4 * GB)
INJECTIONS = [
    *(injection(Dataset(f"cms:/data/RAW#{n}", 6 * GB, 3), LINK) for n in range(4)),
    injection(naming.build_slice(PART, Slicing("user.dcops"), "test", "s", CYCLE.start, LINK), LINK),
]
METHODS = (
    "check", "resolve", "inventory", "named", "replicas", "look", "submit", "again", "observe", "exact", "end",
    "remove", "sites", "ours",
)  # fmt: skip


_EXTRA: dict[str, Callable[..., Any]] = {  # what only those ask who copy by FTS
    "get_protocols": lambda _rse: [{"scheme": "davs", "hostname": "a", "port": 1094}],
    "list_replicas": lambda dids, **_: [
        {
            **did,
            "bytes": 10,
            "adler32": "00000001",
            "pfns": {f"davs://a:1094/data/{did['name']}": {}},
            "rses": {LINK.destination: ["davs://a:1094/data"]},
        }
        for did in dids
    ],
}


def _server() -> FakeRucio:
    server = FakeRucio(rses={LINK.source: FakeRse(), LINK.destination: FakeRse()})
    for number in range(5):
        server.add(f"cms:/data/RAW#{number}", LINK.source)
    server.containers["cms", "/all"] = [("cms", "/data/RAW#1"), ("cms", "/data/RAW#2")]
    server.limits = [{"rse_expression": "*", "bytes_remaining": 10**14}]
    return server


def _backend(server: FakeRucio) -> RucioBackend:
    return RucioBackend(campaign="test", clock=server.clock, observer=Heard(), make=server.client)


class _Told:
    """A client whose answers are broken; streams break where the answer is cut."""

    def __init__(self, client: Any, breaker: Breaker) -> None:
        self._client, self._breaker = client, breaker

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name, None) or _EXTRA[name]
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = found(*args, **kwargs)
            streamed = not isinstance(answer, (dict, list, str, bool))
            answer = self._breaker(list(answer) if streamed else answer)
            return iter(answer) if streamed and isinstance(answer, list) else answer

        return call


def _ask(method: str, backend: RucioBackend, entries: list[Any], ledger: Any) -> None:
    """Ask for one thing, and write down what a campaign would."""
    now, candidates = CYCLE.start, [Candidate(i.item.id, LINK) for i in INJECTIONS]
    pool = PoolKey(LINK.source, ANYTHING)
    match method:
        case "check":
            no_secret(backend.check())
        case "resolve":
            ledger.record_resolution("rucio", "*", backend.resolve("*"), now)
        case "inventory":
            ledger.store_inventory("rucio", pool, list(backend.inventory(LINK.source, ANYTHING)), now)
        case "named":
            ledger.store_inventory("rucio", pool, list(backend.inventory(LINK.source, NAMED)), now)
        case "replicas":
            ledger.store_inventory("fts", pool, list(backend.replicas("davs://a:1094/data", NAMED)), now)
        case "look":
            for status in backend.check_replicas(candidates).values():
                if status.item is not None:
                    ledger.store_inventory("rucio", pool, [status.item], now)
        case "submit":
            ledger.answer(backend.submit(INJECTIONS), now, {})
        case "again":
            backend.submit(INJECTIONS[:2])
            ledger.answer(backend.submit(INJECTIONS), now, {})
        case "observe" | "exact":
            accepted(ledger, entries)
            seen = backend.observe(entries, exact=method == "exact")
            no_secret(*seen)
            ledger.observe(seen, now)
        case "end":
            no_secret(*(outcome.error for outcome in backend.end(entries)))
        case "remove":
            ledger.gone([removal.key for removal in backend.remove(entries) if removal.gone], now)
        case "sites":
            for fact in backend.sites(LINK[:2]).values():
                for signal in ("free", "quota_left", "site"):
                    ledger.signal(signal, fact.name, getattr(fact, signal), now)
        case "ours":
            no_secret(*backend.ours())


@fuzz(400, method=st.sampled_from(METHODS), mutations=MUTATIONS)
def test_whatever_rucio_answers(method: str, mutations: list[Mutation]) -> None:
    """An answer with something wrong in it is a value that can be kept, or trouble of the service."""
    server = _server()
    backend = _backend(server)
    entries: list[Any] = []
    if method in {"observe", "exact", "end", "remove", "ours"}:
        entries = live(INJECTIONS, backend.submit(INJECTIONS))
        for rule in list(server.rules.values())[-2:]:
            rule.files = dict.fromkeys(rule.files, "OK")
    backend.connection._make = _broken(server, Breaker(mutations))
    backend.connection.renew()
    with tried(_ledger()) as ledger:
        try:
            _ask(method, backend, entries, ledger)
        except ServiceError as error:
            no_secret(error.message, error.hint)


def _broken(server: FakeRucio, breaker: Breaker) -> Callable[..., Any]:
    return lambda record, timeout: _Told(server.client(record, timeout), breaker)


@functools.lru_cache
def _ledger() -> Ledger:
    return kept_open(INJECTIONS)
