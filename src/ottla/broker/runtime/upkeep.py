"""Regular work: retention, cleaning, forgetting producers, recovery points, closing idle connections."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ottla.base.clock import Clock
from ottla.base.errors import StorageError
from ottla.broker.config import BrokerConfig
from ottla.broker.connections import Connections
from ottla.broker.runtime.cleaner import Cleaner
from ottla.broker.runtime.flushing import bring_to_device
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices
from ottla.broker.runtime.timers import Timers

_log = logging.getLogger(__name__)

#: How often the recovery points are written (`log.flush.offset.checkpoint.interval.ms` of Kafka).
_CHECKPOINT_MS: Final = 60_000
_CHECKPOINT: Final = "checkpoint"
#: Kafka's default for an interval that never ends.
_NEVER_MS: Final = 2**63 - 1
#: How the keys of its timers begin.
_KEY: Final = "upkeep"
#: A cleaner that looks all the time would keep the loop from others.
_LEAST_BACKOFF_MS: Final = 10
#: The longest time between two looks for idle connections.
_IDLE_MS: Final = 10_000


def idle_check_interval_ms(max_idle_ms: int) -> int:
    """How often to look for idle connections; seldom if they may stay (a negative limit)."""
    return _IDLE_MS if max_idle_ms < 0 else min(_IDLE_MS, max(max_idle_ms, 1))


class Upkeep:
    """Runs each piece of work by its own interval, on the broker's timers."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        slices: Slices,
        partitions: Partitions,
        connections: Connections,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._slices = slices
        self._partitions = partitions
        self._connections = connections
        self.cleaner = Cleaner(config, clock, slices, partitions, lambda: connections.active_ms)
        #: What runs now, by name.
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Set the timers. A checkpoint that cannot be used is made again at once."""
        config = self._config
        self._every(config.int("log.retention.check.interval.ms"), "retention", self.apply_retention)
        self._every(config.int("producer.id.expiration.check.interval.ms"), "producers", self.expire_producers)
        self._every(_CHECKPOINT_MS, _CHECKPOINT, self.flush)
        if config.int("log.flush.scheduler.interval.ms") < _NEVER_MS:
            self._every(config.int("log.flush.scheduler.interval.ms"), "syncs", self.sync_old)
        if config.flag("log.cleaner.enable"):
            self._every(max(config.int("log.cleaner.backoff.ms"), _LEAST_BACKOFF_MS), "cleaner", self.cleaner.clean)
        idle_ms = idle_check_interval_ms(config.int("connections.max.idle.ms"))
        self._every(idle_ms, "idle", self._close_idle)
        if self._partitions.lacks_checkpoints:
            self._begin(_CHECKPOINT, self.flush)

    async def stop(self) -> None:
        """Begin nothing more, cancel what the next start does again, and wait for what runs in another thread."""
        self._timers.cancel_all(lambda key: isinstance(key, tuple) and key[0] == _KEY)
        for name, task in self._running.items():
            if name != _CHECKPOINT:
                task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _close_idle(self) -> None:
        self._connections.close_idle()

    async def apply_retention(self) -> None:
        """Delete the segments that retention allows to delete. The thread for files deletes their files."""
        retired: list[Partition] = []
        await self._slices.run(self._retire(self._clock.now_ms(), retired))
        if any(each.log.log_start_offset == each.log.end_offset for each in retired):
            # After a kill an empty file behind the recovery point would look as if its records were lost.
            await self._write_checkpoint()
        while retired:
            partition = retired.pop()
            if self._partitions.find(*partition.tp) is not partition:
                continue  # deleted meanwhile; its files go with it
            with self._alone(partition, "retention"):
                deleted = await self._partitions.in_thread(partition.log.delete_retired)
                _log.info("%s: %d segment(s) deleted by retention", partition.tp, deleted)

    def _retire(self, now_ms: int, retired: list[Partition]) -> Iterator[None]:
        for partition in self._partitions.all():
            with self._alone(partition, "retention"):
                if partition.log.retire(now_ms):
                    retired.append(partition)
            yield

    async def expire_producers(self) -> None:
        """Forget producers that were silent for `producer.id.expiration.ms` (P7)."""
        await self._slices.run(self._expire(self._clock.now_ms()))

    def _expire(self, now_ms: int) -> Iterator[None]:
        for partition in self._partitions.all():
            with self._alone(partition, "expiry of producers"):
                yield from partition.log.expire_producers(now_ms)
            yield

    async def flush(self) -> None:
        """Make everything durable, the slow part in another thread, and write the recovery points.

        Bytes in the page cache survive the end of the process, but not a loss of power. Flushing them also shortens the
        next recovery.
        """
        partitions = self._partitions
        unflushed: list[tuple[Partition, int]] = []
        await self._slices.run(self._find_unflushed(unflushed))
        while unflushed:
            partition, end_offset = unflushed.pop()
            await asyncio.sleep(0)  # also where the disk refuses at once
            with self._alone(partition, "flush"):
                await bring_to_device(partition, end_offset, partitions, self._slices)
        await self._write_checkpoint()

    async def _write_checkpoint(self) -> None:
        try:
            await self._partitions.write_checkpoint(self._slices)
        except StorageError as fault:
            self._partitions.faults.report("no checkpoint", fault)

    def _find_unflushed(self, found: list[tuple[Partition, int]]) -> Iterator[None]:
        """The logs that are not whole on the device, and where each ends now."""
        for partition in self._partitions.all():
            if partition.log.needs_flush:
                found.append((partition, partition.log.end_offset))
            yield

    async def sync_old(self) -> None:
        """Bring to the device what has waited for it as long as `flush.ms` allows."""
        for partition in self._partitions.all():
            await self._partitions.syncs.sync_old(partition)

    @contextmanager
    def _alone(self, partition: Partition, what: str) -> Iterator[None]:
        """A fault of one partition keeps nothing from the others."""
        try:
            yield
        except StorageError as fault:
            if self._partitions.find(*partition.tp) is partition:  # else it was deleted meanwhile
                self._partitions.faults.report(f"{what} of {partition.tp}", fault)
        except Exception:  # noqa: BLE001 - logged
            _log.exception("%s of %s has failed", what, partition.tp)

    def _every(self, interval_ms: int, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin `work` at each interval; one that still runs is left to it."""

        def due() -> None:
            self._timers.set((_KEY, name), interval_ms, due)
            self._begin(name, work)

        self._timers.set((_KEY, name), interval_ms, due)

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        running = self._running.get(name)
        if running is None or running.done():
            self._running[name] = asyncio.get_running_loop().create_task(self._do(name, work), name=name)

    async def _do(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except StorageError as fault:
            self._partitions.faults.report(name, fault)
        except Exception:  # noqa: BLE001 - logged; the next time may go well
            _log.exception("%s has failed", name)
