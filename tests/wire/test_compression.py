"""The five compressions: round trips, Kafka's framings, damaged and hostile data."""

import gzip

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import CorruptBatchError
from ottla.wire.compression import Compression, compress, decompress

REAL = [codec for codec in Compression if codec is not Compression.NONE]
MAX_BYTES = 4_000_000
TEXT = b"".join(b'{"id": %d, "square": %d}\n' % (i, i * i) for i in range(5000))


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(1_000_000), bytes(range(256)) * 300], ids=len)
def test_round_trip(codec: Compression, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert bytes(decompress(codec, memoryview(packed), MAX_BYTES)) == data


@pytest.mark.parametrize("codec", Compression)
@given(data=st.binary(max_size=2000), copies=st.integers(1, 60))
def test_round_trip_of_anything(codec: Compression, data: bytes, copies: int) -> None:
    data *= copies
    assert bytes(decompress(codec, compress(codec, data), MAX_BYTES)) == data


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_a_level_changes_the_size_only(codec: Compression) -> None:
    fast, small = compress(codec, TEXT, 1), compress(codec, TEXT, 9)
    assert fast != small
    assert bytes(decompress(codec, fast, MAX_BYTES)) == bytes(decompress(codec, small, MAX_BYTES)) == TEXT


def test_kafkas_default_levels_are_accepted() -> None:
    assert compress(Compression.GZIP, TEXT, -1) == compress(Compression.GZIP, TEXT)
    assert bytes(decompress(Compression.ZSTD, compress(Compression.ZSTD, TEXT, -5), MAX_BYTES)) == TEXT
    assert compress(Compression.LZ4, TEXT, 9) == compress(Compression.LZ4, TEXT)


def test_lz4_frames_have_independent_blocks_as_java_demands() -> None:
    packed = compress(Compression.LZ4, TEXT)
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0x20, "block independence flag"
    assert packed[4] >> 6 == 1, "version"
    assert packed[-4:] == bytes(4)


def test_lz4_stores_what_does_not_shrink() -> None:
    noise = bytes((i * i * 7919 + i // 3) * 2654435761 >> 13 & 0xFF for i in range(70_000))
    assert len(compress(Compression.LZ4, noise)) <= len(noise) + 7 + 2 * 4 + 4


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    assert bytes(decompress(Compression.LZ4, bytes(cramjam.lz4.compress(TEXT)), MAX_BYTES)) == TEXT


def test_snappy_is_written_in_xerial_blocks_and_read_raw() -> None:
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), MAX_BYTES)) == TEXT


def test_gzip_of_several_members_is_read() -> None:
    packed = gzip.compress(TEXT) + gzip.compress(b"more")
    assert bytes(decompress(Compression.GZIP, packed, MAX_BYTES)) == TEXT + b"more"


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_stops_at_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(3_000_000))
    assert len(decompress(codec, bomb, 3_000_000)) == 3_000_000
    with pytest.raises(CorruptBatchError):
        decompress(codec, bomb, 2_999_999)
    with pytest.raises(CorruptBatchError):
        decompress(codec, bomb, 0)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
@pytest.mark.parametrize("size", [0, 1, 100, 255, 256, 300, 65_535, 65_792, 70_000])
def test_a_claimed_size_of_any_width_is_only_a_hint(codec: Compression, size: int) -> None:
    data = (TEXT * 2)[:size]
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, size)) == data
    if size:
        with pytest.raises(CorruptBatchError):
            decompress(codec, packed, size - 1)


def test_zstd_without_a_content_size_is_read() -> None:
    streaming = cramjam.zstd.Compressor()
    streaming.compress(TEXT)
    packed = bytes(streaming.finish())
    assert packed[4] >> 6 == 0 and not packed[4] & 0x20, "neither a content size nor a single segment"
    assert bytes(decompress(Compression.ZSTD, packed, MAX_BYTES)) == TEXT


def test_a_snappy_length_that_lies_is_refused_before_it_is_allocated() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    with pytest.raises(CorruptBatchError, match="claims"):
        decompress(Compression.SNAPPY, claim, 2**40)


@pytest.mark.parametrize("codec", REAL)
def test_every_truncation_is_corrupt_or_shorter(codec: Compression) -> None:
    data = TEXT[:300]
    packed = compress(codec, data)
    for size in range(len(packed)):
        try:
            got = decompress(codec, packed[:size], MAX_BYTES)
        except CorruptBatchError:
            continue
        # Framings without an end mark (xerial between blocks) give what they hold; the record count tells.
        assert codec is Compression.SNAPPY and data.startswith(bytes(got)) and len(got) < len(data)


@pytest.mark.parametrize("codec", REAL)
@given(position=st.integers(0, 10_000), flip=st.integers(1, 255), tail=st.binary(max_size=8))
def test_damage_is_corrupt_or_bounded(codec: Compression, position: int, flip: int, tail: bytes) -> None:
    packed = bytearray(compress(codec, TEXT[:2000]))
    packed[position % len(packed)] ^= flip
    try:
        got = decompress(codec, bytes(packed) + tail, 100_000)
    except CorruptBatchError:
        return
    assert len(got) <= 100_000


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=200))
def test_garbage_is_corrupt_or_bounded(codec: Compression, data: bytes) -> None:
    try:
        got = decompress(codec, data, 100_000)
    except CorruptBatchError:
        return
    assert len(got) <= 100_000
