"""Idempotence (SPEC P3, P7): sequences, duplicates, epochs, snapshots, expiry."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.steps import result_of
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.producers import BatchMetadata, ProducerEntry, ProducerState
from ottla.log.snapshot import decode_snapshot, encode_snapshot
from ottla.wire.crc import crc32c
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import (
    SMALL,
    append,
    append_in_transaction,
    as_apache_kafka_writes,
    end,
    every_batch,
    open_log,
    retain,
    seven_batches,
)

_SEQUENCE_MAX = 2**31 - 1


def _producers(log: PartitionLog) -> dict[int, object]:
    """The state that matters, comparable."""
    return {
        key: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp_ms,
            entry.txn_first_offset,
            tuple(entry.batches),
        )
        for key, entry in log.producers.producers.items()
    }


def test_p3_the_next_sequence_is_accepted() -> None:
    log = open_log()
    assert append(log, idempotent(0, 3)).base_offset == 0
    assert append(log, idempotent(3, 2)).base_offset == 3
    assert next(log.producers.active())[:3] == (7, 0, 4)


def test_p3_duplicate_batch_is_answered_with_its_first_offset() -> None:
    log = open_log()
    for sequence in range(5):
        append(log, idempotent(sequence))
    for sequence in range(5):
        again = append(log, idempotent(sequence))
        assert (again.duplicate, again.error, again.base_offset, again.last_offset) == (
            True,
            ErrorCode.NONE,
            sequence,
            sequence,
        )
    assert log.end_offset == 5


def test_p3_a_gap_is_out_of_order_and_writes_nothing() -> None:
    log = open_log()
    append(log, idempotent(0))
    assert append(log, idempotent(2)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 1


def test_p3_a_duplicate_older_than_five_batches_is_out_of_order() -> None:
    log = open_log()
    for sequence in range(6):
        append(log, idempotent(sequence))
    assert append(log, idempotent(0)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(1)).duplicate


def test_p3_part_of_a_known_batch_is_out_of_order() -> None:
    log = open_log()
    append(log, idempotent(0, 4))
    assert append(log, idempotent(2, 2)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(0, 3)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_p3_sequences_wrap_at_2_to_the_31() -> None:
    log = open_log()
    append(log, idempotent(_SEQUENCE_MAX - 1, 4))
    assert next(log.producers.active()).last_sequence == 1
    assert append(log, idempotent(_SEQUENCE_MAX - 1, 4)).duplicate
    assert append(log, idempotent(2)).error is ErrorCode.NONE


def test_p3_after_the_last_sequence_of_all_comes_zero() -> None:
    log = open_log()
    append(log, idempotent(_SEQUENCE_MAX, 1))
    assert append(log, idempotent(1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(0)).error is ErrorCode.NONE


def test_p3_a_new_epoch_starts_at_zero_and_fences_the_old() -> None:
    log = open_log()
    append(log, idempotent(0, 3))
    assert append(log, idempotent(3, epoch=1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(0, epoch=1)).error is ErrorCode.NONE
    assert append(log, idempotent(3)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(log, idempotent(0, 3)).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_p3_an_unknown_producer_may_begin_anywhere() -> None:
    assert append(open_log(), idempotent(41)).error is ErrorCode.NONE


def test_p6_two_equal_records_are_two_records() -> None:
    log = open_log()
    append(log, idempotent(0))
    append(log, idempotent(1))
    append(log, batch())
    append(log, batch())
    assert len(every_batch(log)) == 4


@pytest.mark.parametrize("kafkas", [False, True])
def test_p7_producers_survive_a_clean_restart_with_all_five_batches(kafkas: bool) -> None:
    storage, log = seven_batches()
    before = _producers(log)
    log.close()
    if kafkas:
        as_apache_kafka_writes(storage)
    again = open_log(storage, clean=True)
    assert _producers(again) == before
    assert append(again, idempotent(3)).duplicate
    assert append(again, idempotent(7)).base_offset == 7


@pytest.mark.parametrize("clean", [True, False])
def test_p7_batches_whose_records_are_deleted_are_known_after_a_restart(clean: bool) -> None:
    """The simulator's find (broker-damage 520000277): the last one only was known, the others were written again."""
    storage, log = seven_batches()
    log.roll(NOW_MS)
    log.flush()
    log.delete_records_before(7)
    retain(log, NOW_MS)
    assert storage.names().count("00000000000000000000.log") == 0
    before = _producers(log)
    if clean:
        log.close()
    again = open_log(storage.after_kill(), clean=clean, recovery_point=7, log_start_offset=7)
    assert _producers(again) == before
    repeated = append(again, idempotent(3))
    assert (repeated.error, repeated.duplicate, repeated.base_offset) == (ErrorCode.NONE, True, 3)
    assert append(again, idempotent(7)).base_offset == 7


