"""Batches that cost a broker much: for the canary's heavy things."""

from __future__ import annotations

from bench.wire import NOW_MS
from ottla.wire.batch import join_batch, parse_header
from ottla.wire.compression import Compression, compress
from ottla.wire.records import Record, encode_batch

#: Six bytes, attributes, time and offset as in the batch's header, neither key nor value, no headers.
_TINY = b"\x0c\x00\x00\x00\x01\x01\x00"


def plain_batch(size_bytes: int) -> bytes:
    """One record of this size, not compressed."""
    return encode_batch([Record(0, NOW_MS, None, bytes(size_bytes), ())])


def good_batch(scale: float) -> bytes:
    """1.2 million small records with keys, in 1 MB at most: nothing is wrong with it."""
    records = (Record(at, NOW_MS, b"k", None, ()) for at in range(int(1_200_000 * scale)))
    return encode_batch(records, compression=Compression.ZSTD)


def many_times(scale: float) -> bytes:
    """33 million records without a key, all at the same offset, in some 24 KB."""
    count = int(33_000_000 * scale)
    model = encode_batch([Record(0, NOW_MS, None, None, ())], compression=Compression.ZSTD)
    header = parse_header(model)._replace(record_count=count, last_offset_delta=count - 1)
    return join_batch(header, compress(Compression.ZSTD, _TINY * count))


def keyed_batch(keys: int) -> bytes:
    """One record of 90 bytes for each key, not compressed: what a compacted topic has much too much of."""
    return encode_batch([Record(at, NOW_MS, f"{at:010}".encode(), bytes(90), ()) for at in range(keys)])
