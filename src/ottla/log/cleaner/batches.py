"""What stays of a batch. The bytes of a batch that has changed are those that Apache Kafka's cleaner writes.

A changed batch keeps its base offset, its last offset, its sequences and its producer. Its base timestamp is that of
its first record, or the delete horizon (KIP-534): the time from which its tombstones, or its marker, may go. The
horizon is set by the pass that finds them first, and stays.

A batch may hold millions of records, so what goes through them is a generator: it yields after every few thousand.

A topic that is not compacted takes batches without a look at their records. One whose records do not parse, or take
more bytes than may be, stays as it is: nobody knows its keys. (A marker that is none is another thing: nobody knows
which transaction it ends.)
"""

from collections.abc import Generator, Mapping
from typing import Final, NamedTuple

from ottla.base.limits import MAX_DECOMPRESSED_BATCH_BYTES, RECORDS_AT_ONCE
from ottla.log.cleaner.kept_records import KeptRecords, Marks
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.steps import WORKED
from ottla.log.cleaner.transactions import CleanedTransactions
from ottla.wire import compression
from ottla.wire.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    CorruptBatchError,
    TimestampType,
    join_batch,
)
from ottla.wire.record_codec import RecordCursor
from ottla.wire.records import open_batch

#: Bytes of records that are written anew in one step, if they are few and large.
_BYTES_AT_ONCE: Final = 1_048_576
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
        most_bytes: int = MAX_DECOMPRESSED_BATCH_BYTES,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._most_bytes = most_bytes
        #: How many batches had records that cannot be read, and the offset of the first one.
        self.unreadable, self.first_unreadable = 0, -1

    def kept(self, batch: bytes, header: BatchHeader) -> Generator[int, None, bytes | None]:
        """What stays of the batch, whose checksum is right; None: nothing. CorruptBatchError for a marker that is none.

        It yields WORKED after every few thousand records.
        """
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
        try:
            cursor = open_batch(batch, 0, header, check_crc=False, max_bytes=self._most_bytes)
            marks = yield from self._marked(cursor, header, horizon_ms)
        except CorruptBatchError:
            self.first_unreadable = self.first_unreadable if self.unreadable else header.base_offset
            self.unreadable += 1
            return batch
        if marks.kept == 0:
            return _emptied(header) if stays_empty else None
        if horizon_ms is None and (is_over or marks.has_tombstone):
            horizon_ms = min(self._now_ms + self._delete_retention_ms, _LAST_MS)
            if not _can_be_base(horizon_ms, marks):  # a tombstone of such a time stays for good
                horizon_ms = None
        if marks.kept == header.record_count and horizon_ms == header.delete_horizon_ms:
            return batch
        return (yield from _rewritten(header, cursor, marks, horizon_ms))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether only this batch says which sequence, or which epoch, its producer was at."""
        last = self._last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.data_offset is not None:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _marked(self, cursor: RecordCursor, header: BatchHeader, horizon_ms: int | None) -> Generator[int, None, Marks]:
        """Which records stay; the cursor is before the first one again. CorruptBatchError when they do not parse."""
        offsets = None if header.is_control else self._offsets
        drops_tombstones = horizon_ms is not None and horizon_ms <= self._now_ms
        marks = Marks(cursor.count)
        while not marks.take(cursor, offsets, RECORDS_AT_ONCE, drops_tombstones):
            yield WORKED
        return marks


def parsed(batch: bytes, header: BatchHeader, most_bytes: int) -> Generator[int, None, RecordCursor]:
    """A cursor before the first record, after a look at all of them. CorruptBatchError.

    It yields WORKED after every few thousand records.
    """
    cursor = open_batch(batch, 0, header, check_crc=False, max_bytes=most_bytes)
    while not cursor.check_some(RECORDS_AT_ONCE):
        yield WORKED
    return cursor


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


def _rewritten(
    header: BatchHeader, cursor: RecordCursor, marks: Marks, horizon_ms: int | None
) -> Generator[int, None, bytes]:
    """The batch with these records, and perhaps a delete horizon."""
    base_ms = marks.first_ms if horizon_ms is None else horizon_ms
    if not _can_be_base(base_ms, marks):
        base_ms = header.base_timestamp_ms
    writer, records = KeptRecords(base_ms), bytearray()
    while cursor.taken < cursor.count:
        records += writer.take(cursor, marks, RECORDS_AT_ONCE, _BYTES_AT_ONCE)
        if cursor.taken < cursor.count:
            yield WORKED
    body: bytes | bytearray = records
    if header.compression is not Compression.NONE:
        body = compression.compress(header.compression, body)
        yield WORKED
    flag = 0 if horizon_ms is None else DELETE_HORIZON_FLAG
    return join_batch(
        header._replace(
            attributes=header.attributes & ~DELETE_HORIZON_FLAG | flag,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=(
                marks.latest_ms if header.timestamp_type is TimestampType.CREATE_TIME else header.max_timestamp_ms
            ),
            record_count=marks.kept,
        ),
        body,
    )


def _can_be_base(base_ms: int, marks: Marks) -> bool:
    """Whether 64 bits hold the difference between this and the time of each record that stays."""
    return marks.earliest_ms - base_ms >= -(2**63) and marks.latest_ms - base_ms <= _LAST_MS
