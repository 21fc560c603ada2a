"""What the owner of a log does before a pass is short, however many transactions and producers there were."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any, TypeVar

from ottla.log.cleaner.swap import Swap
from ottla.log.partition import PartitionLog
from ottla.wire.records import Record
from tests.log.batches import NOW_MS, idempotent
from tests.log.cleaner.passes import COMPACT, MEMORY, batches, put, records
from tests.log.logs import append, append_in_transaction, end, open_log

_T = TypeVar("_T")
_COUNT = 3_000


def _calls(work: Callable[[], _T]) -> tuple[int, _T]:
    """How many functions and generators Python has entered."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(None)
    return count, result


def _log() -> PartitionLog:
    log = open_log(config=replace(COMPACT, segment_bytes=10_000_000))
    for number in range(_COUNT):
        append_in_transaction(log, 0, producer_id=10 + number)
        end(log, commit=False, producer_id=10 + number)
    log.roll(NOW_MS)
    put(log, b"z", b"1")
    return log


def test_the_turn_that_begins_a_pass_goes_through_neither_transactions_nor_producers() -> None:
    log = _log()
    log.compaction.prepare()
    log.flush()
    gathering = log.compaction.gather()
    slices = [_calls(lambda: next(gathering))[0] for _ in range(_COUNT // 200)]
    assert not list(gathering)
    assert len(slices) > 10
    assert max(slices) < 1_000
    calls, cleaning = _calls(lambda: log.compaction.begin(NOW_MS, MEMORY, log.recovery_point))
    assert cleaning is not None
    assert calls < 200
    for step in cleaning.steps():
        if isinstance(step, Swap):
            log.compaction.turn(step)
    log.compaction.end(cleaning)
    assert records(log) == [Record(2 * _COUNT, NOW_MS, b"z", b"1")]
    assert [header.is_control for _, header in batches(log)[:4]] == [False, True] * 2, "producers' last ones, emptied"


def _clean_from(log: PartitionLog, recovery_point: int) -> None:
    cleaning = log.compaction.begin(NOW_MS, MEMORY, recovery_point)
    for step in cleaning.steps() if cleaning is not None else ():
        if isinstance(step, Swap):
            log.compaction.turn(step)
    log.compaction.end(cleaning)


def test_a_producer_that_goes_on_while_others_are_noted_keeps_its_last_batch_of_before() -> None:
    log = open_log(config=replace(COMPACT, segment_bytes=100_000))
    for number in range(1_000):
        append(log, idempotent(0, producer_id=5 + number))
    log.roll(NOW_MS)
    put(log, b"k", b"later")
    log.compaction.prepare()
    log.flush()
    point = log.recovery_point
    gathering = log.compaction.gather()
    next(gathering)
    append(log, idempotent(1, producer_id=5))
    assert list(gathering)
    _clean_from(log, point)
    assert [(header.base_offset, header.record_count) for _, header in batches(log)[:2]] == [(0, 0), (1, 0)]


def test_what_was_active_when_producers_were_noted_is_not_cleaned_if_the_log_is_rolled_then() -> None:
    log = open_log(config=replace(COMPACT, segment_bytes=100_000))
    put(log, b"k", b"older")
    log.roll(NOW_MS)
    append(log, idempotent(0))
    put(log, b"k", b"later")
    log.compaction.prepare()
    log.flush()
    point = log.recovery_point
    assert not list(log.compaction.gather())
    log.roll(NOW_MS)
    put(log, b"z", b"1")
    _clean_from(log, point)
    assert [header.producer_id for _, header in batches(log)] == [-1, 7, -1, -1]
    log.compaction.prepare()
    log.flush()
    _clean_from(log, log.recovery_point)
    assert [(header.producer_id, header.record_count) for _, header in batches(log)] == [(7, 0), (-1, 1), (-1, 1)]
