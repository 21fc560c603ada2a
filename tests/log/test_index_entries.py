"""An index entry that a disk has changed is not believed: whoever reads looks at the batch that it leads to."""

from collections.abc import Iterator

import pytest

from ottla.log.memory import MemoryStorage
from ottla.log.results import Isolation
from ottla.wire.errors import ErrorCode
from tests.log.batches import batch, idempotent
from tests.log.logs import (
    SMALL,
    append,
    append_in_transaction,
    committed_offsets,
    end,
    every_batch,
    open_log,
)

_BATCHES = 30


def _changed(storage: MemoryStorage) -> Iterator[MemoryStorage]:
    """The directory after kill -9, each time with another byte of an offset index changed."""
    for name in [each for each in storage.names() if each.endswith(".index")]:
        for at in range(len(storage.read(name) or b"")):
            for bits in (1, 2, 64, 128):
                left = storage.after_kill()
                left.files[name].content[at] ^= bits
                yield left


@pytest.mark.parametrize("clean", [True, False])
def test_every_read_begins_with_its_batch(clean: bool) -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(_BATCHES):
        append(log, batch(value=b"v" * number))
    log.close()
    original = every_batch(log)
    for left in _changed(storage):
        found = open_log(left, SMALL, clean=clean, recovery_point=log.recovery_point)
        for offset in range(_BATCHES):
            read = found.read(offset, 1)
            assert read.error is ErrorCode.NONE
            assert read.slices[0].read() == original[offset]
        assert found.findings.damaged == ()


def test_no_reader_of_committed_records_is_shown_an_aborted_one() -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    for number in range(24):
        append_in_transaction(log, number)
        if number % 4 == 3:
            end(log, commit=number % 8 == 3)
    log.close()
    expected = committed_offsets(log)
    for left in _changed(storage):
        found = open_log(left, SMALL, clean=True, recovery_point=log.recovery_point)
        assert committed_offsets(found) == expected
        for offset in range(log.end_offset):
            before = log.read(offset, 300, isolation=Isolation.READ_COMMITTED)
            after = found.read(offset, 300, isolation=Isolation.READ_COMMITTED)
            aborted = {(each.producer_id, each.first_offset) for each in after.aborted or ()}
            assert aborted >= {(each.producer_id, each.first_offset) for each in before.aborted or ()}


@pytest.mark.parametrize("clean", [True, False])
def test_the_history_of_producers_is_found(clean: bool) -> None:
    storage = MemoryStorage()
    log = open_log(storage, SMALL)
    append(log, batch())
    for sequence in range(3):  # far back: the way to them leads over most entries
        append(log, idempotent(sequence, producer_id=8))
    for sequence in range(_BATCHES):
        append(log, idempotent(sequence))
    log.close()
    for left in _changed(storage):
        found = open_log(left, SMALL, clean=clean, recovery_point=log.recovery_point)
        assert append(found, idempotent(1, producer_id=8)).duplicate
        assert append(found, idempotent(_BATCHES - 5)).duplicate
        assert append(found, idempotent(_BATCHES)).base_offset == _BATCHES + 4
