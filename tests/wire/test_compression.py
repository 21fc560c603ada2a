"""The five compressions: round trips, Kafka's framings, damaged and hostile data."""

import gzip
import tracemalloc
from sys import setprofile

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import CorruptBatchError
from ottla.wire.compression import Compression, compress, decompress
from tests.counted_calls import calls

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


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 262_145, 1_048_577, 4_194_305])
def test_lz4_frames_say_their_size_and_are_read_by_lz4s_own_reader(size: int) -> None:
    data = (TEXT * 30)[:size]
    packed = compress(Compression.LZ4, data)
    assert int.from_bytes(packed[6:14], "little") == len(data)
    assert bytes(cramjam.lz4.decompress(packed)) == data, "it checks the header's checksum"
    damaged = packed[:14] + bytes((packed[14] ^ 1,)) + packed[15:]
    with pytest.raises(CorruptBatchError):
        decompress(Compression.LZ4, damaged, MAX_BYTES * 2)


def test_lz4_stores_what_does_not_shrink() -> None:
    noise = bytes((i * i * 7919 + i // 3) * 2654435761 >> 13 & 0xFF for i in range(70_000))
    assert len(compress(Compression.LZ4, noise)) <= len(noise) + 15 + 4 + 4


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    assert bytes(decompress(Compression.LZ4, bytes(cramjam.lz4.compress(TEXT)), MAX_BYTES)) == TEXT


def _lz4_frame(header: str, block_bytes: int, data: bytes) -> bytes:
    """A frame as librdkafka and Java's clients write it, some blocks compressed and some stored."""
    parts = [bytes.fromhex(header)]
    for number, start in enumerate(range(0, len(data), block_bytes)):
        block = data[start : start + block_bytes]
        if number % 3 == 2:
            parts += [(len(block) | 0x8000_0000).to_bytes(4, "little"), block]
        else:
            packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
            parts += [len(packed).to_bytes(4, "little"), packed]
    return b"".join([*parts, bytes(4)])


_LZ4_FRAMES = [
    ("04224d18604082", 65_536),
    ("04224d186050fb", 262_144),
    ("04224d18606051", 1_048_576),
    ("04224d18607073", 4_194_304),
]


@pytest.mark.parametrize(("header", "block_bytes"), _LZ4_FRAMES)
@pytest.mark.parametrize("data", [b"", TEXT[:10], TEXT * 4, bytes(2_500_000), TEXT * 100], ids=len)
def test_lz4_of_every_block_size_is_read_as_the_frames_own_reader_does(
    header: str, block_bytes: int, data: bytes
) -> None:
    frame = _lz4_frame(header, block_bytes, data)
    assert bytes(cramjam.lz4.decompress(frame)) == data, "this is a good frame"
    assert bytes(decompress(Compression.LZ4, memoryview(frame), max(len(data), 1))) == data
    if data:
        with pytest.raises(CorruptBatchError):
            decompress(Compression.LZ4, frame, len(data) - 1)


@pytest.mark.parametrize("has_size", [False, True])
@pytest.mark.parametrize("block_bytes", [1_000, 2_000])
@given(position=st.integers(4, 3_000), flip=st.integers(1, 255), cut=st.integers(0, 10), tail=st.binary(max_size=5))
def test_damaged_lz4_is_what_the_frames_own_reader_says(
    has_size: bool, block_bytes: int, position: int, flip: int, cut: int, tail: bytes
) -> None:
    frame = bytearray(_lz4_frame(_LZ4_FRAMES[0][0], block_bytes, TEXT[:6_000]))
    if has_size:
        frame = bytearray(compress(Compression.LZ4, TEXT[:6_000]))
    frame[position % len(frame)] ^= flip
    damaged = bytes(frame[: len(frame) - cut]) + tail
    try:
        wanted = bytes(cramjam.lz4.decompress(damaged))
    except cramjam.DecompressionError:
        with pytest.raises(CorruptBatchError):
            decompress(Compression.LZ4, damaged, MAX_BYTES)
    else:
        assert bytes(decompress(Compression.LZ4, damaged, MAX_BYTES)) == wanted


@pytest.mark.parametrize(("blocks", "called"), [(1, "decompress_block_into"), (5, "decompress_into")])
def test_lz4_of_few_blocks_is_read_block_by_block(blocks: int, called: str) -> None:
    """The reader of frames takes four times as long. But each block is a call that gives Python's lock away."""
    frame = _lz4_frame(_LZ4_FRAMES[0][0], 60_000, TEXT[:60_000] * blocks)
    names = set[str]()

    def note(_frame: object, event: str, argument: object) -> None:
        if event == "c_call":
            names.add(getattr(argument, "__name__", ""))

    setprofile(note)
    try:
        found = decompress(Compression.LZ4, frame, MAX_BYTES)
    finally:
        setprofile(None)
    assert bytes(found) == TEXT[:60_000] * blocks
    assert {name for name in names if name.startswith("decompress")} == {called}


def _streamed_zstd() -> bytes:
    streaming = cramjam.zstd.Compressor()
    streaming.compress(TEXT * 10)
    return bytes(streaming.finish())


@pytest.mark.parametrize(
    ("codec", "packed"),
    [(Compression.LZ4, compress(Compression.LZ4, TEXT * 10)), (Compression.ZSTD, _streamed_zstd())],
    ids=["lz4", "zstd, streamed"],
)
def test_no_more_memory_is_taken_than_what_comes_out(codec: Compression, packed: bytes) -> None:
    tracemalloc.start()
    try:
        found = decompress(codec, packed, 100_000_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == len(TEXT) * 10
    assert most < len(found) + 200_000


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


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Compression.LZ4, bytes.fromhex("04224d18604082") + b"\x01\0\0\x80x" * 200_000 + bytes(4)),
        (Compression.ZSTD, bytes.fromhex("28b52ffd0058") + b"\x08\0\0x" * 200_000 + b"\x01\0\0"),
    ],
    ids=["lz4", "zstd"],
)
def test_very_many_blocks_are_not_gone_through_one_by_one(codec: Compression, packed: bytes) -> None:
    """A megabyte may have a block in every four bytes; what is said of their sizes is only a hint."""
    found: list[bytes] = []
    assert calls(lambda: found.append(bytes(decompress(codec, packed, MAX_BYTES)))) < 10_000
    assert found == [b"x" * 200_000]
