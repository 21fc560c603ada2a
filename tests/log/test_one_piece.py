"""What a death at any moment leaves of a log is one piece: its beginning, or what is behind all that was deleted."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.witnesses import Outside
from ottla.wire.batch import iter_headers, parse_header
from tests.log.batches import NOW_MS, idempotent
from tests.log.logs import SMALL, TP, append, append_in_transaction, end, every_batch, open_log


@pytest.mark.parametrize("step", range(8))
def test_what_a_failed_roll_has_left_is_never_the_first_segment(step: int) -> None:
    """broker-power 520000177: the segment before an empty file went on, and was deleted by retention; the next start
    began at the empty file, and cut everything behind it."""
    storage, number, calls = MemoryStorage(), 0, 0
    log = open_log(storage, SMALL)
    while log._segments.active.size_bytes < 1_700:
        append(log, idempotent(number, size=50))
        number += 1

    def refuses(action: str, name: str) -> bool:
        nonlocal calls
        calls += action in ("open", "append", "truncate", "write")
        return calls > step or action == "delete"

    storage.refuses = refuses
    with suppress(StorageError):
        append(log, idempotent(number, size=400))
    storage.refuses = None
    for number in range(log.end_offset, log.end_offset + 12):
        append(log, idempotent(number, size=50 if number < 20 else 400))
    second = log._segments[1].base_offset
    log.delete_records_before(second)
    assert log.retire(NOW_MS)
    log.delete_retired()
    live = every_batch(log)
    found = open_log(storage.after_kill(), SMALL)
    assert (found.log_start_offset, every_batch(found)) == (second, live)


def test_a_deletion_that_ends_anywhere_leaves_the_log_in_one_piece() -> None:
    """Else the next start would cut the log at the first gap."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(140):
        append(log, idempotent(number, size=1 + number % 50))
    log.synced.plan().sync()
    log.delete_records_before(log._segments[-2].base_offset)
    live = every_batch(log)
    assert log.retire(NOW_MS)
    refused = log._segments._retired[1].log_name
    storage.refuses = lambda action, name: action == "delete" and name == refused
    with pytest.raises(StorageError):
        log.delete_retired()
    assert every_batch(open_log(storage.after_kill(), SMALL))[-len(live) :] == live
    left: list[MemoryStorage] = []
    retired = list(log._segments._retired)

    def dies(action: str, name: str) -> bool:
        for number in range(len(retired)):  # which of the names does the device have that it need not have?
            names = [segment.log_name for segment in retired[number::2]]
            left.append(storage.after_kill().after_power_loss(lambda name, synced, size: size, names.__contains__))
        return False

    storage.refuses = dies
    log.delete_retired()
    storage.refuses = None
    assert len(left) > 40
    for each in left:
        assert every_batch(open_log(each, SMALL))[-len(live) :] == live


@settings(max_examples=150)
@given(data=st.data(), flush_at=st.integers(0, 40), deleted=st.integers(1, 45))
def test_deleted_records_that_a_loss_of_power_takes_are_no_hole(
    data: st.DataObject, flush_at: int, deleted: int
) -> None:
    """broker-power 520000471: the recovery point was where a deletion had put it, so records behind it that were never
    flushed counted as flushed and gone."""
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    flushed = 0
    for number in range(40):
        append_in_transaction(log, number)
        if number % 7 == 3:
            end(log, commit=number % 2 == 0)
        if number == flush_at:
            log.flush()
            flushed = log.recovery_point
    start = log.delete_records_before(min(deleted, log.end_offset)).low_watermark
    before = every_batch(log)
    left = storage.after_power_loss(
        lambda name, synced, size: data.draw(st.integers(synced, size), label=name) if size > synced else size,
        lambda name: data.draw(st.booleans(), label=f"{name} itself"),
    )
    found = open_log(left, SMALL, recovery_point=log.recovery_point, log_start_offset=start)
    after = every_batch(found)
    assert (found.log_start_offset, found.findings.damaged) == (start, ())
    assert after == before[: len(after)]
    assert found.end_offset >= max(flushed, start)
    assert found.end_offset == max([start, *(parse_header(batch).last_offset + 1 for batch in after)])
    for name in left.names():
        if name.endswith(".log"):
            list(iter_headers(left.files[name].content, strict=True))  # nothing but whole batches
    again = open_log(left.after_kill(), SMALL, recovery_point=found.recovery_point, log_start_offset=start)
    assert every_batch(again) == after


@given(cut=st.integers(0, 3), kept=st.sets(st.integers(0, 9)), is_made=st.booleans())
def test_the_first_file_that_a_start_makes_does_not_go_while_a_later_one_stays(
    cut: int, kept: set[int], is_made: bool
) -> None:
    """An empty log behind what was deleted, or that of a partition whose folder was gone."""
    storage, start = MemoryStorage(), 0
    if not is_made:
        log, start = open_log(storage, SMALL), 7
        for number in range(cut):
            append(log, idempotent(number))
    log = PartitionLog.open(TP, storage, SMALL, NOW_MS, log_start_offset=start, outside=Outside(is_known=True))
    for number in range(40):
        append_in_transaction(log, number)
    before, asked = every_batch(log), iter(range(10_000))
    found = open_log(
        storage.after_power_loss(lambda name, synced, size: size, lambda name: next(asked) % 10 in kept),
        SMALL,
        log_start_offset=start,
    )
    after = every_batch(found)
    assert (found.log_start_offset, after) == (start, before[: len(after)])
