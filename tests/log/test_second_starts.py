"""What a start has done about a damaged file: the next one knows of the loss, and says nothing else again."""

import pytest

from ottla.log.damage import OffsetRange
from ottla.log.memory import MemoryStorage
from ottla.log.names import LEADER_EPOCH_CHECKPOINT
from ottla.log.results import EpochEndOffset
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import SMALL, append, append_in_transaction, every_batch, open_log

_BATCHES = 60
_SIZE = len(idempotent(0, size=20))


def _stopped() -> MemoryStorage:
    """A log of several segments, after a stop in order."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(_BATCHES):
        assert append(log, idempotent(number, size=20)).base_offset == number
    log.close()
    return storage


def _newest(storage: MemoryStorage) -> str:
    return max(name for name in storage.names() if name.endswith(".log"))


def test_a_stop_in_order_leaves_a_snapshot_also_where_recovery_has_removed_it() -> None:
    """Apache Kafka would start without producers, and show what an open transaction has written."""
    storage = MemoryStorage()
    log = open_log(storage)
    append_in_transaction(log, 0, 3)
    log.close()
    (name,) = (each for each in storage.names() if each.endswith(".snapshot"))
    left = storage.read(name)
    storage.delete(name)
    open_log(storage, clean=True, recovery_point=3).close()
    assert storage.read(name) == left


@pytest.mark.parametrize("at", [24, 70])
def test_a_hole_of_one_batch_is_found_at_every_start_and_its_indexes_are_made_again_once(at: int) -> None:
    """The header looks whole (70), or not (24). An earlier start has begun a new segment behind it."""
    storage = _stopped()
    newest = _newest(storage)
    file = storage.files[newest]
    file.content[file.size_bytes - _SIZE + at] ^= 1
    storage.delete(newest.replace(".log", ".timeindex"))
    holes = []
    for number in range(4):
        log = open_log(storage, SMALL, clean=True, recovery_point=_BATCHES, log_start_offset=0)
        holes.append(log.findings.damaged)
        assert bool(log.findings.rebuilt) == (number == 0)
        log.close()
    assert holes == [(OffsetRange(_BATCHES - 1, _BATCHES),)] * 4


def test_a_file_that_is_put_back_mends_a_hole_of_one_batch() -> None:
    storage = _stopped()
    newest = _newest(storage)
    whole = storage.read(newest) or b""
    storage.files[newest].content[-1] ^= 1
    assert open_log(storage, SMALL, clean=True, recovery_point=_BATCHES).findings.damaged
    storage.write(newest, whole)
    log = open_log(storage, SMALL, clean=True, recovery_point=_BATCHES)
    assert log.findings.damaged == ()
    assert len(every_batch(log)) == _BATCHES


def test_leader_epochs_that_no_batch_says_are_not_made_again_at_every_start() -> None:
    storage = _stopped()
    for name in storage.names():
        storage.delete(name)
    told = []
    for _ in range(2):
        log = open_log(storage, SMALL, clean=True, recovery_point=_BATCHES, log_start_offset=0)
        told.append(log.findings.mended)
        log.close()
    assert told == [(), ()]


def _of_two_epochs() -> MemoryStorage:
    """Three batches of epoch 0, then three of epoch 3."""
    storage = MemoryStorage()
    log = open_log(storage)
    for epoch in (0, 0, 0, 3, 3, 3):
        log.append(batch(), now_ms=NOW_MS, leader_epoch=epoch)
    log.close()
    assert storage.read(LEADER_EPOCH_CHECKPOINT) == b"0\n2\n0 0\n3 3\n"
    return storage.after_kill()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "entries", ["2\n1 0\n3 3", "2\n0 0\n7 3", "2\n0 0\n3 5", "2\n0 0\n3 4", "2\n0 0\n3 2", "1\n5 0"]
)
def test_a_digit_of_the_leader_epochs_that_has_changed_is_found(entries: str, *, clean: bool) -> None:
    """A consumer that asks where its epoch ends would be told that the log was cut."""
    storage = _of_two_epochs()
    storage.write(LEADER_EPOCH_CHECKPOINT, f"0\n2\n{entries}\n".encode())
    log = open_log(storage, clean=clean, recovery_point=6)
    assert [line.split(" ")[0] for line in log.findings.mended] == [LEADER_EPOCH_CHECKPOINT]
    assert storage.read(LEADER_EPOCH_CHECKPOINT) == b"0\n2\n0 0\n3 3\n"
    assert log.end_offset_for_epoch(0) == EpochEndOffset(0, 3)


def test_one_batch_that_says_another_epoch_refutes_nothing() -> None:
    """No CRC covers what a batch says of it."""
    storage = _of_two_epochs()
    [name] = [each for each in storage.names() if each.endswith(".log")]
    storage.files[name].content[15] = 9  # the epoch of the first batch
    assert open_log(storage, clean=True, recovery_point=6).findings.mended == ()
