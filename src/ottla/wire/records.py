"""The records inside record batches: read from a batch, or written into one, record by record.

`decode_batch` and `encode_batch` are the simple functions. The consumer uses `ConsumerBatch`, the producer
`BatchBuilder`. Columns are in `columns.py`, the loops in `record_codec.py` and `record_writer.py`.
"""

from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.base.limits import MAX_DECOMPRESSED_BATCH_BYTES
from ottla.wire.batch import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    Compression,
    CorruptBatchError,
    TimestampType,
    check_integrity,
    header_of,
    join_batch,
    parse_header,
)
from ottla.wire.compression import compress, decompress
from ottla.wire.record_codec import RecordCursor, read_consumer_records, read_records
from ottla.wire.record_writer import RecordWriter
from ottla.wire.spare_memory import SpareMemory

__all__ = [
    "BatchBuilder",
    "ConsumerBatch",
    "CorruptBatchError",
    "Header",
    "Record",
    "decode_batch",
    "decode_consumer_records",
    "encode_batch",
    "open_batch",
]

Header = tuple[str, bytes | None]
_Row = TypeVar("_Row")
#: The limit of a batch that is built from given records: the largest number that its length field holds.
_NO_LIMIT_BYTES: Final = 2**31 - 1


class Record(NamedTuple):
    """One record. `headers` keep their order and may repeat a key."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def open_batch(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    *,
    check_crc: bool = True,
    max_bytes: int = MAX_DECOMPRESSED_BATCH_BYTES,
) -> RecordCursor:
    """A cursor over the records of the batch at `pos`, decompressed (to `max_bytes` at most).

    Raises CorruptBatchError for a batch that is cut off, has a wrong CRC (with `check_crc`, the consumer's
    `check.crcs`), does not decompress or cannot hold its record count; the cursor raises it for what it finds later.
    """
    end = pos + header.size_bytes
    if check_crc:
        check_integrity(buf, pos, header)
    elif end > len(buf):
        raise CorruptBatchError(f"the batch at offset {header.base_offset} is cut off")
    start = pos + HEADER_BYTES
    data: Buffer = buf
    if header.compression is not Compression.NONE:
        data = decompress(header.compression, memoryview(buf)[start:end], max_bytes)
        start, end = 0, len(data)
    elif not isinstance(buf, bytes):
        data = memoryview(buf)[start:end]
        start, end = 0, len(data)
    return RecordCursor(
        data,
        start,
        end,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp_ms,
        header.max_timestamp_ms if header.attributes & TIMESTAMP_TYPE_FLAG else None,
    )


def decode_batch(buf: Buffer, pos: int = 0, *, start_offset: int = 0, check_crc: bool = True) -> list[Record]:
    """The records of the batch at `pos` from `start_offset` on. Raises CorruptBatchError as `open_batch`."""
    cursor = open_batch(buf, pos, parse_header(buf, pos), check_crc=check_crc)
    return read_records(cursor, Record, start_offset)


class ConsumerBatch(Generic[_Row]):
    """A batch that a consumer hands out, as many records at a time as it is asked for.

    `row` is a named tuple of (topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers,
    leader_epoch); the leader epoch is None where unknown. Raises CorruptBatchError as `open_batch`.
    """

    __slots__ = ("_begun", "_cursor", "_where")

    def __init__(
        self,
        buf: Buffer,
        pos: int,
        header: BatchHeader,
        row: type[_Row],
        *,
        topic: str,
        partition: int,
        check_crc: bool,
    ) -> None:
        self._cursor = open_batch(buf, pos, header, check_crc=check_crc)
        epoch = None if header.partition_leader_epoch == NO_PARTITION_LEADER_EPOCH else header.partition_leader_epoch
        self._where = row, topic, partition, header.timestamp_type, epoch
        self._begun = False

    @property
    def is_taken(self) -> bool:
        """Whether no record is left."""
        return self._cursor.taken >= self._cursor.count

    def take(self, start_offset: int, limit: int) -> list[_Row]:
        """The next `limit` records from `start_offset` on; fewer only when these are the last.

        Raises CorruptBatchError in the first call or never: of a batch that is damaged anywhere, there is no record.
        """
        cursor = self._cursor
        if not self._begun and limit < cursor.count:
            cursor.check()
        self._begun = True
        return read_consumer_records(cursor, *self._where, start_offset, limit)


def decode_consumer_records(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    row: type[_Row],
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    check_crc: bool = True,
) -> list[_Row]:
    """All records of a `ConsumerBatch` from `start_offset` on."""
    batch = ConsumerBatch(buf, pos, header, row, topic=topic, partition=partition, check_crc=check_crc)
    return batch.take(start_offset, header.record_count)


def encode_batch(
    records: Iterable[Record],
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """A batch of `records`, whose offsets ascend from `base_offset` on and may have gaps, as after compaction.

    Raises ValueError when they do not, when there are none, or for a timestamp that Kafka does not have.
    """
    writer = RecordWriter(_NO_LIMIT_BYTES)
    for record in records:
        delta = record.offset - base_offset
        if not writer.append_at(delta, record.timestamp_ms, record.key, record.value, record.headers):
            raise ValueError("the records take more than a batch can hold")
    return _seal_writer(
        writer,
        compression,
        level,
        BatchHeader(
            base_offset=base_offset,
            length=0,
            partition_leader_epoch=partition_leader_epoch,
            magic=CURRENT_MAGIC,
            crc=0,
            attributes=_attributes(compression, transactional, timestamp_type),
            last_offset_delta=writer.last_offset_delta,
            base_timestamp_ms=writer.base_timestamp_ms,
            max_timestamp_ms=writer.max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=writer.count,
        ),
    )


class BatchBuilder(RecordWriter):
    """A batch that the producer builds: `try_append` (or `append_rows`) until it is full, then `build` or `seal`.

    `limit_bytes` bounds the batch before compression, its header included (`batch.size`); a first record is taken
    however large it is. It begins with room for `expected_bytes`, in memory of `spare` if that is much. Not safe for
    two threads at once.
    """

    def __init__(self, limit_bytes: int, expected_bytes: int = 0, spare: SpareMemory | None = None) -> None:
        super().__init__(max(limit_bytes - HEADER_BYTES, 0), expected_bytes, spare)

    @property
    def record_count(self) -> int:
        """Records appended so far."""
        return self.count

    @property
    def size_bytes(self) -> int:
        """The batch as it would be now, uncompressed."""
        return HEADER_BYTES + self.used

    def build(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        level: int | None = None,
    ) -> bytes:
        """The batch, sealed, with base offset 0. May be called again with other arguments. ValueError when empty."""
        header = self._header((producer_id, producer_epoch, base_sequence), transactional, compression)
        return _seal_writer(self, compression, level, header)

    def seal(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool,
        compression: Compression,
        level: int | None,
    ) -> Buffer:
        """What `build` makes, for the last time: no more records are taken. Records that are not compressed are not
        copied, unless they leave most of their memory empty: then the batch is a view of it."""
        self.close()
        if compression is not Compression.NONE or self.used < self.capacity // 2:
            return self.build(producer_id, producer_epoch, base_sequence, transactional, compression, level)
        header = self._header((producer_id, producer_epoch, base_sequence), transactional, compression)
        return self.with_head(header_of(header, self.body()))

    def _header(self, producer: tuple[int, int, int], transactional: bool, compression: Compression) -> BatchHeader:
        return BatchHeader(
            0,
            0,
            NO_PARTITION_LEADER_EPOCH,
            CURRENT_MAGIC,
            0,
            _attributes(compression, transactional, TimestampType.CREATE_TIME),
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            *producer,
            self.count,
        )


def _attributes(compression: Compression, transactional: bool, timestamp_type: TimestampType) -> int:
    return (
        compression
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (TIMESTAMP_TYPE_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
    )


def _seal_writer(writer: RecordWriter, compression: Compression, level: int | None, header: BatchHeader) -> bytes:
    if writer.count == 0:
        raise ValueError("a batch without records")
    body: Buffer = writer.body()
    if compression is not Compression.NONE:
        body = compress(compression, body, level)
    return join_batch(header, body)
