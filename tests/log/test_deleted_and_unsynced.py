"""What is deleted, or known to this process alone, before the device knows: nothing behind it is lost for that."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.base.steps import result_of
from ottla.broker.storage import DirectoryStorage
from ottla.log.config import LogConfig
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.names import LOG, OFFSET_INDEX, SNAPSHOT, file_name
from ottla.log.partition import PartitionLog
from ottla.log.witnesses import Outside
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import TP, append, append_in_transaction, end, open_log, retain

_NEVER = 2**63 - 1


def _config(flush_messages: int, retention_bytes: int = -1, segment_bytes: int = 120) -> LogConfig:
    """Each batch has a segment of its own, where not said otherwise."""
    return LogConfig(flush_messages=flush_messages, segment_bytes=segment_bytes, retention_bytes=retention_bytes)


def _without_power(storage: MemoryStorage) -> MemoryStorage:
    """Only what was synced is left."""
    return storage.after_power_loss(keep=lambda name, synced, size: synced, keep_name=lambda name: False)


def _dies_at(wanted: tuple[str, str]) -> Callable[[str, str], bool]:
    """The process is killed at this call."""
    is_dead = False

    def refuses(action: str, name: str) -> bool:
        nonlocal is_dead
        is_dead = is_dead or (action, name) == wanted
        if is_dead:
            raise CrashedError(name)
        return False

    return refuses


@pytest.mark.parametrize("sync", [PartitionLog.flush, lambda log: log.synced.sync_due()], ids=["flush", "sync due"])
def test_retired_files_are_synced_when_the_setting_comes_later(sync: Callable[[PartitionLog], None]) -> None:
    """By default nothing was synced; then `flush.messages` is set, and the files are not deleted yet."""
    storage = MemoryStorage()
    log = open_log(storage, _config(_NEVER, retention_bytes=0))
    for _ in range(3):
        append(log, batch())
    assert log.retire(NOW_MS)
    storage.refuses = lambda action, name: action == "delete" and name.endswith(".log")
    with pytest.raises(StorageError):
        log.delete_retired()
    storage.refuses = None
    log.config = _config(1)
    append(log, batch())
    sync(log)
    assert log.high_watermark == 4
    assert open_log(_without_power(storage), _config(1)).end_offset == 4


def test_a_retired_file_that_is_gone_is_not_asked_for() -> None:
    log = open_log(config=_config(3, retention_bytes=0))
    append(log, batch(2))
    assert retain(log, NOW_MS) == 1
    append(log, batch(3))
    log.synced.sync_due()
    assert log.high_watermark == 5


def test_a_snapshot_that_a_start_has_removed_does_not_come_back() -> None:
    """It would take a record for a duplicate of one that is gone."""
    storage = MemoryStorage()
    log = open_log(storage, _config(1))
    append(log, batch())
    log.flush()
    append(log, idempotent(0))
    log.roll(NOW_MS)
    storage = storage.after_power_loss(
        keep=lambda name, synced, size: size if name.endswith("snapshot") else synced,
        keep_name=lambda name: name.endswith("2.snapshot"),
    )
    log = open_log(storage, _config(1), recovery_point=1)
    assert log.end_offset == 1
    log.close()
    log = open_log(_without_power(storage), _config(1), clean=True, recovery_point=1, log_start_offset=0)
    assert not append(log, idempotent(0)).duplicate
    assert log.findings.damaged == ()


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_what_a_refused_sync_has_dropped_is_written_again_though_it_is_deleted(is_clean: bool) -> None:
    storage = MemoryStorage()
    log = open_log(storage, _config(3))
    append(log, batch(2))
    storage.refuses = lambda action, name: action == "sync"
    with pytest.raises(StorageError):
        log.flush()
    storage.refuses = None
    log.delete_records_before(-1)
    if is_clean:
        log.close()
    else:
        append(log, batch())
    end_offset = log.end_offset + 1
    log = open_log(
        storage.after_kill(), _config(1), clean=is_clean, recovery_point=2 if is_clean else 0, log_start_offset=2
    )
    append(log, batch())
    log.synced.sync_due()
    assert log.high_watermark == end_offset
    assert open_log(_without_power(_storage_of(log)), _config(1)).end_offset == end_offset


def _storage_of(log: PartitionLog) -> MemoryStorage:
    storage = log._storage
    assert isinstance(storage, MemoryStorage)
    return storage


def test_a_deletion_that_two_kills_have_stopped_is_no_hole() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _config(1, retention_bytes=0))
    for _ in range(3):
        append(log, batch())
    log.flush()
    assert log.retire(NOW_MS)
    last_file = f"{0:020d}.timeindex"
    storage.refuses = _dies_at(("delete", last_file))
    with pytest.raises(CrashedError):
        log.delete_retired()
    storage.refuses = None
    storage = storage.after_kill()
    storage.refuses = _dies_at(("delete", last_file))
    with pytest.raises(CrashedError):
        open_log(storage, _config(1), recovery_point=3, log_start_offset=0)
    storage.refuses = None
    found = open_log(storage.after_kill(), _config(1), recovery_point=3, log_start_offset=0)
    assert (found.findings.damaged, found.log_start_offset) == ((), 1)


def test_deleted_records_whose_file_has_gone_with_the_power_are_no_hole() -> None:
    """A deletion moves the recovery point, too: what it covers need not be on the device."""
    storage = MemoryStorage()
    log = open_log(storage, _config(_NEVER, segment_bytes=10_000))
    append(log, batch(4))
    log.delete_records_before(1)
    log.flush_plan()  # a snapshot is written, and nothing synced
    left = storage.after_power_loss(
        keep=lambda name, synced, size: size, keep_name=lambda name: name.endswith((".timeindex", ".snapshot"))
    )
    assert open_log(left, _config(_NEVER), recovery_point=1, log_start_offset=1).findings.damaged == ()


def test_a_kill_in_a_deletion_forgets_no_producer() -> None:
    """The first segment that is left has its snapshot, whichever that is."""
    storage = MemoryStorage()
    log = open_log(storage, _config(_NEVER, retention_bytes=0))
    append(log, idempotent(0))
    append(log, batch())
    append(log, batch())
    log.flush()
    assert log.retire(NOW_MS)
    storage.refuses = _dies_at(("delete", f"{1:020d}.log"))
    with pytest.raises(CrashedError):
        log.delete_retired()
    storage.refuses = None
    found = open_log(storage.after_kill(), _config(_NEVER), recovery_point=0, log_start_offset=0)
    assert found.log_start_offset == 1
    assert append(found, idempotent(0)).duplicate


def test_a_deleted_marker_is_on_the_device_before_what_comes_behind_it() -> None:
    """Else its transaction would be open again, and keep readers of committed records where the log begins."""
    storage = MemoryStorage()
    log = open_log(storage, _config(3))
    append_in_transaction(log, 0)
    for _ in range(2):
        append(log, batch())
    log.synced.sync_due()
    end(log, commit=True)
    append(log, batch())
    log.delete_records_before(4)
    checkpoint = {"recovery_point": log.flushed_offset, "log_start_offset": 4}  # as the broker writes it
    storage = storage.after_kill()
    log = open_log(storage, _config(3), **checkpoint)
    for _ in range(3):
        append(log, batch())
    log.synced.sync_due()
    found = open_log(_without_power(storage), _config(3), **checkpoint)
    assert found.last_stable_offset == log.high_watermark == 8


def test_a_log_whose_records_are_all_deleted_lets_its_segments_go() -> None:
    log = open_log(config=_config(1_000))
    for _ in range(5):
        append(log, batch())
    log.delete_records_before(-1)
    assert retain(log, NOW_MS) == 4


@pytest.mark.parametrize("flush_messages", [1, _NEVER])
def test_what_a_refused_append_has_left_ends_no_log(tmp_path: Path, flush_messages: int) -> None:
    """The disk takes half of a batch, and then refuses to cut it off. The log rolls, and the process is killed."""
    config = _config(flush_messages, segment_bytes=10_000)
    log = open_log(DirectoryStorage(tmp_path / "t-0"), config)
    append(log, batch())
    log.synced.sync_due()

    def half(descriptor: int, buffers: list[bytes], position: int) -> int:
        data = b"".join(buffers)
        os.pwrite(descriptor, data[: len(data) // 2], position)
        raise OSError(5, "Input/output error")

    def refused(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(os, "pwritev", half)
        disk.setattr(os, "ftruncate", refused)
        with pytest.raises(StorageError):
            append(log, batch(value=b"x" * 200))
        with pytest.raises(StorageError):
            log.roll(NOW_MS)
    log.roll(NOW_MS)
    append(log, batch())
    log.synced.sync_due()
    assert log.high_watermark == log.end_offset == 2
    assert open_log(DirectoryStorage(tmp_path / "t-0"), config).end_offset == 2


def test_a_log_does_not_begin_where_a_loss_of_power_has_torn_the_snapshot() -> None:
    """A second one may take all that are newer; the producers of the deleted records would be forgotten."""
    storage = MemoryStorage()
    log = open_log(storage, _config(_NEVER))
    for sequence in range(3):
        append(log, idempotent(sequence))
    log.flush()
    torn = file_name(1, SNAPSHOT)
    storage = storage.after_power_loss(keep=lambda name, synced, size: synced - 1 if name == torn else size)
    log = open_log(storage, _config(_NEVER), recovery_point=3)
    assert log.findings.mended == ()  # there is a newer one
    append(log, batch())
    log.delete_records_before(1)
    assert retain(log, NOW_MS) == 0
    assert log.log_start_offset == 1
    log.delete_records_before(2)
    assert retain(log, NOW_MS) == 2


def test_a_batch_that_was_deleted_unsynced_is_not_written_again_behind_later_ones() -> None:
    """Retention took it before its answer, then a loss of power; a later batch of its producer was kept by chance."""
    storage = MemoryStorage()
    log = open_log(storage, _config(1))
    append(log, idempotent(0))
    log.flush()
    append(log, idempotent(1))
    log.config = _config(1, retention_bytes=0)
    assert log.retire(NOW_MS)
    append(log, idempotent(2))
    never_synced = file_name(1, LOG)
    storage = storage.after_power_loss(
        keep=lambda name, synced, size: synced if name == never_synced else size, keep_name=lambda name: True
    )
    del storage.files[file_name(2, SNAPSHOT)]  # what was not synced may be there or not
    log = open_log(storage, _config(1), log_start_offset=2, recovery_point=1)
    assert append(log, idempotent(2)).duplicate
    assert append(log, idempotent(1)).error is ErrorCode.KAFKA_STORAGE_ERROR, "nobody knows whether it was written"
    assert append(log, idempotent(3)).base_offset == 3


def test_of_a_batch_that_a_loss_of_power_has_taken_from_a_compacted_log_nobody_says_that_it_was_written() -> None:
    """Where others may have cleaned it, the batches behind a gap stay. The one before them may have had no answer."""
    storage, config = (
        MemoryStorage(),
        LogConfig(cleanup_policy=frozenset({"compact"}), flush_messages=1, segment_bytes=120),
    )
    log = open_log(storage, config)
    append(log, idempotent(0))
    log.flush()
    append(log, idempotent(1))
    append(log, idempotent(2))
    never_synced = file_name(1, LOG)
    storage = storage.after_power_loss(
        keep=lambda name, synced, size: synced if name == never_synced else size, keep_name=lambda name: True
    )
    del storage.files[file_name(2, SNAPSHOT)]
    others = Outside(may_be_cleaned_further=True)
    for point, clean in ((1, False), (3, True)):
        log = PartitionLog.open(TP, storage, config, NOW_MS, recovery_point=point, clean=clean, outside=others)
        assert append(log, idempotent(2)).duplicate
        assert append(log, idempotent(1)).error is ErrorCode.KAFKA_STORAGE_ERROR
        log.close()
    for base in (0, 1):  # by retention, which leaves one segment
        storage.delete(file_name(base, LOG))
    log = open_log(storage, config, recovery_point=3, clean=True, log_start_offset=2)
    assert append(log, idempotent(1)).error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("starts", [1, 2])
def test_a_log_that_begins_again_behind_what_was_lost_knows_its_producers(starts: int) -> None:
    """Of what retention deleted, the end was not on the device; a batch before that had no answer yet."""
    storage, config = MemoryStorage(), LogConfig(flush_messages=1)
    log = open_log(storage, config)
    append(log, idempotent(0))
    log.flush()
    append(log, batch())
    log.config = LogConfig(flush_messages=1, retention_bytes=0)
    assert log.retire(NOW_MS)
    storage = _without_power(storage)
    for _ in range(starts):
        log = open_log(storage, config, log_start_offset=2, recovery_point=1)
        storage = _without_power(storage)
    assert (log.log_start_offset, log.end_offset) == (2, 2)
    assert append(log, idempotent(0)).duplicate
    assert append(log, idempotent(1)).base_offset == 2


def test_a_batch_that_was_never_written_is_not_said_to_be_gone() -> None:
    """Its producer was forgotten for its silence, and went on; an older snapshot remembers it. No offset is missing."""
    storage, config = MemoryStorage(), LogConfig(max_message_bytes=200)
    log = open_log(storage, config)
    append(log, idempotent(0))
    log.flush()
    late_ms = NOW_MS + 2 * config.producer_id_expiration_ms
    assert result_of(log.expire_producers(late_ms)) == 1
    assert append(log, idempotent(1, size=500), now_ms=late_ms).error is ErrorCode.MESSAGE_TOO_LARGE
    assert append(log, idempotent(2), now_ms=late_ms).base_offset == 1
    log = open_log(storage.after_kill(), config, recovery_point=1)
    assert append(log, idempotent(1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_nor_is_one_that_has_no_room_between_those_that_are_known() -> None:
    """Of two records, where another producer's one was deleted."""
    storage, config = MemoryStorage(), LogConfig(segment_bytes=120)
    log = open_log(storage, config)
    append(log, idempotent(0))
    log.flush()
    append(log, batch())
    late_ms = NOW_MS + 2 * config.producer_id_expiration_ms
    result_of(log.expire_producers(late_ms))
    append(log, idempotent(3), now_ms=late_ms)
    log.delete_records_before(2)
    log = open_log(storage.after_kill(), config, recovery_point=1, log_start_offset=2)
    assert append(log, idempotent(1, 2)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(1)).error is ErrorCode.KAFKA_STORAGE_ERROR


