"""Log files that are gone, or damaged where a crash followed: what was flushed is a hole, no offset is used twice."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.damage import OffsetRange
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.witnesses import Outside
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import (
    SMALL,
    TP,
    append,
    content,
    every_batch,
    open_log,
    retain,
)

_BATCHES = 60
_SIZE = len(idempotent(0, size=20))


def _write(log: PartitionLog, first: int, count: int = _BATCHES) -> None:
    for number in range(first, first + count):
        assert append(log, idempotent(number, size=20)).base_offset == number


def _stopped(*, deleted: int = 0) -> tuple[MemoryStorage, PartitionLog]:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    _write(log, 0)
    log.delete_records_before(deleted)
    log.close()
    assert len(_logs(storage)) >= 3
    return storage, log


def _logs(storage: MemoryStorage) -> list[str]:
    return [name for name in storage.names() if name.endswith(".log")]


def _again(storage: MemoryStorage, log: PartitionLog, *, clean: bool = True) -> PartitionLog:
    return PartitionLog.open(
        log.tp,
        storage,
        SMALL,
        NOW_MS,
        clean=clean,
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
    )


def _check_hole(storage: MemoryStorage, log: PartitionLog, hole: OffsetRange, *, clean: bool, end: int) -> None:
    """It is told now, and at the next starts, however the broker ends."""
    start = log.log_start_offset
    for _ in range(3):
        log = _again(storage, log, clean=clean)
        assert (log.findings.damaged, log.log_start_offset, log.end_offset) == ((hole,), start, end)
        answers = [log.read(offset, 1).error for offset in range(start, end)]
        assert answers == [ErrorCode.CORRUPT_MESSAGE if offset in range(*hole) else 0 for offset in range(start, end)]
        for offset in set(range(start, end)) - set(range(*hole)):
            (piece,) = log.read(offset, 1).slices
            assert int.from_bytes(piece.read()[:8]) == offset
        assert append(log, batch()).base_offset == end, "no offset is used twice"
        end += 1
        if clean:
            log.close()
        storage = storage.after_kill()
        clean = not clean


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", [(".log",), (".log", ".index", ".timeindex"), (".log", "index", ".snapshot"), ("",)])
def test_a_partition_without_its_logs_goes_on_behind_what_was_flushed(gone: tuple[str, ...], clean: bool) -> None:
    storage, log = _stopped()
    for name in [name for name in storage.names() if name.endswith(gone)]:
        storage.delete(name)
    _check_hole(storage, log, OffsetRange(0, _BATCHES), clean=clean, end=_BATCHES)


@pytest.mark.parametrize("checkpoint", [0, 20])
@pytest.mark.parametrize("gone", [(".log",), (".log", "index")])
def test_a_log_without_its_only_file_uses_no_deleted_offset_again(gone: tuple[str, ...], checkpoint: int) -> None:
    """broker-damage 900011979: the checkpoints were older than the deletion, and the log began where they said."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    _write(log, 0)
    log.delete_records_before(_BATCHES - 1)
    retain(log, NOW_MS)
    (only,) = _logs(storage)
    began = int(only[:20])
    assert began > checkpoint
    left = storage.after_kill()
    for name in [name for name in left.names() if name.endswith(gone)]:
        left.delete(name)
    for count in range(3):
        outside = Outside(is_known=True)
        found = PartitionLog.open(
            TP, left, SMALL, NOW_MS, recovery_point=checkpoint, log_start_offset=checkpoint, outside=outside
        )
        assert (found.log_start_offset, found.end_offset) == (began, began + count)
        assert found.findings.damaged == ()
        assert bool(found.findings.losses) == (count == 0)
        if gone == (".log",):
            assert append(found, idempotent(began - 1, size=20)).duplicate, "its producers are still known"
        assert append(found, batch()).base_offset == began + count
        left = left.after_kill()


def test_without_any_checkpoint_the_last_snapshot_says_where_to_go_on() -> None:
    storage, _ = _stopped()
    for name in _logs(storage):
        storage.delete(name)
    assert open_log(storage, SMALL, clean=True).findings.damaged == (OffsetRange(0, _BATCHES),)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept", [0, 30 * _SIZE, 30 * _SIZE + 7])
def test_a_log_cut_below_its_start_is_a_hole_from_there(kept: int, clean: bool) -> None:
    storage, config = MemoryStorage(), LogConfig(index_interval_bytes=0)
    log = open_log(storage, config)
    _write(log, 0)
    log.delete_records_before(40)
    log.close()
    del storage.files[_logs(storage)[0]].content[kept:]
    _check_hole(storage, log, OffsetRange(40, _BATCHES), clean=clean, end=_BATCHES)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment", [0, 1])
