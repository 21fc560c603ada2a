"""Both ways on one script, and what was measured."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.base.require import require
from sim.loop import SimLoop, run
from sim.zookeeper_era.consumer import Consumer
from sim.zookeeper_era.ledger import Ledger, Settled
from sim.zookeeper_era.members import Coordinator, Member
from sim.zookeeper_era.script import Event, Kind, Numbers, Script
from sim.zookeeper_era.service import Service
from sim.zookeeper_era.weather import Weather

_COMMITS = ("offset write", "OffsetCommit")


class Process(Protocol):
    """A consumer of either kind."""

    def start(self) -> None: ...

    def crash(self) -> None: ...

    def leave(self) -> None: ...


#: Makes a member of this name.
Made = Callable[[str], Process]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured of one way. Sums are partition-seconds."""

    notifications: int
    requests: int
    requests_by_kind: dict[str, int]
    commits: int
    keep_alives: int
    rebalances: int
    failed_attempts: int
    given_up: int
    disputes: int
    disputed_s: float
    read_by_two_s: float
    unread_s: float
    late_commits_taken: int
    late_commits_refused: int
    settled: tuple[Settled, ...]
    #: Member → its partitions, at the end.
    reading: dict[str, frozenset[int]]

    @classmethod
    def of(cls, ledger: Ledger) -> Figures:
        """Read off the ledger of a world that is over."""
        by_kind = {kind: ledger.requests[kind] for kind in sorted(ledger.requests)}
        return cls(
            notifications=ledger.notifications,
            requests=sum(number for kind, number in by_kind.items() if kind not in _COMMITS),
            requests_by_kind=by_kind,
            commits=sum(number for kind, number in by_kind.items() if kind in _COMMITS),
            keep_alives=ledger.keep_alives,
            rebalances=ledger.rebalances,
            failed_attempts=ledger.failed_attempts,
            given_up=ledger.given_up,
            disputes=ledger.disputes,
            disputed_s=ledger.disputed / 1_000,
            read_by_two_s=ledger.read_by_two / 1_000,
            unread_s=ledger.unread / 1_000,
            late_commits_taken=ledger.late_commits_taken,
            late_commits_refused=ledger.late_commits_refused,
            settled=tuple(ledger.settled),
            reading=ledger.reading(),
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One script, both ways."""

    seed: int
    script: Script
    zookeeper: Figures
    coordinator: Figures


def compare(numbers: Numbers, seed: int) -> Comparison:
    """Both ways on the script of this seed. Raises ScriptError."""
    script = Script.drawn(numbers, seed)
    return Comparison(seed, script, over_zookeeper(script, seed), with_coordinator(script, seed))


def over_zookeeper(script: Script, seed: int) -> Figures:
    """The consumers of Kafka 0.8."""

    def begin(loop: SimLoop, ledger: Ledger) -> Made:
        service = Service(loop, Weather(f"zookeeper {seed}"), ledger)
        return lambda name: Consumer(name, service, Weather(f"{name} {seed}"))

    return _world(script, seed, begin)


def with_coordinator(script: Script, seed: int) -> Figures:
    """A classic group before the real coordinator."""

    def begin(loop: SimLoop, ledger: Ledger) -> Made:
        coordinator = Coordinator(loop, ledger)
        return lambda name: Member(name, coordinator, Weather(f"{name} {seed}"))

    return _world(script, seed, begin)


def _world(script: Script, seed: int, begin: Callable[[SimLoop, Ledger], Made]) -> Figures:
    loop = SimLoop(random.Random(seed))
    ledger = Ledger(script.numbers.partitions)
    figures = run(_played(script, loop, ledger, begin), loop)
    require(not loop.unheard, "\n".join(loop.unheard))
    return figures


async def _played(script: Script, loop: SimLoop, ledger: Ledger, begin: Callable[[SimLoop, Ledger], Made]) -> Figures:
    made = begin(loop, ledger)
    begun_s = loop.time()

    def now_ms() -> float:
        return (loop.time() - begun_s) * 1_000

    members: dict[str, Process] = {}
    for event in script.events:
        await asyncio.sleep((event.at_ms - now_ms()) / 1_000)
        ledger.event(event, now_ms())
        if event.kind in (Kind.START, Kind.JOIN):
            members[event.member] = made(event.member)
        _happens(event, members[event.member], loop)
    await asyncio.sleep((script.until_ms - now_ms()) / 1_000)
    ledger.end(now_ms())
    return Figures.of(ledger)


def _happens(event: Event, process: Process, loop: SimLoop) -> None:
    match event.kind:
        case Kind.START | Kind.JOIN:
            process.start()
        case Kind.LEAVE:
            process.leave()
        case Kind.CRASH:
            process.crash()
        case Kind.PAUSE:
            loop.freeze(event.member)
        case Kind.RESUME:
            loop.thaw(event.member)
