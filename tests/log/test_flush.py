"""`flush.messages`: what is on the device before it is acknowledged, and what readers see until then."""

from collections.abc import Callable

import pytest

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT, UNFINISHED_SYNC, file_name
from ottla.log.partition import PartitionLog
from ottla.log.replay import replay
from ottla.log.results import Deleted, Isolation
from ottla.wire.errors import ErrorCode
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import append, append_in_transaction, end, open_log, retain

_EACH = LogConfig(flush_messages=1)


def _after_power_loss(storage: MemoryStorage) -> PartitionLog:
    """The log that the next process opens, of which only what was synced is left."""
    return open_log(storage.after_power_loss(keep=lambda name, synced, size: synced, keep_name=lambda name: False))


def test_by_default_nothing_is_synced_by_an_append() -> None:
    log = open_log()
    for _ in range(20):
        append(log, batch())
    assert not log.synced.is_due
    assert log.high_watermark == log.end_offset == 20


def test_readers_see_records_only_when_they_are_on_the_device() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch(2))
    assert (log.synced.is_due, log.end_offset, log.high_watermark, log.last_stable_offset) == (True, 2, 0, 0)
    read = log.read(0, 10_000)
    assert (read.error, read.slices, read.high_watermark) == (ErrorCode.NONE, (), 0)
    newest = log.offset_for_timestamp(SpecialTimestamp.LATEST)
    assert newest is not None
    assert newest.offset == 0
    assert log.delete_records_before(-1) == Deleted(ErrorCode.NONE, 0)
    assert log.delete_records_before(1).error is ErrorCode.OFFSET_OUT_OF_RANGE
    plan = log.synced.plan()
    append(log, batch(3))  # while another thread syncs
    plan.sync()
    log.synced.reached(plan.offset)
    assert (log.synced.is_due, log.end_offset, log.high_watermark) == (True, 5, 2)
    [piece] = log.read(0, 10_000).slices
    assert piece.length_bytes == len(batch(2))
    log.synced.sync_due()
    assert (log.synced.is_due, log.high_watermark) == (False, 5)
    assert _after_power_loss(storage).end_offset == 5


def test_only_every_third_record_waits() -> None:
    log = open_log(config=LogConfig(flush_messages=3))
    for expected in (1, 2):
        append(log, batch())
        assert (log.synced.is_due, log.high_watermark) == (False, expected)
    append(log, batch())
    assert (log.synced.is_due, log.high_watermark) == (True, 2)  # what readers have seen stays seen
    log.synced.sync_due()
    assert (log.synced.is_due, log.high_watermark, log.synced.offset) == (False, 3, 3)


def test_a_sync_covers_every_segment_and_needs_no_index() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(flush_messages=10, segment_bytes=200, index_interval_bytes=0))
    for _ in range(10):
        append(log, batch())
    names = [name for name in storage.names() if name.endswith(".log")]
    assert len(names) > 2
    log.synced.sync_due()
    found = _after_power_loss(storage)
    assert found.end_offset == 10
    assert found.read(3, 10_000).slices


def test_a_marker_and_the_end_of_a_transaction_wait_too() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append_in_transaction(log, 0, 2)
    log.synced.sync_due()
    end(log, commit=True)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)
    assert len(log.read(0, 10_000, isolation=Isolation.READ_COMMITTED).slices) == 1
    log.synced.sync_due()
    assert (log.last_stable_offset, log.high_watermark) == (3, 3)
    assert _after_power_loss(storage).last_stable_offset == 3


def test_a_loss_of_power_that_leaves_only_the_names_of_files_leaves_a_log_that_can_be_read() -> None:
    """The simulator, broker-power 0 without syncs: the groups of such a log were unavailable for ever."""
    storage, compacted = MemoryStorage(), LogConfig(cleanup_policy=frozenset({"compact"}))
    log = open_log(storage, compacted)
    append(log, batch(key=b"k"))
    log.roll(NOW_MS)
    append(log, batch(key=b"k"))
    left = storage.after_power_loss(keep=lambda name, synced, size: synced, keep_name=lambda name: True)
    found = open_log(left, compacted)
    assert list(replay(found)) == []
    append(found, batch(key=b"k"))
    assert [each.next_offset for each in replay(found)] == [found.end_offset]


def test_a_log_is_replayed_to_its_end_although_readers_wait_for_the_device() -> None:
    log = open_log(config=_EACH)
    append(log, batch(2))
    assert [each.next_offset for each in replay(log)] == [2]
    assert not log.synced.is_due