def test_a_log_file_taken_away_from_its_indexes_is_a_hole(segment: int, clean: bool) -> None:
    storage, log = _stopped()
    names = _logs(storage)
    storage.delete(names[segment])
    hole = OffsetRange(int(names[segment][:20]), int(names[segment + 1][:20]))
    _check_hole(storage, log, hole, clean=clean, end=_BATCHES)


def test_what_the_log_began_with_at_a_clean_stop_is_missed() -> None:
    storage, log = _stopped(deleted=2)
    first, second = _logs(storage)[:2]
    for suffix in (".log", ".index", ".timeindex"):
        storage.delete(first.replace(".log", suffix))
    _check_hole(storage, log, OffsetRange(2, int(second[:20])), clean=True, end=_BATCHES)


def test_a_log_file_put_back_at_the_beginning_mends_the_hole() -> None:
    storage, log = _stopped()
    before, name = every_batch(log), _logs(storage)[0]
    content = storage.read(name) or b""
    storage.delete(name)
    _again(storage, log).close()
    storage.write(name, content)
    mended = _again(storage, log)
    assert (mended.findings.damaged, mended.log_start_offset) == ((), 0)
    assert every_batch(mended) == before


class _DyingStorage(MemoryStorage):
    """Dies at the n-th file that is removed."""

    deletes = 1_000

    def delete(self, name: str) -> None:
        self.deletes -= 1
        if self.deletes < 0:
            raise CrashedError(name)
        super().delete(name)


@pytest.mark.parametrize("deletes", range(11))
def test_dying_while_old_segments_are_deleted_is_no_damage(deletes: int) -> None:
    storage = _DyingStorage()
    log = open_log(storage, SMALL)
    _write(log, 0)
    log.flush()
    start = log.log_start_offset  # what the checkpoint still says
    log.delete_records_before(_BATCHES - 1)
    storage.deletes = deletes
    with pytest.raises(CrashedError):
        retain(log, NOW_MS)
    left = storage.after_kill()
    found = open_log(left, SMALL, recovery_point=log.recovery_point, log_start_offset=start)
    assert (found.findings.damaged, found.findings.unexplained) == ((), ())
    assert found.end_offset == _BATCHES
    assert [name for name in left.names() if name.endswith(".deleted")] == []


@given(data=st.data(), known=st.booleans(), appended=st.booleans())
def test_a_loss_of_power_after_old_segments_were_deleted_is_no_damage(
    data: st.DataObject, known: bool, appended: bool
) -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    _write(log, 0)
    log.flush()
    start = log.log_start_offset
    log.delete_records_before(_BATCHES - 10)
    if data.draw(st.booleans(), label="dies while it deletes"):
        storage.refuses = lambda action, name: action == "delete" and data.draw(st.booleans(), label=f"keeps {name}")
    with suppress(StorageError):
        retain(log, NOW_MS)
    storage.refuses = None
    if appended:
        append(log, idempotent(_BATCHES))
        log.flush()
    left = storage.after_power_loss(
        lambda name, synced, size: synced, lambda name: data.draw(st.booleans(), label=f"{name} itself")
    )
    known_start = log.log_start_offset if known else start
    found = open_log(left, SMALL, recovery_point=log.recovery_point, log_start_offset=known_start)
    assert found.findings.damaged == ()
    assert found.end_offset == log.end_offset
    assert every_batch(found)[-10:] == every_batch(log)[-10:]


def test_apache_kafka_dying_while_it_deletes_a_segment_is_no_damage() -> None:
    storage, log = _stopped()
    first = _logs(storage)[0]
    storage.write(first + ".deleted", storage.read(first) or b"")
    storage.delete(first)
    found = open_log(storage, SMALL, recovery_point=log.recovery_point)
    assert found.findings.damaged == ()


