"""A batch of another compression has the same records, offsets, times, producer and sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import check_integrity, parse_header
from ottla.wire.batch_errors import BatchTooLargeError, CorruptBatchError
from ottla.wire.compression import Compression
from ottla.wire.recompression import recompressed
from ottla.wire.records import Record, decode_batch, encode_batch

_LIMIT = 1_000_000
_RECORDS = [Record(at, 1_700_000_000_000 + at, b"k%d" % at, b"value " * 20, (("h", b"x"),)) for at in range(20)]


@given(st.sampled_from(Compression), st.sampled_from(Compression), st.booleans())
def test_everything_but_the_compression_stays(before: Compression, after: Compression, transactional: bool) -> None:
    batch = encode_batch(
        _RECORDS, compression=before, producer_id=7, producer_epoch=2, base_sequence=40, transactional=transactional
    )
    changed = recompressed(batch, after, None, _LIMIT)
    header, was = parse_header(changed), parse_header(batch)
    check_integrity(changed, 0, header)
    assert header.compression is after
    assert header._replace(length=0, crc=0, attributes=0) == was._replace(length=0, crc=0, attributes=0)
    assert (header.is_transactional, header.timestamp_type) == (was.is_transactional, was.timestamp_type)
    assert decode_batch(changed) == _RECORDS


def test_a_level_counts() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(range(256)) * 200, ())])
    fast, small = (recompressed(batch, Compression.GZIP, level, _LIMIT) for level in (1, 9))
    assert len(small) < len(fast)


@pytest.mark.parametrize("codec", [each for each in Compression if each is not Compression.NONE])
def test_few_bytes_that_stand_for_very_many_are_refused(codec: Compression) -> None:
    batch = encode_batch([Record(0, 0, None, bytes(_LIMIT), ())], compression=codec)
    with pytest.raises(BatchTooLargeError):
        recompressed(batch, Compression.NONE, None, _LIMIT)


def test_a_changed_batch_is_not_believed() -> None:
    batch = bytearray(encode_batch(_RECORDS, compression=Compression.ZSTD))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        recompressed(batch, Compression.NONE, None, _LIMIT)
