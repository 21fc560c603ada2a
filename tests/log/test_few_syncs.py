"""A flush, and a stop, ask the device for what it does not have, and for nothing else. Each sync is counted."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.broker.storage import DirectoryDisk
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.names import LEADER_EPOCH_CHECKPOINT, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, file_name
from ottla.log.partition import PartitionLog
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.log.batches import NOW_MS, batch
from tests.log.logs import append, open_log

_LOG, _INDEX, _TIMES = (file_name(0, suffix) for suffix in (LOG, OFFSET_INDEX, TIME_INDEX))
#: Each batch has an index entry but the first.
_DENSE = LogConfig(index_interval_bytes=0)


def _snapshot(offset: int) -> str:
    return file_name(offset, SNAPSHOT)


def _asked(storage: MemoryStorage, work: Callable[[], object], *, refused: str = "") -> list[tuple[str, str]]:
    """What it asks the device for, and how often it lists the directory; the sync of one file may be refused."""
    asked: list[tuple[str, str]] = []

    def note(action: str, name: str) -> bool:
        if action in ("sync", "sync_names", "names"):
            asked.append((action, name))
        return action == "sync" and name == refused

    storage.refuses = note
    try:
        work()
    finally:
        storage.refuses = None
    return asked


def _syncs(storage: MemoryStorage, work: Callable[[], object]) -> list[str]:
    return [name for action, name in _asked(storage, work) if action == "sync"]


def test_a_stop_of_a_log_that_was_never_flushed_syncs_each_file_with_something_in_it_once() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, batch(2))
    asked = _asked(storage, log.close)
    files = [_LOG, _TIMES, LEADER_EPOCH_CHECKPOINT, _snapshot(2)]
    assert asked == [("names", ""), *(("sync", name) for name in files), ("sync_names", "")]


def test_a_flush_leaves_out_what_the_device_has() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _DENSE)
    append(log, batch())
    append(log, batch())
    files = [_LOG, _INDEX, _TIMES, LEADER_EPOCH_CHECKPOINT, _snapshot(2)]
    asked = _asked(storage, log.flush)
    assert asked == [("names", ""), *(("sync", name) for name in files), ("sync_names", "")]
    append(log, batch())  # of the same time and epoch
    assert _syncs(storage, log.flush) == [_LOG, _INDEX, _snapshot(3)]
    append(log, batch(timestamps_ms=[NOW_MS + 1]))
    assert _syncs(storage, log.flush) == [_LOG, _INDEX, _TIMES, _snapshot(4)]
    log.append(batch(), now_ms=NOW_MS, leader_epoch=1)
    assert _syncs(storage, log.flush) == [_LOG, _INDEX, LEADER_EPOCH_CHECKPOINT, _snapshot(5)]


def test_what_another_process_has_written_is_synced_once() -> None:
    storage = MemoryStorage()
    append(open_log(storage, _DENSE), batch())
    storage = storage.after_kill()
    log = open_log(storage, _DENSE)
    append(log, batch())
    files = [_LOG, _INDEX, _TIMES, LEADER_EPOCH_CHECKPOINT, _snapshot(2)]
    assert _syncs(storage, log.flush) == files
    append(log, batch())
    assert _syncs(storage, log.flush) == [_LOG, _INDEX, _snapshot(3)]


@pytest.mark.parametrize("refused", [_LOG, _INDEX, _TIMES, LEADER_EPOCH_CHECKPOINT, _snapshot(2)])
def test_behind_a_refusal_everything_is_synced_again(refused: str) -> None:
    storage = MemoryStorage()
    log = open_log(storage, _DENSE)
    append(log, batch())
    append(log, batch())
    with pytest.raises(StorageError, match="refuses to sync"):
        _asked(storage, log.flush, refused=refused)
    files = [_LOG, _INDEX, _TIMES, LEADER_EPOCH_CHECKPOINT, _snapshot(2)]
    assert _syncs(storage, log.flush) == files
    _holds(storage, 2)


def test_what_is_written_while_a_flush_waits_for_the_device_is_left_to_the_next_one() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _DENSE)
    append(log, batch())
    append(log, batch())
    plan = log.flush_plan()
    plan.sync()
    log.append(batch(timestamps_ms=[NOW_MS + 1]), now_ms=NOW_MS, leader_epoch=1)
    log.roll(NOW_MS)  # which saves the indexes
    log.mark_flushed(plan)
    assert {_LOG, _INDEX, _TIMES, LEADER_EPOCH_CHECKPOINT} <= set(_syncs(storage, log.flush))
    _holds(storage, 3)


def _holds(storage: MemoryStorage, end_offset: int) -> None:
    """A loss of power takes nothing of it."""
    left = storage.after_power_loss(keep=lambda name, synced, size: synced)
    assert {name: bytes(each.content) for name, each in left.files.items()} == {
        name: bytes(each.content) for name, each in storage.files.items()
    }
    assert open_log(left, _DENSE, recovery_point=end_offset).end_offset == end_offset


def _newest(log: PartitionLog) -> tuple[int, int]:
    found = log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP)
    assert found is not None
    return found.timestamp_ms, found.offset


@pytest.mark.parametrize("flushed", [False, True])
def test_behind_a_stop_a_loss_of_power_takes_nothing_of_the_time_index(flushed: bool) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, batch())
    append(log, batch(timestamps_ms=[NOW_MS + 5]))
    if flushed:
        log.flush()
        assert _syncs(storage, log.close) == [_LOG, _TIMES], "what the stop has written"
    else:
        log.close()
    _holds(storage, 2)
    left = storage.after_power_loss(keep=lambda name, synced, size: synced)
    stopped = open_log(left, clean=True, recovery_point=2)
    assert _newest(stopped) == (NOW_MS + 5, 1)
    assert _syncs(left, stopped.close) == []


@contextmanager
def _counted() -> Iterator[list[str]]:
    """The directories that are synced meanwhile."""
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", noted)
        yield synced


def test_the_folders_of_a_directory_get_their_names_with_one_sync(tmp_path: Path) -> None:
    disk = DirectoryDisk(tmp_path)
    logs = [open_log(disk.open_folder(f"t-{number}")) for number in range(3)]
    for log in logs:
        append(log, batch())
    with _counted() as synced:
        for log in logs:
            log.flush()
    assert synced == ["t-0", tmp_path.name, "t-1", "t-2"]
    late = disk.open_folder("t-3")
    with _counted() as synced:
        late.sync_names()
        disk.open_folder("t-3").sync_names()
    assert synced == ["t-3", tmp_path.name, "t-3", tmp_path.name], "it may be another folder by now"
    with _counted() as synced:
        new = disk.open_folder("t-4")
        disk.sync_names()
        new.sync_names()
    assert synced == [tmp_path.name, "t-4"]
