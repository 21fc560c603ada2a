"""Cleans compacted logs (`log.cleaner`): the dirtiest first, in small pieces, beside traffic.

The thread for files reads, decides and writes. It holds Python's lock while it does, so a piece is short, and while
clients come there are pauses as long as the pieces: the event loop has at least every other moment.
`log.cleaner.io.max.bytes.per.second` makes the pauses longer. Between two pieces the loop looks whether the partition
is still there, and switches the log over to a segment that is done.

A pass begins with a checkpoint that says that the log is on the device. So after a crash no log is scanned that was
cleaned: there, offsets that are missing would look like a loss.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.words import counted
from ottla.broker.config import BrokerConfig
from ottla.broker.runtime.flushing import bring_to_device
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices
from ottla.log.cleaner.cleaning import Cleaning, Memory
from ottla.log.cleaner.swap import Swap

_log = logging.getLogger(__name__)

#: How long a piece takes. (The step that goes beyond it is finished: a batch, or some thousand records of one.)
_PIECE_MS: Final = 2
#: No pause is shorter: the event loop's timers are no finer. Several pieces may come before it.
_PAUSE_S: Final = 0.002
#: So long after a client's last request nobody needs the event loop. So often it is asked.
_QUIET_MS: Final = 50
#: The least that is read at once, whatever `log.cleaner.io.buffer.size` says.
_LEAST_IO_BYTES: Final = 4_096


class Cleaner:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        slices: Slices,
        partitions: Partitions,
        active_ms: Callable[[], int],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`active_ms` tells when a client has said or heard something last, by the monotonic clock."""
        self._clock = clock
        self._active_ms = active_ms
        self._is_quiet, self._asked_ms = False, -_QUIET_MS
        self._pause = pause
        self._slices = slices
        self._partitions = partitions
        self._pace = Pace(config.float("log.cleaner.io.max.bytes.per.second"))
        self._memory = Memory(
            config.int("log.cleaner.dedupe.buffer.size"),
            config.float("log.cleaner.io.buffer.load.factor"),
            max(config.int("log.cleaner.io.buffer.size") // 2, _LEAST_IO_BYTES),
        )

    async def clean(self) -> None:
        """Clean what is dirty enough, until nothing is, or nothing can be. One log after the other."""
        while wanted := await self._look():
            progress = [await self._clean(partition) for partition in wanted]
            if not any(progress):
                return

    async def _look(self) -> list[Partition]:
        """The logs that are to be cleaned, the dirtiest first."""
        found: list[tuple[float, Partition]] = []
        await self._slices.run(self._ratios(found))
        return [partition for _, partition in sorted(found, key=lambda each: (-each[0], each[1].tp))]

    def _ratios(self, found: list[tuple[float, Partition]]) -> Iterator[None]:
        for partition in self._partitions.all():
            compaction, config = partition.log.compaction, partition.log.config
            if compaction.is_switching:  # the disk has refused something: that comes first
                found.append((1.0, partition))
            elif config.compacts:
                try:
                    seen = compaction.look(self._clock.now_ms())
                    if seen is not None and seen.is_wanted(config):
                        found.append((seen.ratio, partition))
                except StorageError as fault:
                    self._report(partition, fault)
            yield

    async def _clean(self, partition: Partition) -> bool:
        """One pass over one log; whether it came to its end."""
        compaction = partition.log.compaction
        cleaning: Cleaning | None = None
        compaction.prepare()
        began_s = asyncio.get_running_loop().time()
        try:
            recovery_point = await self._bring_to_device(partition)
            if self._is_led(partition):
                await self._slices.run(compaction.gather())
            if self._is_led(partition):
                cleaning = compaction.begin(self._clock.now_ms(), self._memory, recovery_point)
            if cleaning is None:
                return False
            await self._take_steps(partition, cleaning)
        except CorruptDataError as fault:
            compaction.fault = str(fault)
            _log.error("%s: a batch is damaged, so it is not cleaned until the next start: %s", partition.tp, fault)
        except StorageError as fault:
            self._report(partition, fault)
        except Exception as fault:  # noqa: BLE001 - the other logs are cleaned
            compaction.fault = repr(fault)
            _log.critical("%s: cannot be cleaned, and is not until the next start", partition.tp, exc_info=fault)
        finally:
            if cleaning is not None and cleaning.cleaned_offset is None:
                await self._partitions.in_thread(cleaning.give_up)
            compaction.end(cleaning)
        if cleaning is None or cleaning.cleaned_offset is None:
            return False
        _log.info(
            "%s: cleaned up to offset %d in %.1f s, %d of %d bytes stay",
            partition.tp,
            cleaning.cleaned_offset,
            asyncio.get_running_loop().time() - began_s,
            cleaning.kept_bytes,
            cleaning.cleaned_bytes,
        )
        if cleaning.unreadable:
            _log.warning(
                "%s: kept as found: %s whose records cannot be read, the first at offset %d",
                partition.tp,
                counted(cleaning.unreadable, "batch", "batches"),
                cleaning.first_unreadable,
            )
        await self._partitions.write_checkpoint(self._slices)
        return True

    async def _bring_to_device(self, partition: Partition) -> int:
        """Flush the log, and write down up to where it is on the device. In each pause the partition may be deleted."""
        log = partition.log
        await bring_to_device(partition, log.end_offset, self._partitions, self._slices)
        recovery_point = log.recovery_point
        await self._partitions.write_checkpoint(self._slices)
        return recovery_point

    async def _take_steps(self, partition: Partition, cleaning: Cleaning) -> None:
        """All steps of the pass; it is left where it is when the partition is deleted."""
        loop, steps = asyncio.get_running_loop(), cleaning.steps()
        while self._is_led(partition):
            started_s = loop.time()
            piece = await self._partitions.in_thread(partial(_take_piece, steps, self._clock, self._memory.io_bytes))
            if piece.swap is not None and self._is_led(partition):
                partition.log.compaction.turn(piece.swap)
            if piece.is_last:
                return
            took_s = loop.time() - started_s
            pause_s = self._pace.after(took_s, piece.io_bytes, is_quiet=self._quiet())
            if pause_s:
                await self._pause(pause_s)

    def _quiet(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms >= _QUIET_MS:  # it looks at every connection
            self._asked_ms, self._is_quiet = now_ms, now_ms - self._active_ms() >= _QUIET_MS
        return self._is_quiet

    def _is_led(self, partition: Partition) -> bool:
        return self._partitions.find(*partition.tp) is partition

    def _report(self, partition: Partition, fault: StorageError) -> None:
        if self._is_led(partition):  # else it was deleted meanwhile
            self._partitions.faults.report(f"cleaning of {partition.tp}", fault)


class Pace:
    """How long a pause the pieces of a pass ask for: what one leaves undone is added to the next one."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._owed_s = 0.0

    def after(self, took_s: float, io_bytes: int, *, is_quiet: bool) -> float:
        """The pause in seconds, 0 for none yet, after a piece that took `took_s` and read and wrote `io_bytes`.

        A piece without bytes has waited for the disk, and held nobody up.
        """
        held_s = took_s if io_bytes and not is_quiet else 0.0
        self._owed_s += max(held_s, io_bytes / self._bytes_per_s - took_s, 0.0)
        if self._owed_s < _PAUSE_S:
            return 0.0
        pause_s, self._owed_s = self._owed_s, 0.0
        return pause_s


class _Piece(NamedTuple):
    """What was done in a moment: so many bytes were read and written, and what the loop must do now."""

    io_bytes: int
    swap: Swap | None = None
    is_last: bool = False


def _take_piece(steps: Iterator[int | Swap], clock: Clock, most_bytes: int) -> _Piece:
    """Take steps for a moment."""
    done, end_ms = 0, clock.monotonic_ms() + _PIECE_MS
    for step in steps:
        if isinstance(step, Swap):
            return _Piece(done, step)
        done += step
        if done >= most_bytes or clock.monotonic_ms() >= end_ms:
            return _Piece(done)
    return _Piece(done, is_last=True)
