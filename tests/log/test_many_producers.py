"""Snapshots of very many producers: what they say is noted in one turn, and is packed and written elsewhere."""

import pytest

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.snapshot import FEW_PRODUCERS, encode_snapshot
from tests.counted_calls import calls
from tests.log.batches import NOW_MS, idempotent
from tests.log.logs import append, append_in_transaction, end, open_log, retain

_MANY = FEW_PRODUCERS + 1
#: Segments end when the tests say so, and retention takes each that is not the last one.
_CONFIG = LogConfig(retention_bytes=1)


def _log_of(producers: int, storage: MemoryStorage | None = None) -> PartitionLog:
    log = open_log(storage, _CONFIG)
    for number in range(producers):
        append(log, idempotent(0, producer_id=number))
    return log


def _snapshots(storage: MemoryStorage) -> dict[int, bytes]:
    return {int(name[:20]): bytes(file.content) for name, file in storage.files.items() if name.endswith(".snapshot")}


def test_a_roll_packs_no_producer_where_there_are_many() -> None:
    def rolling(producers: int) -> int:
        log = _log_of(producers)
        return calls(lambda: log.roll(NOW_MS))

    assert rolling(4 * _MANY) == rolling(_MANY)


def test_the_plan_of_a_flush_packs_none_and_lists_no_names() -> None:
    def planning(producers: int) -> int:
        storage = MemoryStorage()
        log = _log_of(producers, storage)
        listed: list[str] = []

        def refuses(action: str, name: str) -> bool:
            listed.extend([name] * (action == "names"))
            return False

        storage.refuses = refuses
        made = calls(log.flush_plan)
        assert not listed
        return made

    assert planning(4 * _MANY) == planning(_MANY)
    planning(1)


def test_many_producers_are_packed_some_in_a_step() -> None:
    log = _log_of(4 * _MANY)
    plan = log.flush_plan()
    assert plan.is_long
    assert len(list(plan.steps())) == 4 * _MANY // FEW_PRODUCERS + 1
    plan.sync()
    log.mark_flushed(plan)
    assert not log.needs_flush


def test_a_snapshot_says_what_was_when_its_segment_began() -> None:
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    append_in_transaction(log, 0, producer_id=_MANY)
    expected = {}
    for number in range(3):
        log.roll(NOW_MS)
        expected[log.end_offset] = encode_snapshot(log.producers.producers.values())
        for producer_id in range(number, _MANY, 3):
            append(log, idempotent(1, producer_id=producer_id))
        append(log, idempotent(0, producer_id=1, epoch=number + 1))
        end(log, commit=True, producer_id=_MANY, epoch=number)
        append_in_transaction(log, 0, producer_id=_MANY, epoch=number + 1)
    assert not _snapshots(storage).keys() & expected.keys()
    expected[log.end_offset] = encode_snapshot(log.producers.producers.values())
    plan = log.flush_plan()
    append(log, idempotent(0, producer_id=2, epoch=9))
    plan.sync()
    assert _snapshots(storage) == expected


def test_of_very_many_rolls_the_first_ones_and_the_last_one_have_theirs_and_retention_goes_on() -> None:
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    bases = []
    for _ in range(9):
        log.roll(NOW_MS)
        bases.append(log.end_offset)
        append(log, idempotent(log.end_offset - _MANY + 1, producer_id=0))
    assert retain(log, NOW_MS) == 0, "a segment without a snapshot cannot be the first one"
    log.flush()
    assert sorted(_snapshots(storage)) == [*bases[:3], bases[-1], log.end_offset]
    assert retain(log, NOW_MS) == 9
    assert log.log_start_offset == bases[-1]


def test_a_log_of_which_retention_takes_all_is_flushed_first() -> None:
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.config = LogConfig(retention_bytes=0)
    assert retain(log, NOW_MS) == 0, "the snapshot of the segment that it has begun is owed"
    log.flush()
    assert retain(log, NOW_MS) == 1
    assert log.log_start_offset == log.end_offset == _MANY
    again = open_log(storage.after_kill(), log.config, recovery_point=_MANY, log_start_offset=_MANY)
    assert all(append(again, idempotent(0, producer_id=number)).duplicate for number in range(_MANY))