def _killed() -> tuple[MemoryStorage, PartitionLog, list[bytes]]:
    """A log of 100 records, the first 33 flushed, which end in the middle of a segment."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    _write(log, 0, 33)
    log.flush()
    _write(log, 33, 67)
    assert {31, 32, 33}.isdisjoint(int(name[:20]) for name in _logs(storage)), "one segment holds both kinds"
    return storage, log, every_batch(log)


def _position(storage: MemoryStorage, offset: int) -> tuple[str, int]:
    name = max(name for name in _logs(storage) if int(name[:20]) <= offset)
    return name, storage.files[name].content.index(offset.to_bytes(8))


@pytest.mark.parametrize("damage", ["zeros", "length"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_bad_batch_below_the_recovery_point_costs_itself_alone(count: int, damage: str) -> None:
    storage, log, before = _killed()
    first = 33 - count
    name, position = _position(storage, first)
    content = storage.files[name].content
    for at in range(position, position + count * _SIZE, _SIZE):
        if damage == "zeros":
            content[at : at + _SIZE] = bytes(_SIZE)
        else:
            content[at + 8] = 0x7F
    found = _again(storage, log, clean=False)
    assert found.findings.truncated_bytes == 0
    found.delete_records_before(33)
    assert every_batch(found) == before[33:]
    assert append(found, idempotent(99, size=20)).duplicate, "producers go on"
    found = _again(storage, log, clean=False)
    _check_hole(storage, log, OffsetRange(first, 33), clean=False, end=100)


def test_a_hole_across_the_recovery_point_ends_where_a_crc_is_right() -> None:
    storage, log, _ = _killed()
    name, position = _position(storage, 32)
    storage.files[name].content[position : position + 3 * _SIZE] = b"\2" * (3 * _SIZE)
    _check_hole(storage, log, OffsetRange(32, 35), clean=False, end=100)


def test_a_log_cut_short_below_the_recovery_point_leaves_the_later_segments() -> None:
    storage, log, _ = _killed()
    name, position = _position(storage, 32)
    following = next(int(each[:20]) for each in _logs(storage) if each > name)
    del storage.files[name].content[position + 3 :]
    _check_hole(storage, log, OffsetRange(32, following), clean=False, end=100)


def test_a_known_hole_stays_one_without_the_recovery_point() -> None:
    storage, log, before = _killed()
    name, position = _position(storage, 32)
    storage.files[name].content[position : position + _SIZE] = bytes(_SIZE)
    _again(storage, log, clean=False)
    found = open_log(storage.after_kill(), SMALL)
    assert (found.findings.damaged, found.end_offset) == ((OffsetRange(32, 33),), 100)
    found.delete_records_before(33)
    assert every_batch(found) == before[33:]


@pytest.mark.parametrize("interval", [0, 300, 100_000])
def test_indexes_made_again_after_a_crash_are_not_called_damaged(interval: int) -> None:
    storage, config = MemoryStorage(), LogConfig(segment_bytes=2_000, index_interval_bytes=interval)
    log = open_log(storage, config)
    for generation in range(6):
        for number in range(30):
            append(log, batch(timestamps_ms=[NOW_MS + 30 * generation + number]))
        clean = generation % 2 == 1
        if clean:
            log.close()
        storage = storage.after_kill()
        log = open_log(storage, config, clean=clean, recovery_point=log.recovery_point)
        assert log.findings.rebuilt == ()


def test_a_death_between_the_files_of_a_new_segment_is_no_damage() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    _write(log, 0, 20)
    log.roll(NOW_MS)
    storage.delete(f"{20:020}.index")
    storage.delete(f"{20:020}.timeindex")
    assert open_log(storage, SMALL).findings.rebuilt == ()


def test_a_changed_last_offset_of_a_flushed_batch_costs_no_batch_behind_it() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    _write(log, 0, 5)
    log.close()
    (name,) = _logs(storage)
    before = len(storage.files[name].content)
    storage.files[name].content[2 * _SIZE + 24] ^= 7  # its last offset delta
    found = PartitionLog.open(TP, storage, log.config, NOW_MS, clean=True, recovery_point=5)
    assert len(storage.files[name].content) == before
    assert (found.findings.damaged, found.end_offset) == ((OffsetRange(2, 3),), 5)


@pytest.mark.parametrize("flushed", [0, 30, 59])
def test_a_newest_log_file_that_is_empty_after_kill_is_told(flushed: int) -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    _write(log, 0, flushed)
    log.flush()
    log.roll(NOW_MS)
    _write(log, flushed, _BATCHES - flushed)
    newest = _logs(storage)[-1]
    storage.files[newest].content.clear()
    found = open_log(storage.after_kill(), SMALL, recovery_point=log.recovery_point)
    base = int(newest[:20])
    assert found.findings.losses == (f"{base:020}.log is empty, and so the log ends at offset {base}",)


def test_a_log_whose_records_are_all_deleted_has_lost_nothing() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(segment_bytes=2_000, retention_ms=1))
    _write(log, 0)
    log.flush()
    retain(log, NOW_MS + 1_000_000)
    assert [len(storage.files[name].content) for name in _logs(storage)] == [0]
    found = open_log(storage.after_kill(), SMALL, recovery_point=log.recovery_point)
    assert (found.findings.losses, found.end_offset) == ((), _BATCHES)


@pytest.mark.parametrize("position", [40, 3])
def test_damage_costs_no_batch_behind_it_where_the_recovery_point_is_not_known(position: int) -> None:
    """The simulator's find (broker-damage 510000): after kill -9 the log was cut at a batch that a disk had changed."""
    storage = MemoryStorage()
    log = open_log(storage)
    for number in range(10):
        append(log, idempotent(number, size=20))
    file = storage.files[f"{0:020}.log"]
    file.content[4 * _SIZE + position] ^= 64
    file.content += file.content[: _SIZE - 1]  # and the last write was torn
    again = PartitionLog.open(
        log.tp, storage.after_kill(), LogConfig(), NOW_MS, outside=Outside(is_known=True, flush_is_unknown=True)
    )
    assert again.findings.damaged == (OffsetRange(4, 5),)
    assert len(content(again.read(5, 1_000))) == 5 * _SIZE
    assert again.end_offset == 10
    assert append(again, idempotent(10, size=20)).base_offset == 10


