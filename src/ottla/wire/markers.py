"""Transaction markers: control batches of one record (KIP-98). Key = version and type, value = version and epoch."""

import struct
from typing import Final

from ottla.wire.batch import (
    CONTROL_FLAG,
    CURRENT_MAGIC,
    HEADER_BYTES,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    join_batch,
    parse_header,
)
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.codec import Buffer

_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
#: length 16, attributes 0, timestamp delta 0, offset delta 0, key length 4, (key), value length 6, (value), headers 0;
#: lengths are zigzag varints, so a byte holds twice the number.
_MARKER = struct.Struct(">bbbbb4sb6sb")
_MARKER_LENGTH = 16
#: How long every marker's batch is.
MARKER_BATCH_BYTES: Final = HEADER_BYTES + _MARKER.size


def control_batch(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The marker that ends a transaction in a partition; base offset 0, so give it its offset by `assign_offsets`."""
    key = _MARKER_KEY.pack(0, _COMMIT if commit else _ABORT)
    value = _MARKER_VALUE.pack(0, coordinator_epoch)
    record = _MARKER.pack(_MARKER_LENGTH * 2, 0, 0, 0, len(key) * 2, key, len(value) * 2, value, 0)
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return join_batch(header, record)


def parse_end_txn_marker(batch: Buffer) -> tuple[bool, int]:
    """(commit, coordinator epoch) of a control batch; CorruptBatchError when it is no transaction marker."""
    header = parse_header(batch)
    if not header.is_control or header.record_count != 1:
        raise CorruptBatchError(f"the batch at offset {header.base_offset} is not a control batch of one record")
    if header.size_bytes > len(batch):
        raise CorruptBatchError(f"the control batch at offset {header.base_offset} is cut off")
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    try:
        _, pos = _varint(body, 0)  # the record's length, then one byte of attributes
        _, pos = _varint(body, pos + 1)  # timestamp delta
        _, pos = _varint(body, pos)  # offset delta
        key_size, pos = _varint(body, pos)
        _, marker = _MARKER_KEY.unpack_from(body[pos : pos + key_size])
        value_size, pos = _varint(body, pos + key_size)
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(body[pos : pos + value_size])
    except (struct.error, IndexError) as error:
        raise CorruptBatchError(f"the control record at offset {header.base_offset} does not parse: {error}") from None
    if marker not in (_ABORT, _COMMIT):
        raise CorruptBatchError(f"control record type {marker} at offset {header.base_offset} ends no transaction")
    return marker == _COMMIT, coordinator_epoch


def _varint(buf: memoryview, pos: int) -> tuple[int, int]:
    """A zigzag varint at `pos` and the position after it. Only for the few bytes of a control record."""
    value = 0
    for shift in range(0, 70, 7):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos
    raise IndexError("a varint of more than 10 bytes")
