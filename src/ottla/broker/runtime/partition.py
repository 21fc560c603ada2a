"""One partition that this node leads, and who waits for it to grow."""

import asyncio
from collections.abc import Generator
from typing import Final, Protocol

from ottla.base.types import TopicPartition
from ottla.broker.runtime.wakes import Wakes
from ottla.log.partition import PartitionLog
from ottla.log.record_checks import Looked
from ottla.log.results import Appended
from ottla.log.storage import Buffer
from ottla.wire.errors import ErrorCode

#: So many are told of each batch.
_FEW: Final = 16


class Watcher(Protocol):
    """Something that waits for a partition to change: a fetch (`runtime.purgatory`)."""

    def appended(self, partition: "Partition", size_bytes: int, /) -> None:
        """`size_bytes` were appended."""
        ...

    def gone(self, partition: "Partition", /) -> None:
        """The partition is deleted."""
        ...


class Partition:
    """A partition's log, and who waits for it to grow."""

    __slots__ = (
        "_has_told",
        "_owed_bytes",
        "_wakes",
        "_watchers",
        "held",
        "leader_epoch",
        "log",
        "synced_ms",
        "topic_id",
        "tp",
        "untold_bytes",
    )

    def __init__(self, tp: TopicPartition, topic_id: bytes, log: PartitionLog, leader_epoch: int, wakes: Wakes) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        #: When it was last synced by itself, by the monotonic clock (`flush.ms`).
        self.synced_ms: int | None = None
        #: What watchers were not told of when it came: the sync that it waited for was refused.
        self.untold_bytes = 0
        #: While a large batch is written in parts: done when it is there, or given up.
        self.held: asyncio.Future[None] | None = None
        #: In the order in which they came. (A set has the order of addresses: no run would be like the one before.)
        self._watchers: dict[Watcher, None] = {}
        self._wakes = wakes
        #: Whether many were told in this turn of the loop, or have to wait for it, and what they were not told of.
        self._has_told = False
        self._owed_bytes: int | None = None

    def lead(self, leader_epoch: int) -> None:
        """The metadata says that this node leads it in that epoch."""
        self.leader_epoch = leader_epoch
        self.log.epochs.lead(leader_epoch)

    def check_leader_epoch(self, current: int) -> ErrorCode:
        """Compare the leader epoch that a client believes in with ours (KIP-320); -1 means that it names none."""
        if current in (-1, self.leader_epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if current < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    @property
    def is_held(self) -> bool:
        """Whether a large batch is being written: who wants to append has to wait (`Partitions.until_free`)."""
        return self.held is not None

    def append_in_parts(
        self, records: Buffer, *, now_ms: int, verification_guard: int, looked: Looked | None, max_named: int
    ) -> Generator[None, None, Appended]:
        """Append a large batch of a client where it `is_held` by nobody, as `PartitionLog.append_in_parts`."""
        held = self.held = asyncio.get_running_loop().create_future()
        try:
            return (
                yield from self.log.append_in_parts(
                    records,
                    now_ms=now_ms,
                    leader_epoch=self.leader_epoch,
                    verification_guard=verification_guard,
                    looked=looked,
                    max_named=max_named,
                )
            )
        finally:
            self.held = None
            held.set_result(None)

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` about changes, until `unwatch`."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Stop telling it. No-op for a watcher that does not watch."""
        self._watchers.pop(watcher, None)

    @property
    def watched(self) -> bool:
        """Whether somebody waits for it to change."""
        return bool(self._watchers)

    def appended(self, size_bytes: int) -> None:
        """Tell the watchers that a batch was appended or a transaction ended, and what they were not told before.

        Many are told once in a turn of the loop, and in a later one when very many of other partitions were told in
        this: one request may have a batch for this partition fifty times, or batches for fifty partitions.
        """
        size_bytes += self.untold_bytes
        self.untold_bytes = 0
        if not self._watchers:
            return
        if self._has_told:
            self._owed_bytes = (self._owed_bytes or 0) + size_bytes
            return
        if len(self._watchers) > _FEW:
            self._has_told = True
            may_tell = self._wakes.may_tell(len(self._watchers))
            self._wakes.add(self._next_turn)
            if not may_tell:
                self._owed_bytes = size_bytes
                return
        for watcher in tuple(self._watchers):
            watcher.appended(self, size_bytes)

    def _next_turn(self) -> None:
        self._has_told = False
        owed_bytes, self._owed_bytes = self._owed_bytes, None
        if owed_bytes is not None:
            self.appended(owed_bytes)

    def gone(self) -> None:
        """Tell the watchers that it is deleted."""
        for watcher in tuple(self._watchers):
            watcher.gone(self)
