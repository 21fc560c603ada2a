"""A batch whose checksum is right and whose records do not parse stays whole, and nothing goes because of its keys."""

from dataclasses import replace

import pytest

from ottla.log.cleaner.cleaning import Memory
from ottla.log.partition import PartitionLog
from ottla.wire import compression
from ottla.wire.batch import BatchHeader, Compression, join_batch
from tests.log.batches import NOW_MS, varint
from tests.log.cleaner.passes import COMPACT, MEMORY, batches, begin, clean, finish, put
from tests.log.logs import append, open_log

_DELETE = replace(COMPACT, cleanup_policy=frozenset({"delete"}))


def _record(delta: int, key: bytes, value: bytes) -> bytes:
    record = b"\0\0" + varint(delta) + varint(len(key)) + key + varint(len(value)) + value + b"\0"
    return varint(len(record)) + record


def _batch(body: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    return join_batch(BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count), body)


_TWO = _record(0, b"a", b"1") + _record(1, b"b", b"2")
_BAD = {
    "garbage": _batch(b"\xff" * 30, 1),
    "more counted than there are": _batch(_TWO, 3),
    "bytes behind the last one": _batch(_TWO + b"\0", 2),
    "good at first": _batch(_TWO + b"\xff" * 9, 3),
    "no records": _batch(b"", 1),
    "a delta behind the last one": _batch(_record(0, b"a", b"1") + _record(9, b"b", b"2"), 2),
    "not what it is compressed with": _batch(_TWO, 2, Compression.ZSTD),
}


def _log(batch: bytes) -> PartitionLog:
    """A log that took anything, and is compacted now."""
    log = open_log(config=_DELETE)
    put(log, b"a", b"0")
    assert append(log, batch).base_offset == 1
    for number in range(4):
        put(log, b"b", b"%d" % number)
    log.roll(NOW_MS)
    put(log, b"z", b"1")
    log.config = COMPACT
    return log


@pytest.mark.parametrize("batch", _BAD.values(), ids=list(_BAD))
def test_it_stays_and_so_do_older_records_of_keys_that_it_may_have(batch: bytes) -> None:
    log = _log(batch)
    before = {header.base_offset: content for content, header in batches(log)}
    last = log.end_offset - 2
    cleaning = begin(log)
    assert cleaning is not None
    finish(log, cleaning)
    after = {header.base_offset: content for content, header in batches(log)}
    assert after == {offset: before[offset] for offset in (0, 1, last, last + 1)}
    assert (cleaning.unreadable, cleaning.first_unreadable) == (1, 1)
    assert log.compaction.cleaned_offset == last + 1
    assert log.compaction.fault is None


def test_of_several_the_first_is_named_and_all_are_counted() -> None:
    log = open_log(config=_DELETE)
    for batch in _BAD.values():
        put(log, b"k", b"v")
        append(log, batch)
    log.roll(NOW_MS)
    put(log, b"z", b"1")
    log.config = COMPACT
    cleaning = begin(log)
    assert cleaning is not None
    finish(log, cleaning)
    assert (cleaning.unreadable, cleaning.first_unreadable) == (len(_BAD), 1)


def test_one_that_holds_more_than_may_be_opened_stays() -> None:
    body = b"".join(_record(delta, b"b", b"v" * 900) for delta in range(9))
    batch = _batch(bytes(compression.compress(Compression.ZSTD, body)), 9, Compression.ZSTD)
    kept = []
    for most_bytes in (len(body) - 1, len(body)):
        log = _log(batch)
        assert clean(log, memory=Memory(*MEMORY[:3], most_bytes))
        kept.append([header.record_count for _, header in batches(log)])
    assert kept == [[1, 9, 1, 1], [1, 1, 1]]
