"""Regular work: retention, forgetting producers, recovery points, closing idle connections."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import StorageError
from ottla.broker.config import BrokerConfig
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.timers import Timers
from ottla.broker.server import Listener

_log = logging.getLogger(__name__)

#: How often the recovery points are written (`log.flush.offset.checkpoint.interval.ms` of Kafka).
_CHECKPOINT_MS: Final = 60_000
#: The longest time between two looks for idle connections.
_IDLE_MS: Final = 10_000


def idle_check_interval_ms(max_idle_ms: int) -> int:
    """How often to look for idle connections; seldom if they may stay (a negative limit)."""
    return _IDLE_MS if max_idle_ms < 0 else min(_IDLE_MS, max(max_idle_ms, 1))


class Upkeep:
    """Runs each piece of work by its own interval, on the broker's timers."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, timers: Timers, partitions: Partitions, listener: Listener
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._partitions = partitions
        self._listener = listener
        self._flushing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Set the timers."""
        config = self._config
        self._every(config.int("log.retention.check.interval.ms"), "retention", self.apply_retention)
        self._every(config.int("producer.id.expiration.check.interval.ms"), "producers", self.expire_producers)
        self._every(_CHECKPOINT_MS, "checkpoint", self._checkpoint)
        idle_ms = idle_check_interval_ms(config.int("connections.max.idle.ms"))
        self._every(idle_ms, "idle", self._listener.close_idle)

    async def stop(self) -> None:
        """Wait for what runs in another thread."""
        if self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)

    def apply_retention(self) -> None:
        """Delete the segments that retention allows to delete."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions.all():
            try:
                deleted = partition.log.apply_retention(now_ms)
            except StorageError as fault:  # other partitions may still make room
                self._partitions.faults.report(f"retention of {partition.tp}", fault)
                continue
            if deleted:
                _log.info("%s: %d segment(s) deleted by retention", partition.tp, deleted)

    def expire_producers(self) -> None:
        """Forget producers that were silent for `producer.id.expiration.ms` (P7)."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions.all():
            partition.log.expire_producers(now_ms)

    def _checkpoint(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self.flush())

    async def flush(self) -> None:
        """Make everything durable, the slow part in another thread, and write the recovery points.

        Bytes in the page cache survive the end of the process, but not a loss of power. Flushing them also shortens the
        next recovery.
        """
        loop = asyncio.get_running_loop()
        partitions = self._partitions
        for partition in partitions.all():
            log = partition.log
            # While others were flushed, this partition may have been deleted, and a new topic may have its names.
            if log.recovery_point == log.end_offset or partitions.find(*partition.tp) is not partition:
                continue
            try:
                plan = log.flush_plan()
                await loop.run_in_executor(None, plan.sync)
            except StorageError as fault:
                partitions.faults.report(f"{partition.tp} cannot be flushed", fault)
                continue
            log.mark_flushed(plan)
        try:
            await loop.run_in_executor(None, partitions.checkpoint_plan())
        except StorageError as fault:
            partitions.faults.report("no checkpoint", fault)

    def _every(self, interval_ms: int, name: str, work: Callable[[], None]) -> None:
        timers = self._timers

        def due() -> None:
            timers.set(("upkeep", name), interval_ms, due)
            try:
                work()
            except StorageError as fault:
                self._partitions.faults.report(name, fault)

        timers.set(("upkeep", name), interval_ms, due)
