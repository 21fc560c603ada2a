"""Logs to clean, and the cleaner's pass over one as a broker's thread and loop do it together."""

from collections.abc import Sequence

from ottla.log.cleaner.cleaning import Cleaning, Memory
from ottla.log.cleaner.swap import Swap
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.wire.batch import BatchHeader, iter_headers
from ottla.wire.records import Record, decode_batch, encode_batch
from tests.log.batches import NOW_MS
from tests.log.logs import append, every_batch

#: A few records fill a segment; every dirty byte is worth a pass.
COMPACT = LogConfig(
    segment_bytes=400,
    index_interval_bytes=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)
MEMORY = Memory(24_000, 0.9, 4_096)


def put(log: PartitionLog, key: bytes | None, value: bytes | None, *, now_ms: int = NOW_MS) -> int:
    """Append one record; its offset."""
    appended = append(log, encode_batch([Record(0, now_ms, key, value)]), now_ms=now_ms)
    assert appended.base_offset >= 0, appended.message
    return appended.base_offset


def begin(log: PartitionLog, now_ms: int = NOW_MS, memory: Memory = MEMORY) -> Cleaning | None:
    """A pass over a log that is on the device."""
    log.compaction.prepare()
    log.flush()
    cleaning = log.compaction.begin(now_ms, memory, log.recovery_point)
    if cleaning is None:
        log.compaction.end(None)
    return cleaning


def clean(log: PartitionLog, now_ms: int = NOW_MS, memory: Memory = MEMORY) -> bool:
    """One pass, to its end; False when none is wanted."""
    cleaning = begin(log, now_ms, memory)
    if cleaning is None:
        return False
    finish(log, cleaning)
    return True


def finish(log: PartitionLog, cleaning: Cleaning) -> None:
    """All steps of a pass."""
    try:
        for step in cleaning.steps():
            if isinstance(step, Swap):
                log.compaction.turn(step)
    finally:
        log.compaction.end(cleaning)


def clean_all(log: PartitionLog, now_ms: int = NOW_MS, memory: Memory = MEMORY) -> int:
    """Passes until nothing is left to do; how many."""
    count = 0
    while clean(log, now_ms, memory):
        count += 1
    return count


def records(log: PartitionLog) -> list[Record]:
    """Every record of data."""
    return [
        record
        for batch, header in batches(log)
        if not header.is_control
        for record in decode_batch(batch, start_offset=log.log_start_offset)
    ]


def batches(log: PartitionLog) -> Sequence[tuple[bytes, BatchHeader]]:
    """Every batch, with its header."""
    return [(batch, next(iter(iter_headers(batch)))[1]) for batch in every_batch(log)]
