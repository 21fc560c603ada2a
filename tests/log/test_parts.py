"""A large batch is written in parts: nobody sees a part of it, and what is given up leaves nothing."""

from collections.abc import Callable, Generator
from itertools import pairwise

import pytest

from ottla.base.errors import StorageError
from ottla.base.limits import WRITTEN_AT_ONCE_BYTES
from ottla.base.require import InvariantError
from ottla.base.steps import result_of
from ottla.log.config import LogConfig, TimestampType
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import NO_GUARD, Appended
from ottla.wire.batch import batch_size, check_integrity, parse_header
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import append, append_in_transaction, content, end, every_batch, open_log, retain

_PARTS = 4
#: With the head, which has a write of its own, five steps.
_SIZE = (_PARTS - 1) * WRITTEN_AT_ONCE_BYTES + 1_000
_TAKES_IT = LogConfig(max_message_bytes=2 * _SIZE)
_LARGE = batch(2, value=bytes(_SIZE // 2))


def _in_parts(
    log: PartitionLog, records: bytes = _LARGE, guard: int = NO_GUARD, now_ms: int = NOW_MS
) -> Generator[None, None, Appended]:
    return log.append_in_parts(
        records, now_ms=now_ms, leader_epoch=0, verification_guard=guard, looked=None, max_named=1
    )


def _begun(log: PartitionLog, steps: int = 2, records: bytes = _LARGE) -> Generator[None, None, Appended]:
    """A large batch of which so many steps were taken."""
    work = _in_parts(log, records)
    for _ in range(steps):
        next(work)
    return work


@pytest.mark.parametrize("stamps", TimestampType)
def test_it_is_in_the_log_as_if_it_were_written_at_once(stamps: TimestampType) -> None:
    storages = MemoryStorage(), MemoryStorage()
    config = LogConfig(max_message_bytes=2 * _SIZE, message_timestamp_type=stamps)
    logs = [open_log(storage, config) for storage in storages]
    answers = []
    for log, in_parts in zip(logs, (False, True), strict=True):
        append(log, batch(3))
        answers.append(result_of(_in_parts(log)) if in_parts else append(log, _LARGE))
        append(log, batch())
        log.flush()
    assert answers[0] == answers[1]
    assert answers[0].log_append_time_ms == (NOW_MS if stamps is TimestampType.LOG_APPEND_TIME else -1)
    assert {name: file.content for name, file in storages[0].files.items()} == {
        name: file.content for name, file in storages[1].files.items()
    }
    written = every_batch(logs[1])[1]
    check_integrity(written, 0, parse_header(written))
    assert parse_header(written).base_offset == 3


def test_each_step_writes_a_part() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    work, sizes = _in_parts(log), [storage.size_bytes]
    with pytest.raises(StopIteration):
        while True:
            next(work)
            sizes.append(storage.size_bytes)
    written = [after - before for before, after in pairwise(sizes)]
    # With the first one come the epochs of the leader.
    assert all(0 < each <= WRITTEN_AT_ONCE_BYTES for each in written[1:])
    assert len(written) == _PARTS + 1


def test_nobody_sees_a_part_of_it() -> None:
    log = open_log(None, _TAKES_IT)
    append(log, batch(3))
    before = log.read(0, 10**8)
    work = _in_parts(log)
    with pytest.raises(StopIteration):
        while True:
            next(work)
            assert (log.end_offset, log.high_watermark, log.size_bytes) == (3, 3, len(content(before)))
            assert log.read(0, 10**8) == before
            assert log.read(3, 10**8).slices == ()
    assert [batch_size(each) for each in every_batch(log)] == [len(batch(3)), len(_LARGE)]


@pytest.mark.parametrize(
    "other",
    [
        lambda log: append(log, batch()),
        lambda log: next(_in_parts(log)),
        lambda log: end(log, commit=True),
        lambda log: log.roll(NOW_MS),
    ],
)
def test_nothing_else_may_be_appended_meanwhile(other: Callable[[PartitionLog], object]) -> None:
    log = open_log(None, _TAKES_IT)
    append_in_transaction(log, 0)
    work = _begun(log)
    with pytest.raises(InvariantError, match="a large batch is being written"):
        other(log)
    assert result_of(work).base_offset == 1
    assert append(log, batch()).base_offset == 3


def test_a_flush_and_retention_leave_it_alone() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(max_message_bytes=2 * _SIZE, retention_ms=1))
    append(log, batch())
    work = _begun(log)
    log.flush()
    assert log.flushed_offset == 1
    assert retain(log, NOW_MS + 10) == 0
    assert result_of(work)[:2] == (1, 2)
    assert [parse_header(each).base_offset for each in every_batch(log)] == [0, 1]
    assert retain(log, NOW_MS + 10) == 1
    assert log.log_start_offset == 3


@pytest.mark.parametrize("steps", range(1, _PARTS + 2))
def test_killed_in_its_middle_nothing_of_it_is_left(steps: int) -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    append(log, batch(3))
    _work = _begun(log, steps)
    again = open_log(storage.after_kill(), _TAKES_IT)
    is_whole = steps == _PARTS + 1  # who sent it has no answer; all of it is there
    assert again.end_offset == (5 if is_whole else 3)
    assert append(again, batch()).base_offset == again.end_offset - 1
    assert len(every_batch(again)) == 2 + is_whole


@pytest.mark.parametrize("steps", range(1, _PARTS + 2))
def test_given_up_nothing_of_it_is_left(steps: int) -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    append(log, batch(3))
    active = log._segments.active
    _begun(log, steps).close()
    assert active.log.size_bytes == active.size_bytes, "what it took of the disk is free at once"
    assert append(log, batch()).base_offset == 3
    assert [parse_header(each).base_offset for each in every_batch(log)] == [0, 3]
    log.close()
    assert open_log(storage, _TAKES_IT, clean=True).end_offset == 4


@pytest.mark.parametrize("does_truncate", [True, False])
def test_what_the_disk_refuses_in_its_middle_leaves_nothing(does_truncate: bool) -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    append(log, idempotent(0))
    large = idempotent(1, size=_SIZE)
    work = _begun(log, 2, large)
    storage.refuses = lambda action, _: action == "append" or (action == "truncate" and not does_truncate)
    with pytest.raises(StorageError):
        result_of(work)
    if not does_truncate:  # behind what is left nothing may be written
        storage.refuses = lambda action, _: action == "truncate"
        with pytest.raises(StorageError):
            append(log, idempotent(1))
    storage.refuses = None
    assert append(log, idempotent(2)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert result_of(_in_parts(log, large)).base_offset == 1
    assert [parse_header(each).base_offset for each in every_batch(log)] == [0, 1]
    assert open_log(storage.after_kill(), _TAKES_IT).end_offset == 2


def test_given_up_where_the_disk_does_not_cut_it_off_it_is_cut_off_later() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    append(log, batch(3))
    work = _begun(log)
    storage.refuses = lambda action, _: action == "truncate"
    work.close()
    active = log._segments.active
    assert active.log.size_bytes > active.size_bytes
    storage.refuses = None
    assert append(log, batch()).base_offset == 3
    assert [parse_header(each).base_offset for each in every_batch(log)] == [0, 3]


def test_the_first_of_a_producer_that_the_disk_refuses_stays_its_next() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    work = _begun(log, 2, idempotent(0, size=_SIZE))
    storage.refuses = lambda action, _: action == "append"
    with pytest.raises(StorageError):
        result_of(work)
    storage.refuses = None
    assert append(log, idempotent(1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sent_again_it_is_a_duplicate_and_a_refused_one_writes_nothing() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    large = idempotent(0, size=_SIZE)
    assert result_of(_in_parts(log, large)).base_offset == 0
    size_bytes = storage.size_bytes
    assert result_of(_in_parts(log, large)).duplicate
    damaged = large[:-1] + bytes([large[-1] ^ 1])
    assert result_of(_in_parts(log, damaged)).error is ErrorCode.CORRUPT_MESSAGE
    assert storage.size_bytes == size_bytes


def test_one_in_a_transaction_needs_its_guard_and_opens_it() -> None:
    log = open_log(None, _TAKES_IT)
    large = idempotent(0, size=_SIZE, transactional=True)
    assert result_of(_in_parts(log, large)).error is ErrorCode.INVALID_TXN_STATE
    begun = log.producers.begin_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    work = _in_parts(log, large, begun.guard)
    next(work)
    assert not log.producers.has_ongoing_transaction(7)
    assert result_of(work).base_offset == 0
    assert log.producers.has_ongoing_transaction(7)
    assert log.last_stable_offset == 0
    assert end(log, commit=True).base_offset == 1
    assert log.last_stable_offset == 2


def test_it_has_a_new_segment_where_the_active_one_is_full() -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(max_message_bytes=2 * _SIZE, segment_bytes=len(_LARGE) + 100))
    append(log, batch(3))
    append(log, batch(3))
    assert result_of(_in_parts(log))[:2] == (6, 7)
    assert log._segments.bases == (0, 6)
    assert open_log(storage.after_kill(), log.config).end_offset == 8


def test_a_process_that_dies_in_a_part_leaves_nothing() -> None:
    storage = MemoryStorage()
    log = open_log(storage, _TAKES_IT)
    append(log, batch(3))
    work = _begun(log)
    storage.tear_next = 500
    with pytest.raises(CrashedError):
        result_of(work)
    storage.tear_next = None
    assert open_log(storage.after_kill(), _TAKES_IT).end_offset == 3


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_duplicate_is_answered_with_the_time_at_which_the_log_has_stamped_it(in_parts: bool) -> None:
    log = open_log(None, LogConfig(max_message_bytes=2 * _SIZE, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    large, stamp = idempotent(0, size=_SIZE), NOW_MS + 5
    answers = [
        result_of(_in_parts(log, large, now_ms=stamp)) if in_parts else append(log, large, now_ms=stamp)
        for _ in range(2)
    ]
    assert [each.log_append_time_ms for each in answers] == [stamp, stamp]
    assert [each.duplicate for each in answers] == [False, True]
