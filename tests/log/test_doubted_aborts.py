"""What the `.txnindex` files say of aborted transactions is held against the markers where nothing proves it."""

import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.storage import DirectoryStorage, DiskFile
from ottla.log.config import LogConfig
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.names import UNFINISHED_SYNC
from ottla.log.partition import PartitionLog
from ottla.log.storage import Buffer, File, Storage
from ottla.log.witnesses import Outside
from tests.log.batches import NOW_MS
from tests.log.logs import SMALL, TP, append_in_transaction, committed_offsets, end, open_log


def _without_aborts(storage: MemoryStorage) -> MemoryStorage:
    """After a loss of power: indexes of aborts that were not synced are gone, and by chance nothing else."""
    return storage.after_power_loss(
        keep=lambda name, synced, size: size, keep_name=lambda name: not name.endswith(".txnindex")
    )


@pytest.mark.parametrize("proved", [True, False])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["gone", "empty", "changed", "whole"])
def test_an_index_of_aborts_that_is_not_as_it_was_is_made_again(how: str, clean: bool, proved: bool) -> None:
    """Also where the manifest is gone, which has the seals: then every index is held against the markers."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number, commit in enumerate((False, True, False, True)):
        append_in_transaction(log, number)
        end(log, commit=commit)
        if number == 1:
            log.roll(NOW_MS)
    log.close()
    before, aborts = committed_offsets(log), log.aborts
    assert (before, len(aborts)) == ([2, 6], 2)
    for base in aborts:
        name = f"{base:020}.txnindex"
        content = storage.read(name) or b""
        if how == "whole":
            continue
        storage.delete(name)
        if how == "empty":
            storage.write(name, b"")
        elif how == "changed":  # another producer's transaction
            storage.write(name, content[:9] + bytes([content[9] ^ 1]) + content[10:])
    storage.sync_names()
    outside = Outside(is_known=True, start_is_unproved=not proved, aborts=aborts if proved else {})
    point = log.recovery_point
    log = PartitionLog.open(TP, storage, SMALL, NOW_MS, clean=clean, recovery_point=point, outside=outside)
    assert committed_offsets(log) == before
    assert [sentence for sentence in log.findings.mended if "txnindex" in sentence] == [
        f"{base:020}.txnindex is made again from the markers" for base in aborts if how != "whole"
    ]
    assert log.aborts == aborts
    # a checkpoint says nothing of aborts while the log is cleaned, and nothing is appended that would have them synced
    left = _without_aborts(storage)
    log = PartitionLog.open(TP, left, SMALL, NOW_MS, recovery_point=point, outside=Outside(is_known=True))
    assert committed_offsets(log) == before


def test_aborts_that_an_older_snapshot_has_read_again_are_on_the_device() -> None:
    """A start cuts the indexes behind its snapshot, and makes them again on the way."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number, commit in enumerate((True, False)):
        append_in_transaction(log, number)
        end(log, commit=commit)
        log.flush()
    before, point = committed_offsets(log), log.recovery_point
    storage = storage.after_kill()
    name = f"{point:020}.snapshot"
    snapshot = storage.read(name) or b""
    storage.delete(name)

    def refuses(action: str, name: str) -> bool:
        if action == "open" and name.endswith(".txnindex"):
            raise CrashedError(name)
        return False

    storage.refuses = refuses
    with pytest.raises(CrashedError):
        open_log(storage, SMALL, recovery_point=point)
    storage = storage.after_kill()
    storage.sync_names()
    log = open_log(storage, SMALL, recovery_point=point)
    assert committed_offsets(log) == before == [0]
    storage.write(name, snapshot, sync=False)  # as the next roll does
    assert committed_offsets(open_log(_without_aborts(storage), SMALL, recovery_point=point)) == before


