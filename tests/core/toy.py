"""A toy link: a pipe with a latency and a queue that is served in order, and an injector that is blind or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import quantiles

from dc_inject.planning.control import CYCLES, MOST, Decision, Memory, Past, Signals, Transfers, decide

PIECES = 20  # datasets of a cycle's worth
SIZE = 10**9
TARGET = PIECES * SIZE  # bytes a cycle
CYCLE = timedelta(minutes=15)
BACK = 8  # cycles of which completions are looked at


@dataclass
class Piece:
    """A dataset on its way; times are in cycles."""

    released: float
    left: float = SIZE
    seen_at: float | None = None  # when its arrival was seen


@dataclass
class Toy:
    """`capacity(t)` and `wanted(t)` are parts of the target; `latency`, `lifetime`, `seen_every` are in cycles.

    `policy` may be `fixed` (each cycle its due, no feedback) or `act`. `lost` is the part of the pieces that never
    arrives and is not given back. `transfers(t)` are those that FTS tells of.
    """

    capacity: Callable[[float], float]
    policy: str = "act"
    lifetime: float = 8.0
    latency: float = 0.1
    seen_every: float = 0.2
    lost: float = 0.0
    wanted: Callable[[float], float] = lambda _t: 1.0
    pool: Callable[[float], float] = lambda _t: 1e9  # the most that a cycle can be given, in cycles' worth
    transfers: Callable[[float], Transfers | None] = lambda _t: None
    time: int = 0
    injected: list[float] = field(default_factory=list)  # in each cycle, in cycles' worth
    moved: list[float] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)  # as it is, at the start of a cycle
    decisions: list[Decision] = field(default_factory=list)
    expired: float = 0.0  # unsent, in cycles' worth
    _queue: deque[Piece] = field(default_factory=deque)
    _done: list[Piece] = field(default_factory=list)
    _past: list[Past] = field(default_factory=list)
    _memory: Memory = field(default_factory=Memory)
    _debt: float = 0.0
    _moved_before: int = 0
    _expired_before: int = 0
    _under_way: list[Piece] = field(default_factory=list)  # as the ledger has it
    _limited: bool = False
    _catches_up: bool = False
    _looked: float = 0.0
    _count: int = 0

    def run(self, cycles: int) -> Toy:
        """Let so many cycles pass."""
        for _ in range(cycles):
            due = self.wanted(self.time) * TARGET
            flying = len(self._under_way) * SIZE
            self.in_flight.append(sum(piece.left for piece in self._queue) / TARGET)
            give = due
            if self.policy == "act":
                decision = self._decide(due)
                let_through = min(due * (1 + max(decision.memory.bias, 0)), self.pool(self.time) * TARGET)
                self._debt = min(self._debt + let_through, 2 * due)
                self._catches_up = self._debt >= MOST * due
                give = min(self._debt, decision.allowed)
            give = min(give, self.pool(self.time) * TARGET)
            self._limited = give < due and give == self.pool(self.time) * TARGET
            count = round(give / SIZE)
            self._debt -= count * SIZE
            self.injected.append(count / PIECES)
            before, expired = self._moved_before, self._expired_before
            self._pass([self.time + n / max(count, 1) for n in range(count)])
            moved, lost = self._moved_before - before, self._expired_before - expired
            self._past.append(Past(int(due), moved, flying, lost))
            self.time += 1
        return self

    def _decide(self, due: float) -> Decision:
        now = float(self.time)
        recent = [piece for piece in self._done if piece.seen_at is not None and piece.seen_at > now - BACK]
        times = [piece.seen_at - piece.released for piece in recent if piece.seen_at is not None]
        oldest = min((piece.released for piece in self._under_way), default=None)
        past = self._past[-CYCLES:]
        decision = decide(
            self._memory,
            Signals(
                target=due / CYCLE.total_seconds(),
                length=CYCLE,
                lifetime=self.lifetime * CYCLE,
                in_flight=len(self._under_way) * SIZE,
                past=past,
                completion=quantiles(times, n=10)[-1] * CYCLE if len(times) > 1 else None,
                age=(now - self._looked) * CYCLE,
                oldest=None if oldest is None else (now - oldest) * CYCLE,
                transfers=self.transfers(now),
                floor=SIZE,
                limited=self._limited,
                catches_up=self._catches_up,
            ),
        )
        self._memory = decision.memory
        self.decisions.append(decision)
        return decision

    def _pass(self, releases: list[float], steps: int = 40) -> None:
        """Let a cycle pass: pieces go out, are served in order, expire, and are seen now and then."""
        waiting = deque(releases)
        carried = 0.0
        for step in range(steps):
            now = self.time + (step + 1) / steps
            while waiting and waiting[0] < now:
                piece = Piece(waiting.popleft())
                self._under_way.append(piece)
                self._count += 1
                if self.lost and self._count * self.lost % 1 < self.lost:
                    piece.left = 0.0
                    piece.released = float("-inf")  # gone without a word
                    self._under_way.remove(piece)
                    continue
                self._queue.append(piece)
            room = self.capacity(now) * TARGET / steps
            for piece in tuple(self._served(now)):
                step_bytes = min(room, piece.left)
                piece.left -= step_bytes
                room -= step_bytes
                carried += step_bytes
                if not room:
                    break
            self._end(now)
        self.moved.append(carried / TARGET)

    def _served(self, now: float) -> Iterator[Piece]:
        return (piece for piece in self._queue if piece.released + self.latency <= now)

    def _end(self, now: float) -> None:
        expired = [piece for piece in self._queue if piece.left and piece.released + self.lifetime <= now]
        self.expired += sum(piece.left for piece in expired) / TARGET
        self._queue = deque(piece for piece in self._queue if piece.left and piece not in expired)
        if now - self._looked >= self.seen_every - 1e-9:
            self._looked = now
            live = {id(piece) for piece in self._queue}
            for piece in self._under_way:
                if id(piece) not in live and piece.left == 0:
                    piece.seen_at = now
                    self._done.append(piece)
                    self._moved_before += SIZE
                elif id(piece) not in live:
                    self._expired_before += SIZE
            self._under_way = [piece for piece in self._under_way if id(piece) in live]

    @property
    def expired_part(self) -> float:
        """The part of what was injected that expired unsent."""
        return self.expired / sum(self.injected)