def _all_deleted(log: PartitionLog, storage: MemoryStorage, kept_bytes: int) -> tuple[MemoryStorage, int]:
    """All records are deleted, and a loss of power leaves so many bytes of the only file."""
    log.delete_records_before(-1)
    left = storage.after_power_loss(
        keep=lambda name, synced, size: kept_bytes if name.endswith(LOG) else size, keep_name=lambda name: True
    )
    return left, log.end_offset


def test_a_log_that_begins_again_has_no_transaction_of_which_all_is_deleted() -> None:
    """Nobody would end it: the coordinator has had its marker."""
    storage = MemoryStorage()
    log = open_log(storage)
    append_in_transaction(log, 0)
    kept_bytes = storage.files[file_name(0, LOG)].size_bytes
    end(log, commit=True)
    append(log, batch())
    left, start = _all_deleted(log, storage, kept_bytes)
    for _ in range(2):
        log = open_log(left, log_start_offset=start)
        append(log, batch())
        assert not log.producers.has_ongoing_transaction(7)
        assert log.last_stable_offset == log.end_offset
        left = left.after_kill()


def test_a_log_that_begins_again_takes_what_its_producers_had_written_since() -> None:
    """They have all their answers, and the next batch is not out of order; the one that was known is a duplicate."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    kept_bytes = storage.files[file_name(0, LOG)].size_bytes
    for sequence in range(1, 6):
        append(log, idempotent(sequence))
    left, start = _all_deleted(log, storage, kept_bytes)
    log = open_log(left, log_start_offset=start)
    assert append(log, idempotent(0)).duplicate
    left.refuses = lambda action, name: action == "append"
    with pytest.raises(StorageError):
        append(log, idempotent(6))
    left.refuses = None
    assert append(log, idempotent(7)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the disk has refused 6"
    assert append(log, idempotent(6)).base_offset == start
    assert append(log, idempotent(8)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_log_begins_again_on_a_full_disk() -> None:
    """There is room when its files are deleted."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    kept_bytes = storage.files[file_name(0, LOG)].size_bytes
    append(log, idempotent(1))
    left, start = _all_deleted(log, storage, kept_bytes)
    left.limit_bytes = left.size_bytes
    assert open_log(left, log_start_offset=start).end_offset == start
    left = left.after_kill()
    left.limit_bytes = None
    assert append(open_log(left, log_start_offset=start), idempotent(0)).duplicate


def test_killed_while_a_log_begins_again_the_next_start_knows_the_producers() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, idempotent(0))
    kept_bytes = storage.files[file_name(0, LOG)].size_bytes
    append(log, idempotent(1))
    left, start = _all_deleted(log, storage, kept_bytes)
    left.refuses = _dies_at(("delete", file_name(0, OFFSET_INDEX)))
    with pytest.raises(CrashedError):
        open_log(left, log_start_offset=start)
    left = left.after_kill()
    assert not left.files.get(file_name(0, LOG))
    assert append(open_log(left, log_start_offset=start), idempotent(0)).duplicate
