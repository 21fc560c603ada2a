"""What stays of a batch. The bytes of a batch that has changed are those that Apache Kafka's cleaner writes.

A changed batch keeps its base offset, its last offset, its sequences and its producer. Its base timestamp is that of
its first record, or the delete horizon (KIP-534): the time from which its tombstones, or its marker, may go. The
horizon is set by the pass that finds them first, and stays.
"""

from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Final, NamedTuple

from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.transactions import CleanedTransactions
from ottla.wire import compression
from ottla.wire.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    TimestampType,
    join_batch,
)
from ottla.wire.record_writer import pack_headers
from ottla.wire.records import KeyRow, Record, decode_batch, decode_keys

#: What has no key, value or header of a record takes one byte: -1, as a zigzag varint.
_NULL: Final = b"\x01"
#: No time is later.
_LAST_MS: Final = 2**63 - 1


class LastRecord(NamedTuple):
    """The last thing that a live producer wrote."""

    #: The last offset of its last batch; None when a marker came later and began a new epoch.
    data_offset: int | None
    producer_epoch: int


class BatchFilter:
    """Decides for the batches of a pass, which come in order from the log's first on.

    `last_records` are the producers that the log knows. The pass cleans up to `end_offset`. `now_ms` is when it began.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def kept(self, batch: bytes, header: BatchHeader) -> bytes | None:
        """What stays of the batch, whose checksum is right; None: nothing. CorruptBatchError when it cannot be read."""
        horizon_ms = header.delete_horizon_ms
        is_over = False
        if header.is_control:
            is_over = self._transactions.is_over(batch, header)
            records_go = is_over and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            records_go = self._transactions.is_aborted(header)
        stays_empty = self._is_last_of_producer(header) or header.last_offset + 1 == self._end_offset
        if records_go:
            return _emptied(header) if stays_empty else None
        rows = decode_keys(batch)
        stay = [True] * len(rows) if header.is_control else self._stay(rows, horizon_ms)
        if True not in stay:
            return _emptied(header) if stays_empty else None
        has_tombstone = any(stays and not has_value for stays, (_, _, has_value) in zip(stay, rows, strict=True))
        needs_horizon = horizon_ms is None and (is_over or has_tombstone)
        if False not in stay and not needs_horizon:
            return batch
        records = list(compress(decode_batch(batch, check_crc=False), stay))
        if needs_horizon:
            horizon_ms = min(self._now_ms + self._delete_retention_ms, _LAST_MS)
            if not _can_be_base(horizon_ms, records):  # a tombstone of such a time stays for good
                horizon_ms = None
        return batch if horizon_ms is None and False not in stay else _rewritten(header, records, horizon_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether only this batch says which sequence, or which epoch, its producer was at."""
        last = self._last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.data_offset is not None:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _stay(self, rows: list[KeyRow], horizon_ms: int | None) -> list[bool]:
        newest = self._offsets.are_newest(rows)
        if horizon_ms is None or self._now_ms < horizon_ms:
            return newest
        latest = self._offsets.latest_offset  # tombstones behind it are not looked at yet
        return [
            stays and (has_value or offset > latest) for stays, (offset, _, has_value) in zip(newest, rows, strict=True)
        ]


def _emptied(header: BatchHeader) -> bytes:
    """The batch without records."""
    return join_batch(
        header._replace(
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG),
            base_timestamp_ms=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _rewritten(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> bytes:
    """The batch with these records, and perhaps a delete horizon."""
    base_ms = records[0].timestamp_ms if horizon_ms is None else horizon_ms
    if not _can_be_base(base_ms, records):
        base_ms = header.base_timestamp_ms
    body = b"".join(_encoded(each, each.offset - header.base_offset, each.timestamp_ms - base_ms) for each in records)
    if header.compression is not Compression.NONE:
        body = bytes(compression.compress(header.compression, body))
    max_ms = header.max_timestamp_ms
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_ms = max(each.timestamp_ms for each in records)
    flag = 0 if horizon_ms is None else DELETE_HORIZON_FLAG
    return join_batch(
        header._replace(
            attributes=header.attributes & ~DELETE_HORIZON_FLAG | flag,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_ms,
            record_count=len(records),
        ),
        body,
    )


def _encoded(record: Record, offset_delta: int, timestamp_delta_ms: int) -> bytes:
    rest = b"".join(
        (
            b"\0",
            _varint(timestamp_delta_ms),
            _varint(offset_delta),
            *_field(record.key),
            *_field(record.value),
            pack_headers(record.headers),
        )
    )
    return _varint(len(rest)) + rest


def _can_be_base(base_ms: int, records: Iterable[Record]) -> bool:
    """Whether 64 bits hold the difference between this and the time of each record."""
    return all(-(2**63) <= each.timestamp_ms - base_ms <= _LAST_MS for each in records)


def _field(content: bytes | None) -> Iterable[bytes]:
    return (_NULL,) if content is None else (_varint(len(content)), content)


def _varint(value: int) -> bytes:
    """A zigzag varint; `record_writer` writes them for batches that begin with their first record's time."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
