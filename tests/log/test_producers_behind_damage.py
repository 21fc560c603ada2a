"""What a damaged file has taken of a producer (SPEC P3, P7): a batch that was there is not written again."""

import pytest

from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS, idempotent
from tests.log.logs import append, append_in_transaction, open_log, seven_batches


def test_p7_a_damaged_batch_hides_none_behind_it_from_its_producer() -> None:
    """The simulator's find (broker-damage 430019043): a batch that was there was refused, and written once more."""
    storage, log = seven_batches()
    log.close()
    storage.files["00000000000000000000.log"].content[3 * len(idempotent(0)) + 8] ^= 64  # its length
    again = open_log(storage, clean=True, recovery_point=7)
    repeated = append(again, idempotent(4))
    assert (repeated.error, repeated.duplicate, repeated.base_offset) == (ErrorCode.NONE, True, 4)
    assert append(again, idempotent(7)).base_offset == 7


@pytest.mark.parametrize("clean", [True, False])
def test_p7_a_batch_that_is_gone_with_a_damaged_file_is_a_duplicate(clean: bool) -> None:
    """The simulator's find (broker-damage 430004021): it was out of order, and the producer wrote it, and those behind
    it, which were there, once more."""
    storage, log = seven_batches()
    log.close()
    del storage.files["00000000000000000007.snapshot"]  # it would say where the batch was
    storage.files["00000000000000000000.log"].content[3 * len(idempotent(0)) + 8] ^= 64  # its length
    again = open_log(storage.after_kill(), clean=clean, recovery_point=7)
    assert again.read(3, 1).error is ErrorCode.CORRUPT_MESSAGE
    assert append(again, idempotent(3)).error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert append(again, idempotent(3, 2)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(again, idempotent(4)).duplicate
    assert append(again, idempotent(7)).base_offset == 7


def _storage_without_its_beginning(*, snapshot: bool) -> MemoryStorage:
    """Sequences 0 to 2, in a file that is damaged and in a whole one; all of it is known if there is a snapshot."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    append(log, idempotent(1))
    log.roll(NOW_MS)
    append(log, idempotent(2))
    log.close()
    storage.files["00000000000000000000.log"].content.clear()
    if not snapshot:
        for name in [name for name in storage.names() if name.endswith(".snapshot")]:
            del storage.files[name]
    return storage


def _open_without_its_beginning(storage: MemoryStorage) -> PartitionLog:
    again = open_log(storage, clean=True, recovery_point=3, log_start_offset=0)
    assert again.read(0, 1).error is ErrorCode.CORRUPT_MESSAGE
    return again


def test_p7_batches_that_are_gone_with_a_damaged_file_are_known_from_a_later_snapshot() -> None:
    """The simulator's find (broker-damage 34): nothing before the newest batches was left, and they were written again
    with the one whose answer was lost."""
    again = _open_without_its_beginning(_storage_without_its_beginning(snapshot=True))
    for sequence in range(3):
        assert append(again, idempotent(sequence)).duplicate
    assert append(again, idempotent(3)).base_offset == 3


def test_p7_where_the_beginning_is_damaged_nobody_says_that_a_batch_was_not_there() -> None:
    """Out of order would mean that it was not, and none behind it: the producer would write those that are there again.
    A duplicate would mean that it was: it would be lost in silence, if it has never come."""
    again = _open_without_its_beginning(_storage_without_its_beginning(snapshot=False))
    for sequence in range(2):
        refused = append(again, idempotent(sequence))
        assert (refused.error, again.end_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, 3)
    assert append(again, idempotent(2)).duplicate
    assert append(again, idempotent(4)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(again, idempotent(3)).base_offset == 3


def test_p7_a_transaction_whose_beginning_may_be_damaged_is_aborted() -> None:
    again = _open_without_its_beginning(_storage_without_its_beginning(snapshot=False))
    assert append_in_transaction(again, 3).error is ErrorCode.NONE
    refused = append_in_transaction(again, 1)
    assert refused.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_p7_what_nobody_knows_is_not_known_after_another_start() -> None:
    storage = _storage_without_its_beginning(snapshot=False)
    _open_without_its_beginning(storage).close()
    assert "00000000000000000003.snapshot" in storage.names()
    again = _open_without_its_beginning(storage)
    assert append(again, idempotent(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(again, idempotent(2)).duplicate


@pytest.mark.parametrize("starts", [1, 2])
def test_p7_what_is_deleted_and_in_no_snapshot_any_more_is_not_written_again(starts: int) -> None:
    """The simulator's find (broker-damage 1610000844): two batches had no answer yet when the first one was deleted,
    and the snapshot behind it was damaged. Out of order would make the producer write both once more."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    log.roll(NOW_MS)
    append(log, idempotent(1, 2))
    log.delete_records_before(1)
    log.retire(NOW_MS)
    log.delete_retired()
    log.close()
    for name in [name for name in storage.names() if name.endswith(".snapshot")]:
        storage.files[name].content[9] ^= 1
    for _ in range(starts):
        again = open_log(storage, clean=True, recovery_point=3, log_start_offset=1)
        again.close()
    again = open_log(storage, clean=True, recovery_point=3, log_start_offset=1)
    assert append(again, idempotent(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(again, idempotent(1, 2)).duplicate
    assert append(again, idempotent(4)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(again, idempotent(3)).base_offset == 3


def test_p7_what_is_compacted_and_in_no_snapshot_any_more_is_not_written_again() -> None:
    storage, compacted = MemoryStorage(), LogConfig(cleanup_policy=frozenset({"compact"}))
    log = open_log(storage, compacted)
    append(log, idempotent(0))
    log.roll(NOW_MS)
    append(log, idempotent(1))
    log.close()
    for name in [name for name in storage.names() if name.endswith(".snapshot")]:
        del storage.files[name]
    storage.files["00000000000000000000.log"].content.clear()  # as a pass of the cleaner may leave it
    for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
        storage.files[name].content.clear()
    again = open_log(storage, compacted, clean=False, recovery_point=1)
    assert append(again, idempotent(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(again, idempotent(1)).duplicate


def test_p7_a_producer_that_is_new_since_the_start_has_lost_nothing() -> None:
    """The log begins behind 0, and any sequence may be the first: the one before it was not written for that."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    log.roll(NOW_MS)
    append(log, idempotent(1))
    log.delete_records_before(1)
    log.retire(NOW_MS)
    log.delete_retired()
    log.close()
    again = open_log(storage, clean=True, recovery_point=2, log_start_offset=1)
    assert append(again, idempotent(101, producer_id=9)).base_offset == 2
    assert append(again, idempotent(100, producer_id=9)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