@pytest.mark.parametrize("tail", [bytes(100), b"garbage " * 20], ids=["zeros", "text"])
def test_p7_what_lies_behind_the_last_batch_after_a_clean_stop_keeps_nobody_from_starting(tail: bytes) -> None:
    storage, log = seven_batches()
    before = _producers(log)
    log.close()
    storage.files["00000000000000000000.log"].content += tail
    as_apache_kafka_writes(storage)
    assert _producers(open_log(storage, clean=True)) == before


def test_p7_damage_where_the_history_begins_keeps_nobody_from_starting() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for sequence in range(50):
        append(log, idempotent(sequence, size=50_000))
    log.close()
    content = storage.files["00000000000000000000.log"].content
    content[-1_500_000:-600_000] = bytes(900_000)
    as_apache_kafka_writes(storage)
    again = open_log(storage, clean=True)
    assert append(again, idempotent(49, size=50_000)).duplicate
    assert append(again, idempotent(50)).base_offset == 50


def test_p7_a_sequence_that_is_missing_for_another_reason_is_out_of_order() -> None:
    """Once its producer was forgotten, any sequence could come next. The one before it was not written for that."""
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(producer_id_expiration_ms=1_000))
    append(log, idempotent(0))
    result_of(log.expire_producers(NOW_MS + 1_000))
    append(log, idempotent(2))
    log.close()
    again = open_log(storage, clean=True, recovery_point=2)
    assert _producers(again) == _producers(log)
    for sequence in range(2):
        assert append(again, idempotent(sequence)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_p7_producers_survive_kill_9_without_a_snapshot() -> None:
    storage, log = seven_batches()
    again = open_log(storage.after_kill())
    assert _producers(again) == _producers(log)


def test_p7_a_damaged_snapshot_is_replaced_by_the_log() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    log.close()
    name = "00000000000000000001.snapshot"
    storage.files[name].content[-1] ^= 1
    again = open_log(storage, clean=True)
    assert _producers(again) == _producers(log)
    assert name not in storage.files


def _rolled(storage: MemoryStorage) -> PartitionLog:
    """A producer has written to the first of two segments, and another one to the second."""
    log = open_log(storage)
    for sequence in range(3):
        append(log, idempotent(sequence))
    log.roll(NOW_MS)
    append(log, idempotent(0, producer_id=8))
    return log


def test_p7_a_lost_snapshot_of_a_segment_is_taken_again_before_those_before_it_are_deleted() -> None:
    """The simulator's find (broker-power 520001297): the producers of the deleted segments were forgotten."""
    storage = MemoryStorage()
    _rolled(storage)
    del storage.files["00000000000000000003.snapshot"]  # with the power
    left = storage.after_kill()
    log = open_log(left)
    log.delete_records_before(3)
    assert retain(log, NOW_MS) == 1
    again = open_log(left.after_kill(), log_start_offset=3)
    assert append(again, idempotent(2)).duplicate


def _refused(log: PartitionLog, storage: MemoryStorage, records: bytes) -> None:
    storage.refuses = lambda action, name: action == "append"
    with pytest.raises(StorageError):
        append(log, records)
    storage.refuses = None


def test_p3_what_the_disk_refuses_of_an_unknown_producer_is_not_overtaken() -> None:
    """The simulator's find (broker-power 4400008323): a loss of power took what was known of the producer.

    The disk refused its next batch and took the one behind it. The producer wrote both in a new epoch.
    """
    storage = MemoryStorage()
    log = open_log(storage)
    _refused(log, storage, idempotent(5, 2))
    for behind in (7, 6, 1_000):
        refused = append(log, idempotent(behind))
        assert refused.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "expected 5, which the disk has refused" in refused.message
    assert append(log, idempotent(7, producer_id=8)).base_offset == 0, "of another producer"
    assert append(log, idempotent(5, 2)).base_offset == 1
    assert append(log, idempotent(7)).base_offset == 3


def test_p3_it_goes_on_with_an_earlier_batch_or_in_a_new_epoch() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for producer_id in (7, 8, 9):
        _refused(log, storage, idempotent(0, producer_id=producer_id))
    assert append(log, idempotent(_SEQUENCE_MAX)).base_offset == 0, "the one before 0"
    assert append(log, idempotent(0)).base_offset == 1
    assert append(log, idempotent(1, producer_id=8, epoch=1)).base_offset == 2
    assert append(log, idempotent(2, producer_id=8, epoch=1)).base_offset == 3
    end(log, commit=True, producer_id=9)
    assert result_of(log.expire_producers(NOW_MS + 10**12)) == 3
    assert append(log, idempotent(3, producer_id=9)).error is ErrorCode.NONE, "a marker came: nothing waits any more"


def test_p3_only_so_many_wait_for_the_disk() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for producer_id in range(1_001):
        _refused(log, storage, idempotent(0, producer_id=producer_id))
    assert append(log, idempotent(1, producer_id=0)).error is ErrorCode.NONE
    assert append(log, idempotent(1, producer_id=1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_p7_segments_stay_as_long_as_no_snapshot_knows_their_producers() -> None:
    storage = MemoryStorage()
    storage.refuses = lambda action, name: action == "write" and name.endswith(".snapshot")
    log = open_log(storage)
    append(log, idempotent(0))
    with pytest.raises(StorageError):
        log.roll(NOW_MS)
    storage.refuses = None
    append(log, idempotent(1))
    log.delete_records_before(1)
    assert retain(log, NOW_MS) == 0
    log.roll(NOW_MS)
    log.delete_records_before(2)
    assert retain(log, NOW_MS) == 2
    again = open_log(storage.after_kill(), log_start_offset=2)
    assert append(again, idempotent(1)).duplicate


def test_p7_a_loss_of_power_behind_a_deletion_leaves_what_is_known_of_producers() -> None:
    storage = MemoryStorage()
    log = _rolled(storage)
    log.delete_records_before(3)
    assert retain(log, NOW_MS) == 1
    storage.sync_names()
    left = storage.after_power_loss(lambda name, synced, size: synced, lambda name: True)
    again = open_log(left, recovery_point=3, log_start_offset=3)
    assert append(again, idempotent(2)).duplicate


def test_p7_silent_producers_expire_but_not_in_a_transaction() -> None:
    log = open_log(config=LogConfig(producer_id_expiration_ms=1_000))
    append(log, idempotent(0, producer_id=1), now_ms=NOW_MS)
    append_in_transaction(log, 0, producer_id=2)
    append(log, idempotent(0, producer_id=3), now_ms=NOW_MS + 500)
    assert result_of(log.expire_producers(NOW_MS + 999)) == 0
    assert result_of(log.expire_producers(NOW_MS + 1_000)) == 1
    assert [each.producer_id for each in log.producers.active()] == [2, 3]
    end(log, commit=True, producer_id=2)
    assert result_of(log.expire_producers(NOW_MS + 5_000)) == 2


def test_p7_producers_expire_in_steps_and_one_that_writes_in_between_stays() -> None:
    log = open_log(config=LogConfig(producer_id_expiration_ms=1_000))
    for producer_id in range(1_200):
        append(log, idempotent(0, producer_id=producer_id))
    steps = log.expire_producers(NOW_MS + 1_000)
    next(steps)
    assert len(list(log.producers.active())) == 700
    append(log, idempotent(1, producer_id=1_100), now_ms=NOW_MS + 1_000)
    append(log, idempotent(0, producer_id=5_000), now_ms=NOW_MS + 1_000)
    assert result_of(steps) == 1_199
    assert [each.producer_id for each in log.producers.active()] == [1_100, 5_000]


def test_p7_a_producer_of_old_timestamps_does_not_expire_while_it_writes() -> None:
    log = open_log(config=LogConfig(producer_id_expiration_ms=1_000))
    records = batch(timestamps_ms=[5], producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, records)
    assert result_of(log.expire_producers(NOW_MS + 999)) == 0


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "append", "txn", "commit", "abort", "bump", "roll", "flush", "delete", "retain"]
        ),
        st.integers(1, 3),
        st.integers(1, 3),
    ),
    max_size=50,
)


