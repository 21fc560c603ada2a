"""Rolling, retention, DeleteRecords, leader epochs."""

import pytest

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import SMALL, append, content, every_batch, headers, latest_epoch, open_log, retain

_ONE = len(batch())


def _bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments]


def test_segments_roll_by_size() -> None:
    log = open_log(config=LogConfig(segment_bytes=3 * _ONE))
    for _ in range(7):
        append(log, batch())
    assert _bases(log) == [0, 3, 6]


def test_segments_roll_by_the_records_time() -> None:
    log = open_log(config=LogConfig(segment_ms=1_000))
    for delta_ms in (0, 1_000, 1_001, 500, 2_001, 2_002):
        append(log, batch(timestamps_ms=[NOW_MS + delta_ms]))
    assert _bases(log) == [0, 2, 5]


def test_segments_of_records_without_time_roll_by_the_clock() -> None:
    log = open_log(config=LogConfig(segment_ms=1_000))
    for delta_ms in (0, 1_000, 1_001):
        append(log, batch(timestamps_ms=[-1]), now_ms=NOW_MS + delta_ms)
    assert _bases(log) == [0, 2]


def test_segments_roll_when_an_index_is_full() -> None:
    log = open_log(config=LogConfig(index_interval_bytes=0, segment_index_bytes=32))
    for number in range(6):
        append(log, batch(timestamps_ms=[NOW_MS + number]))
    # Of the time index's two places one is kept for the roll; a segment's first batch has no entry.
    assert _bases(log) == [0, 2, 4]


def test_segments_roll_before_a_relative_offset_overflows() -> None:
    log = open_log()
    append(log, batch())
    log.end_offset = log.producers.end_offset = 2**31
    append(log, batch())
    assert _bases(log) == [0, 2**31]
    assert headers(log.read(2**31, 100))[0].base_offset == 2**31


def test_a_roll_writes_a_producer_snapshot() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert [name for name in storage.names() if name.endswith(".snapshot")] == ["00000000000000000001.snapshot"]
    assert "00000000000000000001.index" in storage.names()


def test_flushes_do_not_pile_up_snapshots() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(segment_bytes=10 * _ONE))
    for _ in range(25):
        append(log, batch())
        log.flush()
    snapshots = [int(name[:20]) for name in storage.names() if name.endswith(".snapshot")]
    assert snapshots == [10, 20, 24, 25]
    assert not log.needs_flush


