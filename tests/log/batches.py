"""Record batches for the log's tests, written down here once more so that the codec is not its own judge."""

from collections.abc import Sequence

from ottla.wire.batch import BatchHeader, pack_header, seal

NOW_MS = 1_700_000_000_000


def varint(value: int) -> bytes:
    """A zigzag varint."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(
    count: int = 1,
    *,
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    timestamps_ms: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    attributes: int = 0,
) -> bytes:
    """An uncompressed batch of `count` equal records, as a client sends it."""
    times = list(timestamps_ms) if timestamps_ms is not None else [NOW_MS] * count
    body = b""
    for number, timestamp_ms in enumerate(times):
        record = b"\0" + varint(timestamp_ms - times[0]) + varint(number) + _bytes(key) + _bytes(value) + varint(0)
        body += varint(len(record)) + record
    header = BatchHeader(
        base_offset=base_offset,
        length=49 + len(body),
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=attributes | (0x10 if transactional else 0),
        last_offset_delta=len(times) - 1,
        base_timestamp_ms=times[0],
        max_timestamp_ms=max(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(times),
    )
    packed = bytearray(pack_header(header) + body)
    seal(packed)
    return bytes(packed)


def idempotent(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, transactional: bool = False, size: int = 1
) -> bytes:
    """A batch of an idempotent producer, or of a transactional one."""
    return batch(
        count,
        value=b"x" * size,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
