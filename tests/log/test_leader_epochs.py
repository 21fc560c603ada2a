"""A leader epoch that was changed, in a batch or in the checkpoint: no checksum covers it.

The metadata know the partition's leader, and no record is of a later epoch than that. The leader epochs are the second
place that knows where the log begins: a wrong one would take all records away with the first place.
"""

import pytest

from ottla.log.config import LogConfig
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import EpochEndOffset
from ottla.log.witnesses import Outside
from ottla.wire.batch import assign_offsets, iter_headers
from tests.log.batches import NOW_MS, idempotent
from tests.log.logs import TP, open_log, retain, seven_batches

_LOG = f"{0:020}.log"
_EPOCHS = "leader-epoch-checkpoint"


def _open(
    storage: MemoryStorage, *, clean: bool = False, recovery_point: int = 0, start_is_unknown: bool = False
) -> PartitionLog:
    """As a broker that leads the partition in epoch 0."""
    return PartitionLog.open(
        TP,
        storage,
        LogConfig(),
        NOW_MS,
        clean=clean,
        recovery_point=recovery_point,
        outside=Outside(leader_epoch=0, start_is_unknown=start_is_unknown),
    )


def _epoch_of(storage: MemoryStorage, at: int, epoch: int) -> None:
    """Change the leader epoch of the batch with this index."""
    content = storage.files[_LOG].content
    position, header = list(iter_headers(content))[at]
    assign_offsets(content, position, header.base_offset, epoch)


def _written() -> MemoryStorage:
    """Seven batches of epoch 0."""
    storage = MemoryStorage()
    log = open_log(storage)
    for sequence in range(7):
        log.append(idempotent(sequence), now_ms=NOW_MS, leader_epoch=0)
    log.close()
    return storage


def _hole_from_3() -> MemoryStorage:
    """Of seven batches all are damaged, and those below 3 are deleted."""
    storage, log = seven_batches()
    log.close()
    storage.files[_LOG].content.clear()
    log = open_log(storage, clean=True, recovery_point=7, log_start_offset=0)
    log.delete_records_before(3)
    log.close()
    return storage


@pytest.mark.parametrize("epoch", [256, -(2**31)])
@pytest.mark.parametrize("clean", [True, False])
def test_the_only_batch_that_is_left_refutes_no_checkpoint(clean: bool, epoch: int) -> None:
    """The checkpoint was made again without it, and began at the next append; and then so did the log."""
    storage = MemoryStorage()
    log = open_log(storage)
    log.append(idempotent(0), now_ms=NOW_MS, leader_epoch=0)
    log.close()
    _epoch_of(storage, 0, epoch)
    log = _open(storage, clean=clean, recovery_point=1)
    assert all("is made again" not in each for each in log.findings.mended)
    log.append(idempotent(1), now_ms=NOW_MS, leader_epoch=0)
    log.close()
    assert storage.files[_EPOCHS].content == b"0\n1\n0 0\n"


def test_a_checkpoint_that_is_gone_is_made_again_for_batches_of_wrong_epochs_alone() -> None:
    storage = _written()
    for at in range(7):
        _epoch_of(storage, at, 7)
    del storage.files[_EPOCHS]
    log = _open(storage, clean=True, recovery_point=7)
    assert "the batch at offset 0 says leader epoch 7, and that of the leader is 0" in " ".join(log.findings.mended)
    log.append(idempotent(7), now_ms=NOW_MS, leader_epoch=0)
    log.close()
    again = _open(storage, clean=True, recovery_point=8, start_is_unknown=True)
    assert (again.log_start_offset, again.findings.mended) == (0, ())


@pytest.mark.parametrize("at", [0, 3, 6])
def test_a_batch_of_a_later_epoch_than_its_leaders_is_told_and_not_believed(at: int) -> None:
    """The simulator's finds (broker-damage 1620002077 and others): the epochs began behind it with the next append."""
    storage = _written()
    _epoch_of(storage, at, 21_760)
    log = _open(storage)
    assert log.findings.mended == (
        f"the batch at offset {at} says leader epoch 21760, and that of the leader is 0: it is not believed (no "
        "checksum tells whether it was changed)",
    )
    log.append(idempotent(7), now_ms=NOW_MS, leader_epoch=0)
    assert storage.files[_EPOCHS].content == b"0\n1\n0 0\n"
    assert log.end_offset_for_epoch(0) == EpochEndOffset(0, 8)
    log.close()
    again = _open(storage, clean=True, recovery_point=8, start_is_unknown=True)
    assert (again.log_start_offset, again.end_offset) == (0, 8)


def test_a_checkpoint_with_a_later_epoch_than_the_leaders_is_made_again() -> None:
    storage = _written()
    storage.write(_EPOCHS, b"0\n2\n0 0\n3 5\n")
    log = _open(storage, clean=True, recovery_point=7)
    assert log.findings.mended == (
        "leader-epoch-checkpoint (checkpoint: 3 is no leader epoch, the newest is 0) is made again from the batches",
    )
    assert storage.files[_EPOCHS].content == b"0\n1\n0 0\n"