def _owing() -> tuple[MemoryStorage, PartitionLog, int]:
    """A log that owes the snapshot of a roll, and has gone on; and where it rolled."""
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.roll(NOW_MS)
    base = log.end_offset
    append(log, idempotent(1, producer_id=0))
    return storage, log, base


def test_what_a_full_disk_refuses_the_next_flush_writes() -> None:
    storage, log, base = _owing()
    storage.refuses = lambda action, name: action == "write"
    with pytest.raises(StorageError, match="refuses to write"):
        log.flush()
    assert log.flushed_offset < base
    storage.refuses = None
    log.flush()
    assert base in _snapshots(storage)
    again = open_log(storage.after_kill(), _CONFIG, recovery_point=log.recovery_point)
    assert append(again, idempotent(1, producer_id=0)).duplicate


def test_what_a_flush_owes_that_was_given_up_the_next_one_writes() -> None:
    """The cleaner is stopped while it packs. Retention had waited for the next roll, after a clean stop, too."""
    storage, log, base = _owing()
    next(log.flush_plan().steps())
    assert log.needs_flush
    log.close()
    assert sorted(_snapshots(storage)) == [base, base + 1]
    again = open_log(storage, _CONFIG, clean=True, recovery_point=base + 1)
    assert retain(again, NOW_MS) == 1


def test_a_segment_that_begins_where_a_flush_was_given_up_has_its_snapshot() -> None:
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.flush_plan()
    log.roll(NOW_MS)
    base = log.end_offset
    append(log, idempotent(1, producer_id=0))
    log.flush()
    assert sorted(_snapshots(storage)) == [base, base + 1]
    assert retain(log, NOW_MS) == 1


@pytest.mark.parametrize("is_refused", [False, True])
def test_of_flushes_that_came_to_nothing_the_last_one_is_owed(is_refused: bool) -> None:
    """Each holds a reference to every producer."""
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.roll(NOW_MS)
    base = log.end_offset
    storage.refuses = lambda action, name: action == "write"
    for number in range(9):
        append(log, idempotent(number + 1, producer_id=0))
        plan = log.flush_plan()
        if is_refused:
            with pytest.raises(StorageError, match="refuses to write"):
                plan.write()
    storage.refuses = None
    log.flush()
    assert sorted(_snapshots(storage)) == [base, log.end_offset]


def test_two_flushes_at_once_write_each_snapshot_once() -> None:
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.roll(NOW_MS)
    plans = [log.flush_plan(), log.flush_plan()]
    written: list[str] = []

    def refuses(action: str, name: str) -> bool:
        written.extend([name] * (action == "write"))
        return False

    storage.refuses = refuses
    for plan in plans:
        plan.sync()
        log.mark_flushed(plan)
    assert [name for name in written if name.endswith(".snapshot")] == [f"{_MANY:020}.snapshot"]
    assert not log.needs_flush


def test_a_segment_that_begins_while_a_write_is_refused_has_its_snapshot_with_the_next_flush() -> None:
    """The write is in another thread."""
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.roll(NOW_MS)
    bases = [log.end_offset]
    append(log, idempotent(1, producer_id=0))
    plan = log.flush_plan()
    append(log, idempotent(2, producer_id=0))

    def refuses(action: str, name: str) -> bool:
        if action == "write" and log.end_offset not in bases:
            bases.append(log.end_offset)
            log.roll(NOW_MS)
        return action == "write"

    storage.refuses = refuses
    with pytest.raises(StorageError, match="refuses to write"):
        plan.write()
    storage.refuses = None
    append(log, idempotent(3, producer_id=0))
    log.flush()
    assert _snapshots(storage).keys() >= {*bases, log.end_offset}


def test_a_stop_writes_what_is_owed() -> None:
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.roll(NOW_MS)
    log.close()
    assert sorted(_snapshots(storage)) == [_MANY]


def test_a_kill_before_the_flush_forgets_no_producer() -> None:
    storage = MemoryStorage()
    log = _log_of(_MANY, storage)
    log.roll(NOW_MS)
    append(log, idempotent(1, producer_id=0))
    again = open_log(storage.after_kill(), _CONFIG)
    assert all(append(again, idempotent(0, producer_id=number)).duplicate for number in range(_MANY))
    assert retain(again, NOW_MS) == 1, "the start has made the snapshot"
