"""What a start has done about a damaged file: the next one knows of the loss, and says nothing else again."""

import pytest

from ottla.log.damage import OffsetRange
from ottla.log.memory import MemoryStorage
from tests.log.batches import idempotent
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