@pytest.mark.parametrize("recovery_point", [0, 3, 7])
def test_a_checkpoint_that_is_gone_after_kill_is_told(recovery_point: int) -> None:
    """What lies behind the recovery point is read again, and the epochs with it: nobody had missed the file."""
    storage = _written()
    assert _open(storage.after_kill(), recovery_point=recovery_point).findings.mended == ()
    del storage.files[_EPOCHS]
    left = storage.after_kill()
    log = _open(left, recovery_point=recovery_point)
    assert log.findings.mended == ("leader-epoch-checkpoint (gone or wrong) is made again from the batches",)
    assert left.files[_EPOCHS].content == b"0\n1\n0 0\n"
    assert _open(left.after_kill(), recovery_point=recovery_point).findings.mended == ()


def test_killed_at_any_write_before_the_first_record_a_start_misses_no_checkpoint() -> None:
    """It is written before the first record is, and a log without records needs none."""
    storage = MemoryStorage()
    log = open_log(storage)
    assert _open(storage.after_kill()).findings.mended == ()
    for torn in (0, 40):
        storage.tear_next = torn
        with pytest.raises(CrashedError):
            log.append(idempotent(0), now_ms=NOW_MS, leader_epoch=0)
        left = storage.after_kill()
        assert _EPOCHS in left.files
        assert _open(left).findings.mended == ()
        del left.files[_EPOCHS]
        assert _open(left.after_kill()).findings.mended == (), "there is no record that it could tell of"


def test_where_no_batch_is_left_the_epochs_say_where_the_log_begins() -> None:
    """The simulator's find (broker-damage 1620002245): of what was not deleted all was damaged, and so was this file.
    When the other place was damaged, too, the log began at 0 again."""
    storage = _hole_from_3()
    storage.files[_EPOCHS].content.clear()
    log = open_log(storage, clean=True, recovery_point=7, log_start_offset=3)
    assert (log.log_start_offset, log.findings.damaged) == (3, ((3, 7),))
    assert storage.files[_EPOCHS].content == b"0\n1\n0 3\n"
    log.close()
    again = _open(storage, clean=True, recovery_point=7, start_is_unknown=True)
    assert (again.log_start_offset, again.findings.damaged) == (3, ((3, 7),))


def test_a_deletion_that_is_newer_than_the_recovery_point_is_believed_and_told() -> None:
    """The simulator's find (broker-damage 1630000930): killed between both, and the checkpoint of starts is damaged."""
    storage, log = seven_batches()
    log.flush()
    log.delete_records_before(5)
    again = _open(storage.after_kill(), recovery_point=3, start_is_unknown=True)
    assert (again.log_start_offset, again.end_offset) == (5, 7)
    assert again.findings.mended == (
        "leader-epoch-checkpoint alone says where the log begins: at offset 5; the records before that count as "
        "deleted",
    )


def test_a_log_does_not_begin_behind_all_of_its_records() -> None:
    """Two damages, of the checkpoint of starts and of a digit in the leader epochs, take no record away."""
    storage, log = seven_batches()
    log.flush()
    storage.write(_EPOCHS, b"0\n1\n0 8\n")
    again = _open(storage.after_kill(), recovery_point=7, start_is_unknown=True)
    assert (again.log_start_offset, again.end_offset) == (0, 7)
    assert "nothing says where the log begins: it begins at its oldest segment" in again.findings.mended[0]


def test_a_hole_begins_where_the_log_begins() -> None:
    storage = _hole_from_3()
    after_kill = PartitionLog.open(
        TP, storage, LogConfig(), NOW_MS, log_start_offset=3, outside=Outside(flush_is_unknown=True)
    )
    assert after_kill.findings.damaged == ((3, 7),)


@pytest.mark.parametrize("is_gone", [False, True])
def test_who_has_read_what_is_deleted_is_not_told_that_the_log_was_cut(*, is_gone: bool) -> None:
    """A loss of power has taken the checkpoint, or left an older one, and no batch is left to correct it."""
    storage = MemoryStorage()
    log = open_log(storage)
    older = b""
    for sequence, epoch in enumerate((0, 2)):
        log.append(idempotent(sequence), now_ms=NOW_MS, leader_epoch=epoch)
        log.roll(NOW_MS)
        older = older or storage.read(_EPOCHS) or b""
    log.flush()
    log.delete_records_before(2)
    assert retain(log, NOW_MS) == 2
    log.close()
    if is_gone:
        del storage.files[_EPOCHS]
    else:
        storage.write(_EPOCHS, older)
    log = PartitionLog.open(
        TP, storage, LogConfig(), NOW_MS, recovery_point=2, log_start_offset=2, outside=Outside(leader_epoch=3)
    )
    assert (log.log_start_offset, log.end_offset) == (2, 2)
    assert log.end_offset_for_epoch(2).end_offset == 2
    assert log.end_offset_for_epoch(3) == EpochEndOffset(3, 2), "the leader's own, which Apache Kafka notes"
    for unknown in (4, -1, -(2**31)):
        assert log.end_offset_for_epoch(unknown) == EpochEndOffset(-1, -1)


