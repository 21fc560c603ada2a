"""Reading a log from its start for those who act on what it says: what a disk has changed is not believed."""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.replay import replay
from tests.log.batches import idempotent
from tests.log.logs import append, open_log

_SIZE = len(idempotent(0, size=20))


def _changed(position: int, bits: int = 64, *, interval_bytes: int = 4_096) -> PartitionLog:
    """Three batches, stopped in order; then a byte changes."""
    storage, config = MemoryStorage(), LogConfig(index_interval_bytes=interval_bytes)
    log = open_log(storage, config)
    for number in range(3):
        append(log, idempotent(number, size=20))
    log.close()
    storage.files[f"{0:020}.log"].content[position] ^= bits
    return open_log(storage, config, clean=True, recovery_point=3)


def test_every_batch_comes_back() -> None:
    assert [batch.next_offset for batch in replay(_changed(0, bits=0))] == [1, 2, 3]


def test_a_changed_record_stops_it() -> None:
    """The look at a flushed log does not read its records: who acts on them has to."""
    with pytest.raises(StorageError, match="orders-0: the log is damaged at offset 1"):
        list(replay(_changed(2 * _SIZE - 3)))


@pytest.mark.parametrize("bits", [1, 16, 128])
def test_whatever_byte_of_a_batch_changes_stops_it(bits: int) -> None:
    """The index leads around the batch, so that a start finds nothing."""
    for position in range(_SIZE + 8, 2 * _SIZE):
        if _SIZE + 12 <= position < _SIZE + 16:
            continue  # the leader epoch, which no CRC covers
        with pytest.raises(StorageError, match="orders-0: the log is damaged"):
            list(replay(_changed(position, bits, interval_bytes=0)))


def test_a_changed_base_offset_stops_it() -> None:
    with pytest.raises(StorageError, match="orders-0: the log is damaged at offset 1"):
        list(replay(_changed(_SIZE + 6)))