def test_a_disk_that_refuses_a_sync_leaves_it_due() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch())
    storage.refuses = lambda action, name: action == "sync"
    with pytest.raises(StorageError):
        log.synced.sync_due()
    assert (log.synced.is_due, log.high_watermark) == (True, 0)
    storage.refuses = None
    log.flush()
    assert (log.synced.is_due, log.high_watermark) == (False, 1)


def _rolling(flush_messages: int, retention_bytes: int = -1) -> LogConfig:
    """Each batch has a segment of its own."""
    return LogConfig(flush_messages=flush_messages, segment_bytes=120, retention_bytes=retention_bytes)


def test_what_retention_takes_out_of_the_log_is_synced_before_the_records_behind_it() -> None:
    """Its files may be there after a loss of power: if they were not whole, the log would end there."""
    storage = MemoryStorage()
    log = open_log(storage, _rolling(1))
    append(log, batch())
    log.synced.sync_due()
    storage.refuses = lambda action, name: action == "sync"
    append(log, batch())
    with pytest.raises(StorageError):
        log.synced.sync_due()
    append(log, batch())
    storage.refuses = None
    log.config = _rolling(1, retention_bytes=0)
    assert log.retire(NOW_MS)
    assert log.log_start_offset == 3
    append(log, batch())
    log.synced.sync_due()
    assert log.high_watermark == 4
    assert _after_power_loss(storage).end_offset == 4
    retain(log, NOW_MS)
    assert log.log_start_offset == 4


@pytest.mark.parametrize("is_flushed", [False, True], ids=["", "flushed"])
def test_deleted_records_are_on_the_device_before_those_behind_them(is_flushed: bool) -> None:
    """A loss of power may come before the new start of the log is there."""
    storage = MemoryStorage()
    log = open_log(storage, _rolling(3))
    append(log, batch(2))
    assert log.delete_records_before(-1) == Deleted(ErrorCode.NONE, 2)
    if is_flushed:
        log.flush()
    append(log, batch(3))
    assert log.synced.is_due
    log.synced.sync_due()
    assert log.high_watermark == 5
    assert _after_power_loss(storage).end_offset == 5


def test_so_they_are_if_the_process_was_killed_before_the_device_knew_where_the_log_begins() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _rolling(3))
    append(log, batch(2))
    assert log.delete_records_before(-1) == Deleted(ErrorCode.NONE, 2)
    append(log, batch())
    log = open_log(storage, _rolling(3), recovery_point=0, log_start_offset=2)
    append(log, batch(2))
    log.synced.sync_due()
    assert (log.log_start_offset, log.high_watermark) == (2, 5)
    assert _after_power_loss(storage).end_offset == 5


def test_a_change_of_the_setting_counts_from_the_next_append_on() -> None:
    log = open_log()
    append(log, batch())
    log.config = _EACH
    assert log.high_watermark == 1
    append(log, batch())
    assert (log.synced.is_due, log.high_watermark) == (True, 1)


def test_records_that_need_no_sync_any_more_are_seen_and_stay_seen() -> None:
    log = open_log(config=_EACH)
    append(log, batch())
    assert log.high_watermark == 0
    log.config = LogConfig()
    assert log.high_watermark == 1
    log.config = _EACH
    assert log.high_watermark == 1


def test_a_flush_of_many_segments_brings_the_snapshot_at_the_end_to_the_device() -> None:
    """It syncs 32 at once, and the next one is empty."""
    storage = MemoryStorage()
    log = open_log(storage)
    for sequence in range(32):
        append(log, idempotent(sequence))
        log.roll(NOW_MS)
    log.flush()
    left = storage.after_power_loss(keep=lambda name, synced, size: synced)
    assert left.files[file_name(32, SNAPSHOT)].size_bytes > 0


@pytest.mark.parametrize("flush", [PartitionLog.flush, lambda log: log.synced.sync_due()], ids=["flush", "sync due"])
def test_what_a_refused_sync_has_dropped_is_written_again_before_the_next_one(
    flush: Callable[[PartitionLog], None],
) -> None:
    """Linux takes pages that the device has refused for clean, so the second sync would succeed without them."""
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch(2))
    storage.refuses = lambda action, name: action == "sync"
    with pytest.raises(StorageError, match="refuses to sync"):
        flush(log)
    storage.refuses = None
    append(log, batch(3))
    flush(log)
    assert _after_power_loss(storage).end_offset == log.high_watermark == 5


def test_what_one_thread_is_refused_no_other_thread_acknowledges() -> None:
    """World 2400018303 of broker-power: both had planned their syncs before the first one was refused."""
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch(2))
    for_a_producer = log.synced.plan()
    for_the_checkpoint = log.flush_plan()
    storage.refuses = lambda action, name: action == "sync"
    with pytest.raises(StorageError, match="refuses to sync"):
        for_a_producer.sync()
    storage.refuses = None
    for_the_checkpoint.sync()
    assert _after_power_loss(storage).end_offset == 2, "it has written the file again"
    log.mark_flushed(for_the_checkpoint)
    assert log.high_watermark == 2