def test_a_start_that_syncs_aborts_keeps_the_note_of_a_refused_sync() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    append_in_transaction(log, 0)
    end(log, commit=False)
    log.flush()
    name = f"{0:020}.txnindex"
    before, point, aborts = committed_offsets(log), log.recovery_point, log.aborts
    storage.mark(UNFINISHED_SYNC)
    storage.delete(name)
    storage = storage.after_kill()
    log = PartitionLog.open(
        TP, storage, SMALL, NOW_MS, recovery_point=point, outside=Outside(is_known=True, aborts=aborts)
    )
    assert committed_offsets(log) == before
    assert UNFINISHED_SYNC in storage.names()
    assert committed_offsets(open_log(_without_aborts(storage), SMALL, recovery_point=point)) == before


def _with_aborts_in(storage: Storage, segments: int) -> tuple[PartitionLog, int]:
    log = open_log(storage, LogConfig(segment_bytes=150))
    for number in range(segments):
        append_in_transaction(log, number)
        end(log, commit=False)
    log.close()
    return log, log.end_offset


def test_a_disk_that_refuses_to_sync_aborts_keeps_no_log_from_its_readers() -> None:
    storage = MemoryStorage()
    log, end_offset = _with_aborts_in(storage, 2)
    left = storage.after_kill()
    for base in log.aborts:
        left.delete(f"{base:020}.txnindex")
    left.refuses = lambda action, name: action == "sync"
    outside = Outside(is_known=True, aborts=log.aborts)
    log = PartitionLog.open(TP, left, SMALL, NOW_MS, clean=True, recovery_point=end_offset, outside=outside)
    assert committed_offsets(log) == []


def test_indexes_of_aborts_are_not_all_open_at_once(tmp_path: Path) -> None:
    """A start on a directory of Apache Kafka's doubts all of them, and writes each anew."""
    storage = DirectoryStorage(tmp_path / "t-0")
    log, end_offset = _with_aborts_in(storage, 60)
    assert len(log.aborts) > 50
    opened = _Counting(tmp_path / "t-0")
    outside = Outside(is_known=True, start_is_unproved=True)
    again = PartitionLog.open(TP, opened, SMALL, NOW_MS, clean=True, recovery_point=end_offset, outside=outside)
    assert again.aborts == log.aborts
    assert opened.written == len(log.aborts)
    assert opened.most < 10


class _Counting(DirectoryStorage):
    """How many indexes of aborts are open at a time, and how many were written anew."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._files: weakref.WeakSet[File] = weakref.WeakSet()
        self.most = self.written = 0

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        file = super().open(name, create=create)
        if name.endswith(".txnindex"):
            self._files.add(file)
            self.most = max(self.most, len(self._files))
        return file

    def write(self, name: str, content: Buffer, *, sync: bool = True) -> None:
        super().write(name, content, sync=sync)
        self.written += name.endswith(".txnindex")


def test_a_start_that_is_killed_while_it_makes_an_index_again_leaves_what_is_doubted() -> None:
    """Without the file, and without a seal, the next one would take it for one that was never needed."""
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(transaction_verification=False))
    append_in_transaction(log, 0)
    end(log, commit=False)
    log.flush()
    point = log.recovery_point
    append_in_transaction(log, 1)
    end(log, commit=False)
    name = f"{0:020}.txnindex"
    torn = storage.after_power_loss(
        keep=lambda each, synced, size: 50 if each == name else synced, keep_name=lambda each: True
    )
    torn.sync_names()
    at = 0
    while True:
        left = torn.after_kill()
        left.refuses = _dies_at_call(at)
        try:
            PartitionLog.open(TP, left, SMALL, NOW_MS, recovery_point=point, outside=Outside(is_known=True))
        except CrashedError:
            again = PartitionLog.open(
                TP, left.after_kill(), SMALL, NOW_MS, recovery_point=point, outside=Outside(is_known=True)
            )
            assert committed_offsets(again) == [], at
            at += 1
        else:
            break
    assert at > 5


def _dies_at_call(number: int) -> Callable[[str, str], bool]:
    left = number

    def refuses(action: str, name: str) -> bool:
        nonlocal left
        left -= action not in ("read", "names", "map", "modified_ms")
        if left < 0:
            raise CrashedError(f"{action} {name}")
        return False

    return refuses
