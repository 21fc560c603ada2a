"""What is measured: who takes which partition for its own, who reads it, and since when all is well. Pure.

- A member *takes* a partition for its own from the moment it knows or computes that it is to have it.
- It *reads* a partition while its fetchers run on it.
- The group is *stable* while every partition is read by exactly one member, and taken by no other.

Sums are partition-seconds: two partitions for three seconds are six.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sim.zookeeper_era.script import Event, Kind


class Settled(NamedTuple):
    """How long it took after an event until the group was stable; None if it was not before the next event."""

    event: Event
    after_ms: float | None


@dataclass(slots=True)
class Ledger:
    """See the module. Times are milliseconds since the beginning, and never go back."""

    partitions: int
    #: Sums in partition-milliseconds.
    disputed: float = 0.0
    read_by_two: float = 0.0
    unread: float = 0.0
    #: How many changes left some partition with two who take it for theirs.
    disputes: int = 0
    notifications: int = 0
    keep_alives: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    rebalances: int = 0
    failed_attempts: int = 0
    given_up: int = 0
    #: Partitions committed by a member that another one has taken over from.
    late_commits_taken: int = 0
    late_commits_refused: int = 0
    settled: list[Settled] = field(default_factory=list)
    _live: set[str] = field(default_factory=set)
    _paused: set[str] = field(default_factory=set)
    _takes: dict[str, frozenset[int]] = field(default_factory=dict)
    _reads: dict[str, frozenset[int]] = field(default_factory=dict)
    #: Partition → who began to read it last.
    _newest: dict[int, str] = field(default_factory=dict)
    _now_ms: float = 0.0
    _last_event: Event | None = None
    _stable_since_ms: float | None = None
    _counts: tuple[int, int, int] = (0, 0, 0)

    # -- what happens

    def event(self, event: Event, now_ms: float) -> None:
        """The script goes on. All members that start count as one event, which begins with the first of them."""
        self._pass(now_ms)
        if event.kind is not Kind.START or self._last_event is None:
            self._close_event()
            self._last_event = event
        match event.kind:
            case Kind.START | Kind.JOIN:
                self._live.add(event.member)
            case Kind.LEAVE | Kind.CRASH:
                self._live.discard(event.member)
                self._takes.pop(event.member, None)
                self._reads.pop(event.member, None)
            case Kind.PAUSE:
                self._paused.add(event.member)
            case Kind.RESUME:
                self._paused.discard(event.member)
        self._look()

    def takes(self, member: str, partitions: Iterable[int], now_ms: float) -> None:
        """What a member takes for its own from now on."""
        self._pass(now_ms)
        if member in self._live:
            self._takes[member] = frozenset(partitions)
        self._look()

    def reads(self, member: str, partitions: Iterable[int], now_ms: float) -> None:
        """What a member reads from now on; it takes that for its own too."""
        self._pass(now_ms)
        if member in self._live:
            self._takes[member] = self._reads[member] = frozenset(partitions)
            self._newest.update(dict.fromkeys(self._reads[member], member))
        self._look()

    def stops(self, member: str, now_ms: float) -> None:
        """A member reads nothing, and takes nothing for its own."""
        self.reads(member, (), now_ms)

    def committed(self, member: str, partition: int, *, accepted: bool) -> None:
        """A member has tried to commit. It is late when another one has begun to read the partition, and still does."""
        newest = self._newest.get(partition, member)
        if newest != member and partition in self._reads.get(newest, ()):
            if accepted:
                self.late_commits_taken += 1
            else:
                self.late_commits_refused += 1

    def end(self, now_ms: float) -> None:
        """The world is over."""
        self._pass(now_ms)
        self._close_event()

    # -- what it is now

    def reading(self) -> dict[str, frozenset[int]]:
        """Member → what it reads, for those that live."""
        return {member: self._reads.get(member, frozenset()) for member in sorted(self._live)}

    def _holders(self, held: dict[str, frozenset[int]]) -> Counter[int]:
        return Counter(p for member, them in held.items() if member not in self._paused for p in them)

    def _pass(self, now_ms: float) -> None:
        """Count the time since the last change."""
        passed = now_ms - self._now_ms
        disputed, twice, unread = self._counts
        self.disputed += disputed * passed
        self.read_by_two += twice * passed
        self.unread += unread * passed
        self._now_ms = now_ms

    def _look(self) -> None:
        """Look at the group after a change."""
        takers, readers = self._holders(self._takes), self._holders(self._reads)
        disputed = sum(1 for number in takers.values() if number > 1)
        twice = sum(1 for number in readers.values() if number > 1)
        unread = self.partitions - len(readers) if self._live else 0
        if disputed > self._counts[0]:
            self.disputes += 1
        self._counts = (disputed, twice, unread)
        if disputed or unread:
            self._stable_since_ms = None
        elif self._stable_since_ms is None:
            self._stable_since_ms = self._now_ms

    def _close_event(self) -> None:
        event = self._last_event
        if event is None:
            return
        since = self._stable_since_ms
        self.settled.append(Settled(event, None if since is None else max(0.0, since - event.at_ms)))