def test_a_process_after_a_kill_writes_again_what_a_refused_sync_may_have_dropped() -> None:
    """The system goes on, and takes for clean what the device does not have; the new process is told by a file."""
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch(2))
    storage.refuses = lambda action, name: action == "sync"
    with pytest.raises(StorageError, match="refuses to sync"):
        log.synced.sync_due()
    storage.refuses = None
    next_storage = storage.after_kill()
    again = open_log(next_storage, _EACH)
    assert again.end_offset == 2, "the next process reads it"
    file = next_storage.files[f"{0:020d}.log"]
    assert (file.has_dropped, file.lacks_dropped) == (False, False), "it has written it again"
    again.flush()
    assert _after_power_loss(next_storage).end_offset == 2
    again.close()
    assert UNFINISHED_SYNC in next_storage.names()
    open_log(next_storage, _EACH, clean=True)
    assert UNFINISHED_SYNC not in next_storage.names()


def test_a_disk_that_refuses_everything_cannot_keep_a_refused_sync_from_the_next_process() -> None:
    """World 3300007462 of broker-consumer-groups: the note that came after the refusal was refused, too."""
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch(2))
    storage.refuses = lambda action, name: action in {"sync", "mark", "unmark", "write"}
    with pytest.raises(StorageError, match="refuses to mark"):
        log.synced.sync_due()
    storage.refuses = lambda action, name: action in {"sync", "unmark", "write"}
    with pytest.raises(StorageError, match="refuses to sync"):
        log.synced.sync_due()
    storage.refuses = None
    next_storage = storage.after_kill()
    open_log(next_storage, _EACH).flush()
    assert _after_power_loss(next_storage).end_offset == 2


def _killed_after_a_refusal() -> MemoryStorage:
    """What the next process finds; the sync of the file that says where each epoch begins was refused."""
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch(2))
    storage.refuses = lambda action, name: action == "sync" and name == LEADER_EPOCH_CHECKPOINT
    with pytest.raises(StorageError, match="refuses to sync"):
        log.flush()
    return storage.after_kill()


def test_a_start_that_cannot_say_which_files_to_write_again_is_no_start() -> None:
    next_storage = _killed_after_a_refusal()
    next_storage.refuses = lambda action, name: action == "open" and name == LEADER_EPOCH_CHECKPOINT
    with pytest.raises(StorageError, match="refuses to open"):
        open_log(next_storage, _EACH)


def test_who_is_killed_in_a_sync_leaves_the_note_and_a_sync_that_ends_does_not() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(flush_messages=1, index_interval_bytes=0))
    append(log, batch(2))
    append(log, batch(1))
    seen: list[bool] = []

    def look(action: str, name: str) -> bool:
        if action == "sync":
            seen.append(UNFINISHED_SYNC in storage.files)
        return False

    storage.refuses = look
    log.flush()
    assert seen == [True] * 5, "the log, its indexes, the snapshot, and where each epoch begins"
    assert UNFINISHED_SYNC not in storage.files


def test_a_sync_that_ends_first_leaves_the_note_of_another() -> None:
    storage = MemoryStorage()
    with storage.sync_note.around(storage):
        with storage.sync_note.around(storage):
            pass
        assert UNFINISHED_SYNC in storage.files
    assert UNFINISHED_SYNC not in storage.files


def test_so_it_does_with_the_file_that_says_where_a_log_begins() -> None:
    next_storage = _killed_after_a_refusal()
    next_storage.refuses = lambda action, name: action == "append"
    again = open_log(next_storage, _EACH)
    next_storage.refuses = None
    again.flush()
    file = next_storage.files[LEADER_EPOCH_CHECKPOINT]
    assert file.synced_bytes == file.size_bytes


def test_a_sync_beside_one_that_is_refused_is_refused_too() -> None:
    """As on a disk: the other thread's succeeds, without the pages that the first one had dropped."""
    storage = MemoryStorage()
    log = open_log(storage, _EACH)
    append(log, batch())
    plan, is_nested = log.synced.plan(), False

    def refuses(action: str, name: str) -> bool:
        nonlocal is_nested
        if action != "sync" or is_nested:
            return action == "sync"
        is_nested = True
        with pytest.raises(StorageError):
            log.synced.sync_due()
        return False

    storage.refuses = refuses
    with pytest.raises(StorageError):
        plan.sync()
