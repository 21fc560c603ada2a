"""Record batches v2 as a whole: headers, checksums and control batches. No record of a data batch is decoded here.

A batch is a header of 61 bytes and its records, perhaps compressed (KIP-98):

    base offset 8 | batch length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 |
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4

The CRC-32C covers everything from the attributes to the end, so a broker sets the base offset and the leader epoch in
place without reading the records. Attributes: bits 0–2 compression, 3 timestamp type, 4 transactional, 5 control,
6 the base timestamp is a delete horizon (KIP-534).

No other file knows where a field of the header lies. What a hot path needs of a header without parsing all of it has a
function here.
"""

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.wire.batch_errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from ottla.wire.compression import Compression
from ottla.wire.crc import crc32c

__all__ = [
    "CRC_START",
    "CURRENT_MAGIC",
    "HEADER_BYTES",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "BatchTooLargeError",
    "Compression",
    "CorruptBatchError",
    "InvalidRecordError",
    "TimestampType",
    "UnsupportedCompressionError",
    "UnsupportedMagicError",
    "assign_offsets",
    "at_offset",
    "batch_size",
    "check_integrity",
    "compression_number",
    "find_whole_batch",
    "header_of",
    "is_emptied",
    "is_old_message",
    "is_transactional",
    "iter_headers",
    "join_batch",
    "mark_as_control",
    "parse_header",
    "producer_of",
    "seal",
    "set_producer",
    "stamped",
    "validate",
    "walk_to",
]

CURRENT_MAGIC: Final = 2
#: Bytes of the header, and so the smallest batch.
HEADER_BYTES: Final = 61
#: Most that a record takes in a batch beside the bytes of its key, value and headers.
RECORD_OVERHEAD_BYTES: Final = 21
#: Base offset and batch length: the bytes that the batch length does not count.
LOG_OVERHEAD: Final = 12
#: The CRC covers the batch from its attributes on.
CRC_START: Final = 21
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_BASE_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
#: Base offset, batch length, last offset delta: what it takes to step over a batch.
_STEP = struct.Struct(">qi11xi")
#: Base offset, batch length, leader epoch: what comes before the magic, and the CRC does not cover.
_HEAD = struct.Struct(">qii")
_SIZE = struct.Struct(">8xi")
_ATTRIBUTES_OF = struct.Struct(">21xh")
_PRODUCER_OF = struct.Struct(">43xqhi")
_PRODUCER = struct.Struct(">qhi")
_MAGIC_AT, _LENGTH_AT, _LEADER_EPOCH_AT, _CRC_AT, _PRODUCER_AT = 16, 8, 12, 17, 43
_SEQUENCE_MASK = 0x7FFFFFFF
#: The codecs have numbers up to here.
_LAST_COMPRESSION = int(Compression.ZSTD)
#: The smallest batch length there can be.
_SMALLEST_LENGTH = HEADER_BYTES - LOG_OVERHEAD
#: For `batch_walk`: bytes of a header, those before what the length counts, where magic, length and last offset delta
#: are, and the smallest length.
WALK_LAYOUT: Final = (HEADER_BYTES, LOG_OVERHEAD, _MAGIC_AT, _LENGTH_AT, 23, _SMALLEST_LENGTH)
#: Bytes of a batch's beginning that tell its size (`batch_size`).
SIZE_BYTES: Final = LOG_OVERHEAD
#: Looked through at a time for the magic byte of a batch.
_CHUNK_BYTES: Final = 1_048_576

Buffer = bytes | bytearray | memoryview
MutableBuffer = bytearray | memoryview


class TimestampType(IntEnum):
    """Who set a record's timestamp (`message.timestamp.type`)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of a record batch. Offsets are absolute, times in milliseconds since the epoch."""

    base_offset: int
    #: The batch length field: bytes after it.
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch with its header."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record (it stays when compaction removes that record)."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2^31-1 to 0; NO_SEQUENCE for a batch without one."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    @property
    def compression(self) -> Compression:
        """How the records are compressed; UnsupportedCompressionError for a number Kafka does not define."""
        number = self.attributes & COMPRESSION_MASK
        if number > _LAST_COMPRESSION:
            raise UnsupportedCompressionError(f"compression type {number} of the batch at offset {self.base_offset}")
        return Compression(number)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps. With LOG_APPEND_TIME every record has the batch's max timestamp."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """True for a batch that holds a control record (a transaction marker), which no user ever sees."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on the batch's tombstones, or its marker, may be removed; None while that is not set (KIP-534)."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_FLAG else None