class _Driver:
    """Well-behaved producers, driven by steps."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.epochs = dict.fromkeys((1, 2, 3), 0)
        self.sequences = dict.fromkeys((1, 2, 3), 0)
        self.open: set[int] = set()

    def step(self, action: str, producer_id: int, count: int) -> None:
        match action:
            case "append" | "txn":
                if action == "txn":
                    self.open.add(producer_id)
                self._append(producer_id, count)
            case "commit" | "abort":
                end(self.log, commit=action == "commit", producer_id=producer_id, epoch=self.epochs[producer_id])
                self.open.discard(producer_id)
            case "bump" if producer_id not in self.open:
                self.epochs[producer_id] += 1
                self.sequences[producer_id] = 0
            case "roll":
                self.log.roll(NOW_MS)
            case "flush":
                self.log.flush()
            case "delete":
                self.log.delete_records_before(self.log.end_offset // 2)
            case "retain":
                retain(self.log, NOW_MS)

    def _append(self, producer_id: int, count: int) -> None:
        sequence, epoch = self.sequences[producer_id], self.epochs[producer_id]
        if producer_id in self.open:
            appended = append_in_transaction(self.log, sequence, count, producer_id=producer_id, epoch=epoch)
        else:
            appended = append(self.log, idempotent(sequence, count, producer_id=producer_id, epoch=epoch))
        assert appended.error is ErrorCode.NONE, appended.message
        self.sequences[producer_id] += count


@settings(max_examples=150)
@given(steps=_STEPS)
def test_p7_rebuilt_producer_state_equals_the_live_one(steps: list[tuple[str, int, int]]) -> None:
    storage = MemoryStorage()
    driver = _Driver(open_log(storage, SMALL))
    for step in steps:
        driver.step(*step)
    log = driver.log
    start, live = log.log_start_offset, _producers(log)
    killed = open_log(storage.after_kill(), SMALL, recovery_point=log.recovery_point, log_start_offset=start)
    assert _producers(killed) == live
    assert list(killed.producers.ongoing) == list(log.producers.ongoing)
    log.close()
    clean = open_log(storage, SMALL, clean=True, log_start_offset=start)
    assert _producers(clean) == live
    assert clean.last_stable_offset == killed.last_stable_offset == log.last_stable_offset


def _entry(
    key: int, epoch: int, coordinator_epoch: int, timestamp_ms: int, txn: int, batches: list[tuple[int, int]]
) -> ProducerEntry:
    entry = ProducerEntry(key, epoch)
    entry.coordinator_epoch, entry.last_timestamp_ms, entry.txn_first_offset = coordinator_epoch, timestamp_ms, txn
    sequence, offset = key % 2**31, key
    for count, others in batches:
        last = (sequence + count - 1) % 2**31
        entry.batches.append(BatchMetadata(sequence, last, offset, offset + count - 1, timestamp_ms))
        sequence, offset = (last + 1) % 2**31, offset + count + others
    return entry


_ENTRIES = st.builds(
    _entry,
    st.integers(0, 2**62),
    st.integers(0, 32_767),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000)), max_size=7),
)


@given(entries=st.lists(_ENTRIES, max_size=20, unique_by=(lambda e: e.producer_id, lambda e: e.txn_first_offset)))
def test_a_snapshot_reads_back(entries: list[ProducerEntry]) -> None:
    state = decode_snapshot(encode_snapshot(entries), 99)
    assert list(state.producers) == [entry.producer_id for entry in entries]
    assert list(state.ongoing) == sorted(each.txn_first_offset for each in entries if each.txn_first_offset >= 0)
    assert [list(each.batches) for each in state.producers.values()] == [list(each.batches) for each in entries]
    assert encode_snapshot(state.producers.values()) == encode_snapshot(entries)


@pytest.mark.parametrize(
    ("position", "value", "cause"),
    [
        (-1, 0, "CRC"),
        (10 + 46 + 1, 2, ""),
        (10 + 46 + 5, 2, "not as many earlier batches"),
        (10 + 46 + 6, 1, "batches of producer"),
    ],
)
def test_what_a_snapshot_says_of_earlier_batches_is_whole_or_left_alone(position: int, value: int, cause: str) -> None:
    """A later version's is left alone: then they are looked for in the log."""
    content = bytearray(encode_snapshot([_entry(7, 0, -1, 5, -1, [(1, 0), (1, 0)])]))
    assert len(content) == 10 + 46 + 6 + 32
    content[position] ^= value or 1
    if cause != "CRC":
        content[2:6] = crc32c(bytes(content[6:])).to_bytes(4, "big")
    if cause:
        with pytest.raises(CorruptDataError, match=cause):
            decode_snapshot(bytes(content), 0)
    else:
        state = decode_snapshot(bytes(content), 0)
        assert (len(state.producers[7].batches), state.history_is_known) == (1, False)


@given(data=st.binary(max_size=200))
def test_garbage_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_snapshot(data, 0)


def test_an_empty_snapshot_has_ten_bytes() -> None:
    assert len(encode_snapshot(ProducerState().producers.values())) == 10


def test_one_of_many_producers_is_looked_up_without_the_others() -> None:
    log = open_log()
    for producer_id in range(5):
        append(log, idempotent(0, producer_id=producer_id))
    assert list(log.producers.active(3)) == [each for each in log.producers.active() if each.producer_id == 3]
    assert list(log.producers.active(9)) == []
