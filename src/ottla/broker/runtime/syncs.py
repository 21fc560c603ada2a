"""Brings to the device what has to be there before a producer hears of it (`flush.messages`), in another thread.

One sync of a partition serves all requests that wait for it when it begins; the next one serves those that came
meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.runtime.faults import DiskFaults
from ottla.log.partition import PartitionLog
from ottla.wire.errors import ErrorCode

#: How long after a sync that has failed.
_AGAIN_S: Final = 1.0


class Partition(Protocol):
    """What is needed of a partition (`runtime.partitions`)."""

    synced_ms: int | None
    untold_bytes: int

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def log(self) -> PartitionLog: ...

    def appended(self, size_bytes: int, /) -> None: ...


class _Waiting:
    """Who waits for the next sync of a partition, and how many bytes readers are not told of yet."""

    __slots__ = ("bytes", "futures")

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[ErrorCode]] = []
        self.bytes = 0


class Syncs:
    """See the module."""

    def __init__(self, faults: DiskFaults, clock: Clock, find: Callable[[str, int], object]) -> None:
        self._faults = faults
        self._clock = clock
        self._find = find
        self._closed = False
        self._waiting: dict[Partition, _Waiting] = {}
        self._running: dict[Partition, asyncio.Task[None]] = {}

    def after(self, partition: Partition, size_bytes: int) -> "asyncio.Future[ErrorCode]":
        """Sync the partition, then tell its watchers of `size_bytes` more. NONE, or KAFKA_STORAGE_ERROR;
        UNKNOWN_TOPIC_OR_PARTITION where it was deleted meanwhile."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(partition, _Waiting())
        future: asyncio.Future[ErrorCode] = loop.create_future()
        waiting.futures.append(future)
        waiting.bytes += size_bytes
        if partition not in self._running:
            self._running[partition] = loop.create_task(self._run(partition))
        return future

    async def sync_old(self, partition: Partition) -> None:
        """Sync what has waited for `flush.ms`."""
        log, now_ms = partition.log, self._clock.monotonic_ms()
        if partition.synced_ms is None:
            partition.synced_ms = now_ms
        if log.end_offset > log.synced.offset and now_ms - partition.synced_ms >= log.config.flush_ms:
            await self.after(partition, 0)

    def again_soon(self, partition: Partition) -> None:
        """A sync has failed, and readers wait for it: try again, whether or not somebody appends."""
        asyncio.get_running_loop().call_later(_AGAIN_S, self._again, partition)

    def _again(self, partition: Partition) -> None:
        is_led = self._find(*partition.tp) is partition
        if not is_led or self._closed or partition in self._running:
            return
        if partition.log.synced.is_due:
            self.after(partition, 0)
        elif partition.untold_bytes:  # somebody else has synced it, or `flush.messages` was raised
            partition.appended(0)

    async def close(self) -> None:
        """Return when nothing is being synced any more. Then only what is appended is synced."""
        self._closed = True
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, partition: Partition) -> None:
        try:
            while partition in self._waiting:
                waiting = self._waiting.pop(partition)
                error = await self._sync(partition)
                for future in waiting.futures:
                    if not future.done():
                        future.set_result(error)
                if error is ErrorCode.NONE:
                    partition.appended(waiting.bytes)
                else:
                    partition.untold_bytes += waiting.bytes
        finally:
            del self._running[partition]

    async def _sync(self, partition: Partition) -> ErrorCode:
        try:
            plan = partition.log.synced.plan()
            await asyncio.get_running_loop().run_in_executor(None, plan.sync)
        except StorageError as fault:
            if self._find(*partition.tp) is not partition:  # its topic is deleted, and with it the files
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self.again_soon(partition)
            return self._faults.report(partition.tp, fault)
        partition.log.synced.reached(plan.offset)
        partition.synced_ms = self._clock.monotonic_ms()
        return ErrorCode.NONE