def test_retention_by_time_deletes_whole_segments() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(segment_bytes=2 * _ONE, retention_ms=1_000))
    for number in range(6):
        append(log, batch(timestamps_ms=[NOW_MS + number * 100]))
    assert retain(log, NOW_MS + 1_100) == 0
    assert retain(log, NOW_MS + 1_101) == 1
    assert (log.log_start_offset, _bases(log)) == (2, [2, 4])
    assert log.read(1, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not [name for name in storage.names() if name.startswith("00000000000000000000")]


def test_retention_may_delete_everything_and_goes_on_after_it() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(retention_ms=1_000))
    append(log, idempotent(0, 3))
    assert retain(log, NOW_MS + 2_000) == 1
    assert (log.log_start_offset, log.end_offset) == (3, 3)
    assert retain(log, NOW_MS + 9_000) == 0
    assert append(log, idempotent(3)).base_offset == 3
    found = open_log(storage.after_kill())
    assert (found.log_start_offset, found.end_offset) == (3, 4)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_what_cannot_be_deleted_now_is_deleted_by_the_next_retention(suffix: str) -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(segment_bytes=2 * _ONE, retention_ms=1_000))
    for _ in range(8):
        append(log, batch())
    stuck = f"{2:020}{suffix}"
    storage.refuses = lambda action, name: action == "delete" and name == stuck
    with pytest.raises(StorageError, match=stuck):
        retain(log, NOW_MS + 2_000)
    assert (log.log_start_offset, log.end_offset) == (8, 8)
    assert log.read(7, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert append(log, batch()).base_offset == 8
    log.flush()
    found = open_log(storage.after_kill(), recovery_point=log.recovery_point, log_start_offset=8)
    assert (found.findings.damaged, found.log_start_offset, found.end_offset) == ((), 8, 9)
    storage.refuses = None
    append(log, batch(timestamps_ms=[NOW_MS + 5_000]))
    log.roll(NOW_MS)
    retain(log, NOW_MS + 6_500)
    assert [name for name in storage.names() if name < f"{10:020}" and "epoch" not in name] == []


def test_a_snapshot_that_cannot_be_deleted_does_not_stop_flushes() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    storage.refuses = lambda action, name: action == "delete"
    for number in range(5):
        append(log, batch())
        log.flush()
        assert log.recovery_point == number + 1
    assert open_log(storage.after_kill(), recovery_point=5).end_offset == 5


def test_retention_by_size() -> None:
    log = open_log(config=LogConfig(segment_bytes=2 * _ONE, retention_bytes=4 * _ONE, retention_ms=-1))
    for _ in range(8):
        append(log, batch())
    assert retain(log, NOW_MS) == 2
    assert _bases(log) == [4, 6]


def test_without_the_delete_policy_only_deleted_records_go() -> None:
    log = open_log(config=LogConfig(segment_bytes=2 * _ONE, retention_ms=0, cleanup_policy=frozenset({"compact"})))
    for _ in range(6):
        append(log, batch())
    assert retain(log, NOW_MS + 1) == 0
    assert log.delete_records_before(3) == (ErrorCode.NONE, 3)
    assert retain(log, NOW_MS + 1) == 1
    assert (_bases(log), log.log_start_offset) == ([2, 4], 3)


def test_delete_records_up_to_the_end() -> None:
    log = open_log()
    append(log, batch(5))
    assert log.delete_records_before(6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert log.delete_records_before(-1) == (ErrorCode.NONE, 5)
    assert log.delete_records_before(2) == (ErrorCode.NONE, 5)


def test_a_slice_outlives_its_segment() -> None:
    log = open_log(config=LogConfig(segment_bytes=2 * _ONE, retention_ms=0))
    for _ in range(4):
        append(log, batch())
    read, before = log.read(0, 1_000), every_batch(log)
    retain(log, NOW_MS + 1)
    assert content(read) == b"".join(before[:2])


def test_many_segments_are_read_with_few_of_them_loaded() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(segment_bytes=2 * _ONE, index_interval_bytes=0))
    for _ in range(40):
        append(log, batch())
    assert len(every_batch(log)) == 40
    assert sum(segment.offset_index._buffer is not None for segment in log._segments) <= 5


@pytest.mark.parametrize(
    ("asked", "answer"), [(-1, (-1, -1)), (0, (0, 10)), (1, (0, 10)), (2, (2, 25)), (4, (4, 31)), (5, (-1, -1))]
)
def test_end_offset_for_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs(MemoryStorage())
    for epoch, start_offset in ((0, 0), (2, 10), (4, 25)):
        epochs.assign(epoch, start_offset)
    assert epochs.end_offset_for(asked, 31) == answer


def test_leader_epochs_survive_and_follow_the_logs_ends() -> None:
    storage = MemoryStorage()
    epochs = LeaderEpochs(storage)
    for epoch, start_offset in ((0, 0), (2, 10), (4, 25)):
        epochs.assign(epoch, start_offset)
    epochs.catch_up()
    assert storage.read("leader-epoch-checkpoint") == b"0\n3\n0 0\n2 10\n4 25\n"
    again = LeaderEpochs(storage)
    again.truncate_from_start(12)
    again.truncate_from_end(25)
    assert again.entries == ((2, 12),)
    assert LeaderEpochs(storage).entries == ((2, 12),)
    assert (again.at(11), again.at(12), again.latest) == (-1, 2, 2)


def test_appends_write_the_leader_epochs() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for epoch in (0, 0, 3):
        log.append(batch(), now_ms=NOW_MS, leader_epoch=epoch)
    assert (latest_epoch(log), log.end_offset_for_epoch(0), log.end_offset_for_epoch(2)) == (3, (0, 2), (0, 2))
    storage.delete("leader-epoch-checkpoint")
    assert open_log(storage.after_kill()).end_offset_for_epoch(0) == (0, 2)


def test_retention_makes_room_on_a_full_disk() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for leader_epoch in range(40):
        log.append(batch(value=b"x" * 50), now_ms=NOW_MS, leader_epoch=leader_epoch)
    segments, start = len(log._segments), log.end_offset
    assert segments > 2
    storage.limit_bytes = 0
    with pytest.raises(StorageError):
        append(log, batch())
    log.config = LogConfig(segment_bytes=2_000, index_interval_bytes=0, retention_ms=1)
    assert retain(log, NOW_MS + 10) == segments - 1, "the active one goes with the next pass"
    storage.limit_bytes = storage.size_bytes + 1_000
    assert append(log, batch()).base_offset == start
    assert retain(log, NOW_MS + 10) == 1
    assert log.log_start_offset == log.end_offset
    found = open_log(storage.after_kill(), SMALL, log_start_offset=log.log_start_offset)
    assert found.end_offset_for_epoch(39).leader_epoch == log.end_offset_for_epoch(39).leader_epoch


@pytest.mark.parametrize("deletes", [False, True], ids=["the files are there", "the files are gone"])
@pytest.mark.parametrize("named", [False, True], ids=["by its old name", "emptied"])
def test_a_loss_of_power_leaves_the_epoch_of_a_log_whose_records_are_all_deleted(named: bool, deletes: bool) -> None:
    """broker-consumer-groups 700003986: a consumer behind them was told that the log was cut."""
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(retention_bytes=0))
    for sequence in range(3):
        log.append(idempotent(sequence), now_ms=NOW_MS, leader_epoch=4)
    plan = log.synced.plan()  # as `flush.messages` does: no leader epochs
    plan.sync()
    log.delete_records_before(3)
    if deletes:
        assert retain(log, NOW_MS) == 1
    left = storage.after_power_loss(lambda name, synced, size: synced, lambda name: named or "epoch" not in name)
    again = open_log(left, recovery_point=3, log_start_offset=3)
    assert (again.log_start_offset, again.end_offset) == (3, 3)
    assert again.end_offset_for_epoch(4) == (4, 3)
