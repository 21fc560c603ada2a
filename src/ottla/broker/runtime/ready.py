"""What an append waits for, or takes long for: another that is being written, a name that is not safe yet, its size."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.errors import StorageError
from ottla.base.limits import MAX_INLINE_WRITE_BYTES
from ottla.base.types import TopicPartition
from ottla.broker.runtime.partition import Partition
from ottla.log.rolling import Rolling
from ottla.log.storage import Buffer

#: What a step gives when the next one takes long, and belongs into `Slices`.
SLOWLY: Final = object()


class _Partitions(Protocol):
    """The port `LedPartitions`, of which this is asked."""

    def until_free(self, tp: TopicPartition, /) -> "Iterator[asyncio.Future[None]]": ...


def must_wait(partition: Partition, batch: Buffer, clock: Clock) -> bool:
    """Whether `until_ready` has to come before the batch is appended."""
    rolling = partition.log.rolling
    return (
        partition.held is not None
        or len(batch) > MAX_INLINE_WRITE_BYTES
        or (rolling.needs_name and rolling.may_come(batch, clock.now_ms()))
    )


def until_ready(partitions: _Partitions, partition: Partition, batch: Buffer, clock: Clock) -> Iterator[object]:
    """Steps for `Slices`, or none. Behind them who looks for the partition finds one to which he can write, or none."""
    if len(batch) > MAX_INLINE_WRITE_BYTES:
        yield SLOWLY
    yield from partitions.until_free(partition.tp)
    rolling = partition.log.rolling  # its segment may end only with what was waited for
    if rolling.needs_name and rolling.may_come(batch, clock.now_ms()):
        naming = asyncio.get_running_loop().run_in_executor(None, partial(_sync_name, rolling))
        yield naming
        if naming.result():
            rolling.named()
        yield from partitions.until_free(partition.tp)


def _sync_name(rolling: Rolling) -> bool:
    """Have the device know the name of the log's first file. Where it refuses, the roll itself hears of it."""
    try:
        rolling.sync_name()
    except StorageError:
        return False
    return True
