"""A producer snapshot that is whole, and of another offset: an older copy, or that of another file."""

from collections.abc import Callable

import pytest

from ottla.base.steps import result_of
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.names import SNAPSHOT, file_name
from ottla.log.partition import PartitionLog
from ottla.log.results import Appended
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import (
    append,
    append_in_transaction,
    as_apache_kafka_writes,
    committed_offsets,
    end,
    open_log,
    retain,
)

_DAMAGED = "damaged, or of another offset; the producers are read from the batches again"
_STEPS = 14


def _steps(log: PartitionLog) -> tuple[Callable[[], Appended], ...]:
    """What is written: transactions of two producers, and others."""
    return (
        lambda: append(log, idempotent(0, producer_id=9)),
        lambda: append_in_transaction(log, 0, 2),
        lambda: append_in_transaction(log, 0, producer_id=8),
        lambda: append(log, batch()),
        lambda: end(log, commit=True),
        lambda: append_in_transaction(log, 2),
        lambda: append(log, batch()),
        lambda: end(log, commit=False, producer_id=8),
        lambda: append(log, idempotent(1, producer_id=9)),
        lambda: end(log, commit=False),
        lambda: append_in_transaction(log, 0, epoch=1),
        lambda: append(log, batch(3)),
        lambda: end(log, commit=True, epoch=1),
        lambda: append_in_transaction(log, 1, producer_id=8),
    )


def _written(count: int) -> tuple[MemoryStorage, list[tuple[int, bytes]]]:
    """A log behind so many steps, and the snapshot of each with its offset."""
    storage = MemoryStorage()
    log = open_log(storage)
    taken = []
    for step in _steps(log)[:count]:
        assert step().error == 0
        log.flush()
        taken.append((log.end_offset, bytes(storage.files[file_name(log.end_offset, SNAPSHOT)].content)))
    log.close()
    return storage, taken


def _producers(log: PartitionLog) -> list[tuple[int, ...]]:
    return sorted(tuple(each) for each in log.producers.active())


@pytest.mark.parametrize(("clean", "is_theirs"), [(True, False), (False, False), (True, True), (False, True)])
def test_no_other_snapshot_is_believed_in_the_place_of_the_newest(clean: bool, is_theirs: bool) -> None:
    """Committed records were hidden, or those of open and aborted transactions shown, and no line said so."""
    _, snapshots = _written(_STEPS)
    for count in range(1, _STEPS + 1):
        storage, taken = _written(count)
        offset, right = taken[-1]
        name = file_name(offset, SNAPSHOT)
        if is_theirs:
            as_apache_kafka_writes(storage)
        sound = open_log(storage.after_kill(), clean=clean, recovery_point=offset)
        assert sound.findings.mended == ()
        for other, content in snapshots:
            left = storage.after_kill()
            left.write(name, content)
            if is_theirs:
                as_apache_kafka_writes(left)
            found = open_log(left, clean=clean, recovery_point=offset)
            assert committed_offsets(found) == committed_offsets(sound), (offset, other)
            assert _producers(found) == _producers(sound), (offset, other)
            told = f"{name}: {_DAMAGED}" in found.findings.mended
            assert told == (content != right), (offset, other)


def test_an_aborted_transaction_is_not_open_in_a_snapshot_far_behind_it() -> None:
    """The last batches are of others, and the `.txnindex` knows."""
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(index_interval_bytes=0))
    append_in_transaction(log, 0)
    log.flush()
    older = bytes(storage.files[file_name(1, SNAPSHOT)].content)
    end(log, commit=False)
    for _ in range(50):
        append(log, batch())
    log.close()
    newest = file_name(52, SNAPSHOT)
    storage.write(newest, older)
    found = open_log(storage, LogConfig(index_interval_bytes=0), clean=True, recovery_point=52)
    assert found.findings.mended == (f"{newest}: {_DAMAGED}",)
    assert found.last_stable_offset == 52


def test_a_producer_that_has_expired_is_not_missed() -> None:
    storage = MemoryStorage()
    config = LogConfig(producer_id_expiration_ms=1)
    log = open_log(storage, config)
    append(log, idempotent(0))
    append_in_transaction(log, 0, producer_id=8)
    end(log, commit=True, producer_id=8)
    assert result_of(log.expire_producers(NOW_MS + 1_000)) == 2
    log.close()
    assert open_log(storage.after_kill(), clean=True, recovery_point=3).findings.mended == ()
    assert open_log(storage, recovery_point=3).findings.mended == ()


@pytest.mark.parametrize("config", [LogConfig(segment_bytes=300, index_interval_bytes=0), LogConfig()])
def test_killed_before_any_call_of_the_disk_every_snapshot_fits(config: LogConfig) -> None:
    """With segments, deletions and retention; the recovery point may be that of an earlier flush."""
    storage, copies, point = MemoryStorage(), list[tuple[int, MemoryStorage]](), 0

    def died(action: str, name: str) -> bool:
        copies.append((point, storage.after_kill()))
        return False

    log = open_log(storage, config)
    for number, step in enumerate(_steps(log)):
        storage.refuses = died
        step()
        if number % 3 == 1:
            log.flush()
        if number % 4 == 3:
            log.delete_records_before(log.end_offset - 3)
            retain(log, NOW_MS)
        storage.refuses = None
        if number % 5 == 4:
            point = log.recovery_point  # the broker has written its checkpoint
    for recovery_point, left in copies[::3]:
        found = open_log(left, config, recovery_point=recovery_point)
        assert not any(SNAPSHOT in each for each in found.findings.mended), recovery_point