#: `BatchHeader._make` without a call in between: each append, and each batch that is read, has a header.
_new_header: Final = tuple.__new__


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header at `pos`. Checks only what makes it a header: enough bytes, magic 2, a possible length.

    Raises CorruptBatchError, or its UnsupportedMagicError for message sets of magic 0 and 1.
    """
    if len(buf) - pos < HEADER_BYTES or buf[pos + _MAGIC_AT] != CURRENT_MAGIC:
        raise _no_header(buf, pos)
    header = _new_header(BatchHeader, _HEADER.unpack_from(buf, pos))
    if header.length < _SMALLEST_LENGTH:
        raise CorruptBatchError(f"batch length {header.length} at {pos} is smaller than a header")
    return header


def _no_header(buf: Buffer, pos: int) -> CorruptBatchError:
    available = max(len(buf) - pos, 0)
    if available > _MAGIC_AT and (magic := buf[pos + _MAGIC_AT]) != CURRENT_MAGIC:
        return UnsupportedMagicError(f"magic {magic} at {pos}; only record batches of magic {CURRENT_MAGIC} are read")
    return CorruptBatchError(f"a record batch header takes {HEADER_BYTES} bytes, {available} are left at {pos}")


# --- Parts of a header, for who need not parse all of it. ---


def batch_size(buf: Buffer) -> int:
    """The size of the batch whose first SIZE_BYTES bytes are here."""
    length: int = _SIZE.unpack_from(buf)[0]
    return length + LOG_OVERHEAD


def is_transactional(buf: Buffer) -> bool:
    """Whether the batch, of which HEADER_BYTES are here, says that it belongs to a transaction."""
    return bool(_ATTRIBUTES_OF.unpack_from(buf)[0] & TRANSACTIONAL_FLAG)


def compression_number(buf: Buffer) -> int:
    """How the batch, of which HEADER_BYTES are here, says that it is compressed."""
    attributes: int = _ATTRIBUTES_OF.unpack_from(buf)[0]
    return attributes & COMPRESSION_MASK


def producer_of(buf: Buffer) -> tuple[int, int, int]:
    """Producer id, producer epoch and base sequence of the batch, of which HEADER_BYTES are here."""
    producer_id, producer_epoch, base_sequence = _PRODUCER_OF.unpack_from(buf)
    return producer_id, producer_epoch, base_sequence


def walk_to(chunk: Buffer, offset: int) -> tuple[int, bool]:
    """Step over the batches of `chunk`, which begins with one, to the first that ends at `offset` or later.

    Its position and True; or the position after the last batch whose header is here, and False. CorruptBatchError
    when the way there leads over bytes that are no batch.
    """
    step, at, last_start = _STEP.unpack_from, 0, len(chunk) - HEADER_BYTES
    while at <= last_start:
        base_offset, length, last_offset_delta = step(chunk, at)
        if base_offset + last_offset_delta >= offset:
            return at, True
        if length < _SMALLEST_LENGTH:
            raise CorruptBatchError(f"batch length {length} at {at} is smaller than a header")
        at += length + LOG_OVERHEAD
    return at, False


def find_whole_batch(view: memoryview, position: int, low_offset: int, limit_offset: int) -> tuple[int, int] | None:
    """Position and base offset of the first whole batch that begins at `position` or behind it, wherever it may be.

    Its base offset is `low_offset` or more, and below the limit; its CRC is right. None when there is none.
    """
    magic = bytes((CURRENT_MAGIC,))
    for start in range(position, len(view), _CHUNK_BYTES):
        chunk = bytes(view[start + _MAGIC_AT : start + _MAGIC_AT + _CHUNK_BYTES])
        at = chunk.find(magic)
        while at >= 0:
            (base_offset,) = _BASE_OFFSET.unpack_from(view, start + at)
            if low_offset <= base_offset < limit_offset and _is_whole(view, start + at):
                return start + at, base_offset
            at = chunk.find(magic, at + 1)
    return None


def _is_whole(view: memoryview, position: int) -> bool:
    try:
        check_integrity(view, position, parse_header(view, position))
    except CorruptBatchError:
        return False
    return True


def is_old_message(view: memoryview, position: int) -> bool:
    """Whether a whole message of magic 0 or 1 begins here: its CRC-32 covers what follows, from the magic on."""
    end = position + batch_size(view[position : position + SIZE_BYTES])
    crc, start = view[position + LOG_OVERHEAD : position + _MAGIC_AT], position + _MAGIC_AT
    return start < end <= len(view) and zlib.crc32(view[start:end]) == int.from_bytes(crc, "big")


# --- Checks ---


def check_integrity(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raise CorruptBatchError unless the whole batch is in `buf` and its CRC-32C is right."""
    size_bytes = header.size_bytes
    end = pos + size_bytes
    if end > len(buf):
        raise CorruptBatchError(
            f"the batch at offset {header.base_offset} takes {size_bytes} bytes, {len(buf) - pos} are there"
        )
    computed = crc32c(memoryview(buf)[pos + CRC_START : end])
    if computed != header.crc:
        raise CorruptBatchError(
            f"the batch at offset {header.base_offset} has CRC {header.crc:#010x}, its bytes give {computed:#010x}"
        )


