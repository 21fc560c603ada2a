"""What a reader of a log gets, record by record; and what is wrong with a log that can be seen without its history."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.partition import PartitionLog
from ottla.wire.batch import BatchHeader, check_integrity, iter_headers
from ottla.wire.errors import ErrorCode
from ottla.wire.records import decode_batch
from tests.log.batches import NOW_MS
from tests.log.logs import committed_offsets, content


class Seen(NamedTuple):
    """A record of data, or a marker (without key and value)."""

    key: bytes | None
    #: A tombstone has the name that its time gives it (`tombstone`).
    value: bytes | None


def tombstone(timestamp_ms: int) -> bytes:
    """What stands for the value of a tombstone of this time: no two batches of them have the same."""
    return b"-%d" % (timestamp_ms - NOW_MS)


def is_tombstone(value: bytes) -> bool:
    """Whether a value stands for none."""
    return value.startswith(b"-")


def batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch, whole and in order."""
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 300)
        assert read.error is ErrorCode.NONE, read
        data = content(read)
        if not data:
            return
        for at, header in iter_headers(data):
            assert header.last_offset >= offset, f"offset {header.base_offset} comes after {offset}"
            check_integrity(data, at, header)
            offset = header.last_offset + 1
            yield header, data[at : at + header.size_bytes]


def records(log: PartitionLog) -> dict[int, Seen]:
    """By offset."""
    seen = {}
    for header, data in batches(log):
        if header.is_control:
            seen[header.base_offset] = Seen(None, None)
        else:
            for each in decode_batch(data):
                value = tombstone(each.timestamp_ms) if each.value is None else each.value
                seen[each.offset] = Seen(each.key, value)
    return {offset: each for offset, each in seen.items() if offset >= log.log_start_offset}


def committed(log: PartitionLog) -> set[bytes | None]:
    """The values that a reader of committed records gets."""
    seen = records(log)
    return {seen[offset].value for offset in committed_offsets(log) if offset in seen}


def check_offsets(log: PartitionLog, *, may_have_gaps: bool) -> None:
    """One batch follows another."""
    end_offset = None
    for header, _ in batches(log):
        expected = log.log_start_offset if end_offset is None else end_offset
        is_next = header.base_offset == expected or (end_offset is None and header.base_offset < expected)
        assert is_next or may_have_gaps, f"{header.base_offset} comes after {expected}"
        end_offset = header.last_offset + 1
    if end_offset is not None and not may_have_gaps:
        assert end_offset == log.high_watermark


def newest_epoch(log: PartitionLog) -> tuple[int, int] | None:
    """Where a reader stands at the end, and in which leader epoch; None where there is nothing to read.

    Each epoch ends where the next one begins: else a consumer would take its log for one that was cut (KIP-320).
    """
    newest: tuple[int, int] | None = None
    for header, _ in batches(log):
        epoch = header.partition_leader_epoch
        if newest is not None and epoch != newest[1]:
            assert epoch > newest[1], "leader epochs go back"
            assert newest[0] <= log.end_offset_for_epoch(newest[1]).end_offset <= header.base_offset
        newest = header.last_offset + 1, epoch
    return newest