def test_killed_while_the_epochs_are_read_again_a_start_believes_no_half_of_them() -> None:
    whole = ((0, 0), (2, 1), (3, 2))

    def begun() -> MemoryStorage:
        storage = MemoryStorage()
        log = open_log(storage)
        for sequence, (epoch, _) in enumerate(whole):
            log.append(idempotent(sequence), now_ms=NOW_MS, leader_epoch=epoch)
            log.roll(NOW_MS)
        log.flush()
        log.delete_records_before(1)  # the checkpoint of starts does not say it yet
        return storage

    for call in range(1, 200):
        storage, left = begun().after_kill(), call

        def refuses(action: str, name: str) -> bool:
            nonlocal left
            left -= 1
            if left == 0:
                raise CrashedError(name)
            return False

        storage.refuses = refuses
        try:
            open_log(storage, recovery_point=3)
        except CrashedError:
            again = open_log(storage.after_kill(), recovery_point=3)
            assert again.end_offset_for_epoch(0) == EpochEndOffset(0, 1)
            assert again.end_offset_for_epoch(2) == EpochEndOffset(2, 2)
            assert again.end_offset_for_epoch(3) == EpochEndOffset(3, 3)
        else:
            assert call > 10
            return
    raise AssertionError("the start does not end")


@pytest.mark.parametrize("refuses", [False, True])
def test_after_a_stop_in_order_the_device_knows_the_epochs_although_nothing_was_appended(*, refuses: bool) -> None:
    """An older checkpoint would say that the log begins later, and is believed after such a stop.

    `refuses`: the disk refuses the start to sync them.
    """
    storage = _written()
    log = open_log(storage, recovery_point=7)
    log.delete_records_before(2)  # no checkpoint says so, and a loss of power leaves it
    storage.sync_names()
    storage = storage.after_power_loss(keep=lambda name, synced, size: size)
    storage.refuses = lambda action, name: refuses and action == "sync"
    log = open_log(storage, recovery_point=7, log_start_offset=1)
    assert log.log_start_offset == 1
    storage.refuses = None
    log.close()
    left = storage.after_power_loss(keep=lambda name, synced, size: synced)
    assert left.read(_EPOCHS) == storage.read(_EPOCHS) == b"0\n1\n0 1\n"


def test_a_stop_syncs_no_epochs_that_nobody_has_changed() -> None:
    """With ten thousand idle partitions it would last for minutes."""
    storage = _written()
    log = open_log(storage.after_kill(), recovery_point=7)
    log.flush()
    synced: list[str] = []
    storage = storage.after_kill()
    log = open_log(storage, recovery_point=7)

    def refuses(action: str, name: str) -> bool:
        synced.extend([name] * (action == "sync"))
        return False

    storage.refuses = refuses
    log.close()
    assert synced == []


def test_epochs_that_a_start_has_made_again_are_on_the_device_although_it_was_killed() -> None:
    """The next start believes what it finds, and stops in order: then the device must not have older ones."""
    storage = _written()
    log = open_log(storage, recovery_point=7)
    log.delete_records_before(2)
    storage.sync_names()
    storage = storage.after_power_loss(keep=lambda name, synced, size: size)
    open_log(storage, recovery_point=7, log_start_offset=1)
    storage = storage.after_kill()
    log = open_log(storage, recovery_point=7, log_start_offset=1)
    log.close()
    left = storage.after_power_loss(keep=lambda name, synced, size: synced)
    assert left.read(_EPOCHS) == b"0\n1\n0 1\n"


def test_the_first_record_of_a_next_epoch_writes_no_file_and_the_flush_does() -> None:
    """Behind a kill that is the next record of each partition: thousands of files would be written in a row."""
    storage = MemoryStorage()
    log = open_log(storage)
    log.append(idempotent(0), now_ms=NOW_MS, leader_epoch=0)
    storage = storage.after_kill()
    log = open_log(storage)
    written: list[str] = []

    def note(action: str, name: str) -> bool:
        written.extend([name] if action == "write" else ())
        return False

    storage.refuses = note
    log.append(idempotent(1), now_ms=NOW_MS, leader_epoch=1)
    assert written == []
    assert log.epochs.entries == ((0, 0), (1, 1))
    killed = open_log(storage.after_kill())
    assert killed.epochs.entries == ((0, 0), (1, 1))
    killed.close()
    assert storage.read(_EPOCHS) == b"0\n1\n0 0\n"
    log.flush()
    assert _EPOCHS in written
    after = storage.after_power_loss(lambda _, synced, size: synced)
    assert after.read(_EPOCHS) == b"0\n2\n0 0\n1 1\n"