def validate(buf: Buffer, pos: int, header: BatchHeader, max_bytes: int) -> None:
    """Check a batch that somebody wants to append, as Kafka's LogValidator does without opening it.

    Size against `max_bytes` (`max.message.bytes`), integrity (`check_integrity`), then counts, sequence and
    compression. Not for batches of a compacted log, whose counts may have gaps: use `check_integrity` there.
    Raises CorruptBatchError; the subclass says which of Kafka's error codes to answer.
    """
    if header.size_bytes > max_bytes:
        raise BatchTooLargeError(f"the batch takes {header.size_bytes} bytes, {max_bytes} are allowed")
    check_integrity(buf, pos, header)
    count, delta, attributes, producer_id = (
        header.record_count,
        header.last_offset_delta,
        header.attributes,
        header.producer_id,
    )
    if count <= 0:
        raise InvalidRecordError(f"the batch says it holds {count} records")
    if delta != count - 1:
        raise InvalidRecordError(f"the batch says it holds {count} records and ends at offset delta {delta}")
    if attributes & COMPRESSION_MASK > _LAST_COMPRESSION:
        raise UnsupportedCompressionError(f"compression type {attributes & COMPRESSION_MASK}")
    if producer_id > NO_PRODUCER_ID:
        if header.base_sequence < 0 and not attributes & CONTROL_FLAG:
            raise InvalidRecordError(f"producer {producer_id} sent base sequence {header.base_sequence}")
    elif attributes & TRANSACTIONAL_FLAG:
        raise InvalidRecordError("a transactional batch without a producer id")


def iter_headers(buf: Buffer, *, start: int = 0, strict: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in `buf`, a fetch response or a segment, in order, from `start` on.

    A last batch that is cut off, as a fetch may end, ends the iteration; with `strict` it raises CorruptBatchError.
    Anything that is not a batch (magic, a length below the header's) always raises.
    """
    pos, end = start, len(buf)
    while pos < end:
        if end - pos >= HEADER_BYTES:
            header = parse_header(buf, pos)
            if header.size_bytes <= end - pos:
                yield pos, header
                pos += header.size_bytes
                continue
        if strict:
            raise CorruptBatchError(f"{end - pos} bytes at {pos} are not a whole batch")
        return


def assign_offsets(buf: MutableBuffer, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `pos`; the CRC does not cover them."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)
    _LENGTH.pack_into(buf, pos + _LEADER_EPOCH_AT, leader_epoch)


def at_offset(buf: Buffer, header: BatchHeader, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """The batch with this base offset and leader epoch, as two buffers: neither is `buf` changed, nor copied."""
    return _HEAD.pack(base_offset, header.length, leader_epoch), memoryview(buf)[_MAGIC_AT:]


def stamped(
    buf: Buffer, header: BatchHeader, base_offset: int, leader_epoch: int, now_ms: int
) -> tuple[bytes, memoryview]:
    """As `at_offset`, with LOG_APPEND_TIME and the batch's time `now_ms`, which the CRC covers."""
    body, attributes = memoryview(buf)[HEADER_BYTES:], header.attributes | TIMESTAMP_TYPE_FLAG
    header = header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch, attributes=attributes)
    return header_of(header._replace(max_timestamp_ms=now_ms), body), body


def mark_as_control(buf: MutableBuffer) -> None:
    """Make the batch at the beginning of `buf` a control batch; the CRC follows."""
    (attributes,) = _ATTRIBUTES.unpack_from(buf, CRC_START)
    _ATTRIBUTES.pack_into(buf, CRC_START, attributes | CONTROL_FLAG)
    seal(buf)


def set_producer(
    buf: MutableBuffer, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool
) -> None:
    """Make the batch at the beginning of `buf` this producer's, with these sequences; the CRC follows."""
    (attributes,) = _ATTRIBUTES.unpack_from(buf, CRC_START)
    attributes = attributes | TRANSACTIONAL_FLAG if transactional else attributes & ~TRANSACTIONAL_FLAG
    _ATTRIBUTES.pack_into(buf, CRC_START, attributes)
    _PRODUCER.pack_into(buf, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    seal(buf)


def seal(buf: MutableBuffer, pos: int = 0) -> None:
    """Compute the CRC of the batch at `pos` and write it into the header."""
    (length,) = _LENGTH.unpack_from(buf, pos + _LENGTH_AT)
    with memoryview(buf) as view, view[pos + CRC_START : pos + LOG_OVERHEAD + length] as covered:
        _CRC.pack_into(buf, pos + _CRC_AT, crc32c(covered))


# --- Building ---


def join_batch(header: BatchHeader, body: Buffer) -> bytes:
    """A batch of `header`, whose length and CRC are set here, and of `body`, in one copy."""
    return b"".join((header_of(header, body), body))


def header_of(header: BatchHeader, body: Buffer) -> bytes:
    """The 61 bytes that go in front of `body`: those of `header`, with the length and the CRC of both."""
    packed = _HEADER.pack(header.base_offset, _SMALLEST_LENGTH + len(body), *header[2:])
    crc = crc32c(body, crc32c(packed[CRC_START:]))  # over both, without joining them first
    return b"".join((packed[:_CRC_AT], _CRC.pack(crc), packed[CRC_START:]))


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of `header`, as they are: neither length nor CRC is computed. The opposite of `parse_header`."""
    return _HEADER.pack(*header)


def is_emptied(header: BatchHeader) -> bool:
    """Whether a log cleaner, ours or Apache Kafka's, has removed all records of the batch and kept its header.

    It does so with a producer's last batch. An emptied marker says no more whether its transaction was committed; no
    record of that transaction is left.
    """
    return header.record_count == 0
