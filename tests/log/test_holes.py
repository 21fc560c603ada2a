"""What stands beside a hole: the records in front of it, and those behind it of which there are two copies."""

import pytest

from ottla.base.errors import CorruptDataError
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import Isolation
from ottla.log.witnesses import Outside
from ottla.wire.batch import check_integrity, parse_header
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS, idempotent
from tests.log.logs import TP, append, append_in_transaction, open_log


def test_records_in_front_of_a_hole_are_read_though_a_transaction_began_in_it() -> None:
    """The simulator's find (broker-damage 1620002930): to readers of committed records the good ones were damaged."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    append(log, idempotent(1))
    append_in_transaction(log, 0, producer_id=8)
    log.close()
    del storage.files[f"{0:020}.log"].content[2 * len(idempotent(0)) - 5 :]
    again = open_log(storage, clean=True, recovery_point=3)
    assert (again.findings.damaged, again.last_stable_offset) == (((1, 3),), 2)
    for isolation in Isolation:
        read = again.read(0, 10_000, isolation=isolation)
        assert (read.error, len(read.slices)) == (ErrorCode.NONE, 1)


def test_an_emptied_file_behind_a_hole_is_told_though_older_copies_are_in_front_of_it() -> None:
    """The simulator's find (broker-damage 1620000996): the copies end where they were made, and nobody said so."""
    storage = MemoryStorage()
    log = open_log(storage)
    for sequence in range(4):
        append(log, idempotent(sequence))
    log.close()
    storage.files[f"{0:020}.log"].content[2 * len(idempotent(0)) - 1] ^= 1  # in the second batch
    log = PartitionLog.open(TP, storage, LogConfig(), NOW_MS, outside=Outside(flush_is_unknown=True))
    assert log.findings.damaged == ((1, 2),)
    append(log, idempotent(4))
    assert log.end_offset == 5
    killed = storage.after_kill()
    killed.files[f"{2:020}.log"].content.clear()
    again = open_log(killed, clean=False, recovery_point=4)
    assert again.end_offset == 4
    assert again.findings.losses[0] == (
        f"{2:020}.log is empty: its records are taken from the damaged file before it, as far as that has them, up to "
        "offset 4"
    )


@pytest.mark.parametrize("change", [1, 64, 128])
@pytest.mark.parametrize("byte", [8, 10, 11, 23])
def test_a_changed_header_hides_no_whole_batch_behind_it(byte: int, change: int) -> None:
    """The simulator's find (broker-damage 1670001208): all were refused up to the next entry of the index."""
    config = LogConfig(index_interval_bytes=4 * len(idempotent(0)))
    storage = MemoryStorage()
    log = open_log(storage, config)
    for sequence in range(14):
        append(log, idempotent(sequence))
    log.close()
    size = len(idempotent(0))
    storage.files[f"{0:020}.log"].content[2 * size + byte] ^= change  # its length, or its last offset
    again = open_log(storage, config, clean=True, recovery_point=14)
    for offset in (0, 1, *range(3, 14)):
        (part,) = again.read(offset, 1).slices
        assert parse_header(part.read(), 0).base_offset == offset
    with pytest.raises(CorruptDataError):
        damaged = again.read(2, 1_000).slices[0].read()  # or the reader finds it
        check_integrity(damaged, 0, parse_header(damaged, 0))
