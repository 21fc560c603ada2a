"""A batch of very many records is cleaned a few thousand at a time, in no more memory than its bytes ask for."""

import tracemalloc
from dataclasses import replace
from itertools import chain

import pytest

from ottla.base.limits import RECORDS_AT_ONCE
from ottla.log.cleaner.cleaning import Memory
from ottla.log.cleaner.swap import Swap
from ottla.log.partition import PartitionLog
from ottla.wire import compression
from ottla.wire.batch import BatchHeader, Compression, join_batch
from tests.log.batches import NOW_MS, varint
from tests.log.cleaner.passes import COMPACT, begin, clean, put, records
from tests.log.logs import append, open_log

_COUNT = 8 * RECORDS_AT_ONCE
_ROOMY = replace(COMPACT, segment_bytes=4_000_000, max_message_bytes=4_000_000)
_MEMORY = Memory(24 * 2 * _COUNT, 0.9, 65_536)


def _many(codec: Compression) -> tuple[bytes, int]:
    """A batch of small records, each with a key of its own, and what they take uncompressed."""
    bodies = (b"\0\0" + varint(n) + varint(3) + n.to_bytes(3, "big") + b"\1\0" for n in range(_COUNT))
    body = b"".join(chain.from_iterable((varint(len(each)), each) for each in bodies))
    header = BatchHeader(0, 0, -1, 2, 0, codec, _COUNT - 1, NOW_MS, NOW_MS, -1, -1, -1, _COUNT)
    return join_batch(header, compression.compress(codec, body)), len(body)


def _log(batch: bytes) -> PartitionLog:
    """Every second of its records is overwritten by a second, smaller batch."""
    log = open_log(config=_ROOMY)
    assert append(log, batch).base_offset == 0
    for number in (1, 3, 5):
        put(log, number.to_bytes(3, "big"), b"new")
    log.roll(NOW_MS)
    put(log, b"active", b"1")
    return log


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_pass_goes_through_it_in_steps(codec: Compression) -> None:
    log = _log(_many(codec)[0])
    cleaning = begin(log, memory=_MEMORY)
    assert cleaning is not None
    steps = 0
    for step in cleaning.steps():
        steps += 1
        if isinstance(step, Swap):
            log.compaction.turn(step)
        else:
            assert step is not None
    log.compaction.end(cleaning)
    # Looked through, put into the map, held against it, and written again: 8 steps each.
    assert steps >= 4 * _COUNT // RECORDS_AT_ONCE
    left = records(log)
    assert [each.offset for each in left[:4]] == [0, 2, 4, 6]
    assert len(left) == _COUNT + 1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_pass_takes_a_few_times_the_memory_of_its_records(codec: Compression) -> None:
    batch, size_bytes = _many(codec)
    log = _log(batch)
    map_bytes = 24 * (int((_COUNT + 3) / 0.9) + 1)
    tracemalloc.start()
    try:
        assert clean(log, memory=_MEMORY)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes - map_bytes < 6 * size_bytes