def test_a_changed_base_offset_does_not_say_how_far_a_log_has_come() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for number in range(5):
        append(log, idempotent(number, size=20))
    file = storage.files[f"{0:020}.log"]
    file.content[4 * _SIZE + 2] ^= 1
    again = PartitionLog.open(
        log.tp, storage.after_kill(), LogConfig(), NOW_MS, outside=Outside(is_known=True, flush_is_unknown=True)
    )
    assert again.end_offset == 4
    assert again.findings.truncated_bytes == _SIZE


def test_what_recovery_cuts_is_told_with_its_file_and_offsets() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for number in range(5):
        append(log, idempotent(number, size=20))
    storage.files[f"{0:020}.log"].content[2 * _SIZE + 40] ^= 64
    (cut,) = open_log(storage.after_kill()).findings.cuts
    assert (
        str(cut) == f"{0:020}.log: cut {3 * _SIZE} bytes at position {2 * _SIZE}; the records at offsets 2–4 are gone"
    )


def test_later_segments_that_go_with_a_bad_batch_are_told() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    _write(log, 0)
    name, *later = _logs(storage)
    storage.files[name].content[40] ^= 64
    cuts = open_log(storage.after_kill(), SMALL).findings.cuts
    assert [cut.name for cut in cuts] == [name, *later]
    assert cuts[-1].end_offset == _BATCHES


def test_a_changed_base_offset_of_a_flushed_batch_at_the_end_is_a_hole() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for number in range(3):
        append(log, idempotent(number, size=20))
    log.close()
    storage.files[f"{0:020}.log"].content[_SIZE + 6] ^= 64
    again = open_log(storage, clean=True, recovery_point=3)
    assert (again.findings.damaged, again.findings.cuts) == ((OffsetRange(1, 2),), ())
    assert again.end_offset == 3


def test_an_emptied_segment_of_a_compacted_log_is_told_after_kill() -> None:
    """The simulator's finds (broker-damage 14, 784124970): offsets of a group, a transaction's state, without a line.

    One batch of the segment was on the device; if none was, it ends the log as that of any other log.
    """
    compacted = replace(SMALL, cleanup_policy=frozenset({"compact"}))
    storage = MemoryStorage()
    _write(open_log(storage, compacted), 0)
    _, emptied, following = _logs(storage)[:3]
    del storage.files[emptied].content[:]
    again = open_log(storage.after_kill(), compacted, recovery_point=int(emptied[:-4]) + 1)
    assert again.findings.unexplained == (OffsetRange(int(emptied[:-4]), int(following[:-4])),)
    assert again.end_offset == _BATCHES
    again = open_log(storage.after_kill(), compacted, recovery_point=int(emptied[:-4]))
    assert [(cut.first_offset, cut.end_offset) for cut in again.findings.cuts] == [(int(emptied[:-4]), _BATCHES)]
    assert again.end_offset == int(emptied[:-4])


def test_a_file_that_a_start_has_made_behind_a_hole_is_no_loss() -> None:
    storage, log = _stopped()
    *_, newest = _logs(storage)
    del storage.files[newest].content[_SIZE:]
    left = storage.after_kill()
    found = _again(left, log)
    assert found.findings.damaged == (OffsetRange(int(newest[:-4]) + 1, _BATCHES),)
    for _ in range(2):
        left = left.after_kill()
        found = _again(left, log, clean=False)
        assert (found.findings.files, found.findings.losses) == ((newest,), ())


def test_an_index_knows_of_batches_behind_the_end_of_its_log() -> None:
    """After kill -9 behind a flush that no checkpoint tells of: the log file was cut between two batches."""
    config = replace(SMALL, segment_bytes=100_000)
    storage = MemoryStorage()
    log = open_log(storage, config)
    _write(log, 0, 8)
    log.flush()
    name = f"{0:020}.log"
    assert open_log(storage.after_kill(), config).findings.losses == ()
    del storage.files[name].content[5 * _SIZE :]
    for each in [each for each in storage.names() if each.endswith(".snapshot")]:
        storage.delete(each)  # it knows of them, too
    found = open_log(storage.after_kill(), config)
    assert found.end_offset == 5
    assert found.findings.losses == ("there was a record at offset 7, and the log ends at 5",)
    storage.write(f"{0:020}.index", bytes((0, 0, 0, 9, 0, 0, 0, _SIZE)))  # it is damaged: it leads into the log
    assert open_log(storage.after_kill(), config).findings.losses == ()
